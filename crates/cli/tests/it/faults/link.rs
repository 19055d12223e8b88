//! Links that break aloud: resets, ends of stream, a server that is started again; and slow ones.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::{Direction, FaultProxy};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::json;

use crate::support::{entry, entry_via, exec, exec_with, serve, with};

/// How many sockets a process holds.
pub(super) fn sockets(pid: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

/// The reply says that the link is gone, and claims nothing about the command's end.
pub(super) fn assert_link_lost(reply: &ToolReply) {
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    assert_eq!(reply.json["connection_error"], true);
    assert!(reply.json["exit_code"].is_null(), "{}", reply.text);
    let error = reply.json["error"].as_str().unwrap();
    assert!(error.contains("`box`"), "{error}");
    assert!(error.contains("may still be running"), "{error}");
}

async fn check(client: &McpClient, task: &serde_json::Value) -> ToolReply {
    let task = json!({"task_id": task});
    client.call_tool("check_background_task", task).await
}

/// The host is asked about a lost run: it lives; it is ended; it is gone.
pub(super) async fn assert_running_then_stopped(client: &McpClient, lost: &ToolReply) {
    let task = &lost.json["task_id"];
    let seen = check(client, task).await;
    assert_eq!(seen.json["status"], "link_lost", "{}", seen.text);
    assert_eq!(seen.json["still_running"], true, "{}", seen.text);
    assert!(!seen.json["left_running"].as_array().unwrap().is_empty());
    let stop = json!({"task_id": task});
    let stopped = client.call_tool("stop_background_task", stop).await;
    assert_eq!(stopped.json["still_running"], false, "{}", stopped.text);
    let gone = check(client, task).await;
    assert_eq!(gone.json["still_running"], false, "{}", gone.text);
    assert!(gone.json["exit_code"].is_null());
}

/// Starts a command and waits until it runs.
async fn start_sleep(client: &McpClient, sandbox: &str, sleep: &str) -> u64 {
    let call = json!({"command": sleep, "sandbox_name": sandbox});
    let call = client.start_call("exec_bash", call).await;
    let running = || !process::with_command_line(sleep).is_empty();
    assert!(wait_until(Duration::from_secs(10), running).await);
    call
}

#[tokio::test]
async fn f03_reset_in_mid_exec_is_told_at_once_and_disturbs_nobody_else() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let broken = entry_via("box", &sshd, proxy.port());
    let client = serve(&[broken, entry("other", &sshd)]).await;
    let other = json!({"command": "sleep 3; echo well", "sandbox_name": "other"});
    let other = client.start_call("exec_bash", other).await;
    let call = start_sleep(&client, "box", "sleep 9103.25").await;
    let begun = Instant::now();
    proxy.drop_all();
    let reply = client
        .wait_tool_reply(call, Duration::from_secs(10))
        .await
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    assert_link_lost(&reply);
    let mut calls = Vec::new();
    for _ in 0..4 {
        let call = json!({"command": "true", "sandbox_name": "box"});
        calls.push(client.start_call("exec_bash", call).await);
    }
    for call in calls {
        let limit = Duration::from_secs(10);
        let reply = client.wait_tool_reply(call, limit).await.unwrap();
        assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    }
    assert_eq!(proxy.connections(), 2, "one redial for all");
    let other = client.wait_tool_reply(other, Duration::from_secs(10)).await;
    assert_eq!(other.unwrap().json["stdout"], "well\n");
    assert_running_then_stopped(&client, &reply).await;
}

#[tokio::test]
async fn f03_lost_run_that_ended_by_itself_is_said_to_be_gone() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let marker = client.home().join("ended");
    let command = format!("sleep 2.375; touch {}", marker.display());
    let call = client
        .start_call("exec_bash", json!({"command": command}))
        .await;
    let running = || !process::with_command_line("sleep 2.375").is_empty();
    assert!(wait_until(Duration::from_secs(10), running).await);
    proxy.drop_all();
    let limit = Duration::from_secs(10);
    let lost = client.wait_tool_reply(call, limit).await.unwrap();
    assert_link_lost(&lost);
    assert!(wait_until(limit, || marker.exists()).await);
    let ended =
        || async { check(&client, &lost.json["task_id"]).await.json["still_running"] == false };
    assert!(remote_sandbox_testkit::wait_until_async(limit, ended).await);
}

#[tokio::test]
async fn f05_restarted_server_loses_the_calls_in_flight_and_serves_the_next() {
    let mut sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    let mut calls = Vec::new();
    for sleep in ["sleep 9105.25", "sleep 9105.5", "sleep 9105.75"] {
        calls.push(start_sleep(&client, "box", sleep).await);
    }
    sshd.stop();
    for call in calls {
        let limit = Duration::from_secs(5);
        assert_link_lost(&client.wait_tool_reply(call, limit).await.unwrap());
    }
    let down = exec(&client, "true").await;
    assert_eq!(down.json["code"], "unreachable", "{}", down.text);
    assert!(down.text.contains("refused"), "{}", down.text);
    sshd.restart();
    let up = exec(&client, "echo up").await;
    assert_eq!(up.json["stdout"], "up\n", "{}", up.text);
}

#[rstest]
#[case::to_client(Direction::ToClient, "sleep 9111.25")]
#[case::to_server(Direction::ToServer, "sleep 9111.5")]
#[tokio::test]
async fn f03_half_closed_link_is_told_as_lost(#[case] direction: Direction, #[case] sleep: &str) {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let call = start_sleep(&client, "box", sleep).await;
    proxy.half_close(direction);
    let limit = Duration::from_secs(5);
    let reply = client.wait_tool_reply(call, limit).await.unwrap();
    assert_link_lost(&reply);
    let next = exec(&client, "echo next").await;
    assert_eq!(next.json["stdout"], "next\n", "{}", next.text);
    assert_running_then_stopped(&client, &reply).await;
}

#[tokio::test]
async fn f10_slow_link_is_not_taken_for_a_dead_one() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let watchful = json!({"keepalive_s": 1, "keepalive_max": 2});
    let client = serve(&[with(entry_via("box", &sshd, proxy.port()), watchful)]).await;
    proxy.trickle(Some(20_000));
    let command = "head -c 120000 /dev/zero | tr '\\0' a; sleep 4; echo END";
    let more = json!({"max_output_chars": 200_000});
    let reply = exec_with(&client, command, more).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.json["error"]);
    let text = reply.json["stdout"].as_str().unwrap();
    assert_eq!(text.len(), 120_004);
    assert!(text.ends_with("aEND\n"));
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn f10_link_that_delivers_crumbs_changes_nothing() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    proxy.split_randomly(9110);
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let more = json!({"max_output_chars": 400_000});
    let reply = exec_with(&client, "seq 1 50000", more).await;
    let expected: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(reply.json["stdout"], expected);
    assert_eq!(reply.json["exit_code"], 0);
}

/// Signs of life every second, three may be missed, and every answer waits behind six seconds of output.
#[tokio::test]
async fn f10_slow_link_full_of_output_is_not_taken_for_a_dead_one() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let watchful = json!({"keepalive_s": 1, "keepalive_max": 3});
    let client = serve(&[with(entry_via("box", &sshd, proxy.port()), watchful)]).await;
    exec(&client, "true").await;
    proxy.trickle(Some(20 << 10));
    let more = json!({"max_output_chars": 200_000});
    let reply = exec_with(
        &client,
        "head -c 122880 /dev/zero | tr '\\0' a; exit 4",
        more,
    )
    .await;
    assert_eq!(reply.json["exit_code"], 4, "{:.300}", reply.text);
    assert_eq!(reply.json["stdout"].as_str().unwrap().len(), 122_880);
    assert!(reply.json["duration_s"].as_f64().unwrap() > 4.0);
    assert_eq!(proxy.connections(), 1);
}

/// How many tasks would be left is not visible from outside, but each holds a socket or its memory.
#[tokio::test]
async fn f03_link_that_is_cut_while_shells_wait_leaves_nothing_behind() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let limit = Duration::from_secs(10);
    let mut seen = Vec::new();
    for round in 0..12 {
        let reply = exec(&client, "echo on").await;
        assert_eq!(reply.json["stdout"], "on\n", "{}", reply.text);
        let two_wait = || sshd.command_pids().len() == 2;
        assert!(wait_until(limit, two_wait).await, "round {round}");
        seen.push((sockets(client.pid()), client.rss_kb()));
        proxy.drop_all();
        // The shells end with their connection, and the next call finds it gone.
        assert!(wait_until(limit, || sshd.command_pids().is_empty()).await);
        assert!(wait_until(limit, || sockets(client.pid()) < seen[0].0).await);
    }
    let (first, last) = (seen[2], seen[11]);
    assert_eq!(first.0, last.0, "{seen:?}");
    assert!(last.1 < first.1 + 2048, "{seen:?}");
}
