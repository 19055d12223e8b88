//! A server that allows one session on a connection, and none that could wait or help out.

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::{
    PATIENCE, assert_deadline_ends_the_tree, assert_files, assert_long_output_is_whole,
    assert_many_at_once, assert_resources_are_listed, assert_stop_ends_the_tree, out, running,
};
use crate::support::{entry, exec, serve, unique};

#[tokio::test]
async fn one_session_is_enough_for_everything_that_is_done_in_turn() {
    let sshd = Sshd::builder().max_sessions(1).start();
    let client = serve(&[entry("box", &sshd)]).await;
    for number in 0..3 {
        let number = number.to_string();
        assert_eq!(out(&client, &format!("echo {number}")).await, number);
    }
    assert_resources_are_listed(&client).await;
    assert_files(&client).await;
    assert_long_output_is_whole(&client).await;
    // The child holds the only session there is, so the host cannot be asked about it.
    let child = format!("sleep 9206.{}", unique());
    let reply = exec(&client, &format!("{child} & echo begun")).await;
    assert_eq!(reply.json["stdout"], "begun\n", "{}", reply.text);
    assert_eq!(reply.json["left_running"], "unknown", "{}", reply.text);
    process::kill_and_wait(&running(&child));
    assert_many_at_once(&client, 6).await;
    assert!(sshd.connection_count() <= 3, "{}", sshd.connection_count());
}

#[tokio::test]
async fn one_session_is_enough_to_end_what_runs_in_it() {
    let sshd = Sshd::builder().max_sessions(1).start();
    let client = serve(&[entry("box", &sshd)]).await;
    assert_deadline_ends_the_tree(&client).await;
    assert_stop_ends_the_tree(&client).await;
    let call = json!({"command": "sleep 9205.25"});
    let call = client.start_call("exec_bash", call).await;
    assert!(wait_until(PATIENCE, || !sshd.command_pids().is_empty()).await);
    assert_resources_are_listed(&client).await;
    client.cancel(call).await;
    assert!(
        wait_until(PATIENCE, || sshd.command_pids().is_empty()).await,
        "{:?}",
        sshd.command_pids()
    );
    assert_eq!(out(&client, "echo next").await, "next");
}
