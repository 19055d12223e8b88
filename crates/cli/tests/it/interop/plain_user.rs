//! An sshd that a plain user started: no privilege separation, one account, everything under one user id.

use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::{
    PATIENCE, assert_background_children_are_told, assert_commands, assert_deadline_ends_the_tree,
    assert_files, assert_long_output_is_whole, assert_many_at_once, assert_resources_are_listed,
    assert_stop_ends_the_tree, out,
};
use crate::support::{entry, exec, serve, with};

#[tokio::test]
async fn sshd_of_a_plain_user_serves_like_that_of_root() {
    let Some(user) = TestUser::create() else {
        return;
    };
    let sshd = Sshd::builder().run_as(&user).start();
    let client = serve(&[with(entry("box", &sshd), json!({"user": user.name()}))]).await;
    assert_commands(&client, user.home()).await;
    assert_background_children_are_told(&client).await;
    assert_long_output_is_whole(&client).await;
    assert_resources_are_listed(&client).await;
    assert_files(&client).await;
    assert_many_at_once(&client, 10).await;
    assert_eq!(sshd.connection_count(), 1, "{}", sshd.log());
    let refused = with(entry("box", &sshd), json!({"user": "root"}));
    let stranger = serve(&[refused]).await;
    let reply = exec(&stranger, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
}

/// The server's own processes have the user id of the commands: only the commands may be ended.
#[tokio::test]
async fn sshd_of_a_plain_user_outlives_what_is_ended_on_it() {
    let Some(user) = TestUser::create() else {
        return;
    };
    let sshd = Sshd::builder().run_as(&user).start();
    let client = serve(&[with(entry("box", &sshd), json!({"user": user.name()}))]).await;
    assert_deadline_ends_the_tree(&client).await;
    assert_stop_ends_the_tree(&client).await;
    assert_eq!(out(&client, "echo next").await, "next");
    assert_eq!(sshd.connection_count(), 1, "{}", sshd.log());
    client.close_stdin().await;
    assert!(
        wait_until(PATIENCE, || sshd.command_pids().is_empty()).await,
        "{:?}",
        sshd.command_pids()
    );
    assert!(
        sshd.daemon_pid()
            .is_some_and(|pid| user.pids().contains(&pid))
    );
}
