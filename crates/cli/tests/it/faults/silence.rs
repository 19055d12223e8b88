//! Links on which nothing comes back any more: dropped packets, cut cables, frozen servers.

use std::fs;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::link::{assert_link_lost, assert_running_then_stopped, sockets};
use super::namespace::{self, Neighbour};
use crate::support::{entry, entry_via, exec, exec_with, program, ready, serve, shells_wait, with};

/// One second times three: dead after four at the latest, and some slack for a busy machine.
const NOTICED: Duration = Duration::from_millis(5500);

fn watchful(entry: Value) -> Value {
    let limits = json!({
        "keepalive_s": 1, "keepalive_max": 3, "connect_timeout_s": 1, "banner_timeout_s": 1,
    });
    with(entry, limits)
}

/// The idle connection is given up in time, and the next call after the silence dials once.
async fn idle_session_dies_and_comes_back(
    client: &McpClient,
    silence: impl FnOnce(),
    peace: impl FnOnce(),
) {
    let before = sockets(client.pid());
    assert_eq!(exec(client, "echo one").await.json["stdout"], "one\n");
    assert_eq!(sockets(client.pid()), before + 1);
    silence();
    let begun = Instant::now();
    let gone = wait_until(NOTICED, || sockets(client.pid()) == before).await;
    assert!(gone, "the dead connection is still there");
    assert!(begun.elapsed() > Duration::from_secs(2), "given up early");
    let unreachable = exec(client, "echo two").await;
    assert_eq!(unreachable.json["code"], "unreachable");
    assert!(unreachable.text.contains("box"), "{}", unreachable.text);
    peace();
    let again = exec(client, "echo three").await;
    assert_eq!(again.json["stdout"], "three\n", "{}", again.text);
}

#[tokio::test]
async fn f01_silent_idle_link_is_given_up_and_the_next_call_dials_again() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[watchful(entry_via("box", &sshd, proxy.port()))]).await;
    let (freeze, thaw) = (|| proxy.freeze_all(), || proxy.thaw());
    idle_session_dies_and_comes_back(&client, freeze, thaw).await;
    assert_eq!(sshd.accepted_auth_count(), 2);
}

#[tokio::test]
async fn f01_dropped_packets_on_an_idle_link_are_noticed() {
    if !namespace::entered(
        module_path!(),
        "f01_dropped_packets_on_an_idle_link_are_noticed",
    ) {
        return;
    }
    let sshd = Sshd::start();
    let client = serve(&[watchful(entry("box", &sshd))]).await;
    let port = sshd.port();
    let drop = |on| move || namespace::drop_packets(port, on);
    idle_session_dies_and_comes_back(&client, drop(true), drop(false)).await;
    assert_eq!(sshd.accepted_auth_count(), 2);
}

#[tokio::test]
async fn f01_call_on_a_link_that_just_died_is_told_and_not_repeated() {
    let sshd = Sshd::start();
    let client = serve(&[watchful(entry("box", &sshd))]).await;
    exec(&client, "true").await;
    assert!(shells_wait(&sshd, 2).await);
    sshd.freeze_sessions();
    let ran = client.home().join("ran");
    let command = format!("echo again >> {}", ran.display());
    let reply = exec(&client, &command).await;
    // The command is on its way in the one packet that it takes, so nobody knows.
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    let next = exec(&client, "echo carried").await;
    assert_eq!(next.json["stdout"], "carried\n", "{}", next.text);
    sshd.thaw_sessions();
    assert_eq!(sshd.accepted_auth_count(), 2);
    // The frozen shell gets it now, or its connection is gone: once at most.
    let twice = || fs::read_to_string(&ran).is_ok_and(|text| text.lines().count() > 1);
    assert!(!wait_until(Duration::from_secs(1), twice).await);
}

/// The usual pause between signs of life is long, a call does not wait for three of them.
#[tokio::test]
async fn f01_call_on_a_dead_link_ends_long_before_the_signs_of_life_do() {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    exec(&client, "true").await;
    assert!(shells_wait(&sshd, 2).await);
    sshd.freeze_sessions();
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    sshd.thaw_sessions();
}

/// Whether progress of a call was told with these words.
fn notified(client: &McpClient, call: u64, words: &str) -> bool {
    let told = client.notifications_for(call);
    let message = |progress: &Value| progress["message"].as_str().map(str::to_owned);
    told.iter()
        .filter_map(message)
        .any(|message| message.ends_with(words))
}

/// A command loses its link, is said to be lost, goes on, is found again and ended.
async fn lost_run_is_told_found_and_ended(
    client: &McpClient,
    seconds: &str,
    silence: impl FnOnce(),
    peace: impl FnOnce(),
) {
    let sleep = format!("sleep {seconds}");
    let done = client.home().join("done");
    let command = format!("echo begun; {sleep}; touch {}", done.display());
    let call = client
        .start_call("exec_bash", json!({"command": command}))
        .await;
    let running = || process::with_command_line(&sleep).len();
    let shown = || notified(client, call, "begun");
    assert!(wait_until(Duration::from_secs(10), || running() > 0 && shown()).await);
    silence();
    let begun = Instant::now();
    let reply = client.wait_tool_reply(call, NOTICED * 2).await.unwrap();
    assert!(begun.elapsed() < NOTICED, "{:?}", begun.elapsed());
    assert_link_lost(&reply);
    assert_eq!(reply.json["stdout"], "begun\n");
    assert!(running() > 0, "it was ended although nobody asked for that");
    peace();
    assert_running_then_stopped(client, &reply).await;
    assert_eq!(running(), 0);
    assert!(!done.exists());
}

#[tokio::test]
async fn f02_silence_in_mid_exec_is_told_as_a_lost_link() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[watchful(entry_via("box", &sshd, proxy.port()))]).await;
    let (freeze, thaw) = (|| proxy.freeze_all(), || proxy.thaw());
    lost_run_is_told_found_and_ended(&client, "9102.25", freeze, thaw).await;
}

#[tokio::test]
async fn f02_dropped_packets_in_mid_exec_are_told_as_a_lost_link() {
    if !namespace::entered(
        module_path!(),
        "f02_dropped_packets_in_mid_exec_are_told_as_a_lost_link",
    ) {
        return;
    }
    let sshd = Sshd::start();
    let client = serve(&[watchful(entry("box", &sshd))]).await;
    let port = sshd.port();
    let drop = |on| move || namespace::drop_packets(port, on);
    lost_run_is_told_found_and_ended(&client, "9102.5", drop(true), drop(false)).await;
}

#[tokio::test]
async fn f02_dropped_packets_while_input_is_sent_are_noticed_too() {
    let test = "f02_dropped_packets_while_input_is_sent_are_noticed_too";
    if !namespace::entered(module_path!(), test) {
        return;
    }
    // Slow and with small buffers, so that a write waits in the kernel when the packets vanish.
    namespace::slow_loopback();
    let sshd = Sshd::start();
    let client = serve(&[watchful(entry("box", &sshd))]).await;
    let before = sockets(client.pid());
    let call = json!({"command": "wc -c", "stdin": "x".repeat(4_000_000)});
    let call = client.start_call("exec_bash", call).await;
    let flowing = || namespace::loopback_bytes() > 300_000;
    assert!(wait_until(Duration::from_secs(10), flowing).await);
    namespace::drop_packets(sshd.port(), true);
    let begun = Instant::now();
    let reply = client.wait_tool_reply(call, Duration::from_secs(30)).await;
    assert_link_lost(&reply.unwrap());
    assert!(begun.elapsed() < NOTICED * 2, "{:?}", begun.elapsed());
    let gone = wait_until(NOTICED, || sockets(client.pid()) == before).await;
    assert!(gone, "the dead connection is still there");
}

/// A host behind a cable that is cut: noticed, and asking again and again leaves nothing behind.
async fn cut_cable_leaves_nothing_behind(retries_for: Duration) {
    let neighbour = Neighbour::join();
    let sshd = Sshd::builder()
        .extra_config(&format!("ListenAddress {}", Neighbour::NEAR))
        .start();
    let host = json!({"host": Neighbour::NEAR});
    let list = json!([watchful(with(entry("box", &sshd), host))]);
    let client = McpClient::builder("nsenter")
        .args(neighbour.entrance())
        .arg(program())
        .env("REMOTE_SANDBOX_LIST", list.to_string())
        .start();
    let client = ready(client).await;
    let before = sockets(client.pid());
    exec(&client, "true").await;
    assert_eq!(sockets(client.pid()), before + 1);
    let call = client
        .start_call("exec_bash", json!({"command": "sleep 9104.25"}))
        .await;
    let running = || !process::with_command_line("sleep 9104.25").is_empty();
    assert!(wait_until(Duration::from_secs(10), running).await);
    neighbour.cut();
    let begun = Instant::now();
    let reply = client.wait_tool_reply(call, NOTICED * 2).await.unwrap();
    assert!(begun.elapsed() < NOTICED, "{:?}", begun.elapsed());
    assert_link_lost(&reply);
    assert!(wait_until(NOTICED, || sockets(client.pid()) == before).await);
    let retry = || client.call_tool("get_active_sandbox", json!({}));
    for _ in 0..20 {
        assert_eq!(retry().await.json["connection_alive"], false);
    }
    let (memory, threads) = (client.rss_kb(), threads(client.pid()));
    let begun = Instant::now();
    let mut retries = 0;
    while begun.elapsed() < retries_for || retries < 100 {
        assert_eq!(retry().await.json["connection_alive"], false);
        retries += 1;
    }
    assert_eq!(sockets(client.pid()), before);
    let grown = client.rss_kb().saturating_sub(memory);
    assert!(grown < 4096, "{grown} KiB more after {retries} retries");
    assert!(self::threads(client.pid()) <= threads + 2);
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .count()
}

#[tokio::test]
async fn f04_vanished_peer_is_noticed_and_retries_leave_nothing_behind() {
    let name = "f04_vanished_peer_is_noticed_and_retries_leave_nothing_behind";
    if namespace::entered(module_path!(), name) {
        cut_cable_leaves_nothing_behind(Duration::from_secs(2)).await;
    }
}

#[tokio::test]
#[ignore = "minutes: ten minutes of retries"]
async fn f04_ten_minutes_of_retries_leave_nothing_behind() {
    let name = "f04_ten_minutes_of_retries_leave_nothing_behind";
    if namespace::entered(module_path!(), name) {
        cut_cable_leaves_nothing_behind(Duration::from_secs(600)).await;
    }
}

#[tokio::test]
async fn f06_deadline_holds_on_a_frozen_server_and_thawing_does_no_harm() {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    exec(&client, "true").await;
    let begun = Instant::now();
    let call = json!({"command": "sleep 9106.25; echo late", "timeout_s": 2});
    let call = client.start_call("exec_bash", call).await;
    let running = || !process::with_command_line("sleep 9106.25").is_empty();
    assert!(wait_until(Duration::from_secs(5), running).await);
    sshd.freeze_sessions();
    let reply = client
        .wait_tool_reply(call, Duration::from_secs(15))
        .await
        .unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(2000 + 4500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(!running(), "{}", reply.text);
    let begun = Instant::now();
    let next = exec_with(&client, "echo next", json!({"timeout_s": 20})).await;
    assert_eq!(next.json["stdout"], "next\n", "{}", next.text);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "the frozen connection is still used"
    );
    sshd.thaw_sessions();
    for _ in 0..5 {
        assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
    }
    assert!(!running());
}
