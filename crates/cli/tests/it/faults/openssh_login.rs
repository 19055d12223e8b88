//! The same faults of host keys and logins over the system's `ssh`: what it refuses is told with our codes,
//! and it is never asked to be less careful.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::sshd::Sshd;
use serde_json::json;
use tempfile::TempDir;

use crate::ssh_config::SshConfig;
use crate::support::{exec, ready};

async fn serve(config: &SshConfig) -> McpClient {
    let entry = json!({"name": "box", "ssh_alias": "box", "transport": "openssh"});
    ready(config.builder(&[entry]).start()).await
}

#[tokio::test]
async fn f18_key_of_another_algorithm_is_a_changed_key_for_ssh_too() {
    let (sshd, folder) = (Sshd::start(), TempDir::new().unwrap());
    let other = ClientKey::generate(
        folder.path(),
        "other",
        KeyType::Ecdsa,
        KeyFormat::OpenSsh,
        None,
    );
    let public = fs::read_to_string(other.unwrap().private_path().with_extension("pub")).unwrap();
    let config = SshConfig::new().host("box", &sshd, &[]);
    let line = format!("[127.0.0.1]:{} {public}", sshd.port());
    fs::write(config.known_hosts(), line).unwrap();
    let client = serve(&config).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

#[tokio::test]
async fn f19_revoked_key_is_refused_by_ssh_and_told() {
    let sshd = Sshd::start();
    let config = SshConfig::new().host("box", &sshd, &[]);
    let line = format!("@revoked {}", sshd.known_hosts());
    fs::write(config.known_hosts(), line).unwrap();
    let client = serve(&config).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "host_key_revoked", "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

#[tokio::test]
async fn f20_unreadable_list_of_keys_is_not_trusted_where_keys_must_be_known() {
    let (sshd, folder) = (Sshd::start(), TempDir::new().unwrap());
    // The first value counts, so these come before the usual ones of the block.
    let lines = format!(
        "Host box\n UserKnownHostsFile {}\n StrictHostKeyChecking yes",
        folder.path().display()
    );
    let config = SshConfig::new().line(&lines).host("box", &sshd, &[]);
    let client = serve(&config).await;
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    let code = reply.json["code"].as_str().unwrap_or_default();
    assert!(code.starts_with("host_key"), "{}", reply.text);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(sshd.accepted_auth_count(), 0);
}

#[tokio::test]
async fn f21_twenty_first_calls_record_one_key_and_log_in_once() {
    let sshd = Sshd::start();
    let config = SshConfig::new().host("box", &sshd, &[]);
    let client = serve(&config).await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        let call = json!({"command": "true"});
        calls.push(client.start_call("exec_bash", call).await);
    }
    for call in calls {
        let reply = client.wait_tool_reply(call, Duration::from_secs(30)).await;
        assert_eq!(reply.unwrap().json["exit_code"], 0);
    }
    let text = fs::read_to_string(config.known_hosts()).unwrap();
    let kinds: std::collections::BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(text.lines().count(), kinds.len(), "no line twice: {text}");
    assert_eq!(sshd.accepted_auth_count(), 1);
}

#[tokio::test]
async fn f23_open_key_file_is_refused_by_ssh_and_nothing_is_asked() {
    let (sshd, folder) = (Sshd::start(), TempDir::new().unwrap());
    let key = folder.path().join("id");
    fs::copy(sshd.client_key_path(), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let config = SshConfig::new().host_at("box", sshd.port(), &key, &[]);
    let client = serve(&config).await;
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert_eq!(sshd.accepted_auth_count(), 0);
}
