//! Jobs in sandboxes on this machine.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::beside::Beside;
use super::{LIMIT, check, end_of, started};
use crate::local::support::{Local, Setup};
use crate::support::program;

#[tokio::test]
async fn job_of_a_local_sandbox_outlives_the_server_and_ends_with_the_sandbox() {
    let local = Setup::new().start().await;
    let job = started(&local.client, "echo up; sleep 69.375", json!({})).await;
    assert_eq!(job["sandbox"], "local");
    assert!(
        job["note"]
            .as_str()
            .unwrap()
            .contains("deleting its sandbox"),
        "{job}"
    );
    let running = || !process::with_command_line("sleep 69.375").is_empty();
    assert!(wait_until(LIMIT, running).await);
    local.client.close_stdin().await;
    assert!(local.client.wait_exit(LIMIT).await.is_some());
    assert!(running());
    let second = local.server.start().await;
    let query = json!({"task_id": job["task_id"]});
    let seen = check(&second, query.clone()).await;
    assert_eq!(seen["running"], true, "{seen}");
    assert_eq!(seen["log_tail"], "up\n", "{seen}");
    let short = started(&second, "exit 6", json!({})).await;
    assert_eq!(end_of(&second, &short["task_id"]).await["exit_code"], 6);
    let stopped = second.call_tool("stop_background_task", query).await.json;
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert!(wait_until(LIMIT, || !running()).await);
    let last = started(&second, "sleep 69.375", json!({})).await;
    assert!(wait_until(LIMIT, running).await);
    let delete = json!({"sandbox_id": "local"});
    second.call_tool("delete_sandbox", delete).await;
    assert!(wait_until(LIMIT, || !running()).await, "{last}");
}

#[tokio::test]
async fn jobs_of_a_deleted_sandbox_are_stopped_and_can_still_be_asked_for() {
    let local = Setup::new().start().await;
    let client = &local.client;
    let made = client
        .call_tool("create_sandbox", json!({"name": "lab"}))
        .await;
    assert!(!made.is_error, "{}", made.text);
    let there = json!({"sandbox_name": "lab", "ensure_watchdog": false, "notify_local": false});
    let over = started(client, "exit 6", there.clone()).await;
    assert_eq!(end_of(client, &over["task_id"]).await["exit_code"], 6);
    let job = started(client, "sleep 600", there).await;
    let deleted = client
        .call_tool("delete_sandbox", json!({"sandbox_id": "lab"}))
        .await;
    assert!(!deleted.is_error, "{}", deleted.text);
    let seen = check(client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["status"], "stopped", "{seen}");
    assert_eq!(seen["running"], false, "{seen}");
    let seen = check(client, json!({"task_id": over["task_id"]})).await;
    assert_eq!(seen["exit_code"], 6, "{seen}");
    let watch = json!({"watch_id": job["watch_id"]});
    let watch = client.call_tool("get_background_watch", watch).await;
    assert_ne!(watch.json["watch"]["status"], "active", "{}", watch.text);
}

/// A program of ours beside a server with local sandboxes.
fn beside(local: &Local, words: &[&str]) -> Beside {
    let mut command = Command::new(program());
    command
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", local.home())
        .env("REMOTE_SANDBOX_MCP_HOME", local.server.state())
        .env("REMOTE_SANDBOX_WATCHDOG", "off")
        .stdin(Stdio::null());
    Beside::start(command)
}

/// A watchdog that has no configuration of its own.
fn watchdog_beside(local: &Local) -> Beside {
    let words = ["watchdog", "run", "--loop-sleep", "0.2", "--lease", "5"];
    beside(local, &words)
}

fn watched(resume: &str) -> serde_json::Value {
    json!({
        "interval_s": 1, "resume_delay_s": 0, "ensure_watchdog": false, "notify_local": false,
        "resume_command": resume, "auto_resume": true,
    })
}

#[tokio::test]
async fn logs_follow_a_local_job_whose_supervisor_is_killed_into_its_resume() {
    let local = Setup::new().start().await;
    let first = "for n in $(seq 1 3000); do echo \"line $n\"; sleep 0.02; done";
    let resume = "for n in 1 2 3; do echo \"again $n\"; sleep 0.3; done; exit 4";
    let job = started(&local.client, first, watched(resume)).await;
    let id = job["task_id"].as_str().unwrap();
    let follow = beside(&local, &["job", "logs", "-f", id]);
    let log = std::path::PathBuf::from(job["log_file"].as_str().unwrap());
    let written = || std::fs::metadata(&log).map_or(0, |found| found.len());
    assert!(wait_until(LIMIT, || written() > 500).await);
    process::kill_and_wait(&[local.server.supervisor("local")]);
    let _watchdog = watchdog_beside(&local);
    let followed = follow.end().await;
    let errors = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.success(), "{errors}");
    let log = std::fs::read(&log).unwrap();
    assert!(log.ends_with(b"again 3\nEXIT_CODE=4\n"), "{errors}");
    assert!(
        followed.stdout == log,
        "{} and {} bytes: {errors}",
        followed.stdout.len(),
        log.len()
    );
    assert!(errors.contains("exited 4"), "{errors}");
}

#[tokio::test]
async fn watchdog_looks_at_a_local_job_with_the_settings_it_was_started_with() {
    let local = Setup::new()
        .local("network = \"off\"\nenv = { MARK = \"kept\" }")
        .start()
        .await;
    let resume = "echo \"MARK=$MARK\"; exit 4";
    let job = started(&local.client, "sleep 72.375", watched(resume)).await;
    let running = || process::with_command_line("sleep 72.375");
    assert!(wait_until(LIMIT, || !running().is_empty()).await);
    let runner = format!("{}/1/runner", job["task_id"].as_str().unwrap());
    let mut pids = process::with_command_line(&runner);
    pids.extend(running());
    // It has neither this configuration nor another one.
    let watchdog = watchdog_beside(&local);
    let task = json!({"task_id": job["task_id"]});
    // It would tell by now that it cannot look at it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(check(&local.client, task.clone()).await["running"], true);
    assert!(process::kill_and_wait(&pids));
    let mut seen = check(&local.client, task.clone()).await;
    let begun = Instant::now();
    while seen["exit_code"] != 4 && begun.elapsed() < LIMIT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        seen = check(&local.client, task.clone()).await;
    }
    drop(watchdog);
    assert_eq!(seen["exit_code"], 4, "{seen}");
    let tail = seen["log_tail"].as_str().unwrap();
    assert!(tail.contains("MARK=kept\n"), "{seen}");
    let events = local.server.state().join("events");
    let events: Vec<String> = std::fs::read_dir(events)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    assert!(
        events
            .iter()
            .all(|event| !event.contains("ssh_unreachable")),
        "{events:?}"
    );
}
