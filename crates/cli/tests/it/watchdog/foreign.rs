//! A task that somebody started by hand in tmux, as the Python package does, is looked after too.

use std::fs;
use std::path::PathBuf;

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::stored::rows_of;
use super::{Dog, LIMIT, Stage, begun, events};
use crate::jobs::{Ends, Host, check};
use crate::support::{builder, entry, ready};

/// What an event says of a task whose session is gone.
const GONE: &str = "its process is gone and left no record of its end";

async fn stage() -> Stage {
    let host = Host::start();
    let server = builder(&[entry("box", &host.sshd)]);
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    let client = ready(server.start()).await;
    Stage { host, client }
}

/// Starts a task as the package does: a session, a log, and a line about the end in it.
fn begin(stage: &Stage, session: &str, command: &str) -> PathBuf {
    let log = stage.host.home().join(format!("{session}.log"));
    // With the login files of the host of this test, of which there are none: those of this machine may take long.
    let line = format!(
        "HOME={1} bash -lc '{{ {command}; }} >> {0} 2>&1; echo \"EXIT_CODE=$?\" >> {0}'",
        log.display(),
        stage.host.home().display()
    );
    stage
        .host
        .tmux(&["new-session", "-d", "-s", session, &line]);
    let names = || stage.host.tmux(&["list-sessions", "-F", "#{session_name}"]);
    assert!(names().lines().any(|name| name == session), "{}", names());
    log
}

async fn watch(client: &McpClient, order: Value) -> Value {
    let reply = client.call_tool("watch_background_task", order).await;
    assert!(!reply.is_error, "{}", reply.text);
    reply.json
}

#[tokio::test]
async fn f41_task_of_somebody_else_is_resumed_once_when_its_session_is_gone() {
    let stage = stage().await;
    let marker = stage.host.sshd.dir().join("begun");
    let command = format!("echo first >>{}; sleep 603.125", marker.display());
    let log = begin(&stage, "old", &command);
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    let resume = format!("echo again >>{}; echo resumed; exit 4", marker.display());
    let order = json!({
        "tmux_session": "old", "log_file": log, "resume_command": resume, "auto_resume": true,
        "max_resume_attempts": 2, "resume_delay_s": 0, "interval_s": 1, "ensure_watchdog": false,
        "notify_local": false,
    });
    let added = watch(&stage.client, order).await;
    let dog = Dog::start(stage.home());
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(stage.events(), Vec::<String>::new(), "{}", dog.log());
    stage.host.tmux(&["kill-server"]);
    process::kill_and_wait(&process::with_command_line("sleep 603.125"));
    let types = ["interrupted", "resume_started", "completed"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    assert_eq!((begun(&marker, "first"), begun(&marker, "again")), (1, 1));
    let told = events(stage.home());
    assert!(
        told.iter()
            .all(|event| event["watch_id"] == added["watch_id"]),
        "{told:?}"
    );
    let payload = &told[0]["payload"];
    assert_eq!(payload["state"], "lost", "{payload}");
    assert_eq!(payload["reason"], GONE, "{payload}");
    // By the resume it has become a job of ours, with the same session and log.
    let seen = check(&stage.client, json!({"watch_id": added["watch_id"]})).await;
    assert_eq!(seen["exit_code"], 4, "{seen}");
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.contains("resumed") && text.contains("EXIT_CODE=4"),
        "{text}"
    );
}

#[tokio::test]
async fn f41_killed_session_of_somebody_else_is_told_and_the_one_beside_it_goes_on() {
    let _ends = (Ends("sleep 604.125"), Ends("sleep 605.125"));
    let stage = stage().await;
    let mut watches = Vec::new();
    // The first session is what tmux itself is started with, so it is the one that stays.
    for (session, command) in [("stays", "sleep 604.125"), ("goes", "sleep 605.125")] {
        let log = begin(&stage, session, command);
        let order = json!({
            "tmux_session": session, "log_file": log, "interval_s": 1, "ensure_watchdog": false,
            "notify_local": false,
        });
        watches.push(watch(&stage.client, order).await["watch_id"].clone());
    }
    let dog = Dog::start(stage.home());
    let running = "SELECT session FROM watches WHERE last_state = 'running'";
    let are_seen = || rows_of(stage.home(), running).len() == 2;
    assert!(wait_until(LIMIT, are_seen).await, "{}", dog.log());
    stage.host.tmux(&["kill-session", "-t", "=goes"]);
    stage.told(&dog, &["interrupted"]).await;
    stage.nothing_more(&dog, &["interrupted"]).await;
    let told = events(stage.home()).remove(0);
    assert_eq!(told["watch_id"], watches[1], "{told}");
    assert_eq!(told["payload"]["reason"], GONE, "{told}");
}

#[tokio::test]
async fn task_of_somebody_else_that_ends_is_told_once_and_left_alone() {
    let stage = stage().await;
    let marker = stage.host.sshd.dir().join("begun");
    let command = format!("echo first >>{}; sleep 2; (exit 5)", marker.display());
    let log = begin(&stage, "short", &command);
    let order = json!({
        "tmux_session": "short", "log_file": log, "resume_command": format!("echo again >>{}", marker.display()),
        "auto_resume": true, "resume_delay_s": 0, "interval_s": 1, "ensure_watchdog": false,
        "notify_local": false,
    });
    watch(&stage.client, order).await;
    let dog = Dog::start(stage.home());
    stage.told(&dog, &["completed"]).await;
    stage.nothing_more(&dog, &["completed"]).await;
    assert_eq!((begun(&marker, "first"), begun(&marker, "again")), (1, 0));
    let told = events(stage.home());
    assert_eq!(told[0]["payload"]["exit_code"], 5, "{}", told[0]);
}

#[tokio::test]
async fn watch_that_cannot_be_looked_at_is_an_alarm_and_no_unreachable_host() {
    let stage = stage().await;
    let order = json!({
        "tmux_session": "nobody", "log_file": "/tmp/nothing.log", "checkpoint_path": "c",
        "interval_s": 1, "ensure_watchdog": false, "notify_local": false,
    });
    watch(&stage.client, order).await;
    // As a version wrote it down that did not look at it.
    let path = stage
        .home()
        .join(".local/state/remote-sandbox-mcp/store.sqlite3");
    let store = super::stored::open(&path).unwrap();
    store
        .execute("UPDATE watches SET cwd = 'a' || char(10) || 'b'", [])
        .unwrap();
    let dog = Dog::start(stage.home());
    stage.told(&dog, &["alarm"]).await;
    stage.nothing_more(&dog, &["alarm"]).await;
    let told = events(stage.home()).remove(0);
    assert_eq!(told["payload"]["alarm"], "not_looked_at", "{told:#}");
    let summary = told["summary"].as_str().unwrap();
    assert!(
        summary.contains("cannot look at the task: `cwd`"),
        "{summary}"
    );
}

#[tokio::test]
async fn event_has_as_many_lines_as_were_asked_for_and_all_of_them_whole() {
    let stage = stage().await;
    let lines = "for n in $(seq 1 300); do printf \"%0250d\\n\" $n; done";
    let script = stage.host.home().join("lines.sh");
    fs::write(&script, lines).unwrap();
    let command = format!("bash {}", script.display());
    let log = begin(&stage, "long", &command);
    let order = json!({
        "tmux_session": "long", "log_file": log, "max_log_lines": 200, "interval_s": 1,
        "ensure_watchdog": false, "notify_local": false,
    });
    watch(&stage.client, order).await;
    stage.job(&command, json!({"max_log_lines": 200})).await;
    let dog = Dog::start(stage.home());
    stage.told(&dog, &["completed", "completed"]).await;
    for event in events(stage.home()) {
        let tail = event["payload"]["log_tail"].as_str().unwrap();
        let lines: Vec<&str> = tail.lines().collect();
        assert_eq!(lines.len(), 200, "{event:#}");
        assert_eq!(lines.last(), Some(&"EXIT_CODE=0"));
        assert!(lines[..199].iter().all(|line| line.len() == 250), "{tail}");
    }
}
