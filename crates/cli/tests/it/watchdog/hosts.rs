//! Hosts that cannot be reached, freeze, come back or are not known.

use std::fs;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::clocks::{Clock, last_look};
use super::stored::rows_of;
use super::{Dog, LIMIT, Stage, events, marked};
use crate::jobs::{Host, check, end_of, started};
use crate::support::{builder, entry, ready, with};

#[tokio::test]
async fn f42_stopped_sshd_is_told_once_after_two_looks_and_recovers_by_itself() {
    let mut stage = Stage::new().await;
    stage.job("sleep 600", json!({})).await;
    let dog = Dog::start(stage.home());
    // It holds a connection when the server goes away under it.
    assert!(wait_until(LIMIT, || stage.host.sshd.accepted_auth_count() >= 2).await);
    stage.host.sshd.stop();
    stage.told(&dog, &["ssh_unreachable"]).await;
    let told = events(stage.home()).remove(0);
    assert_eq!(
        told["payload"]["watch"]["last_state"], "ssh_unreachable",
        "{told}"
    );
    stage.nothing_more(&dog, &["ssh_unreachable"]).await;
    stage.host.sshd.restart();
    let types = ["ssh_unreachable", "running_restored"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
}

#[tokio::test]
async fn f42_host_that_is_away_for_three_days_is_told_once_and_its_task_is_not_lost() {
    let Some(clock) = Clock::new() else { return };
    let mut stage = Stage::new().await;
    let gate = stage.host.sshd.dir().join("gate");
    let command = format!(
        "until [ -e {} ]; do sleep 0.3; done; exit 7",
        gate.display()
    );
    // Whoever took it for lost would resume it.
    let more = json!({"resume_command": "true", "auto_resume": true, "max_resume_attempts": 3});
    let job = stage.job(&command, more).await;
    let dog = clock.dog_with(stage.home(), &[]);
    assert!(wait_until(LIMIT, || last_look(stage.home()) > 0).await);
    stage.host.sshd.stop();
    stage.told(&dog, &["ssh_unreachable"]).await;
    for day in 1..=3 {
        let before = last_look(stage.home());
        clock.set(&format!("+{}", day * 86_400));
        // Nearly a day later by its clock it is asked again, and is not there.
        let asked = || last_look(stage.home()) > before + 80_000_000;
        assert!(wait_until(LIMIT, asked).await, "{day}: {}", dog.log());
    }
    assert_eq!(stage.events(), ["ssh_unreachable"], "{}", dog.log());
    let query =
        "SELECT w.status, w.last_state, cast(a.number AS text), cast(a.ended IS NULL AS text)
        FROM watches w JOIN attempts a ON a.job = w.job";
    let stands = ["active", "ssh_unreachable", "1", "1"];
    assert_eq!(rows_of(stage.home(), query), [stands]);
    let seen = check(&stage.client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["status"], "unreachable", "{seen}");
    stage.host.sshd.restart();
    stage
        .told(&dog, &["ssh_unreachable", "running_restored"])
        .await;
    fs::write(&gate, "").unwrap();
    stage
        .told(&dog, &["ssh_unreachable", "running_restored", "completed"])
        .await;
    assert_eq!(end_of(&stage.client, &job["task_id"]).await["exit_code"], 7);
}

#[tokio::test]
async fn frozen_sshd_is_told_and_the_watchdog_lives_on() {
    let host = Host::start();
    let limits = json!({"keepalive_s": 1, "keepalive_max": 2, "connect_timeout_s": 2, "banner_timeout_s": 2});
    let entry = with(entry("box", &host.sshd), limits);
    let client = ready(builder(&[entry]).start()).await;
    let mut stage = Stage { host, client };
    stage.job("sleep 600", json!({})).await;
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || stage.host.sshd.accepted_auth_count() >= 2).await);
    stage.host.sshd.freeze_sessions();
    stage.host.sshd.stop_listening();
    stage.told(&dog, &["ssh_unreachable"]).await;
    stage.host.sshd.thaw_sessions();
    stage.host.sshd.restart();
    stage
        .told(&dog, &["ssh_unreachable", "running_restored"])
        .await;
}

#[tokio::test]
async fn sandbox_that_is_not_known_any_more_is_told_once() {
    let stage = Stage::new().await;
    stage.job("sleep 600", json!({})).await;
    let state = stage.home().join(".local/state/remote-sandbox-mcp");
    let store = super::stored::open(&state.join("store.sqlite3")).unwrap();
    let forgotten = store.execute("DELETE FROM watched_sandboxes", []);
    assert_eq!(forgotten.unwrap(), 1);
    drop(store);
    let dog = Dog::start(stage.home());
    stage.told(&dog, &["config_missing"]).await;
    stage.nothing_more(&dog, &["config_missing"]).await;
}

#[tokio::test]
async fn watchdog_knows_the_sandboxes_of_several_servers_and_no_password_lies_in_the_store() {
    let (first, second) = (Stage::new().await, Host::start());
    let other = with(
        entry("box", &second.sshd),
        json!({"password": "hunter2-canary", "env": {"API_KEY": "sk-canary-1"}, "init": "export X=init-canary"}),
    );
    let server = ready(builder(&[other]).home(first.home()).start()).await;
    let marker = second.sshd.dir().join("begun");
    first.job("sleep 600", json!({})).await;
    let watched = json!({
        "interval_s": 1, "resume_delay_s": 0, "ensure_watchdog": false, "notify_local": false,
        "resume_command": format!("echo $API_KEY-$X >>{}; exit 0", marker.display()), "auto_resume": true,
    });
    let job = started(&server, &marked(&marker, "first"), watched).await;
    assert!(wait_until(LIMIT, || super::begun(&marker, "first") == 1).await);
    first.kill(&job);
    let dog = Dog::start(first.home());
    first
        .told(&dog, &["interrupted", "resume_started", "completed"])
        .await;
    let text = fs::read_to_string(&marker).unwrap();
    assert!(text.contains("sk-canary-1-init-canary"), "{text}");
    let state = first.home().join(".local/state/remote-sandbox-mcp");
    for file in ["store.sqlite3", "store.sqlite3-wal"] {
        let bytes = fs::read(state.join(file)).unwrap_or_default();
        for canary in ["hunter2-canary", "sk-canary", "init-canary"] {
            let found = bytes
                .windows(canary.len())
                .any(|part| part == canary.as_bytes());
            assert!(!found, "{canary} in {file}");
        }
    }
    remote_sandbox_testkit::process::kill_and_wait(&second.sshd.command_pids());
}

#[tokio::test]
async fn tick_is_in_the_log_with_its_size_and_time_when_its_visits_are_over() {
    let stage = Stage::new().await;
    // Not due while this test runs.
    stage.job("sleep 600", json!({"interval_s": 600})).await;
    stage.job("sleep 600", json!({})).await;
    let dog = Dog::start_with(stage.home(), &["-v"], &[]);
    let ticks = || {
        dog.log()
            .matches(" tick watches=1 hosts=1 seconds=")
            .count()
    };
    assert!(wait_until(LIMIT, || ticks() >= 2).await, "{}", dog.log());
}

#[tokio::test]
async fn f46_dead_host_among_several_delays_nobody() {
    let mut hosts: Vec<Host> = (0..4).map(|_| Host::start()).collect();
    // It takes connections and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut entries: Vec<_> = hosts
        .iter()
        .enumerate()
        .map(|(number, host)| entry(&format!("box{number}"), &host.sshd))
        .collect();
    let mut dead = Host::start();
    entries.push(entry("dead", &dead.sshd));
    let client = ready(builder(&entries).start()).await;
    let stage = Stage {
        host: hosts.remove(0),
        client,
    };
    for number in 0..4 {
        stage
            .job("sleep 600", json!({"sandbox_name": format!("box{number}")}))
            .await;
    }
    stage
        .job("sleep 600", json!({"sandbox_name": "dead"}))
        .await;
    // From now on connections to it go to the one that never answers.
    let state = stage
        .home()
        .join(".local/state/remote-sandbox-mcp/store.sqlite3");
    let from = format!("\"port\":{}", dead.sshd.port());
    let to = format!("\"port\":{port}");
    let store = super::stored::open(&state).unwrap();
    let change =
        "UPDATE watched_sandboxes SET entry = replace(entry, ?1, ?2) WHERE instr(entry, ?1)";
    assert_eq!(store.execute(change, [&from, &to]).unwrap(), 1);
    drop(store);
    dead.sshd.stop();
    let dog = Dog::start(stage.home());
    let logins = |host: &Host| host.sshd.accepted_auth_count() >= 2;
    assert!(wait_until(LIMIT, || logins(&stage.host) && hosts.iter().all(logins)).await);
    let begin = Instant::now();
    let job = stage
        .job("sleep 2; exit 5", json!({"sandbox_name": "box2"}))
        .await;
    let completed = || {
        let told = events(stage.home());
        told.iter()
            .any(|event| event["watch_id"] == job["watch_id"])
    };
    assert!(wait_until(LIMIT, completed).await, "{}", dog.log());
    let passed = begin.elapsed();
    assert!(passed < Duration::from_secs(8), "{passed:?}");
    for host in &hosts {
        remote_sandbox_testkit::process::kill_and_wait(&host.sshd.command_pids());
    }
    remote_sandbox_testkit::process::kill_and_wait(&dead.sshd.command_pids());
}
