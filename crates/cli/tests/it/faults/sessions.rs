//! Many callers, few sessions: the pool dials once and lets callers wait in line.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::json;

use crate::support::{entry, entry_via, exec_with, serve};

async fn start_all(client: &McpClient, callers: usize, command: &str) -> Vec<u64> {
    let mut calls = Vec::new();
    for _ in 0..callers {
        let call = json!({"command": command});
        calls.push(client.start_call("exec_bash", call).await);
    }
    calls
}

async fn wait_all(client: &McpClient, calls: Vec<u64>) -> Vec<ToolReply> {
    let mut replies = Vec::new();
    for call in calls {
        let limit = Duration::from_secs(30);
        replies.push(client.wait_tool_reply(call, limit).await.unwrap());
    }
    replies
}

/// How many `sleep` processes have this command line, their shells not counted.
fn sleepers(command_line: &str) -> usize {
    let pids = process::with_command_line(command_line);
    let sleeps = |pid: &&u32| process::name(**pid).as_deref() == Some("sleep");
    pids.iter().filter(sleeps).count()
}

#[rstest]
#[case::eleven_where_ten_are_allowed(10, 30)]
#[case::three_where_two_are_allowed(2, 12)]
#[case::two_where_one_is_allowed(1, 10)]
#[tokio::test]
async fn f13_callers_wait_in_line_for_the_sessions_a_host_allows(
    #[case] allowed: u32,
    #[case] callers: usize,
) {
    let sshd = Sshd::builder().max_sessions(allowed).start();
    let client = serve(&[entry("box", &sshd)]).await;
    let calls = start_all(&client, callers, "sleep 0.3; echo served").await;
    for reply in wait_all(&client, calls).await {
        assert!(!reply.is_error, "{}", reply.text);
        assert_eq!(reply.json["stdout"], "served\n");
    }
    assert!(sshd.connection_count() <= 3, "{}", sshd.connection_count());
}

#[tokio::test]
async fn f13_waiting_in_line_counts_against_the_deadline() {
    let sshd = Sshd::builder().max_sessions(1).start();
    let client = serve(&[entry("box", &sshd)]).await;
    let holders = start_all(&client, 3, "sleep 9113.25").await;
    let held = || sleepers("sleep 9113.25");
    assert!(wait_until(Duration::from_secs(15), || held() == 3).await);
    let begun = Instant::now();
    let marker = client.home().join("ran");
    let command = format!("touch {}", marker.display());
    let reply = exec_with(&client, &command, json!({"timeout_s": 2})).await;
    let waited = begun.elapsed();
    assert_eq!(reply.json["code"], "timed_out", "{}", reply.text);
    assert!(waited > Duration::from_millis(1900), "{waited:?}");
    assert!(waited < Duration::from_millis(2000 + 3500), "{waited:?}");
    assert!(!marker.exists());
    for holder in &holders {
        client.cancel(*holder).await;
    }
    assert!(wait_until(Duration::from_secs(10), || held() == 0).await);
    let next = exec_with(&client, "echo next", json!({"timeout_s": 15})).await;
    assert_eq!(next.json["stdout"], "next\n", "{}", next.text);
}

#[tokio::test]
async fn f13_tree_is_ended_at_its_deadline_where_one_session_is_allowed() {
    let sshd = Sshd::builder().max_sessions(1).start();
    let client = serve(&[entry("box", &sshd)]).await;
    let command = "sleep 9114.25 & setsid sleep 9114.25 & sleep 9114.25";
    let begun = Instant::now();
    let reply = exec_with(&client, command, json!({"timeout_s": 2})).await;
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(
        begun.elapsed() < Duration::from_millis(2000 + 4500),
        "{:?}",
        begun.elapsed()
    );
    assert!(process::with_command_line("sleep 9114.25").is_empty());
}

#[tokio::test]
async fn f14_fifty_callers_of_a_cold_host_share_one_login() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    // A login that takes a second lets every caller come too early.
    proxy.delay(Duration::from_millis(80));
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let calls = start_all(&client, 50, "true").await;
    let logged_in = || sshd.accepted_auth_count() > 0;
    assert!(wait_until(Duration::from_secs(20), logged_in).await);
    proxy.delay(Duration::ZERO);
    let replies = wait_all(&client, calls).await;
    assert!(replies.iter().all(|reply| reply.json["exit_code"] == 0));
    assert_eq!((proxy.connections(), sshd.accepted_auth_count()), (1, 1));
}

#[tokio::test]
async fn f14_line_that_stands_still_gets_another_connection() {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    let holders = start_all(&client, 8, "sleep 9115.25").await;
    let held = || sleepers("sleep 9115.25") == 8;
    assert!(wait_until(Duration::from_secs(15), held).await);
    let begun = Instant::now();
    let more = json!({"timeout_s": 20});
    let reply = exec_with(&client, "echo served", more).await;
    assert_eq!(reply.json["stdout"], "served\n", "{}", reply.text);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(sshd.accepted_auth_count(), 2);
    assert!(holders.iter().all(|holder| !client.has_reply(*holder)));
}

/// Eight of ours and two that wait fill a host that allows ten, and an eleventh comes on top.
#[tokio::test]
async fn f13_caller_is_served_where_shells_that_wait_take_up_the_sessions() {
    let sshd = Sshd::builder().max_sessions(10).start();
    let client = serve(&[entry("box", &sshd)]).await;
    for _ in 0..2 {
        let calls = start_all(&client, 1, "true").await;
        wait_all(&client, calls).await;
        let two_wait = || sshd.command_pids().len() == 2;
        assert!(wait_until(Duration::from_secs(10), two_wait).await);
        let calls = start_all(&client, 11, "sleep 0.3; echo served").await;
        for reply in wait_all(&client, calls).await {
            assert_eq!(reply.json["stdout"], "served\n", "{}", reply.text);
        }
    }
    assert_eq!(sshd.accepted_auth_count(), 1, "{}", sshd.log());
}

/// Commands of every kind and scripts of ours race for the first connection.
#[tokio::test]
async fn f14_fifty_callers_of_all_kinds_share_one_login_of_a_cold_host() {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    let mut calls = start_all(&client, 40, "true").await;
    for _ in 0..5 {
        let list = json!({"check_resources": true});
        calls.push(client.start_call("list_sandboxes", list).await);
        let active = client.start_call("get_active_sandbox", json!({}));
        calls.push(active.await);
    }
    let replies = wait_all(&client, calls).await;
    let failed = replies.iter().find(|reply| reply.is_error);
    assert!(failed.is_none(), "{:?}", failed.map(|reply| &reply.text));
    let counts = (sshd.connection_count(), sshd.accepted_auth_count());
    assert_eq!(counts, (1, 1), "{}", sshd.log());
    assert_eq!(sshd.failed_auth_count(), 0);
}

#[tokio::test]
async fn f14_two_hundred_calls_in_a_row_leave_two_shells_and_one_connection() {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    for number in 0..200 {
        let reply = exec_with(&client, &format!("echo {number}"), json!({})).await;
        assert_eq!(
            reply.json["stdout"],
            format!("{number}\n"),
            "{}",
            reply.text
        );
    }
    let two_wait = || sshd.command_pids().len() == 2;
    assert!(wait_until(Duration::from_secs(10), two_wait).await);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(sshd.command_pids().len(), 2, "{:?}", sshd.command_pids());
    assert_eq!(sshd.connection_count(), 1, "{}", sshd.log());
}

#[tokio::test]
#[ignore = "minutes: shells wait for 60 s and a connection is used for 300 s"]
async fn f14_shells_that_wait_are_replaced_after_a_minute_and_end_after_five() {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    exec_with(&client, "true", json!({})).await;
    let two_wait = || sshd.command_pids().len() == 2;
    assert!(wait_until(Duration::from_secs(10), two_wait).await);
    let first = sshd.command_pids();
    let replaced = || {
        let now = sshd.command_pids();
        now.len() == 2 && !now.iter().any(|pid| first.contains(pid))
    };
    assert!(wait_until(Duration::from_secs(70), replaced).await);
    let gone = || sshd.command_pids().is_empty();
    assert!(wait_until(Duration::from_secs(370), gone).await);
    let reply = exec_with(&client, "echo on", json!({})).await;
    assert_eq!(reply.json["stdout"], "on\n", "{}", reply.text);
    assert_eq!(sshd.connection_count(), 1, "{}", sshd.log());
}

#[tokio::test]
async fn f13_resources_are_told_where_commands_hold_all_sessions() {
    let sshd = Sshd::builder().max_sessions(2).start();
    let client = serve(&[entry("box", &sshd)]).await;
    let holders = start_all(&client, 2, "sleep 9116.25").await;
    let held = || sleepers("sleep 9116.25") == 2;
    assert!(wait_until(Duration::from_secs(15), held).await);
    let list = json!({"check_resources": true});
    let listed = client.call_tool("list_sandboxes", list).await;
    assert!(listed.text.contains("\"load_1m\""), "{}", listed.text);
    assert!(holders.iter().all(|holder| !client.has_reply(*holder)));
}
