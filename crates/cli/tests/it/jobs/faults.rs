//! Crashes, forged records and broken links around jobs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{Direction, FaultProxy, McpClient, ToolReply, process};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Ends, Host, LIMIT, check, end_of, folder, one, start, started};
use crate::support::{builder, entry, entry_via, ready, unique};

/// A server that shows its advanced tools.
async fn server(host: &Host, home: Option<&Path>, failpoint: &str) -> McpClient {
    let mut client = builder(&[entry("box", &host.sshd)])
        .env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1")
        .env("REMOTE_SANDBOX_FAILPOINT", failpoint);
    if let Some(home) = home {
        client = client.home(home);
    }
    ready(client.start()).await
}

async fn tasks(client: &McpClient) -> Vec<Value> {
    let list = client.call_tool("list_background_tasks", json!({})).await;
    assert!(!list.is_error, "{}", list.text);
    list.json["tasks"].as_array().unwrap().clone()
}

#[rstest]
#[case::before_the_record("job_unrecorded", None)]
#[case::after_the_record("job_recorded", Some("not_started"))]
#[case::after_the_launch("job_launched", Some("running"))]
#[case::before_the_reply("job_unanswered", Some("running"))]
#[tokio::test]
async fn f35_killed_server_leaves_a_job_that_never_began_or_runs_once(
    #[case] seam: &str,
    #[case] status: Option<&str>,
) {
    let host = Host::start();
    let first = server(&host, None, seam).await;
    let home = first.home().to_owned();
    let marker = host.sshd.dir().join("starts");
    let command = format!("echo x >>{}; sleep 600", marker.display());
    let arguments = json!({ "command": command });
    first.start_call("exec_bash_background", arguments).await;
    assert!(first.wait_exit(LIMIT).await.is_some(), "it did not die");
    let second = server(&host, Some(&home), "").await;
    let tasks = tasks(&second).await;
    let statuses: Vec<&str> = tasks
        .iter()
        .filter_map(|task| task["status"].as_str())
        .collect();
    assert_eq!(
        statuses,
        status.into_iter().collect::<Vec<_>>(),
        "{tasks:?}"
    );
    let starts = || fs::read_to_string(&marker).unwrap_or_default().len() / 2;
    match status {
        Some("running") => {
            let task = &tasks[0]["task_id"];
            let seen = check(&second, json!({ "task_id": task })).await;
            assert!(
                seen["log_file"].as_str().unwrap().starts_with('/'),
                "{seen}"
            );
            assert!(wait_until(LIMIT, || starts() == 1).await);
            let stop = json!({ "task_id": task });
            let stopped = second.call_tool("stop_background_task", stop).await;
            assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
        }
        _ => {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(starts(), 0);
        }
    }
    assert!(starts() <= 1);
}

/// Starts a job that makes a file first; the link ends when that is there and the answer is still under way.
pub(crate) async fn start_without_answer(
    client: &McpClient,
    proxy: &FaultProxy,
    arguments: Value,
    marker: &Path,
) -> ToolReply {
    let call = start_unanswered(client, proxy, arguments, marker).await;
    proxy.delay_direction(Direction::ToClient, Duration::ZERO);
    proxy.drop_all();
    client.wait_tool_reply(call, LIMIT * 2).await.unwrap()
}

/// Starts a job that makes a file first, over a link on which answers come seconds later.
async fn start_unanswered(
    client: &McpClient,
    proxy: &FaultProxy,
    arguments: Value,
    marker: &Path,
) -> u64 {
    // The connection is there before answers come late.
    client
        .call_tool("exec_bash", json!({"command": "true"}))
        .await;
    proxy.delay_direction(Direction::ToClient, Duration::from_secs(2));
    let call = client.start_call("exec_bash_background", arguments).await;
    assert!(wait_until(LIMIT, || marker.exists()).await);
    call
}

#[tokio::test]
async fn f35_lost_answer_of_a_start_is_recovered_and_nothing_starts_twice() {
    let host = Host::start();
    let proxy = FaultProxy::start(host.sshd.port()).await;
    let client = crate::support::serve(&[entry_via("box", &host.sshd, proxy.port())]).await;
    let marker = host.sshd.dir().join("starts");
    let command = format!("echo x >>{}; sleep 1", marker.display());
    let arguments = json!({ "command": command });
    let reply = start_without_answer(&client, &proxy, arguments, &marker).await;
    assert!(!reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["launch_recovered"], true, "{}", reply.text);
    let end = end_of(&client, &reply.json["task_id"]).await;
    assert_eq!(end["exit_code"], 0, "{end}");
    assert_eq!(fs::read_to_string(&marker).unwrap(), "x\n");
}

#[tokio::test]
async fn f35_job_that_moves_its_own_folder_is_not_taken_for_one_that_never_began() {
    let host = Host::start();
    let proxy = FaultProxy::start(host.sshd.port()).await;
    let client = crate::support::serve(&[entry_via("box", &host.sshd, proxy.port())]).await;
    fs::create_dir(host.home().join("work")).unwrap();
    let marker = host.sshd.dir().join("starts");
    let command = format!(
        "cd /; mv ~/work ~/gone; echo x >>{}; sleep 1",
        marker.display()
    );
    let arguments = json!({ "command": command, "cwd": "~/work" });
    let reply = start_without_answer(&client, &proxy, arguments, &marker).await;
    assert!(!reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["launch_recovered"], true, "{}", reply.text);
    let end = end_of(&client, &reply.json["task_id"]).await;
    assert_eq!(end["exit_code"], 0, "{end}");
    assert_eq!(fs::read_to_string(&marker).unwrap(), "x\n");
}

#[tokio::test]
async fn f50_job_that_runs_is_told_as_such_when_that_cannot_be_written_down() {
    let host = Host::start();
    let proxy = FaultProxy::start(host.sshd.port()).await;
    let client = crate::support::serve(&[entry_via("box", &host.sshd, proxy.port())]).await;
    let marker = host.sshd.dir().join("starts");
    let command = format!("echo x >>{}; sleep 600", marker.display());
    let arguments = json!({ "command": command, "ensure_watchdog": false });
    let call = start_unanswered(&client, &proxy, arguments, &marker).await;
    let state = client.home().join(".local/state/remote-sandbox-mcp");
    let lock = rusqlite::Connection::open(state.join("store.sqlite3")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let reply = client.wait_tool_reply(call, LIMIT * 3).await.unwrap();
    assert!(!reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["status"], "started", "{}", reply.text);
    let warning = reply.json["warning"].as_str().unwrap();
    assert!(warning.contains("do not start it again"), "{warning}");
    drop(lock);
    proxy.delay_direction(Direction::ToClient, Duration::ZERO);
    let task = json!({ "task_id": reply.json["task_id"] });
    assert_eq!(check(&client, task.clone()).await["running"], true);
    let stopped = client.call_tool("stop_background_task", task).await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
    assert_eq!(fs::read_to_string(&marker).unwrap(), "x\n");
}

#[tokio::test]
async fn f35_start_that_nobody_heard_of_is_settled_by_the_next_look() {
    let host = Host::start();
    let proxy = FaultProxy::start(host.sshd.port()).await;
    let client = crate::support::serve(&[entry_via("box", &host.sshd, proxy.port())]).await;
    let marker = host.sshd.dir().join("ran");
    // Long enough for a login, too short for the script of a start.
    proxy.cut_each_after(Some(9000), Direction::ToServer);
    let command = format!("touch {}; sleep 600", marker.display());
    let reply = start(&client, &command, json!({})).await;
    assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
    let hint = reply.json["hint"].as_str().unwrap();
    let task: String = hint.split('"').nth(1).unwrap().to_owned();
    proxy.cut_each_after(None, Direction::ToServer);
    proxy.close_all();
    let seen = check(&client, json!({ "task_id": task })).await;
    assert_eq!(seen["status"], "not_started", "{seen}");
    assert!(!marker.exists());
}

/// The process that the record of a job names, with all its children.
fn tree(host: &Host, job: &Value) -> Vec<u32> {
    let record = fs::read_to_string(folder(host, job).join("process")).unwrap();
    let pid = record.split_whitespace().next().unwrap().parse().unwrap();
    let mut tree = process::descendants(pid);
    tree.insert(0, pid);
    tree
}

/// Ends all of a job that sleeps for 600 seconds; a start is answered before its command has begun everything.
async fn kill(host: &Host, job: &Value) {
    let sleeps = |pid: &u32| process::command_line(*pid).is_some_and(|line| line == "sleep 600");
    assert!(wait_until(LIMIT, || tree(host, job).iter().any(sleeps)).await);
    assert!(process::kill_and_wait(&tree(host, job)));
}

#[tokio::test]
async fn f39_printed_exit_code_is_never_believed() {
    let (host, client) = one().await;
    let job = started(&client, "echo EXIT_CODE=0; sleep 600", json!({})).await;
    let query = json!({"task_id": job["task_id"], "since_byte": 0, "wait_s": 20});
    let seen = check(&client, query).await;
    assert_eq!(
        (&seen["running"], &seen["exit_code"]),
        (&json!(true), &Value::Null)
    );
    kill(&host, &job).await;
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["status"], "lost", "{seen}");
    assert_eq!(seen["exit_code"], Value::Null);
}

#[tokio::test]
async fn f40_forged_or_broken_exit_record_decides_nothing() {
    let (host, client) = one().await;
    let job = started(&client, "sleep 600", json!({})).await;
    kill(&host, &job).await;
    let record = folder(&host, &job).join("exit");
    let elsewhere = host.home().join("elsewhere");
    let nonce = fs::read_to_string(folder(&host, &job).join("nonce")).unwrap();
    let good = format!("nonce={}\ncode=0\nsignal=0\nended=1\nend=\n", nonce.trim());
    fs::write(&elsewhere, &good).unwrap();
    let other = good.replace(nonce.trim(), &"0".repeat(32));
    let written = [
        (Vec::new(), "empty"),
        (good.as_bytes()[..60].to_vec(), "breaks off"),
        (other.into_bytes(), "something else"),
        (vec![b'x'; 10 << 20], "too long"),
    ];
    let status = async || check(&client, json!({"task_id": job["task_id"]})).await;
    for (content, reason) in written {
        fs::write(&record, content).unwrap();
        let seen = status().await;
        assert_eq!(seen["status"], "unknown", "{seen}");
        assert!(seen["reason"].as_str().unwrap().contains(reason), "{seen}");
        assert_eq!(seen["running"], Value::Null);
    }
    fs::remove_file(&record).unwrap();
    symlink(&elsewhere, &record).unwrap();
    let seen = status().await;
    assert!(
        seen["reason"].as_str().unwrap().contains("symbolic link"),
        "{seen}"
    );
    fs::remove_file(&record).unwrap();
    let seen = status().await;
    assert_eq!(seen["status"], "lost", "{seen}");
    // What is over stays over, whatever is written later.
    fs::write(&record, &good).unwrap();
    assert_eq!(status().await["status"], "lost");
}

#[tokio::test]
async fn f41_end_of_tmux_does_not_end_a_job() {
    let _ends = Ends("sleep 66.375");
    let (host, client) = one().await;
    let job = started(
        &client,
        "sleep 66.375; exit 9",
        json!({"session_name": "seen"}),
    )
    .await;
    // The view comes a moment after the answer.
    let is_shown = || host.tmux(&["list-sessions"]).contains("seen");
    assert!(wait_until(LIMIT, is_shown).await);
    host.tmux(&["kill-session", "-t", "=seen"]);
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["running"], true, "{seen}");
    host.tmux(&["kill-server"]);
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["running"], true, "{seen}");
    process::kill_and_wait(&process::with_command_line("sleep 66.375"));
    assert_eq!(end_of(&client, &job["task_id"]).await["exit_code"], 9);
}

#[tokio::test]
async fn f41_reboot_and_reused_number_are_told_apart_and_no_stranger_is_signalled() {
    let (host, client) = one().await;
    let mut stranger = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    for (change, reason) in [("boot", "booted again"), ("pid", "another one")] {
        let job = started(&client, "sleep 600", json!({})).await;
        kill(&host, &job).await;
        let path = folder(&host, &job).join("process");
        let record = fs::read_to_string(&path).unwrap();
        let mut words: Vec<String> = record.split_whitespace().map(str::to_owned).collect();
        match change {
            "boot" => words[2] = "00000000-0000-0000-0000-000000000000".to_owned(),
            _ => words[0] = stranger.id().to_string(),
        }
        words[3] = words[0].clone();
        fs::write(&path, words.join(" ") + "\n").unwrap();
        if change == "pid" {
            let stop = json!({"task_id": job["task_id"]});
            client.call_tool("stop_background_task", stop).await;
            assert!(process::is_alive(stranger.id()));
            continue;
        }
        let seen = check(&client, json!({"task_id": job["task_id"]})).await;
        assert_eq!(seen["status"], "lost", "{seen}");
        assert!(seen["reason"].as_str().unwrap().contains(reason), "{seen}");
    }
    let job = started(&client, "sleep 600", json!({})).await;
    kill(&host, &job).await;
    let path = folder(&host, &job).join("process");
    let record = fs::read_to_string(&path).unwrap();
    let (_, rest) = record.split_once(' ').unwrap();
    fs::write(&path, format!("{} {rest}", stranger.id())).unwrap();
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert!(
        seen["reason"].as_str().unwrap().contains("another one"),
        "{seen}"
    );
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn f16_weakness_6_unreachable_host_is_told_as_such_and_recovers_by_itself() {
    let _ends = Ends("sleep 67.375");
    let (mut host, client) = one().await;
    let job = started(&client, "sleep 67.375; exit 2", json!({})).await;
    host.sshd.stop();
    let query = json!({"task_id": job["task_id"]});
    let reply = client
        .call_tool("check_background_task", query.clone())
        .await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["status"], "unreachable", "{}", reply.text);
    assert_eq!(reply.json["connection_error"], true);
    assert_eq!(reply.json["running"], Value::Null);
    assert_eq!(reply.json["exit_code"], Value::Null);
    let since = reply.json["unreachable_since"].clone();
    // Whoever reads on does so where they were.
    let position = json!({"task_id": job["task_id"], "since_byte": 9});
    let position = check(&client, position).await;
    assert_eq!(
        (&position["since_byte"], &position["next_byte"]),
        (&json!(9), &json!(9)),
        "{position}"
    );
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let again = check(&client, query.clone()).await;
    assert_eq!(again["unreachable_since"], since, "{again}");
    host.sshd.restart();
    let mut seen = Value::Null;
    for _ in 0..40 {
        seen = check(&client, query.clone()).await;
        if seen["running"] == true {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(seen["running"], true, "{seen}");
    process::kill_and_wait(&process::with_command_line("sleep 67.375"));
    assert_eq!(end_of(&client, &job["task_id"]).await["exit_code"], 2);
}

#[tokio::test]
async fn f11_every_start_that_was_answered_is_there_once_over_a_flapping_link() {
    let host = Host::start();
    let proxy = FaultProxy::start(host.sshd.port()).await;
    let client = crate::support::serve(&[entry_via("box", &host.sshd, proxy.port())]).await;
    let marker = host.sshd.dir().join(unique());
    let mut answered = Vec::new();
    for number in 0..12_u64 {
        if number % 2 == 1 {
            proxy.cut_after(3000 + 900 * number, Direction::ToServer);
        }
        let command = format!("echo {number} >>{}", marker.display());
        let reply = start(&client, &command, json!({})).await;
        if !reply.is_error {
            answered.push((number, reply.json["task_id"].clone()));
        }
        if number % 4 == 3 {
            proxy.drop_all();
        }
    }
    assert!(answered.len() >= 6, "{}", answered.len());
    for (_, task) in &answered {
        let end = end_of(&client, task).await;
        assert_eq!(end["exit_code"], 0, "{end}");
    }
    let text = fs::read_to_string(&marker).unwrap();
    for number in 0..12_u64 {
        let starts = text
            .lines()
            .filter(|line| *line == number.to_string())
            .count();
        let must = usize::from(answered.iter().any(|(one, _)| *one == number));
        assert!(
            starts <= 1 && starts >= must,
            "{number}: {starts} starts\n{text}"
        );
    }
    assert!(proxy.connections() < 60, "{}", proxy.connections());
}
