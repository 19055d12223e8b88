//! From the start of a job to its end, and what is said on the way.

use std::time::Instant;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Ends, Host, LIMIT, check, end_of, folder, one, start, started};
use crate::support::{builder, entry, ready};

#[tokio::test]
async fn job_is_started_read_and_ends() {
    let (host, client) = one().await;
    let job = started(&client, "echo one; sleep 1; echo two; exit 3", json!({})).await;
    let task = job["task_id"].as_str().unwrap();
    assert!(task.starts_with("job_"), "{job}");
    assert!(job["log_file"].as_str().unwrap().starts_with('/'), "{job}");
    assert!(job["watch_id"].as_u64().is_some_and(|id| id < 1 << 53));
    assert_eq!(job["sandbox"], "box");
    let first = check(
        &client,
        json!({"task_id": task, "since_byte": 0, "wait_s": 20}),
    )
    .await;
    assert_eq!(first["log_tail"], "one\n", "{first}");
    assert_eq!(first["running"], true);
    let second = json!({"task_id": task, "since_byte": first["next_byte"], "wait_s": 20});
    let second = check(&client, second).await;
    assert!(
        second["log_tail"].as_str().unwrap().starts_with("two\n"),
        "{second}"
    );
    let end = end_of(&client, &job["task_id"]).await;
    assert_eq!(
        (&end["status"], &end["exit_code"]),
        (&json!("exited"), &json!(3))
    );
    assert_eq!(end["running"], false);
    assert_eq!(end["tmux_session"], job["tmux_session"]);
    let by_watch = check(&client, json!({"watch_id": job["watch_id"]})).await;
    assert_eq!(by_watch["task_id"], task, "{by_watch}");
    let by_session = json!({"tmux_session": job["tmux_session"], "log_file": job["log_file"]});
    assert_eq!(check(&client, by_session).await["task_id"], task);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(folder(&host, &job))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn job_outlives_its_server_and_is_found_by_the_next_one() {
    let _ends = Ends("sleep 61.375");
    let (host, client) = one().await;
    let home = client.home().to_owned();
    let job = started(&client, "echo up; sleep 61.375", json!({})).await;
    client.close_stdin().await;
    assert!(client.wait_exit(LIMIT).await.is_some());
    // The answer may be there before the command has come so far.
    let runs = || process::with_command_line("sleep 61.375").len() == 1;
    assert!(wait_until(LIMIT, runs).await);
    let second = ready(builder(&[entry("box", &host.sshd)]).home(&home).start()).await;
    let seen = check(&second, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["running"], true, "{seen}");
    assert_eq!(seen["log_tail"], "up\n");
    let stopped = second
        .call_tool("stop_background_task", json!({"task_id": job["task_id"]}))
        .await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
}

#[tokio::test]
async fn weakness_18_stopping_ends_the_whole_tree_and_says_what_it_ended() {
    let _ends = Ends("sleep 62.375");
    let (_host, client) = one().await;
    let command = "trap '' TERM; sleep 62.375 & setsid sleep 62.375 & sleep 62.375; sleep 62.375";
    let job = started(&client, command, json!({})).await;
    let running = || process::with_command_line("sleep 62.375").len();
    assert!(wait_until(LIMIT, || running() == 3).await);
    let stop = json!({"task_id": job["task_id"]});
    let reply = client
        .call_tool("stop_background_task", stop.clone())
        .await
        .json;
    assert_eq!(reply["status"], "stopped", "{reply}");
    assert!(reply["ended_count"].as_u64().unwrap() >= 4, "{reply}");
    let ended = reply["ended"].as_array().unwrap();
    assert!(ended.iter().any(|process| process["name"] == "sleep"));
    assert!(reply.get("left_running").is_none(), "{reply}");
    assert_eq!(running(), 0);
    let again = client.call_tool("stop_background_task", stop).await.json;
    assert_eq!(again["status"], "stopped", "{again}");
}

#[rstest]
#[case::cwd(json!({"cwd": "/no/such/place"}), "not_found", "/no/such/place")]
#[case::log(json!({"log_file": "/proc/x/y.log"}), "permission_denied", "log")]
#[case::metadata(json!({"metadata_json": "{"}), "invalid_params", "metadata_json")]
#[case::plan(json!({"resume_plan_json": "[1]"}), "invalid_params", "resume_plan_json")]
#[case::resume(json!({"auto_resume": true}), "invalid_params", "resume_command")]
#[case::webhook(json!({"webhook_url": "nonsense"}), "invalid_params", "webhook_url")]
#[case::webhook_host(json!({"webhook_url": "https://hooks.example.org/x"}), "policy_denied", "hooks.example.org")]
#[case::metadata_address(json!({"webhook_url": "http://169.254.169.254/"}), "policy_denied", "link-local")]
#[case::event_command(json!({"event_command": "true"}), "policy_denied", "event_command")]
#[case::codex_command(json!({"codex_wakeup": true, "codex_command": "true"}), "policy_denied", "codex_command")]
#[case::claude_command(json!({"claude_wakeup": true, "claude_command": "true"}), "policy_denied", "claude_command")]
#[case::gpus(json!({"gpus": 1}), "unsupported", "has 0 GPUs")]
#[case::webhook_here(json!({"webhook_url": "http://localhost:9/x"}), "policy_denied", "this machine")]
#[case::gpu_words(json!({"gpus": "many"}), "invalid_params", "gpus")]
#[tokio::test]
async fn weakness_11_start_that_cannot_work_fails_and_leaves_nothing(
    #[case] more: Value,
    #[case] code: &str,
    #[case] word: &str,
) {
    let (host, client) = one().await;
    let marker = host.sshd.dir().join("ran");
    let command = format!("touch {}", marker.display());
    let reply = start(&client, &command, more).await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], code, "{}", reply.text);
    assert!(
        reply.json["error"].as_str().unwrap().contains(word),
        "{}",
        reply.text
    );
    let home = host.home();
    assert!(!home.join(".remote-sandbox-mcp").exists());
    assert!(!home.join(".codex_logs").exists());
    assert!(!marker.exists());
}

#[tokio::test]
async fn event_command_and_webhook_are_allowed_when_the_configuration_lists_them() {
    let host = Host::start();
    let config = host.sshd.dir().join("own.toml");
    let text =
        "[watchdog]\nevent_commands = [\"logger job\"]\nwebhook_hosts = [\"hooks.example.org\"]\n";
    std::fs::write(&config, text).unwrap();
    let server = builder(&[entry("box", &host.sshd)]);
    let client = ready(server.arg("--config").arg(&config).start()).await;
    let listed = json!({
        "event_command": "logger job",
        "webhook_url": "https://hooks.example.org/x",
        "codex_wakeup": true,
        "claude_wakeup": true,
        "ensure_watchdog": false,
    });
    let job = started(&client, "true", listed).await;
    end_of(&client, &job["task_id"]).await;
    let reply = start(&client, "true", json!({"event_command": "logger other"})).await;
    assert_eq!(reply.json["code"], "policy_denied", "{}", reply.text);
    let hint = reply.json["hint"].as_str().unwrap();
    let wanted = "[watchdog]";
    assert!(
        hint.contains(wanted) && hint.contains("event_commands = [\"logger other\"]"),
        "{hint}"
    );
}

#[tokio::test]
async fn weakness_8_taken_name_fails_the_start_and_touches_nothing() {
    let _ends = Ends("sleep 63.375");
    let (host, client) = one().await;
    let named = json!({"session_name": "twice"});
    let job = started(&client, "sleep 63.375; echo first", named.clone()).await;
    let marker = host.sshd.dir().join("rejected");
    let command = format!("touch {}", marker.display());
    let second = start(&client, &command, named.clone()).await;
    assert_eq!(second.json["code"], "busy", "{}", second.text);
    let text = second.json["error"].as_str().unwrap();
    assert!(text.contains("twice") && text.contains(job["task_id"].as_str().unwrap()));
    process::kill_and_wait(&process::with_command_line("sleep 63.375"));
    let end = end_of(&client, &job["task_id"]).await;
    assert!(end["log_tail"].as_str().unwrap().contains("first"), "{end}");
    assert!(!marker.exists());
    // An ended one is reused, with a fresh record.
    let third = started(&client, "exit 4", named).await;
    assert_eq!(end_of(&client, &third["task_id"]).await["exit_code"], 4);
    let first = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(first["exit_code"], 0, "{first}");
}

#[tokio::test]
async fn two_starts_in_the_same_second_both_work() {
    let (_host, client) = one().await;
    let mut calls = Vec::new();
    for code in 0..4 {
        let arguments = json!({"command": format!("exit {code}")});
        calls.push(client.start_call("exec_bash_background", arguments).await);
    }
    let mut jobs = Vec::new();
    for call in calls {
        jobs.push(client.wait_tool_reply(call, LIMIT).await.unwrap().json);
    }
    for (code, job) in jobs.iter().enumerate() {
        let end = end_of(&client, &job["task_id"]).await;
        assert_eq!(end["exit_code"], code, "{end}");
    }
}

#[tokio::test]
async fn waiting_returns_at_the_pattern_and_grep_shows_only_its_lines() {
    let _ends = Ends("sleep 64.375");
    let (_host, client) = one().await;
    let command = "echo noise; sleep 0.5; echo noise; echo ready on 80; sleep 64.375";
    let job = started(&client, command, json!({})).await;
    let arguments = json!({
        "task_id": job["task_id"], "wait_s": 25, "wait_for": "ready on \\d+", "grep": "^ready",
    });
    let begun = Instant::now();
    let reply = check(&client, arguments.clone()).await;
    assert!(begun.elapsed().as_secs() < 20);
    assert_eq!(reply["log_tail"], "ready on 80\n", "{reply}");
    // What came before the question counts too.
    let again = check(&client, arguments).await;
    assert_eq!(again["running"], true, "{again}");
    let wrong = check(&client, json!({"task_id": job["task_id"], "grep": "("})).await;
    assert_eq!(wrong["code"], "invalid_params");
    let stop = json!({"task_id": job["task_id"]});
    client.call_tool("stop_background_task", stop).await;
}

#[tokio::test]
async fn foreign_session_is_read_by_its_name_and_log() {
    let (host, client) = one().await;
    let home = host.home();
    let log = home.join("old.log");
    std::fs::write(&log, "from before\nEXIT_CODE=7\n").unwrap();
    let arguments = json!({"tmux_session": "old-task", "log_file": log});
    let reply = check(&client, arguments).await;
    assert_eq!(reply["running"], false, "{reply}");
    assert_eq!(reply["exit_code"], 7, "{reply}");
    assert!(reply["reason"].as_str().unwrap().contains("log"), "{reply}");
    let nothing = check(&client, json!({"tmux_session": "never"})).await;
    assert_eq!(nothing["running"], false, "{nothing}");
    assert!(
        nothing["note"].as_str().unwrap().contains("no session"),
        "{nothing}"
    );
    let empty = check(&client, json!({})).await;
    assert_eq!(empty["code"], "invalid_params");
}

#[tokio::test]
async fn list_shows_jobs_and_handed_over_runs() {
    let _ends = Ends("sleep 65.375");
    let host = Host::start();
    let client = builder(&[entry("box", &host.sshd)])
        .env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1")
        .start();
    let client = ready(client).await;
    let done = started(
        &client,
        "exit 5",
        json!({"run_id": "r-1", "watch_name": "short"}),
    )
    .await;
    end_of(&client, &done["task_id"]).await;
    let live = started(&client, "sleep 65.375", json!({})).await;
    let run = json!({"command": "sleep 65.375", "wait_s": 0.2});
    let run = client.call_tool("exec_bash", run).await.json;
    let list = client.call_tool("list_background_tasks", json!({})).await;
    let tasks = list.json["tasks"].as_array().unwrap();
    let find = |id: &Value| tasks.iter().find(|task| task["task_id"] == *id).unwrap();
    assert_eq!(find(&done["task_id"])["exit_code"], 5, "{}", list.text);
    assert_eq!(find(&done["task_id"])["run_id"], "r-1");
    assert_eq!(find(&done["task_id"])["name"], "short");
    assert_eq!(find(&live["task_id"])["running"], true);
    assert_eq!(find(&run["task_id"])["kind"], "run");
    assert_eq!(tasks.len(), 3);
    client
        .call_tool("stop_background_task", json!({"task_id": live["task_id"]}))
        .await;
}
