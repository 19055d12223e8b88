//! Hosts of the user's SSH configuration: names, jump hosts, proxy commands.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::{McpClient, McpClientBuilder};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{builder, exec, exec_with, ready, unique, with};

/// An SSH configuration in a folder of its own.
pub(crate) struct SshConfig {
    folder: TempDir,
    text: String,
}

impl SshConfig {
    /// One without any host.
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            text: String::new(),
        }
    }

    /// Names a test sshd, with more lines.
    pub(crate) fn host(self, name: &str, sshd: &Sshd, more: &[&str]) -> Self {
        let key = sshd.client_key_path().to_owned();
        self.host_at(name, sshd.port(), &key, more)
    }

    /// Names a port, with a key and more lines.
    pub(crate) fn host_at(mut self, name: &str, port: u16, key: &Path, more: &[&str]) -> Self {
        let known = self.known_hosts();
        writeln!(
            self.text,
            "Host {name}\n HostName 127.0.0.1\n Port {port}\n User {}\n IdentityFile {}\n IdentitiesOnly yes\n StrictHostKeyChecking accept-new\n UserKnownHostsFile {}\n GlobalKnownHostsFile none",
            TestUser::current().name(),
            key.display(),
            known.display(),
        )
        .unwrap();
        for line in more {
            writeln!(self.text, " {line}").unwrap();
        }
        self
    }

    /// Adds a line.
    pub(crate) fn line(mut self, line: &str) -> Self {
        writeln!(self.text, "{line}").unwrap();
        self
    }

    /// Where it lies, written there as it is now.
    pub(crate) fn path(&self) -> PathBuf {
        let path = self.folder.path().join("config");
        std::fs::write(&path, &self.text).unwrap();
        path
    }

    /// A proxy command that leads through the host `gate` with the system's own `ssh`.
    pub(crate) fn line_through_gate(&self) -> String {
        let own = self.folder.path().join("config");
        format!("ProxyCommand ssh -F {} -W %h:%p gate", own.display())
    }

    /// The file of known hosts that it names.
    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.folder.path().join("known_hosts")
    }

    /// A server that has the named hosts as sandboxes.
    pub(crate) fn builder(&self, entries: &[Value]) -> McpClientBuilder {
        builder(entries).env("REMOTE_SANDBOX_SSH_CONFIG", self.path())
    }

    /// A server with one sandbox, `box`, which is the host `target`.
    pub(crate) async fn serve(&self) -> McpClient {
        ready(self.builder(&[target()]).start()).await
    }
}

/// The entry of the host `target`.
pub(crate) fn target() -> Value {
    json!({"name": "box", "ssh_alias": "target"})
}

#[tokio::test]
async fn name_of_the_ssh_configuration_is_enough() {
    let sshd = Sshd::start();
    let config = SshConfig::new().host("target", &sshd, &["StrictHostKeyChecking no"]);
    let client = config.serve().await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
    let list = client.call_tool("list_sandboxes", json!({})).await;
    let shown = &list.json["sandboxes"][0];
    assert_eq!(shown["host"], "127.0.0.1", "{}", list.text);
    assert_eq!(shown["port"], sshd.port());
    assert_eq!(shown["user"], TestUser::current().name());
}

#[tokio::test]
async fn edited_configuration_counts_at_the_next_connection() {
    let first = Sshd::builder()
        .session_environment("PLACE", "first")
        .start();
    let second = Sshd::builder()
        .session_environment("PLACE", "second")
        .start();
    let config = SshConfig::new().host("target", &first, &[]);
    let client = config.serve().await;
    assert_eq!(exec(&client, "echo $PLACE").await.json["stdout"], "first\n");
    let edited = SshConfig::new().host("target", &second, &[]);
    std::fs::copy(edited.path(), config.folder.path().join("config")).unwrap();
    first.kill_sessions();
    let begun = Instant::now();
    loop {
        let reply = exec(&client, "echo $PLACE").await;
        if reply.json["code"] != "link_lost" {
            assert_eq!(reply.json["stdout"], "second\n", "{}", reply.text);
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[tokio::test]
async fn entry_wins_over_the_configuration() {
    let sshd = Sshd::start();
    let other = Sshd::start();
    let config = SshConfig::new().host("target", &sshd, &[]);
    let entry = with(
        target(),
        json!({"port": other.port(), "key_file": other.client_key_path()}),
    );
    let client = ready(config.builder(&[entry]).start()).await;
    assert_eq!(exec(&client, "echo in").await.json["stdout"], "in\n");
    assert_eq!(other.accepted_auth_count(), 1);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

/// Three hosts on the way, one of them named by the configuration of another one.
#[tokio::test]
async fn chain_of_jump_hosts_is_gone_through() {
    let (a, b, c, last) = (Sshd::start(), Sshd::start(), Sshd::start(), Sshd::start());
    let config = SshConfig::new()
        .host("a", &a, &[])
        .host("b", &b, &["ProxyJump a"])
        .host("c", &c, &[])
        .host("target", &last, &["ProxyJump b,c"]);
    let client = config.serve().await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
    let reply = exec(&client, "echo again; exit 3").await;
    assert_eq!(reply.json["exit_code"], 3);
    for sshd in [&a, &b, &c, &last] {
        assert_eq!(sshd.accepted_auth_count(), 1);
    }
    drop(client);
    let left = || {
        [&a, &b, &c, &last]
            .iter()
            .all(|sshd| sshd.session_pids().is_empty())
    };
    assert!(wait_until(Duration::from_secs(10), left).await);
}

#[tokio::test]
async fn five_megabytes_arrive_whole_through_a_jump_host() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config =
        SshConfig::new()
            .host("gate", &gate, &[])
            .host("target", &sshd, &["ProxyJump gate"]);
    let client = config.serve().await;
    let command = "head -c 5000000 /dev/zero | tr '\\0' a; echo END";
    for _ in 0..3 {
        let reply = exec_with(&client, command, json!({"max_output_chars": 6_000_000})).await;
        let text = reply.json["stdout"].as_str().unwrap();
        assert_eq!(text.len(), 5_000_004);
        assert!(text.ends_with("aEND\n"));
    }
}

#[tokio::test]
async fn link_that_is_cut_before_the_jump_host_is_lost() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let proxy = FaultProxy::start(gate.port()).await;
    let config = SshConfig::new()
        .host_at("gate", proxy.port(), gate.client_key_path(), &[])
        .host("target", &sshd, &["ProxyJump gate"]);
    let client = config.serve().await;
    let sleep = format!("sleep 7{}", unique());
    let call = json!({"command": sleep});
    let call = client.start_call("exec_bash", call).await;
    let running = || !process::with_command_line(&sleep).is_empty();
    assert!(wait_until(Duration::from_secs(10), running).await);
    proxy.drop_all();
    let reply = client.wait_tool_reply(call, Duration::from_secs(10)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    assert!(reply.text.contains("jump host"), "{}", reply.text);
    assert_eq!(exec(&client, "echo in").await.json["stdout"], "in\n");
    let task = json!({"task_id": reply.json["task_id"]});
    client.call_tool("stop_background_task", task).await;
}

#[tokio::test]
async fn proxy_command_carries_a_connection_and_ends_with_it() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let config = SshConfig::new().host("gate", &gate, &[]);
    let line = config.line_through_gate();
    let config = config.host("target", &sshd, &[&line]);
    let client = config.serve().await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
    let carrier = |client: &McpClient| process::descendants(client.pid());
    let first = carrier(&client);
    assert_eq!(first.len(), 1, "one program and no shell around it");
    sshd.kill_sessions();
    let gone = || process::state(first[0]).is_none();
    assert!(wait_until(Duration::from_secs(10), gone).await, "no zombie");
    let begun = Instant::now();
    while exec(&client, "echo in").await.json["stdout"] != "in\n" {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let second = carrier(&client);
    assert_eq!(second.len(), 1);
    client.close_stdin().await;
    assert!(client.wait_exit(Duration::from_secs(10)).await.is_some());
    let gone = || !process::is_alive(second[0]);
    assert!(wait_until(Duration::from_secs(10), gone).await, "no orphan");
}

#[tokio::test]
async fn last_words_of_a_proxy_command_are_told() {
    let sshd = Sshd::start();
    let more = ["ProxyCommand sh -c 'echo one >&2; echo the gate is shut >&2; exit 1'"];
    let config = SshConfig::new().host("target", &sshd, &more);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    assert!(reply.text.contains("the gate is shut"), "{}", reply.text);
    let children = || process::descendants(client.pid()).is_empty();
    assert!(wait_until(Duration::from_secs(5), children).await);
}

#[tokio::test]
async fn unknown_name_is_a_host_that_cannot_be_found() {
    let config = SshConfig::new();
    let name = format!("{}.invalid", "x".repeat(64));
    let entry = json!({"name": "box", "ssh_alias": name});
    let client = ready(config.builder(&[entry]).start()).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    assert!(
        reply.text.contains(&format!("the name {name}")),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn broken_configuration_is_told_in_the_words_of_ssh() {
    let config = SshConfig::new().line("Host target").line(" Bogus yes");
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "not_configured", "{}", reply.text);
    let error = reply.json["error"].as_str().unwrap();
    for words in ["`ssh -G target` failed", "Bad configuration option: bogus"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(!error.contains("Pseudo"), "{error}");
}

#[tokio::test]
async fn condition_that_hangs_is_given_up() {
    let sshd = Sshd::start();
    let sleep = format!("sleep 8{}", unique());
    let config = SshConfig::new()
        .host("target", &sshd, &[])
        .line(&format!("Match exec \"{sleep}\"\n Port 1"));
    let client = config.serve().await;
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    assert!(
        reply.text.contains("did not answer within 5 s"),
        "{}",
        reply.text
    );
    let gone = || process::with_command_line(&sleep).is_empty();
    assert!(wait_until(Duration::from_secs(5), gone).await);
}

#[tokio::test]
async fn way_that_leads_in_a_circle_is_refused() {
    let sshd = Sshd::start();
    let config = SshConfig::new()
        .host("a", &sshd, &["ProxyJump b"])
        .host_at("b", 1, sshd.client_key_path(), &["ProxyJump a"])
        .host_at("target", 2, sshd.client_key_path(), &["ProxyJump a"]);
    let client = config.serve().await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "not_configured", "{}", reply.text);
    assert!(
        reply.text.contains("leads over `a` twice"),
        "{}",
        reply.text
    );
    assert_eq!(sshd.connection_count(), 0);
}

#[tokio::test]
async fn configuration_is_read_without_an_ssh_program() {
    let (gate, sshd) = (Sshd::start(), Sshd::start());
    let more = SshConfig::new().host("gate", &gate, &[]);
    let config = SshConfig::new()
        .line(&format!("Include {}", more.path().display()))
        .host("tar*", &sshd, &["ProxyJump gate"]);
    let client = config.builder(&[target()]).env("PATH", "/nonexistent");
    let client = ready(client.start()).await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
    assert_eq!(gate.accepted_auth_count(), 1);
}

#[tokio::test]
async fn hosts_are_imported_by_pattern() {
    let sshd = Sshd::start();
    let config = SshConfig::new()
        .host("gpu1", &sshd, &[])
        .host("gpu2", &sshd, &[])
        .host("cpu1", &sshd, &[])
        .host("gpu*", &sshd, &[]);
    let client = config
        .builder(&[])
        .env("REMOTE_SANDBOX_IMPORT_SSH_CONFIG", "gpu*");
    let client = ready(client.start()).await;
    let list = client.call_tool("list_sandboxes", json!({})).await;
    let listed = list.json["sandboxes"].as_array().unwrap();
    let names: Vec<&str> = listed
        .iter()
        .filter_map(|entry| entry["name"].as_str())
        .collect();
    assert_eq!(names, ["gpu1", "gpu2"]);
    let reply = exec_with(&client, "echo in", json!({"sandbox_name": "gpu2"})).await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
}
