//! dropbear, the SSH server of routers and small machines.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::dropbear::Dropbear;
use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::{wait_until, wait_until_async};
use serde_json::{Value, json};

use super::{
    PATIENCE, assert_background_children_are_told, assert_commands, assert_deadline_ends_the_tree,
    assert_files, assert_long_output_is_whole, assert_many_at_once, assert_resources_are_listed,
    assert_stop_ends_the_tree, out,
};
use crate::support::{exec, login_file, serve, with};

const PASSWORD: &str = "canary-right-password";

fn entry(user: &TestUser, port: u16) -> Value {
    json!({"name": "box", "host": "127.0.0.1", "port": port, "user": user.name()})
}

fn keyed(user: &TestUser, server: &Dropbear) -> Value {
    let key = json!({"key_file": server.client_key_path()});
    with(entry(user, server.port()), key)
}

/// An account on a dropbear of its own. The server is first, so that it ends before the account does.
async fn host(options: &[&str]) -> Option<(Dropbear, TestUser, McpClient)> {
    let user = TestUser::builder().password(PASSWORD).create()?;
    let server = Dropbear::start(&user, options)?;
    let client = serve(&[keyed(&user, &server)]).await;
    Some((server, user, client))
}

#[tokio::test]
async fn dropbear_runs_commands_and_tells_what_they_have() {
    let Some((server, user, client)) = host(&[]).await else {
        return;
    };
    assert_commands(&client, user.home()).await;
    assert_background_children_are_told(&client).await;
    assert_long_output_is_whole(&client).await;
    assert_resources_are_listed(&client).await;
    assert_files(&client).await;
    assert_eq!(server.connection_count(), 1, "{}", server.log());
    assert_eq!(server.accepted_auth_count(), 1, "{}", server.log());
}

#[tokio::test]
async fn dropbear_runs_are_ended_with_their_whole_tree() {
    let Some((server, user, client)) = host(&[]).await else {
        return;
    };
    assert_deadline_ends_the_tree(&client).await;
    assert_stop_ends_the_tree(&client).await;
    assert_deadline_ends_the_tree(&client).await;
    assert_eq!(server.connection_count(), 1, "{}", server.log());
    client.close_stdin().await;
    assert!(
        wait_until(PATIENCE, || user.pids().is_empty()).await,
        "{:?}",
        user.pids()
    );
}

#[tokio::test]
async fn dropbear_shell_that_waited_sees_an_edited_login_file() {
    let Some((_server, user, client)) = host(&[]).await else {
        return;
    };
    // Bash reads this file only for a login that it takes for one over the network.
    login_file(&user, ".bashrc", "export FLAVOUR=old; echo noise\n");
    let read = out(&client, "echo ${FLAVOUR-unread}").await;
    // A shell whose channel it took back is replaced at the next command.
    let two_wait = || async {
        out(&client, "true").await;
        wait_until(Duration::from_secs(1), || user.pids().len() == 2).await
    };
    assert!(wait_until_async(PATIENCE, two_wait).await);
    out(&client, "echo 'export FLAVOUR=new' >> ~/.bashrc").await;
    let then = out(&client, "echo ${FLAVOUR-unread}").await;
    let expected = if read == "old" { "new" } else { "unread" };
    assert_eq!(then, expected);
}

#[tokio::test]
async fn dropbear_takes_a_password_and_a_wrong_one_is_tried_once() {
    let Some(user) = TestUser::builder().password(PASSWORD).create() else {
        return;
    };
    let Some(server) = Dropbear::start(&user, &[]) else {
        return;
    };
    let right = with(entry(&user, server.port()), json!({"password": PASSWORD}));
    let client = serve(&[right]).await;
    assert_eq!(out(&client, "echo in").await, "in");
    assert_eq!(server.refused_password_count(), 0, "{}", server.log());
    let wrong = with(
        entry(&user, server.port()),
        json!({"password": "canary-wrong"}),
    );
    let client = serve(&[wrong]).await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(!reply.text.contains("canary"), "{}", reply.text);
    assert_eq!(server.refused_password_count(), 1, "{}", server.log());
    assert_eq!(server.connection_count(), 2, "{}", server.log());
}

#[tokio::test]
async fn dropbear_that_wants_key_and_password_gets_both() {
    let Some(user) = TestUser::builder().password(PASSWORD).create() else {
        return;
    };
    let Some(server) = Dropbear::start(&user, &["-t"]) else {
        return;
    };
    let both = with(keyed(&user, &server), json!({"password": PASSWORD}));
    let client = serve(&[both]).await;
    assert_eq!(out(&client, "echo in").await, "in");
    assert_eq!(server.connection_count(), 1, "{}", server.log());
}

#[tokio::test]
async fn dropbear_with_a_changed_host_key_is_refused() {
    let Some((mut server, user, client)) = host(&[]).await else {
        return;
    };
    assert_eq!(out(&client, "echo in").await, "in");
    server.restart_with_new_host_key();
    let accepted = server.accepted_auth_count();
    let begun = Instant::now();
    loop {
        let reply = exec(&client, "touch ~/ran").await;
        // The loss of the old connection may be told first.
        if reply.json["code"] != "link_lost" {
            assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
            break;
        }
        assert!(begun.elapsed() < PATIENCE);
    }
    assert_eq!(server.accepted_auth_count(), accepted, "{}", server.log());
    assert!(!user.home().join("ran").exists());
}

/// It has no answer of OpenSSH's kind to a sign of life; any answer has to do.
#[tokio::test]
async fn dropbear_on_a_slow_link_is_not_taken_for_dead_and_on_a_dead_one_is() {
    let Some((server, user, _)) = host(&[]).await else {
        return;
    };
    let proxy = FaultProxy::start(server.port()).await;
    let watchful = json!({"port": proxy.port(), "keepalive_s": 1, "keepalive_max": 3});
    let client = serve(&[with(keyed(&user, &server), watchful)]).await;
    assert_eq!(out(&client, "sleep 5; echo awake").await, "awake");
    let call = json!({"command": "sleep 9204.25"});
    let call = client.start_call("exec_bash", call).await;
    let running = || user.pids().len() >= 3;
    assert!(wait_until(PATIENCE, running).await);
    proxy.freeze_all();
    let reply = client.wait_tool_reply(call, PATIENCE).await.unwrap();
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
}
/// Now and then it closes a new channel without a word before anything ran on it; that is not the end of a run.
#[tokio::test]
async fn dropbear_serves_many_callers_on_one_connection() {
    let Some((server, _user, client)) = host(&[]).await else {
        return;
    };
    // More would stand in line, and who stands there for long gets another connection.
    assert_many_at_once(&client, 7).await;
    assert_eq!(server.connection_count(), 1, "{}", server.log());
}
