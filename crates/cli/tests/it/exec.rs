//! What `exec_bash` promises when nothing goes wrong.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{audit, exec, exec_with, one};

#[tokio::test]
async fn exec_returns_both_streams_and_the_exit_code() {
    let (_sshd, client) = one().await;
    let reply = exec(&client, "echo out; echo err >&2; exit 3").await;
    assert!(!reply.is_error);
    assert_eq!(reply.json["exit_code"], 3);
    assert_eq!(reply.json["stdout"], "out\n");
    assert_eq!(reply.json["stderr"], "err\n");
    assert_eq!(reply.json["sandbox"], "box");
    assert!(reply.json["duration_s"].as_f64().unwrap() < 30.0);
}

#[tokio::test]
async fn exec_always_has_its_main_fields() {
    let (_sshd, client) = one().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["exit_code"], 0);
    assert_eq!(reply.json["stdout"], "");
    assert_eq!(reply.json["stderr"], "");
    for absent in [
        "timed_out",
        "connection_error",
        "signal",
        "truncated",
        "left_running",
    ] {
        assert!(
            reply.json.get(absent).is_none(),
            "{absent} in {}",
            reply.text
        );
    }
}

#[rstest]
#[case::signal("kill -SEGV $$", json!({"exit_code": null, "signal": "SEGV"}))]
#[case::own_124("exit 124", json!({"exit_code": 124}))]
#[case::no_input("cat; echo end", json!({"exit_code": 0, "stdout": "end\n"}))]
#[case::own_marker("echo EXIT_CODE=0; exit 5", json!({"exit_code": 5, "stdout": "EXIT_CODE=0\n"}))]
#[tokio::test]
async fn exec_tells_the_end_as_it_was(#[case] command: &str, #[case] expected: Value) {
    let (_sshd, client) = one().await;
    let reply = exec(&client, command).await;
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&reply.json[key], value, "{}", reply.text);
    }
    assert!(reply.json.get("timed_out").is_none());
}

#[tokio::test]
async fn exec_takes_environment_input_and_directory() {
    let (_sshd, client) = one().await;
    let more = json!({"env": {"GREETING": "it's $HOME"}, "stdin": "given", "cwd": "/"});
    let reply = exec_with(&client, "printf '%s ' \"$GREETING\"; cat; pwd", more).await;
    assert_eq!(
        reply.json["stdout"], "it's $HOME given/\n",
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn weakness_9_command_of_several_lines_in_a_missing_directory_does_not_run() {
    let (_sshd, client) = one().await;
    let marker = client.home().join("ran");
    let command = format!("true\ntouch {}", marker.display());
    let reply = exec_with(&client, &command, json!({"cwd": "/no/such/place"})).await;
    assert!(reply.is_error);
    assert_eq!(reply.json["code"], "not_found");
    assert!(reply.text.contains("/no/such/place"), "{}", reply.text);
    assert!(!marker.exists());
}

#[tokio::test]
async fn weakness_1_five_megabytes_arrive_whole() {
    let (_sshd, client) = one().await;
    let command = "head -c 5000000 /dev/zero | tr '\\0' a; echo END";
    for _ in 0..5 {
        let reply = exec_with(&client, command, json!({"max_output_chars": 6_000_000})).await;
        let text = reply.json["stdout"].as_str().unwrap();
        assert_eq!(text.len(), 5_000_004);
        assert!(text.ends_with("aEND\n"));
        assert!(reply.json.get("truncated").is_none());
    }
}

#[tokio::test]
async fn long_output_keeps_both_ends_and_the_rest_can_be_read() {
    let (_sshd, client) = one().await;
    let reply = exec_with(&client, "seq 1 20000", json!({"max_output_chars": 1000})).await;
    let shown = reply.json["stdout"].as_str().unwrap();
    assert!(shown.starts_with("1\n2\n") && shown.ends_with("19999\n20000\n"));
    assert_eq!(reply.json["truncated"], true);
    let task = reply.json["task_id"].as_str().unwrap();
    let (mut since, mut whole) = (0, String::new());
    loop {
        let arguments = json!({"task_id": task, "since_byte": since, "max_output_chars": 50_000});
        let piece = client.call_tool("check_background_task", arguments).await;
        whole.push_str(piece.json["log_tail"].as_str().unwrap());
        since = piece.json["next_byte"].as_u64().unwrap();
        if since == piece.json["total_bytes"].as_u64().unwrap() {
            break;
        }
    }
    let expected: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(whole, expected);
}

#[tokio::test]
async fn background_child_is_left_alone_and_listed() {
    let (_sshd, client) = one().await;
    let begun = Instant::now();
    let reply = exec(&client, "sleep 71.5 & echo started $!").await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(reply.json["exit_code"], 0);
    let left = reply.json["left_running"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{}", reply.text);
    assert_eq!(left[0]["name"], "sleep");
    let pid = u32::try_from(left[0]["pid"].as_u64().unwrap()).unwrap();
    assert!(process::is_alive(pid));
    process::kill_and_wait(&[pid]);
}

#[tokio::test]
async fn calls_run_side_by_side_and_ping_is_never_blocked() {
    let (_sshd, client) = one().await;
    exec(&client, "true").await;
    let begun = Instant::now();
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(
            client
                .start_call("exec_bash", json!({"command": "sleep 2"}))
                .await,
        );
    }
    let ping = Instant::now();
    client
        .request("ping", json!({}), Duration::from_secs(5))
        .await
        .unwrap();
    assert!(ping.elapsed() < Duration::from_millis(1500));
    for call in calls {
        let reply = client
            .wait_tool_reply(call, Duration::from_secs(20))
            .await
            .unwrap();
        assert_eq!(reply.json["exit_code"], 0);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn every_effect_has_its_rows_in_the_audit_log() {
    let (_sshd, client) = one().await;
    exec(&client, "exit 4").await;
    let rows = audit(&client);
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["event"], &rows[0]["command"]),
        (&json!("begin"), &json!("exit 4"))
    );
    assert_eq!(
        (&rows[1]["event"], &rows[1]["exit_code"]),
        (&json!("end"), &json!(4))
    );
    assert_eq!(rows[0]["run"], rows[1]["run"]);
}

#[tokio::test]
async fn nothing_runs_when_the_audit_log_cannot_be_written() {
    let (_sshd, client) = one().await;
    let folder = crate::support::state(&client);
    std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
    std::fs::write(&folder, b"in the way").unwrap();
    let marker = client.home().join("ran");
    let reply = exec(&client, &format!("touch {}", marker.display())).await;
    assert!(reply.is_error);
    assert_eq!(reply.json["code"], "store_unavailable");
    assert!(!marker.exists());
}
