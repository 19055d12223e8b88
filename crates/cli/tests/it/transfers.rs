//! Background transfers with the true worker. The test itself is the server that starts them; a second server
//! and the command line look at them from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, load_config};
use remote_sandbox_engine::sync::{SyncRequest, Way};
use remote_sandbox_engine::transfer::Started;
use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{McpClient, Sshd, process};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{builder, entry, files_below, program, ready, state, with};

const LIMIT: Duration = Duration::from_secs(20);
const PASSWORD: &str = "correct-horse-battery";

/// A host that takes connections and never says a word, so that a worker waits for it.
struct Frozen(Sshd);

impl Frozen {
    fn new() -> Self {
        let sshd = Sshd::start();
        assert!(process::signal(sshd.daemon_pid().unwrap(), Signal::STOP));
        Frozen(sshd)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        process::signal(self.0.daemon_pid().unwrap(), Signal::CONT);
    }
}

/// A server that starts transfers, and another one on the same state.
struct Stage {
    host: Frozen,
    client: McpClient,
    engine: Engine,
    environment: BTreeMap<String, String>,
    context: CallContext,
}

fn engine_in(environment: &BTreeMap<String, String>) -> Engine {
    let config = load_config(None, environment.clone()).unwrap();
    assert_eq!(config.problems.len(), 0, "{:?}", config.problems);
    let engine = Engine::new(&config, environment).unwrap();
    engine.with_worker_program(program())
}

fn request() -> SyncRequest {
    SyncRequest::new("box", Way::Up, "/tmp/tree", "there")
}

impl Stage {
    async fn new() -> Self {
        let host = Frozen::new();
        let sandbox = with(
            entry("box", &host.0),
            json!({"password": PASSWORD, "connect_timeout_s": 60}),
        );
        let client = ready(builder(std::slice::from_ref(&sandbox)).start()).await;
        let path = std::env::var("PATH").unwrap();
        let list = Value::from(vec![sandbox]).to_string();
        let environment = [
            ("HOME", client.home().to_str().unwrap()),
            ("PATH", &path),
            ("REMOTE_SANDBOX_LIST", &list),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus"),
        ];
        let owned = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = BTreeMap::from(owned);
        let engine = engine_in(&environment);
        Stage {
            host,
            client,
            engine,
            environment,
            context: CallContext::new(Principal::local(), CancellationToken::new()),
        }
    }

    /// Starts a transfer and waits until its process works.
    async fn start(&self) -> Started {
        let started = self.engine.start_transfer(&self.context, request()).await;
        let started = started.unwrap();
        let end = Instant::now() + LIMIT;
        while self.check(started.task_id).await["progress"]["phase"] != "connecting" {
            assert!(
                Instant::now() < end,
                "{}",
                self.check(started.task_id).await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        started
    }

    async fn check(&self, task: u64) -> Value {
        let arguments = json!({ "task_id": task });
        let reply = self
            .client
            .call_tool("check_file_transfer_task", arguments)
            .await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    async fn cancel(&self, task: u64) -> Value {
        let arguments = json!({ "task_id": task });
        let reply = self
            .client
            .call_tool("cancel_file_transfer_task", arguments)
            .await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    fn command(&self, arguments: &[&str]) -> Output {
        Command::new(program())
            .args(arguments)
            .env_clear()
            .env("HOME", self.client.home())
            .output()
            .unwrap()
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

async fn is_gone(pid: u32) -> bool {
    // Not even a zombie.
    wait_until(LIMIT, || process::state(pid).is_none()).await
}

#[tokio::test]
async fn weakness_15_transfer_is_cancelled_by_the_server_that_started_it() {
    let stage = Stage::new().await;
    let started = stage.start().await;
    let pid = started.pid.unwrap();
    let begun = Instant::now();
    let patience = Duration::from_secs(5);
    let cancelled = stage
        .engine
        .cancel_transfer(&stage.context, started.task_id, patience);
    let cancelled = cancelled.await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(cancelled.status.name(), "cancelled");
    assert!(cancelled.terminated && !cancelled.force_killed);
    assert!(is_gone(pid).await);
    let now = stage.check(started.task_id).await;
    assert_eq!(now["status"], "cancelled");
    assert_eq!(now["running"], false);
    assert_eq!(now["progress"]["phase"], "cancelled");
}

#[tokio::test]
async fn transfer_is_cancelled_by_another_server_within_two_seconds() {
    let stage = Stage::new().await;
    let started = stage.start().await;
    let begun = Instant::now();
    let cancelled = stage.cancel(started.task_id).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(
        cancelled,
        json!({"task_id": started.task_id, "status": "cancelled", "terminated": true,
            "force_killed": false, "already_finished": false})
    );
    assert!(is_gone(started.pid.unwrap()).await);
    let again = stage.cancel(started.task_id).await;
    assert_eq!(again["already_finished"], true);
    assert_eq!(again["terminated"], false);
}

#[tokio::test]
async fn f66_worker_that_was_killed_is_told_as_stale_and_the_next_start_begins_anew() {
    let stage = Stage::new().await;
    let started = stage.start().await;
    let now = stage.check(started.task_id).await;
    assert_eq!(now["running"], true, "{now}");
    assert_eq!(now["stale"], false, "{now}");
    let same = stage.start().await;
    assert_eq!(same.task_id, started.task_id);
    assert!(same.was_running);
    assert!(process::kill_and_wait(&[started.pid.unwrap()]));
    let stale = stage.check(started.task_id).await;
    assert_eq!(stale["status"], "running", "{stale}");
    assert_eq!(stale["running"], false, "{stale}");
    assert_eq!(stale["stale"], true, "{stale}");
    assert!(stale["error"].is_string(), "{stale}");
    let next = stage.start().await;
    assert_ne!(next.task_id, started.task_id);
    let cancelled = stage.cancel(next.task_id).await;
    assert_eq!(cancelled["status"], "cancelled");
    let put_away = stage.check(started.task_id).await;
    assert_eq!(put_away["status"], "failed", "{put_away}");
}

#[tokio::test]
async fn transfer_goes_on_when_the_server_that_started_it_has_ended() {
    const SERVER: &str = "TESTKIT_TRANSFER_SERVER";
    if let Ok(environment) = std::env::var(SERVER) {
        let engine = engine_in(&serde_json::from_str(&environment).unwrap());
        let context = CallContext::new(Principal::local(), CancellationToken::new());
        let started = engine.start_transfer(&context, request()).await.unwrap();
        println!("started {} {}", started.task_id, started.pid.unwrap());
        return engine.shut_down().await;
    }
    let stage = Stage::new().await;
    let environment = serde_json::to_string(&stage.environment).unwrap();
    let test = "transfers::transfer_goes_on_when_the_server_that_started_it_has_ended";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(SERVER, environment)
        .output()
        .unwrap();
    let said = text(&output);
    let line = said.lines().find_map(|line| line.split_once("started "));
    let (_, numbers) = line.unwrap_or_else(|| panic!("{output:?}"));
    let (task, pid) = numbers.split_once(' ').unwrap();
    let (task, pid): (u64, u32) = (task.parse().unwrap(), pid.parse().unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let now = stage.check(task).await;
    assert_eq!(now["running"], true, "{now}");
    assert!(process::is_alive(pid));
    let cancelled = stage.cancel(task).await;
    assert_eq!(cancelled["status"], "cancelled");
    assert!(is_gone(pid).await);
}

#[tokio::test]
async fn worker_carries_no_secret_and_no_descriptor_of_ours() {
    let stage = Stage::new().await;
    let started = stage.start().await;
    let pid = started.pid.unwrap();
    let of_kernel = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap();
    for name in ["cmdline", "environ"] {
        let bytes = of_kernel(name);
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            !text.is_empty() && !text.contains(PASSWORD),
            "{name}: {text}"
        );
    }
    let place = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(place, Path::new("/"));
    let folder = stage.client.home().to_owned();
    let files: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter(|file| file.is_absolute() && !file.starts_with(&folder))
        .filter(|file| !file.starts_with("/dev") && !file.starts_with("/proc"))
        .collect();
    assert_eq!(files, Vec::<PathBuf>::new());
    stage.cancel(started.task_id).await;
    for (file, bytes) in files_below(&state(&stage.client)) {
        let found = bytes
            .windows(PASSWORD.len())
            .any(|part| part == PASSWORD.as_bytes());
        assert!(!found, "{} holds the password", file.display());
    }
}

#[tokio::test]
async fn unknown_and_wrong_ids_are_told() {
    let stage = Stage::new().await;
    for tool in ["check_file_transfer_task", "cancel_file_transfer_task"] {
        let reply = stage.client.call_tool(tool, json!({"task_id": 999})).await;
        assert!(reply.is_error);
        assert_eq!(reply.json["code"], "not_found");
        let reply = stage.client.call_tool(tool, json!({"task_id": 0})).await;
        assert_eq!(reply.json["code"], "invalid_params");
        assert!(reply.text.contains("must be positive"), "{}", reply.text);
    }
    let wrong = json!({"task_id": 1, "force_kill_after_s": -1});
    let tool = "cancel_file_transfer_task";
    let reply = stage.client.call_tool(tool, wrong).await;
    assert_eq!(reply.json["code"], "invalid_params");
}

#[tokio::test]
async fn worker_that_fails_leaves_its_reason() {
    let stage = Stage::new().await;
    let started = stage.start().await;
    // The host comes back as one that knows no such account's key, or simply as one that is there.
    process::signal(stage.host.0.daemon_pid().unwrap(), Signal::CONT);
    assert!(is_gone(started.pid.unwrap()).await);
    let end = stage.check(started.task_id).await;
    assert_eq!(end["stale"], false, "{end}");
    assert!(
        end["status"] == "failed" || end["status"] == "completed",
        "{end}"
    );
    assert!(!end["log_tail"].as_str().unwrap().is_empty());
    assert!(
        end["progress"]["duration_s"].as_f64().unwrap() > 0.0,
        "{end}"
    );
    if end["status"] == "failed" {
        assert!(end["error"].is_string() && end["code"].is_string(), "{end}");
    }
}

#[tokio::test]
async fn transfers_are_listed_shown_and_cancelled_on_the_command_line() {
    let stage = Stage::new().await;
    let none = stage.command(&["transfers"]);
    assert_eq!(text(&none).lines().count(), 1, "{none:?}");
    let started = stage.start().await;
    let id = started.task_id.to_string();
    let list = text(&stage.command(&["transfers"]));
    assert!(list.contains(&id) && list.contains("running"), "{list}");
    assert!(list.contains("/tmp/tree -> there"), "{list}");
    let json = stage.command(&["transfers", "--json"]);
    let json: Value = serde_json::from_str(&text(&json)).unwrap();
    assert_eq!(json["transfers"][0]["task_id"], started.task_id);
    let one = stage.command(&["transfers", &id, "--json"]);
    let one: Value = serde_json::from_str(&text(&one)).unwrap();
    assert_eq!(one["running"], true);
    let cancelled = stage.command(&["transfers", "--cancel", &id]);
    assert!(cancelled.status.success(), "{cancelled:?}");
    assert!(text(&cancelled).contains("cancelled"), "{cancelled:?}");
    let again = text(&stage.command(&["transfers", "--cancel", &id]));
    assert!(again.contains("had ended before: cancelled"), "{again}");
    let again = stage.command(&["transfers", "--cancel", &id, "--json"]);
    let again: Value = serde_json::from_str(&text(&again)).unwrap();
    assert_eq!(
        (&again["task_id"], &again["status"]),
        (&started.task_id.into(), &"cancelled".into())
    );
    let unknown = stage.command(&["transfers", "12"]);
    assert_eq!(unknown.status.code(), Some(1));
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(words.contains("no transfer task 12"), "{words}");
}

#[test]
fn worker_without_an_assignment_ends_with_a_reason() {
    let output = Command::new(program())
        .args(["transfer-worker", "--task-id", "5"])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("no assignment"), "{words}");
    let help = Command::new(program()).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("transfers") && !help.contains("transfer-worker"));
}
