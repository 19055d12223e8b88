//! Servers, userlands and login shells other than the usual ones: what must hold on each of them.

mod busybox;
mod dropbear;
mod few_sessions;
mod login_shells;
mod plain_user;

use std::path::Path;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use crate::support::{exec, exec_with, unique, with};

const PATIENCE: Duration = Duration::from_secs(15);

/// What a command printed; it must have succeeded.
async fn out(client: &McpClient, command: &str) -> String {
    let reply = exec(client, command).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    reply.json["stdout"].as_str().unwrap().trim_end().to_owned()
}

/// The processes with these words in their command line; the one of busybox that keeps the time for `timeout`
/// is there a moment longer and is not meant.
fn running(words: &str) -> Vec<u32> {
    let mut pids = process::with_command_line(words);
    pids.retain(|pid| process::name(*pid).as_deref() != Some("timeout"));
    pids
}

/// Both streams, exit codes, signals, input, variables, directory and quoting arrive as they are, in a new
/// shell and in ones that waited.
async fn assert_commands(client: &McpClient, home: &Path) {
    let more = json!({"env": {"V": "it's \"$HOME\" `x` \\ ! *"}, "stdin": "given\n", "cwd": "~"});
    let command = "printf '%s|' \"$V\"; cat; pwd; echo err >&2; exit 7";
    for _ in 0..3 {
        let reply = exec_with(client, command, more.clone()).await;
        assert_eq!(reply.json["exit_code"], 7, "{}", reply.text);
        let expected = format!("it's \"$HOME\" `x` \\ ! *|given\n{}\n", home.display());
        assert_eq!(reply.json["stdout"], expected);
        assert_eq!(reply.json["stderr"], "err\n");
        assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
    }
    let quotes = r#"printf '%s|' 'a "b" $c' "it's" \! \$x 'é 日本'"#;
    assert_eq!(out(client, quotes).await, "a \"b\" $c|it's|!|$x|é 日本|");
    let without_newline = exec_with(client, "cat", json!({"stdin": "no newline"})).await;
    assert_eq!(without_newline.json["stdout"], "no newline");
    let signalled = exec(client, "kill -SEGV $$").await;
    assert!(signalled.json["exit_code"].is_null(), "{}", signalled.text);
    assert_eq!(signalled.json["signal"], "SEGV", "{}", signalled.text);
    let missing = exec_with(client, "true", json!({"cwd": "/no/such/place"})).await;
    assert_eq!(missing.json["code"], "not_found", "{}", missing.text);
}

/// At the deadline nothing of the tree is left, not even what does not listen to TERM or left its session.
async fn assert_deadline_ends_the_tree(client: &McpClient) {
    let sleep = format!("sleep 9201.{}", unique());
    let command = format!("setsid {sleep} & trap '' TERM; {sleep} & {sleep}; {sleep}");
    let begun = Instant::now();
    let reply = exec_with(client, &command, json!({"timeout_s": 1})).await;
    let took = begun.elapsed();
    assert_eq!(running(&sleep), Vec::<u32>::new());
    assert!(took < Duration::from_millis(1000 + 4500), "{took:?}");
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
}

/// A run that was handed over can be stopped, and nothing of it is left.
async fn assert_stop_ends_the_tree(client: &McpClient) {
    let sleep = format!("sleep 9202.{}", unique());
    let command = format!("{sleep} & setsid {sleep} & {sleep}");
    let reply = exec_with(client, &command, json!({"wait_s": 0.2})).await;
    assert!(wait_until(PATIENCE, || running(&sleep).len() >= 3).await);
    let stop = json!({"task_id": reply.json["task_id"]});
    let stopped = client.call_tool("stop_background_task", stop).await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
    assert!(
        stopped.json.get("left_running").is_none(),
        "{}",
        stopped.text
    );
    assert_eq!(running(&sleep), Vec::<u32>::new());
}

/// Background children are left alone and told, also when they let go of both streams.
async fn assert_background_children_are_told(client: &McpClient) {
    for streams in ["", " >/dev/null 2>&1"] {
        let sleep = format!("sleep 9203.{}", unique());
        let begun = Instant::now();
        let reply = exec(client, &format!("{sleep}{streams} & echo begun")).await;
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
        assert_eq!(reply.json["stdout"], "begun\n");
        let left = reply.json["left_running"].as_array();
        let left = left.unwrap_or_else(|| panic!("`{sleep}{streams}`: {}", reply.text));
        assert_eq!(left.len(), 1, "{}", reply.text);
        let pid = u32::try_from(left[0]["pid"].as_u64().unwrap()).unwrap();
        assert!(running(&sleep).contains(&pid));
        process::kill_and_wait(&[pid]);
    }
}

/// Five megabytes arrive whole, with the exit code after them.
async fn assert_long_output_is_whole(client: &McpClient) {
    let command = "head -c 5000000 /dev/zero | tr '\\0' a; echo END; exit 5";
    let reply = exec_with(client, command, json!({"max_output_chars": 6_000_000})).await;
    assert_eq!(reply.json["exit_code"], 5, "{:.300}", reply.text);
    let text = reply.json["stdout"].as_str().unwrap();
    assert_eq!(text.len(), 5_000_004);
    assert!(text.ends_with("aEND\n"));
    assert!(reply.json.get("truncated").is_none());
}

/// The list says that the host is there, and what it has.
async fn assert_resources_are_listed(client: &McpClient) {
    let list = json!({"check_resources": true});
    let list = client.call_tool("list_sandboxes", list).await;
    let sandbox = &list.json["sandboxes"][0];
    assert_eq!(sandbox["connection_alive"], true, "{}", list.text);
    let resources = &sandbox["resources"];
    assert!(
        resources["cpu"]["count"].as_u64() >= Some(1),
        "{}",
        list.text
    );
    assert!(
        resources["memory"]["total_mb"].as_f64() > Some(0.0),
        "{}",
        list.text
    );
    assert!(
        !resources["disk"].as_array().unwrap().is_empty(),
        "{}",
        list.text
    );
}

/// Files are listed and read as they are, whatever programs the host has for it.
async fn assert_files(client: &McpClient) {
    let folder = out(client, "mktemp -d").await;
    let make = format!(
        "mkdir -p '{folder}/f s/sub' && cd '{folder}/f s' && printf 'one\\ntwo\\n' >-x && ln -s ./-x link && mkfifo pipe && touch sub/inner && head -c 2000000 /dev/zero >zeros"
    );
    out(client, &make).await;
    let below = |name: &str| format!("{folder}/f s{name}");
    for (recursive, expected) in [(false, 5), (true, 6)] {
        let list = json!({"remote_path": below(""), "recursive": recursive});
        let list = client.call_tool("list_remote_files", list).await;
        let entries = list.json["entries"].as_array();
        assert_eq!(entries.map(Vec::len), Some(expected), "{}", list.text);
        assert_eq!(list.json["entries"][0]["path"], below("/-x"));
        assert_eq!(list.json["entries"][1]["target"], "./-x");
        assert!(list.json.get("notes").is_none(), "{}", list.text);
    }
    let read = |name: &str, more: Value| {
        let path = json!({"remote_path": below(name)});
        client.call_tool("read_remote_file", with(path, more))
    };
    for more in [
        json!({"tail_lines": 1}),
        json!({"start_line": 2}),
        json!({"offset": 4}),
    ] {
        let part = read("/link", more).await;
        assert_eq!(part.json["content"], "two\n", "{}", part.text);
        assert_eq!(part.json["size"], 8);
    }
    let zeros = read("/zeros", json!({"max_bytes": 3_000_000})).await;
    assert_eq!(zeros.json["size"], 2_000_000, "{:.300}", zeros.text);
    assert_eq!(zeros.json["truncated"], false);
    let pipe = read("/pipe", json!({})).await;
    assert_eq!(pipe.json["code"], "invalid_params", "{}", pipe.text);
    let gone = read("/gone", json!({})).await;
    assert_eq!(gone.json["code"], "not_found", "{}", gone.text);
    out(client, &format!("rm -r '{folder}'")).await;
}

/// Calls that come at once are all served.
async fn assert_many_at_once(client: &McpClient, callers: usize) {
    let mut calls = Vec::new();
    for number in 0..callers {
        let command = format!("sleep 0.1; echo {number}");
        let call = client.start_call("exec_bash", json!({"command": command}));
        calls.push(call.await);
    }
    for (number, call) in calls.into_iter().enumerate() {
        let limit = Duration::from_secs(30);
        let reply = client.wait_tool_reply(call, limit).await.unwrap();
        assert_eq!(
            reply.json["stdout"],
            format!("{number}\n"),
            "{}",
            reply.text
        );
    }
}
