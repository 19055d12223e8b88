//! The tools about watches: the true binary as server and as watchdog, a real sshd.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::{Ends, Host, LIMIT, end_of, started};
use crate::compatibility::assert_produced;
use crate::support::{builder, entry, program, ready, with};

/// A host and a server that offers every tool and knows it as `box`.
pub(super) async fn stage() -> (Host, McpClient) {
    let host = Host::start();
    let client = advanced(&[entry("box", &host.sshd)], &[]).await;
    (host, client)
}

pub(super) async fn advanced(sandboxes: &[Value], more: &[(&str, &str)]) -> McpClient {
    let mut server = builder(sandboxes).env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    for (name, value) in more {
        server = server.env(*name, *value);
    }
    ready(server.start()).await
}

/// A watchdog that looks once at what is due; it knows nothing of the server's configuration.
pub(super) fn look_once(home: &Path) -> Output {
    let output = Command::new(program())
        .args(["watchdog", "run", "--once", "--lease", "3"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    output
}

pub(super) async fn call(client: &McpClient, tool: &str, arguments: Value) -> Value {
    let reply = client.call_tool(tool, arguments).await;
    assert!(!reply.is_error, "{tool}: {}", reply.text);
    reply.json
}

async fn refused(client: &McpClient, tool: &str, arguments: Value) -> ToolReply {
    let reply = client.call_tool(tool, arguments.clone()).await;
    assert!(reply.is_error, "{tool} {arguments}: {}", reply.text);
    reply
}

#[tokio::test]
async fn watch_of_a_job_is_listed_read_told_and_ended() {
    let (host, client) = stage().await;
    let checkpoint = host.home().join("work/progress.json");
    std::fs::create_dir(host.home().join("work")).unwrap();
    let command = "echo one; echo '{\"step\":3}' > progress.json; exit 4";
    let more = json!({"interval_s": 1, "checkpoint_path": "progress.json", "checkpoint_format": "json",
        "cwd": "~/work", "run_id": "r1", "watch_name": "first", "resume_command": "again",
        "metadata_json": "{\"a\":1}", "resume_plan_json": "{\"checkpoint_command\":\"cat progress.json\"}"});
    let job = started(&client, command, more).await;
    let watch = job["watch_id"].clone();
    end_of(&client, &job["task_id"]).await;
    assert!(checkpoint.exists());
    let before = call(&client, "get_background_watch", json!({"watch_id": watch})).await;
    assert_eq!(
        before["watch"]["last_state"], "unknown",
        "nobody has looked"
    );
    tokio::time::sleep(Duration::from_millis(1100)).await;
    look_once(client.home());
    let got = call(&client, "get_background_watch", json!({"watch_id": watch})).await;
    let row = &got["watch"];
    assert_eq!(
        (&row["status"], &row["last_exit_code"]),
        (&json!("completed"), &json!(4)),
        "{row:#}"
    );
    assert_eq!(
        (&row["run_id"], &row["name"]),
        (&json!("r1"), &json!("first"))
    );
    assert_eq!(row["metadata"], json!({"a": 1}));
    assert_eq!(row["resume_plan"]["resume_command"], "again");
    assert!(
        row["created_ts"].as_u64().unwrap() < 10_000_000_000,
        "whole seconds"
    );
    let unknown = refused(&client, "get_background_watch", json!({"watch_id": 99})).await;
    assert_eq!(unknown.json["code"], "not_found");
    assert_eq!(unknown.json["error"], "Unknown watch id: 99");
    assert_produced("get_background_watch", &[got, unknown.json.clone()]);
    listed_and_ended(&client, &watch, unknown.json).await;
}

/// Lists a watch that is over and its events, and tries to end it once more.
async fn listed_and_ended(client: &McpClient, watch: &Value, unknown: Value) {
    let list = call(client, "list_background_watches", json!({})).await;
    assert_eq!(list["watches"][0]["id"], *watch);
    let none = call(
        client,
        "list_background_watches",
        json!({"status": "active"}),
    )
    .await;
    assert_eq!(none["watches"], json!([]));
    let wrong = refused(client, "list_background_watches", json!({"status": "odd"})).await;
    assert_eq!(wrong.json["code"], "invalid_params");
    assert_produced("list_background_watches", &[list, wrong.json]);
    let events = call(
        client,
        "list_background_watch_events",
        json!({"watch_id": watch}),
    )
    .await;
    assert_eq!(events["events"][0]["event_type"], "completed", "{events:#}");
    assert_eq!(events["events"][0]["watch_id"], *watch);
    let wrong = refused(client, "list_background_watch_events", json!({"limit": 0})).await;
    assert_produced("list_background_watch_events", &[events, wrong.json]);
    let ended = call(
        client,
        "cancel_background_watch",
        json!({"watch_id": watch}),
    )
    .await;
    assert_eq!(
        ended["watch"]["status"], "completed",
        "what is over stays as it is"
    );
    assert!(ended["note"].is_string());
    assert_produced("cancel_background_watch", &[ended, unknown]);
}

async fn numbers_are_checked(client: &McpClient, watch: &Value) {
    let progress = "get_background_watch_progress";
    for (tool, field) in [
        (progress, "log_lines"),
        (progress, "checkpoint_max_bytes"),
        ("read_background_watch_log", "last_n_lines"),
        ("read_background_watch_checkpoint", "max_bytes"),
    ] {
        let wrong = refused(client, tool, with(watch.clone(), json!({field: 0}))).await;
        assert!(wrong.text.contains(field), "{}", wrong.text);
    }
}

/// The checkpoint that a command tells, and the refusal where there is none.
async fn told_by_a_command(client: &McpClient) -> Value {
    let checkpoint_tool = "read_background_watch_checkpoint";
    let more = json!({"checkpoint_command": "echo seven; exit 3"});
    let told = started(client, "true", more).await;
    let told = call(
        client,
        checkpoint_tool,
        json!({"watch_id": told["watch_id"]}),
    )
    .await;
    assert_eq!(
        (
            &told["checkpoint"]["raw"],
            &told["command_result"]["exit_code"]
        ),
        (&json!("seven\n"), &json!(3))
    );
    let plain = started(client, "true", json!({})).await;
    let nothing = refused(
        client,
        checkpoint_tool,
        json!({"watch_id": plain["watch_id"]}),
    )
    .await;
    assert!(nothing.text.contains("no checkpoint"), "{}", nothing.text);
    told
}

#[tokio::test]
async fn progress_log_and_checkpoint_are_read_live() {
    let (mut host, client) = stage().await;
    let command = "echo '{\"step\":3}' > ~/p.json; echo half; exit 2";
    let more = json!({"checkpoint_path": "~/p.json", "checkpoint_format": "json"});
    let job = started(&client, command, more).await;
    end_of(&client, &job["task_id"]).await;
    let watch = json!({"watch_id": job["watch_id"]});
    let tool = "get_background_watch_progress";
    let live = call(&client, tool, watch.clone()).await;
    assert_eq!(live["live"]["checkpoint"]["parsed"]["step"], 3, "{live:#}");
    assert_eq!(live["live"]["task"]["exit_code"], 2);
    assert_eq!(live["live"]["errors"], json!([]));
    assert_eq!(
        live["stored"]["checkpoint"],
        Value::Null,
        "nobody has looked"
    );
    let log_tool = "read_background_watch_log";
    let log = call(&client, log_tool, watch.clone()).await;
    assert_eq!(log["log"]["log_tail"], "half\nEXIT_CODE=2\n", "{log:#}");
    let short = with(watch.clone(), json!({"last_n_lines": 1}));
    let short = call(&client, log_tool, short).await;
    assert_eq!(short["log"]["log_tail"], "EXIT_CODE=2\n");
    let checkpoint_tool = "read_background_watch_checkpoint";
    let read = call(&client, checkpoint_tool, watch.clone()).await;
    assert_eq!(read["checkpoint"]["raw"], "{\"step\":3}\n", "{read:#}");
    assert_eq!(read["file_result"]["size"], 11);
    let part = with(watch.clone(), json!({"max_bytes": 5}));
    let part = call(&client, checkpoint_tool, part).await;
    assert_eq!(
        (
            &part["checkpoint"]["raw"],
            &part["file_result"]["truncated"]
        ),
        (&json!("{\"ste"), &json!(true))
    );
    numbers_are_checked(&client, &watch).await;
    let told = told_by_a_command(&client).await;
    let stored = with(watch.clone(), json!({"refresh_live": false}));
    assert_eq!(call(&client, tool, stored).await["live"], Value::Null);
    let waiting = started(
        &client,
        "true",
        json!({"interval_s": 1, "checkpoint_command": "echo 7"}),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    look_once(client.home());
    let seen = call(&client, tool, json!({"watch_id": waiting["watch_id"]})).await;
    assert_eq!(seen["stored"]["checkpoint"]["raw"], "7\n", "{seen:#}");
    host.sshd.stop();
    let dark = call(&client, tool, watch.clone()).await;
    assert_eq!(
        dark["live"]["errors"].as_array().unwrap().len(),
        2,
        "{dark:#}"
    );
    let unknown = refused(&client, tool, json!({"watch_id": 5})).await.json;
    assert_produced(tool, &[live, seen, dark, unknown.clone()]);
    assert_produced(log_tool, &[log, unknown.clone()]);
    assert_produced(checkpoint_tool, &[read, told, unknown]);
}

#[tokio::test]
async fn task_of_somebody_else_is_watched_and_found_by_its_watch() {
    let _ends = Ends("sleep 72.125");
    let (host, client) = stage().await;
    let log = host.home().join("old.log");
    std::fs::write(&log, "begun\n").unwrap();
    host.tmux(&["new-session", "-d", "-s", "old", "sleep 72.125"]);
    let tool = "watch_background_task";
    let task = json!({"tmux_session": "old", "log_file": log, "resume_command": "x", "cwd": "/tmp",
        "launch_command": "make", "checkpoint_path": "p", "checkpoint_command": "echo c", "name": "n"});
    let added = call(&client, tool, task.clone()).await;
    assert_eq!(added["watch_id"], added["watch"]["id"]);
    assert_eq!(added["persisted_sandboxes"]["sandbox_count"], 1);
    let watch = json!({"watch_id": added["watch_id"]});
    let again = call(&client, tool, with(task.clone(), json!({"interval_s": 9}))).await;
    assert_eq!(again["watch_id"], added["watch_id"], "one task, one watch");
    assert!(again["note"].is_string());
    look_once(client.home());
    let row = call(&client, "get_background_watch", watch.clone()).await;
    assert_eq!(
        (&row["watch"]["last_state"], &row["watch"]["interval_s"]),
        (&json!("running"), &json!(9)),
        "{row:#}"
    );
    let seen = call(&client, "check_background_task", watch.clone()).await;
    assert_eq!(
        (&seen["running"], &seen["watch_id"]),
        (&json!(true), &added["watch_id"])
    );
    let read = call(&client, "read_background_watch_log", watch.clone()).await;
    assert_eq!(read["log"]["log_tail"], "begun\n");
    host.tmux(&["kill-session", "-t", "old"]);
    assert!(
        wait_until(LIMIT, || process::with_command_line("sleep 72.125")
            .is_empty())
        .await
    );
    let waited = call(&client, "cancel_background_watch", watch.clone()).await;
    assert_eq!(waited["watch"]["status"], "cancelled");
    let wrong = [
        json!({"tmux_session": ""}),
        json!({"log_file": " "}),
        json!({"interval_s": 0}),
        json!({"resume_plan_json": "{"}),
        json!({"metadata_json": "[]"}),
        json!({"auto_resume": true, "resume_command": ""}),
        json!({"checkpoint_format": "xml"}),
        json!({"webhook_url": "ftp://h"}),
    ];
    let mut last = Value::Null;
    for more in wrong {
        let reply = refused(&client, tool, with(task.clone(), more)).await;
        assert_eq!(reply.json["code"], "invalid_params");
        last = reply.json;
    }
    let stranger = refused(&client, tool, with(task, json!({"sandbox_name": "zzz"}))).await;
    assert_eq!(stranger.json["code"], "not_found");
    assert_produced(tool, &[added, again, row, last]);
}

#[tokio::test]
async fn job_that_was_started_without_a_watch_can_be_watched_later() {
    let _ends = Ends("sleep 73.125");
    let (_host, client) = stage().await;
    let job = started(&client, "sleep 73.125", json!({"watch": false})).await;
    assert_eq!(job["watch_id"], Value::Null);
    let task = json!({"tmux_session": job["tmux_session"], "log_file": job["log_file"]});
    let added = call(&client, "watch_background_task", task).await;
    assert_eq!(added["watch"]["task_id"], job["task_id"], "{added:#}");
    assert_eq!(added["watch"]["launch_command"], "sleep 73.125");
    let seen = call(
        &client,
        "check_background_task",
        json!({"task_id": job["task_id"]}),
    )
    .await;
    assert_eq!(seen["watch_id"], added["watch_id"]);
    call(
        &client,
        "stop_background_task",
        json!({"task_id": job["task_id"]}),
    )
    .await;
}

#[tokio::test]
async fn one_call_waits_for_whichever_job_ends_first() {
    let _ends = Ends("sleep 74.125");
    let (_host, client) = stage().await;
    let watched = json!({"interval_s": 3600});
    let long = started(&client, "sleep 74.125", watched.clone()).await;
    let short = started(&client, "sleep 1; exit 5", watched).await;
    let mut dog = Command::new(program())
        .args(["watchdog", "run", "--loop-sleep", "0.3", "--lease", "3"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", client.home())
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let tool = "list_background_watch_events";
    let first = call(&client, tool, json!({"after_event_id": 0, "wait_s": 60})).await;
    let _ = dog.kill();
    let _ = dog.wait();
    assert_eq!(
        first["events"][0]["watch_id"], short["watch_id"],
        "{first:#}"
    );
    assert_eq!(first["events"][0]["event_type"], "completed");
    let next = json!({"after_event_id": first["last_event_id"], "wait_s": 1});
    let nothing = call(&client, tool, next).await;
    assert_eq!(nothing["events"], json!([]));
    assert_eq!(nothing["last_event_id"], first["last_event_id"]);
    let wrong = refused(&client, tool, json!({"after_event_id": -1})).await;
    assert!(wrong.text.contains("after_event_id"));
    call(
        &client,
        "stop_background_task",
        json!({"task_id": long["task_id"]}),
    )
    .await;
}

#[tokio::test]
async fn wait_for_events_says_that_nobody_would_notice_them() {
    let (_host, client) = stage().await;
    let reply = call(
        &client,
        "list_background_watch_events",
        json!({"wait_s": 0.5}),
    )
    .await;
    assert!(
        reply["note"].as_str().unwrap().contains("no watchdog"),
        "{reply}"
    );
}

#[tokio::test]
async fn status_of_the_watchdog_has_every_old_field_and_nothing_is_set_up_when_it_is_off() {
    let (_host, client) = stage().await;
    started(&client, "true", json!({})).await;
    let cold = call(&client, "get_watchdog_status", json!({})).await;
    assert_eq!(
        (&cold["heartbeat"], &cold["heartbeat_stale"]),
        (&Value::Null, &json!(true))
    );
    assert_eq!(
        (&cold["turned_off"], &cold["taken_over"]),
        (&json!(true), &json!(0))
    );
    look_once(client.home());
    let warm = call(&client, "get_watchdog_status", json!({})).await;
    assert_eq!(warm["watch_counts"]["active"], 1, "{warm:#}");
    assert_produced("get_watchdog_status", &[warm]);
    let installed = call(&client, "install_macos_watchdog", json!({})).await;
    assert_eq!(installed["installed"], false, "{installed:#}");
    assert_eq!(installed["persisted_sandboxes"]["sandbox_count"], 1);
    let none = json!({"persist_current_sandboxes": false});
    let none = call(&client, "install_macos_watchdog", none).await;
    assert_eq!(none["persisted_sandboxes"]["sandbox_count"], 0);
    let gone = call(&client, "uninstall_macos_watchdog", json!({})).await;
    assert_eq!(gone["uninstalled"], false);
    let units = client.home().join(".config/systemd");
    assert!(!units.exists() && !client.home().join("Library").exists());
}

#[tokio::test]
async fn older_name_starts_a_job_that_is_watched() {
    let (_host, client) = stage().await;
    let tool = "exec_bash_background_watch";
    let job = call(&client, tool, json!({"command": "true", "watch": false})).await;
    assert!(job["watch_id"].is_u64(), "{job}");
    let wrong = refused(
        &client,
        tool,
        json!({"command": "true", "metadata_json": "{"}),
    )
    .await;
    assert_produced(tool, &[job, wrong.json]);
}

#[tokio::test]
async fn secrets_in_a_webhook_are_not_shown() {
    let host = Host::start();
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/remote-sandbox-mcp");
    std::fs::create_dir_all(&folder).unwrap();
    let config = "[watchdog]\nallow_event_command = \"any\"\n";
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let server = builder(&[entry("box", &host.sshd)])
        .home(home.path())
        .env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    let client = ready(server.start()).await;
    let task = json!({"tmux_session": "s", "log_file": "/l",
        "webhook_url": "https://hooks.example.org:9/x?token=hidden-two"});
    let added = client.call_tool("watch_background_task", task).await;
    assert!(
        !added.is_error && !added.text.contains("hidden-"),
        "{}",
        added.text
    );
    let list = call(&client, "list_background_watches", json!({})).await;
    let shown = "https://hooks.example.org:9/***?token=***";
    assert_eq!(list["watches"][0]["webhook_url"], shown);
}
