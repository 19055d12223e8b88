//! Sandboxes over the system's `ssh`: one login, made by the user or by us, and never another.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::commands::{Surroundings, code};
use crate::ssh_config::SshConfig;
use crate::support::{entry, exec, exec_with, ready, shells_wait, unique, with};

const PATIENCE: Duration = Duration::from_secs(10);

/// An sshd, a configuration that names it `box` with a control socket, and a folder for the socket.
struct Cluster {
    sshd: Sshd,
    config: SshConfig,
    folder: TempDir,
}

impl Cluster {
    fn on(sshd: Sshd) -> Self {
        let folder = TempDir::new().unwrap();
        let path = format!("ControlPath {}", folder.path().join("cm-%C").display());
        let config = SshConfig::new().host("box", &sshd, &[&path]);
        Cluster {
            sshd,
            config,
            folder,
        }
    }

    fn start() -> Self {
        Self::on(Sshd::start())
    }

    async fn serve(&self, more: Value) -> McpClient {
        let entry = with(
            json!({"name": "box", "ssh_alias": "box", "transport": "openssh"}),
            more,
        );
        ready(self.config.builder(&[entry]).start()).await
    }

    /// The user logs in, in a terminal of his own.
    async fn log_in(&self) -> Login {
        let child = Command::new("ssh")
            .arg("-F")
            .arg(self.config.path())
            .args(["-M", "-N", "-o", "BatchMode=yes", "box"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(wait_until(PATIENCE, || !self.sockets().is_empty()).await);
        Login(child)
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.folder.path()).unwrap();
        let paths = folder.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_none()).collect()
    }
}

/// A login of the user; it ends with the test.
struct Login(Child);

impl Login {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.end();
    }
}

async fn assert_ordinary(client: &McpClient) {
    let more = json!({"env": {"V": "it's $HOME"}, "stdin": "given\n", "cwd": "/tmp"});
    let reply = exec_with(client, "echo \"$V\"; cat; pwd; echo err >&2; exit 7", more).await;
    assert_eq!(reply.json["exit_code"], 7, "{}", reply.text);
    assert_eq!(reply.json["stdout"], "it's $HOME\ngiven\n/tmp\n");
    assert_eq!(reply.json["stderr"], "err\n");
    let reply = exec(client, "exit 255").await;
    assert_eq!(reply.json["exit_code"], 255, "{}", reply.text);
    let reply = exec(client, "kill -9 $$").await;
    assert_eq!(reply.json["exit_code"], 137, "{}", reply.text);
    let reply = exec_with(
        client,
        "head -c 5000000 /dev/zero | tr '\\0' x",
        json!({"max_output_chars": 6_000_000}),
    )
    .await;
    assert_eq!(reply.json["stdout"].as_str().unwrap().len(), 5_000_000);
}

async fn assert_concurrent(client: &McpClient, count: usize) {
    let mut calls = Vec::new();
    for _ in 0..count {
        let arguments = json!({"command": "sleep 0.3; echo done"});
        calls.push(client.start_call("exec_bash", arguments).await);
    }
    for call in calls {
        let reply = client.wait_tool_reply(call, PATIENCE).await.unwrap();
        assert_eq!(reply.json["stdout"], "done\n", "{}", reply.text);
    }
}

#[rstest]
#[case::required(true)]
#[case::wished(false)]
#[tokio::test]
async fn connection_of_the_user_is_used_and_no_login_is_added(#[case] required: bool) {
    let cluster = Cluster::start();
    let mut login = cluster.log_in().await;
    let client = cluster
        .serve(json!({"require_existing_master": required}))
        .await;
    assert_ordinary(&client).await;
    assert_concurrent(&client, 14).await;
    let listed = client
        .call_tool("list_sandboxes", json!({"check_resources": true}))
        .await;
    assert!(listed.text.contains("\"cpu"), "{}", listed.text);
    let sleep = format!("sleep {}", unique());
    let more = json!({"timeout_s": 1});
    let command = format!("trap '' TERM; setsid {sleep} & {sleep}");
    let reply = exec_with(&client, &command, more).await;
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(process::with_command_line(&sleep).is_empty());
    assert_eq!(cluster.sshd.accepted_auth_count(), 1);
    // The connection is the user's: it stays when we go.
    client.close_stdin().await;
    assert!(client.wait_exit(PATIENCE).await.is_some());
    assert!(login.0.try_wait().unwrap().is_none());
    let own_shells = || cluster.sshd.command_pids().is_empty();
    assert!(wait_until(PATIENCE, own_shells).await);
}

#[tokio::test]
async fn without_a_connection_nobody_logs_in_where_one_is_required() {
    let cluster = Cluster::start();
    let client = cluster
        .serve(json!({"require_existing_master": true}))
        .await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "login_needed", "{}", reply.text);
    assert!(reply.text.contains("ssh box"), "{}", reply.text);
    assert_eq!(cluster.sshd.connection_count(), 0);
    let _login = cluster.log_in().await;
    let reply = exec(&client, "echo now").await;
    assert_eq!(reply.json["stdout"], "now\n", "{}", reply.text);
    assert_eq!(cluster.sshd.accepted_auth_count(), 1);
}

#[tokio::test]
async fn one_login_is_made_for_all_calls_and_goes_with_the_server() {
    let cluster = Cluster::start();
    let client = cluster.serve(json!({})).await;
    assert_concurrent(&client, 6).await;
    assert_ordinary(&client).await;
    assert_eq!(cluster.sshd.accepted_auth_count(), 1);
    assert!(
        cluster.sockets().is_empty(),
        "the user's socket is not ours to make"
    );
    client.close_stdin().await;
    assert!(client.wait_exit(PATIENCE).await.is_some());
    let gone = || cluster.sshd.session_pids().is_empty();
    assert!(wait_until(PATIENCE, gone).await);
}

#[tokio::test]
async fn own_login_goes_with_a_server_that_is_killed() {
    let cluster = Cluster::start();
    let client = cluster.serve(json!({})).await;
    exec(&client, "true").await;
    assert!(!cluster.sshd.session_pids().is_empty());
    client.signal(rustix::process::Signal::KILL);
    let gone = || cluster.sshd.session_pids().is_empty();
    assert!(wait_until(PATIENCE, gone).await);
}

#[tokio::test]
async fn connection_that_ends_is_told_and_the_next_call_works_again() {
    let cluster = Cluster::start();
    let mut login = cluster.log_in().await;
    let client = cluster.serve(json!({})).await;
    exec(&client, "true").await;
    let sleep = format!("sleep {}", unique());
    let call = client
        .start_call(
            "exec_bash",
            json!({"command": format!("echo begun; {sleep}")}),
        )
        .await;
    let runs = || !process::with_command_line(&sleep).is_empty();
    assert!(wait_until(PATIENCE, runs).await);
    let begun = Instant::now();
    login.end();
    let reply = client.wait_tool_reply(call, PATIENCE).await.unwrap();
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(exec(&client, "echo again").await.json["stdout"], "again\n");
    assert_eq!(cluster.sshd.accepted_auth_count(), 2);
    process::kill_and_wait(&process::with_command_line(&sleep));
}

#[tokio::test]
async fn f13_sessions_queue_where_the_host_allows_few() {
    let cluster = Cluster::on(Sshd::builder().max_sessions(3).start());
    let _login = cluster.log_in().await;
    let client = cluster.serve(json!({})).await;
    assert_concurrent(&client, 6).await;
    assert_eq!(cluster.sshd.accepted_auth_count(), 1);
}

#[tokio::test]
async fn entry_with_a_host_goes_over_the_systems_ssh_too() {
    let sshd = Sshd::start();
    let config = SshConfig::new()
        .line("Host *")
        .line(" StrictHostKeyChecking accept-new");
    let known = config.path().with_file_name("known");
    let more = json!({"transport": "openssh", "known_hosts_files": [known]});
    let client = ready(config.builder(&[with(entry("box", &sshd), more)]).start()).await;
    assert_ordinary(&client).await;
    assert_eq!(sshd.accepted_auth_count(), 1);
}

#[tokio::test]
async fn f17_changed_host_key_is_refused_by_ssh_and_told() {
    let mut cluster = Cluster::start();
    let client = cluster.serve(json!({})).await;
    exec(&client, "true").await;
    cluster.sshd.restart_with_new_host_key();
    assert!(wait_until(PATIENCE, || cluster.sshd.session_pids().is_empty()).await);
    let accepted = cluster.sshd.accepted_auth_count();
    let reply = exec(&client, "true").await;
    let reply = if reply.json["code"] == "link_lost" {
        exec(&client, "true").await
    } else {
        reply
    };
    assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
    assert_eq!(cluster.sshd.accepted_auth_count(), accepted);
}

#[tokio::test]
async fn f22_refused_key_is_one_attempt_and_told() {
    let sshd = Sshd::start();
    let other = remote_sandbox_testkit::keys::ClientKey::ed25519(sshd.dir(), "stranger");
    let config = SshConfig::new().host_at("box", sshd.port(), other.private_path(), &[]);
    let entry = json!({"name": "box", "ssh_alias": "box", "transport": "openssh"});
    let client = ready(config.builder(&[entry]).start()).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(sshd.failed_auth_count() <= 1, "{}", sshd.log());
}

#[tokio::test]
async fn background_children_are_told_and_do_not_stop_the_server() {
    let cluster = Cluster::start();
    let _login = cluster.log_in().await;
    let client = cluster.serve(json!({})).await;
    let sleep = format!("sleep {}", unique());
    for _ in 0..4 {
        let reply = exec(&client, &format!("{sleep} >/dev/null 2>&1 & exit 4")).await;
        assert_eq!(reply.json["exit_code"], 4, "{}", reply.text);
        assert!(reply.text.contains("\"left_running\":[{"), "{}", reply.text);
    }
    assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
    process::kill_and_wait(&process::with_command_line(&sleep));
}

/// The connection ends while the command is under way to a shell that cannot read it.
#[tokio::test]
async fn command_is_not_repeated_when_the_connection_ends_before_it_is_taken_up() {
    let cluster = Cluster::start();
    let mut login = cluster.log_in().await;
    let client = cluster.serve(json!({})).await;
    exec(&client, "true").await;
    assert!(shells_wait(&cluster.sshd, 2).await);
    let waiting = cluster.sshd.command_pids();
    for pid in &waiting {
        process::signal(*pid, rustix::process::Signal::STOP);
    }
    let ran = client.home().join("ran");
    let command = format!("echo ran >> {}", ran.display());
    let call = client
        .start_call("exec_bash", json!({ "command": command }))
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    login.end();
    let reply = client.wait_tool_reply(call, PATIENCE).await.unwrap();
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    for pid in &waiting {
        process::signal(*pid, rustix::process::Signal::CONT);
    }
    let gone = || waiting.iter().all(|pid| !process::is_alive(*pid));
    assert!(wait_until(PATIENCE, gone).await);
    let runs = std::fs::read_to_string(&ran).unwrap_or_default();
    assert!(runs.lines().count() <= 1, "{runs}");
}

/// What `doctor --json` says of the one host, by the names of the steps, and its exit code.
fn examine(cluster: &Cluster, more: Value) -> (Value, i32) {
    let entry = json!({"name": "box", "ssh_alias": "box", "transport": "openssh"});
    let here = Surroundings::new(&[with(entry, more)]);
    let output = here
        .command(&["doctor", "--json"])
        .env("REMOTE_SANDBOX_SSH_CONFIG", cluster.config.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = report["hosts"][0]["steps"].as_array().unwrap();
    let named = steps
        .iter()
        .map(|step| (step["step"].as_str().unwrap().to_owned(), step.clone()));
    (Value::Object(named.collect()), code(&output))
}

#[rstest]
#[case::required(true)]
#[case::wished(false)]
#[tokio::test]
async fn doctor_tells_of_the_shared_connection_of_the_user(#[case] required: bool) {
    let cluster = Cluster::start();
    let _login = cluster.log_in().await;
    let (steps, code) = examine(&cluster, json!({"require_existing_master": required}));
    let shared = &steps["shared_connection"];
    assert_eq!(shared["status"], "ok", "{steps:#}");
    let socket = cluster.sockets().remove(0).display().to_string();
    assert!(shared["detail"].as_str().unwrap().contains(&socket));
    assert_eq!(steps["transport"]["status"], "ok", "{steps:#}");
    assert_eq!(steps["shell"]["status"], "ok", "{steps:#}");
    assert_eq!((code, cluster.sshd.accepted_auth_count()), (0, 1));
}

#[tokio::test]
async fn doctor_says_how_to_open_the_shared_connection_that_is_required() {
    let cluster = Cluster::start();
    let (steps, code) = examine(&cluster, json!({"require_existing_master": true}));
    let shared = &steps["shared_connection"];
    assert_eq!(shared["status"], "failed", "{steps:#}");
    assert!(shared["fix"].as_str().unwrap().contains("`ssh box`"));
    assert_eq!(steps["transport"]["status"], "skipped", "{steps:#}");
    assert_eq!(steps["shell"]["status"], "skipped", "{steps:#}");
    assert_eq!((code, cluster.sshd.connection_count()), (1, 0));
}

#[tokio::test]
async fn doctor_says_that_a_required_shared_connection_has_no_place() {
    let sshd = Sshd::start();
    let config = SshConfig::new().host("box", &sshd, &[]);
    let folder = TempDir::new().unwrap();
    let cluster = Cluster {
        sshd,
        config,
        folder,
    };
    let (steps, _) = examine(&cluster, json!({"require_existing_master": true}));
    let shared = &steps["shared_connection"];
    assert_eq!(shared["status"], "failed", "{steps:#}");
    assert!(shared["detail"].as_str().unwrap().contains("ControlPath"));
    assert_eq!(cluster.sshd.connection_count(), 0);
}

#[tokio::test]
async fn doctor_finds_nothing_wrong_without_a_shared_connection_where_none_is_required() {
    let cluster = Cluster::start();
    let (steps, code) = examine(&cluster, json!({}));
    let shared = &steps["shared_connection"];
    assert_eq!(shared["status"], "ok", "{steps:#}");
    assert!(shared["detail"].as_str().unwrap().contains("none is open"));
    assert_eq!(steps["transport"]["status"], "ok", "{steps:#}");
    assert_eq!((code, cluster.sshd.accepted_auth_count()), (0, 1));
}
