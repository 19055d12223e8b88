//! From the start of a watched job to its end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::json;

use super::{Dog, LIMIT, Stage, begun, events, events_of, marked};
use crate::jobs::{check, started};
use crate::local::support::Setup;

#[tokio::test]
async fn interrupted_job_is_resumed_once_in_its_session_and_its_log_and_completes() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let folder = stage.host.sshd.dir().join("work");
    fs::create_dir(&folder).unwrap();
    let resume = format!("pwd; echo again >>{}; exit 3", marker.display());
    let more = json!({
        "resume_command": resume, "auto_resume": true, "session_name": "train", "cwd": folder,
    });
    let job = stage.job(&marked(&marker, "first"), more).await;
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    let types = ["interrupted", "resume_started", "completed"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    assert_eq!((begun(&marker, "first"), begun(&marker, "again")), (1, 1));
    let seen = check(&stage.client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["exit_code"], 3, "{seen}");
    assert_eq!(seen["tmux_session"], "train", "{seen}");
    assert_eq!(seen["log_file"], job["log_file"], "{seen}");
    let log = fs::read_to_string(job["log_file"].as_str().unwrap()).unwrap();
    assert!(log.contains(folder.to_str().unwrap()), "{log}");
    let told = events(stage.home());
    let last = &told[2];
    assert_eq!(last["watch_id"], job["watch_id"], "{last}");
    assert_eq!(last["payload"]["watch"]["status"], "completed", "{last}");
    let tail = last["payload"]["log_tail"].as_str().unwrap();
    assert!(tail.contains("EXIT_CODE=3"), "{last}");
    let folder = stage.home().join(".local/state/remote-sandbox-mcp/events");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let file = folder.join(format!("event-{}.json", last["id"]));
    assert_eq!(mode(&file), 0o600);
}

#[tokio::test]
async fn job_that_is_asked_to_end_with_its_whole_session_is_interrupted_and_resumed() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let resume = format!("echo two; echo again >>{}; exit 3", marker.display());
    let more = json!({"resume_command": resume, "auto_resume": true});
    let command = format!("echo one; {}", marked(&marker, "first"));
    let job = stage.job(&command, more).await;
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    // As systemd does with what a login has left, when it ends sessions or shuts the host down.
    for pid in super::tree(&job) {
        process::signal(pid, Signal::TERM);
    }
    stage
        .told(&dog, &["interrupted", "resume_started", "completed"])
        .await;
    assert_eq!((begun(&marker, "first"), begun(&marker, "again")), (1, 1));
    let task = job["task_id"].as_str().unwrap();
    let mut logs = std::process::Command::new(crate::support::program());
    let list = json!([crate::support::entry("box", &stage.host.sshd)]).to_string();
    let logs = logs.args(["job", "logs", task]).env("HOME", stage.home());
    let logs = logs.env("REMOTE_SANDBOX_LIST", list).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&logs.stdout),
        "one\ntwo\nEXIT_CODE=3\n",
        "of both attempts"
    );
}

#[tokio::test]
async fn watchdog_by_its_old_name_and_flags_looks_after_jobs() {
    let stage = Stage::new().await;
    let job = stage.job("exit 5", json!({})).await;
    let state = stage.home().join(".local/state/remote-sandbox-mcp");
    let store = state.join("watchdog.sqlite3");
    let config = stage.home().join("old.json");
    fs::write(
        &config,
        r#"{"schema_version": 1, "saved_at": "2026-01-01", "sandboxes": []}"#,
    )
    .unwrap();
    let words = [
        "daemon",
        "--config",
        config.to_str().unwrap(),
        "--db",
        store.to_str().unwrap(),
        "--loop-sleep",
        "0.3",
    ];
    let dog = Dog::called(stage.home(), &words, &[]);
    stage.told(&dog, &["completed"]).await;
    let told = events(stage.home());
    assert_eq!(told[0]["watch_id"], job["watch_id"], "{told:?}");
    assert!(!dog.log().contains("schema_version"), "{}", dog.log());
}

#[tokio::test]
async fn interrupted_job_without_a_resume_command_is_told_and_left_alone() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let job = stage.job(&marked(&marker, "first"), json!({})).await;
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    stage.told(&dog, &["interrupted"]).await;
    stage.nothing_more(&dog, &["interrupted"]).await;
    assert_eq!(begun(&marker, "first"), 1);
}

#[tokio::test]
async fn f43_resume_that_is_refused_each_time_ends_exhausted_and_never_loops() {
    let stage = Stage::new().await;
    let folder = stage.host.sshd.dir().join("gone");
    fs::create_dir(&folder).unwrap();
    let more = json!({
        "resume_command": "true", "auto_resume": true, "max_resume_attempts": 1, "cwd": folder,
        "log_file": stage.host.sshd.dir().join("log"),
    });
    let job = stage.job("sleep 600", more).await;
    stage.kill(&job);
    fs::remove_dir(&folder).unwrap();
    let dog = Dog::start(stage.home());
    let types = ["interrupted", "resume_failed", "exhausted"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    let failed = &events(stage.home())[1];
    assert!(failed.to_string().contains("working directory"), "{failed}");
    assert_eq!(
        events(stage.home())[2]["payload"]["watch"]["status"],
        "exhausted"
    );
}

#[tokio::test]
async fn f43_resume_that_dies_is_counted_and_not_repeated_beyond_its_limit() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({
        "resume_command": marked(&marker, "again"), "auto_resume": true, "max_resume_attempts": 1,
    });
    let job = stage.job(&marked(&marker, "first"), more).await;
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    stage.told(&dog, &["interrupted", "resume_started"]).await;
    assert!(wait_until(LIMIT, || begun(&marker, "again") == 1).await);
    stage.kill(&job);
    let types = ["interrupted", "resume_started", "interrupted", "exhausted"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    assert_eq!(begun(&marker, "again"), 1);
}

#[tokio::test]
async fn alarm_stall_and_growing_log_are_each_told_once() {
    let stage = Stage::new().await;
    let command =
        "echo 'CUDA out of memory'; yes filling | head -c 400000; echo 'loss: nan'; sleep 600";
    stage.job(command, json!({"stall_after_s": 2})).await;
    let dog = Dog::start(stage.home());
    let types = ["alarm", "alarm", "stalled"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    let told = events(stage.home());
    let tail = told[2]["payload"]["log_tail"].as_str().unwrap();
    assert!(tail.ends_with("loss: nan\n"), "{}", told[2]);
    assert!(tail.lines().count() <= 80);
}

#[tokio::test]
async fn f45_checkpoint_of_any_kind_is_read_within_bounds_or_told_and_never_hangs() {
    let stage = Stage::new().await;
    let dir = stage.host.sshd.dir().to_owned();
    let large = dir.join("large");
    let file = fs::File::create(&large).unwrap();
    file.set_len(2 << 30).unwrap();
    let fifo = dir.join("fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let broken = dir.join("broken.json");
    fs::write(&broken, "{\"step\":").unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::open(&broken).unwrap().set_modified(old).unwrap();
    let good = dir.join("good.json");
    fs::write(&good, "{\"step\": 7}").unwrap();
    stage
        .job(
            "sleep 600",
            json!({"checkpoint_path": large, "watch_name": "large"}),
        )
        .await;
    stage
        .job(
            "sleep 600",
            json!({"checkpoint_path": fifo, "watch_name": "fifo"}),
        )
        .await;
    let json_file =
        json!({"checkpoint_path": broken, "checkpoint_format": "json", "watch_name": "broken"});
    stage.job("sleep 600", json_file).await;
    let hung = json!({"checkpoint_command": "sleep 60", "watch_name": "hung"});
    stage.job("sleep 600", hung).await;
    let more = json!({"checkpoint_path": good, "checkpoint_format": "json", "watch_name": "good"});
    let last = stage.job("sleep 600", more).await;
    let dog = Dog::start(stage.home());
    assert!(
        wait_until(LIMIT, || stage.events().len() >= 3).await,
        "{}",
        dog.log()
    );
    stage.kill(&last);
    stage
        .told(&dog, &["alarm", "alarm", "alarm", "interrupted"])
        .await;
    let told = events(stage.home());
    assert_eq!(
        told[3]["payload"]["checkpoint_text"], "{\"step\": 7}",
        "{}",
        told[3]
    );
}

#[tokio::test]
async fn watchdog_ends_cleanly_on_a_signal_and_the_next_one_begins_at_once() {
    let stage = Stage::new().await;
    stage.job("sleep 600", json!({"interval_s": 300})).await;
    let mut first = Dog::start_with(stage.home(), &["--lease", "60", "-v"], &[]);
    assert!(wait_until(LIMIT, || first.log().contains("the watchdog works")).await);
    process::signal(first.pid(), Signal::TERM);
    assert!(first.ended().await);
    assert_eq!(
        first.child.wait().unwrap().code(),
        Some(0),
        "{}",
        first.log()
    );
    let second = Dog::start_with(stage.home(), &["--lease", "60", "-v"], &[]);
    assert!(
        wait_until(Duration::from_secs(5), || second
            .log()
            .contains("the watchdog works"))
        .await
    );
}

#[tokio::test]
async fn job_of_a_local_sandbox_is_watched_and_resumed_too() {
    let local = Setup::new().start().await;
    let watched = json!({
        "interval_s": 1, "resume_delay_s": 0, "ensure_watchdog": false, "notify_local": false,
        "resume_command": "echo again; exit 4", "auto_resume": true,
    });
    let job = started(&local.client, "sleep 71.375", watched).await;
    let running = || process::with_command_line("sleep 71.375");
    assert!(wait_until(LIMIT, || !running().is_empty()).await);
    let runner = format!("{}/1/runner", job["task_id"].as_str().unwrap());
    let mut pids = process::with_command_line(&runner);
    pids.extend(running());
    assert!(process::kill_and_wait(&pids));
    let state = local.server.state();
    let store = state.join("store.sqlite3");
    let dog = Dog::start_with(local.home(), &["--db", store.to_str().unwrap()], &[]);
    let told = || events_of(&state).len() >= 3;
    assert!(wait_until(LIMIT, told).await, "{}", dog.log());
    let told = events_of(&state);
    let words: Vec<_> = told
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["interrupted", "resume_started", "completed"]);
}
