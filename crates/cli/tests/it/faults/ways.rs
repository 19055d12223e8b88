//! The same faults behind a jump host and behind a proxy command: no way in is less careful.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::evil_ssh::EvilSsh;
use remote_sandbox_testkit::evil_tcp::{EvilTcp, TcpBehaviour};
use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::{free_port, wait_until};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::link::assert_link_lost;
use crate::ssh_config::{SshConfig, target};
use crate::support::{exec, exec_with, ready, state, unique, with};

/// How the target is reached from the gate on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Jump,
    Command,
}

/// The host `target` behind the host `gate`.
fn behind(way: Way, gate: &Sshd, port: u16, key: &Path, more: &[&str]) -> SshConfig {
    let config = SshConfig::new().host("gate", gate, &[]);
    let line = match way {
        Way::Jump => "ProxyJump gate".to_owned(),
        Way::Command => config.line_through_gate(),
    };
    let lines: Vec<&str> = more.iter().copied().chain([line.as_str()]).collect();
    config.host_at("target", port, key, &lines)
}

/// Short limits for what never answers.
fn impatient() -> Value {
    let limits =
        json!({"connect_timeout_s": 3, "banner_timeout_s": 2, "key_exchange_timeout_s": 2});
    with(target(), limits)
}

fn record(config: &SshConfig, line: &str) {
    fs::write(config.known_hosts(), line).unwrap();
}

#[rstest]
#[case::silent(TcpBehaviour::Silent)]
#[case::endless_lines(TcpBehaviour::EndlessLines)]
#[case::long_line(TcpBehaviour::LongLine)]
#[case::web_server(TcpBehaviour::HttpAnswer)]
#[case::closed_at_once(TcpBehaviour::CloseAtOnce)]
#[tokio::test]
async fn f08_missing_banner_behind_a_way_is_named_within_its_limits(
    #[case] behaviour: TcpBehaviour,
    #[values(Way::Jump, Way::Command)] way: Way,
) {
    let gate = Sshd::start();
    let evil = EvilTcp::start(behaviour).await;
    let config = behind(way, &gate, evil.port(), gate.client_key_path(), &[]);
    let client = ready(config.builder(&[impatient()]).start()).await;
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{way:?}");
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    let words = format!("no SSH banner from 127.0.0.1 port {}", evil.port());
    assert!(reply.text.contains(&words), "{}", reply.text);
    assert!(client.rss_kb() < 40_000, "{} KiB", client.rss_kb());
    // Neither a connection to the gate nor a program is left of it.
    let quiet = || gate.session_pids().is_empty() && process::descendants(client.pid()).is_empty();
    assert!(wait_until(Duration::from_secs(10), quiet).await);
}

#[rstest]
#[case::noise(TcpBehaviour::KexGarbage)]
#[case::silence(TcpBehaviour::BannerThenSilence)]
#[tokio::test]
async fn f09_broken_key_exchange_behind_a_way_is_a_clean_error(
    #[case] behaviour: TcpBehaviour,
    #[values(Way::Jump, Way::Command)] way: Way,
) {
    let gate = Sshd::start();
    let evil = EvilTcp::start(behaviour).await;
    let config = behind(way, &gate, evil.port(), gate.client_key_path(), &[]);
    let client = ready(config.builder(&[impatient()]).start()).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    assert!(
        reply.text.contains("the key exchange with"),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn f07_jump_host_that_cannot_be_reached_is_named() {
    let (sshd, nowhere) = (Sshd::start(), free_port());
    let config = SshConfig::new()
        .host_at("gate", nowhere, sshd.client_key_path(), &[])
        .host("target", &sshd, &["ProxyJump gate"]);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    let error = reply.json["error"].as_str().unwrap();
    assert!(error.contains("the jump host "), "{error}");
    let words = format!("no TCP connection to 127.0.0.1 port {nowhere}");
    assert!(error.contains(&words), "{error}");
}

#[tokio::test]
async fn f07_host_that_the_jump_host_cannot_reach_is_named() {
    let (gate, nowhere) = (Sshd::start(), free_port());
    let config = behind(Way::Jump, &gate, nowhere, gate.client_key_path(), &[]);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    let words = format!("the jump host opened no connection to 127.0.0.1 port {nowhere}");
    assert!(reply.text.contains(&words), "{}", reply.text);
}

#[rstest]
#[tokio::test]
async fn f17_changed_key_behind_a_way_is_refused_and_nothing_is_offered(
    #[values(Way::Jump, Way::Command)] way: Way,
) {
    let gate = Sshd::start();
    let evil = EvilSsh::builder().start().await;
    let other = EvilSsh::builder().start().await;
    let config = behind(way, &gate, evil.port(), gate.client_key_path(), &[]);
    let line = format!("[127.0.0.1]:{} {}\n", evil.port(), other.host_public_key());
    record(&config, &line);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
    assert!(evil.connections() >= 1);
    assert_eq!(evil.offers(), []);
    assert_eq!(evil.channels(), 0);
}

#[tokio::test]
async fn f17_changed_key_of_the_jump_host_is_refused_and_nothing_is_offered() {
    let sshd = Sshd::start();
    let evil = EvilSsh::builder().start().await;
    let other = EvilSsh::builder().start().await;
    let config = SshConfig::new()
        .host_at("gate", evil.port(), sshd.client_key_path(), &[])
        .host("target", &sshd, &["ProxyJump gate"]);
    let line = format!("[127.0.0.1]:{} {}\n", evil.port(), other.host_public_key());
    record(&config, &line);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
    assert!(reply.text.contains("the jump host "), "{}", reply.text);
    assert_eq!(evil.offers(), []);
    assert_eq!(evil.channels(), 0);
    assert_eq!(sshd.connection_count(), 0);
}

#[rstest]
#[tokio::test]
async fn f18_key_of_another_algorithm_behind_a_way_is_a_changed_key(
    #[values(Way::Jump, Way::Command)] way: Way,
) {
    let (gate, folder) = (Sshd::start(), TempDir::new().unwrap());
    let ecdsa = ClientKey::generate(
        folder.path(),
        "host_ecdsa",
        KeyType::Ecdsa,
        KeyFormat::OpenSsh,
        None,
    );
    let evil = EvilSsh::builder().host_key(ecdsa.unwrap().private_path());
    let evil = evil.start().await;
    let other = EvilSsh::builder().start().await;
    let config = behind(way, &gate, evil.port(), gate.client_key_path(), &[]);
    let line = format!("[127.0.0.1]:{} {}\n", evil.port(), other.host_public_key());
    record(&config, &line);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
    assert_eq!(evil.offers(), []);
}

#[rstest]
#[tokio::test]
async fn f19_revoked_key_behind_a_way_is_refused(#[values(Way::Jump, Way::Command)] way: Way) {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config = behind(way, &gate, sshd.port(), sshd.client_key_path(), &[]);
    record(&config, &format!("@revoked {}", sshd.known_hosts()));
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_revoked", "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

#[rstest]
#[tokio::test]
async fn f19_name_for_the_key_and_strictness_of_the_configuration_count(
    #[values(Way::Jump, Way::Command)] way: Way,
) {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let key = sshd.host_public_keys().remove(0);
    // The first value counts, so these come before the usual ones of the block.
    let config =
        SshConfig::new().line("Host target\n StrictHostKeyChecking yes\n HostKeyAlias box.example");
    let line = match way {
        Way::Jump => "ProxyJump gate".to_owned(),
        Way::Command => config.line_through_gate(),
    };
    let config = config
        .host("gate", &gate, &[])
        .host("target", &sshd, &[&line]);
    record(&config, "");
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_unknown", "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
    record(&config, &format!("box.example {key}\n"));
    let reply = client.call_tool("get_active_sandbox", json!({})).await;
    assert_eq!(reply.json["connection_alive"], true, "{}", reply.text);
}

#[rstest]
#[tokio::test]
async fn f20_unreadable_list_of_keys_is_not_trusted(#[values(Way::Jump, Way::Command)] way: Way) {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let folder = TempDir::new().unwrap();
    let line = format!(
        "Host target\n UserKnownHostsFile {}",
        folder.path().display()
    );
    let config = SshConfig::new().line(&line);
    let line = match way {
        Way::Jump => "ProxyJump gate".to_owned(),
        Way::Command => config.line_through_gate(),
    };
    let config = config
        .host("gate", &gate, &[])
        .host("target", &sshd, &[&line]);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_keys_unreadable", "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

#[tokio::test]
async fn f21_first_connections_at_once_record_each_host_once() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config = behind(Way::Jump, &gate, sshd.port(), sshd.client_key_path(), &[]);
    let client = config.serve().await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        let call = json!({"command": "true"});
        calls.push(client.start_call("exec_bash", call).await);
    }
    for call in calls {
        let reply = client.wait_tool_reply(call, Duration::from_secs(20)).await;
        assert_eq!(reply.unwrap().json["exit_code"], 0);
    }
    let file = state(&client).join("known_hosts");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[rstest]
#[tokio::test]
async fn f22_key_refused_behind_a_way_is_offered_once(#[values(Way::Jump, Way::Command)] way: Way) {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config = behind(way, &gate, sshd.port(), gate.client_key_path(), &[]);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(sshd.failed_auth_count() <= 1);
    assert_eq!(sshd.connection_count(), 1);
}

#[tokio::test]
async fn f22_key_refused_by_the_jump_host_is_offered_once() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config = SshConfig::new()
        .host_at("gate", gate.port(), sshd.client_key_path(), &[])
        .host("target", &sshd, &["ProxyJump gate"]);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(reply.text.contains("the jump host "), "{}", reply.text);
    assert!(gate.failed_auth_count() <= 1);
    assert_eq!(gate.connection_count(), 1);
    assert_eq!(sshd.connection_count(), 0);
}

#[rstest]
#[tokio::test]
async fn f23_open_key_file_behind_a_way_is_named(#[values(Way::Jump, Way::Command)] way: Way) {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let folder = TempDir::new().unwrap();
    let key = folder.path().join("id");
    fs::copy(sshd.client_key_path(), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let config = behind(way, &gate, sshd.port(), sshd.client_key_path(), &[]);
    let entry = with(target(), json!({"key_file": key}));
    let client = ready(config.builder(&[entry]).start()).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    let name = key.display().to_string();
    assert!(reply.text.contains(&name), "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

/// The gate falls silent: the dead link is noticed by keepalives through every way.
#[rstest]
#[tokio::test]
async fn f02_silence_behind_a_way_is_noticed(#[values(Way::Jump, Way::Command)] way: Way) {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let proxy = FaultProxy::start(gate.port()).await;
    let config = SshConfig::new().host_at("gate", proxy.port(), gate.client_key_path(), &[]);
    let line = match way {
        Way::Jump => "ProxyJump gate".to_owned(),
        Way::Command => config.line_through_gate(),
    };
    let config = config.host("target", &sshd, &[&line]);
    let entry = with(target(), json!({"keepalive_s": 1, "keepalive_max": 2}));
    let client = ready(config.builder(&[entry]).start()).await;
    let sleep = format!("sleep 6{}", unique());
    let call = json!({"command": sleep});
    let call = client.start_call("exec_bash", call).await;
    let running = || !process::with_command_line(&sleep).is_empty();
    assert!(wait_until(Duration::from_secs(10), running).await);
    proxy.freeze_all();
    let reply = client.wait_tool_reply(call, Duration::from_secs(15)).await;
    assert_link_lost(&reply.unwrap());
    proxy.drop_all();
    proxy.thaw();
}

/// Both directions full at the same time: two connections of one program must not wait for each other.
#[tokio::test]
async fn f10_traffic_in_both_directions_gets_through_a_jump_host() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config = behind(Way::Jump, &gate, sshd.port(), sshd.client_key_path(), &[]);
    let client = config.serve().await;
    let word = "y".repeat(100_000);
    let mut calls = Vec::new();
    for _ in 0..8 {
        let command = format!("printf '%s' '{word}' | wc -c; seq 1 300000");
        let call = json!({"command": command, "max_output_chars": 3_000_000});
        calls.push(client.start_call("exec_bash", call).await);
    }
    for call in calls {
        let reply = client.wait_tool_reply(call, Duration::from_secs(30)).await;
        let reply = reply.unwrap();
        let text = reply.json["stdout"].as_str().unwrap();
        assert!(text.starts_with("100000\n1\n") && text.ends_with("\n300000\n"));
    }
    let reply = exec_with(&client, "echo in", json!({})).await;
    assert_eq!(reply.json["stdout"], "in\n");
}
