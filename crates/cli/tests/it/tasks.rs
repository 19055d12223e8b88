//! The soft wait, reading on, stopping, and what outlives a server.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use crate::support::{builder, entry, exec, exec_with, one, ready};

#[tokio::test]
async fn long_command_is_handed_over_and_read_to_its_end() {
    let (_sshd, client) = one().await;
    exec(&client, "true").await;
    let begun = Instant::now();
    let command = "echo one; sleep 6; echo two; exit 6";
    let reply = exec_with(&client, command, json!({"wait_s": 2})).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(!reply.is_error);
    assert_eq!(reply.json["status"], "running");
    assert!(reply.json["exit_code"].is_null());
    assert_eq!(reply.json["stdout"], "one\n");
    let task = reply.json["task_id"].as_str().unwrap();
    let more = json!({"task_id": task, "since_byte": reply.json["next_byte"], "wait_s": 20});
    let piece = client.call_tool("check_background_task", more).await;
    assert_eq!(piece.json["log_tail"], "two\n", "{}", piece.text);
    let end = json!({"task_id": task, "since_byte": piece.json["next_byte"], "wait_s": 20});
    let end = client.call_tool("check_background_task", end).await;
    assert_eq!(end.json["status"], "exited", "{}", end.text);
    assert_eq!(end.json["exit_code"], 6);
}

#[tokio::test]
async fn stopping_ends_the_whole_tree() {
    let (_sshd, client) = one().await;
    let command = "sleep 81.25 & setsid sleep 81.25 & sleep 81.25";
    let reply = exec_with(&client, command, json!({"wait_s": 0.5})).await;
    let running = || process::with_command_line("sleep 81.25").len();
    assert!(wait_until(Duration::from_secs(5), || running() >= 3).await);
    let stop = json!({"task_id": reply.json["task_id"]});
    let stopped = client.call_tool("stop_background_task", stop.clone()).await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
    assert!(
        stopped.json.get("left_running").is_none(),
        "{}",
        stopped.text
    );
    assert_eq!(running(), 0);
    let again = client.call_tool("stop_background_task", stop).await;
    assert_eq!(again.json["status"], "stopped");
}

#[tokio::test]
async fn closing_standard_input_ends_a_handed_over_run_and_keeps_its_output() {
    let (sshd, client) = one().await;
    let home = client.home().to_owned();
    let reply = exec_with(&client, "echo kept; sleep 82.25", json!({"wait_s": 3})).await;
    let task = reply.json["task_id"].as_str().unwrap().to_owned();
    let second = ready(builder(&[entry("box", &sshd)]).home(&home).start()).await;
    let seen = second
        .call_tool("check_background_task", json!({"task_id": task}))
        .await;
    assert_eq!(seen.json["status"], "running", "{}", seen.text);
    client.close_stdin().await;
    let begun = Instant::now();
    assert!(
        client
            .wait_exit(Duration::from_secs(8))
            .await
            .unwrap()
            .success()
    );
    assert!(begun.elapsed() < Duration::from_secs(7));
    assert!(process::with_command_line("sleep 82.25").is_empty());
    let kept = second
        .call_tool("check_background_task", json!({"task_id": task}))
        .await;
    assert_eq!(kept.json["status"], "ended_by_shutdown", "{}", kept.text);
    assert_eq!(kept.json["log_tail"], "kept\n");
}

#[tokio::test]
async fn unknown_task_is_refused() {
    let (_sshd, client) = one().await;
    for task in ["run_00000000000000000000000000000000", "7", "../../etc"] {
        let reply = client
            .call_tool("check_background_task", json!({"task_id": task}))
            .await;
        assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
    }
}
