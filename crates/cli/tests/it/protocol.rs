//! Both eras of the protocol, cancellation, and progress.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::Sshd;
use remote_sandbox_testkit::mcp::{MODERN_VERSION, McpClient, McpError};
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{builder, entry, exec, one, ready};

const LIMIT: Duration = Duration::from_secs(20);

fn modern_meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

async fn modern(client: &McpClient, method: &str, mut params: Value) -> Value {
    params["_meta"] = modern_meta(MODERN_VERSION);
    client.request(method, params, LIMIT).await.unwrap()
}

#[rstest]
#[case("2024-11-05", "2024-11-05")]
#[case("2025-03-26", "2025-03-26")]
#[case("2025-06-18", "2025-06-18")]
#[case("2025-11-25", "2025-11-25")]
#[case::has_no_handshake("2026-07-28", "2025-11-25")]
#[case::unknown("2099-01-01", "2025-11-25")]
#[case::nonsense("1.0", "2025-11-25")]
#[tokio::test]
async fn initialize_answers_with_a_revision_both_know(#[case] asked: &str, #[case] expected: &str) {
    let client = builder(&[]).start();
    let answer = client.initialize(asked).await;
    assert_eq!(answer["protocolVersion"], expected);
    assert_eq!(answer["serverInfo"]["name"], "remote-sandbox");
    assert_eq!(answer["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(answer["capabilities"]["tools"].is_object());
    let instructions = answer["instructions"].as_str().unwrap();
    assert!(instructions.chars().count() < 1500 && instructions.contains("exec_bash"));
    let list = client
        .request("tools/list", json!({}), LIMIT)
        .await
        .unwrap();
    assert!(list.get("resultType").is_none(), "belongs to the newer era");
    let call = client.call_tool("list_sandboxes", json!({})).await;
    assert!(call.result.get("resultType").is_none());
    client.request("ping", json!({}), LIMIT).await.unwrap();
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn modern_client_needs_no_handshake() {
    let sshd = Sshd::start();
    let client = builder(&[entry("box", &sshd)]).start();
    let answer = client.discover().await;
    assert_eq!(answer["resultType"], "complete");
    assert!(answer["ttlMs"].is_u64() && answer["cacheScope"].is_string());
    let versions = answer["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!(MODERN_VERSION)) && versions.contains(&json!("2025-06-18")));
    let list = client
        .request("tools/list", json!({}), LIMIT)
        .await
        .unwrap();
    assert_eq!(list["resultType"], "complete");
    assert_eq!(list["ttlMs"], 300_000);
    assert_eq!(list["cacheScope"], "public");
    let reply = exec(&client, "echo modern").await;
    assert_eq!(reply.result["resultType"], "complete");
    assert_eq!(reply.json["stdout"], "modern\n");
    assert!(!reply.notifications.is_empty());
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn both_eras_are_served_side_by_side_in_one_process() {
    let client = builder(&[]).start();
    let probe = modern(&client, "server/discover", json!({})).await;
    assert_eq!(probe["resultType"], "complete");
    // A client that only wanted to know who answers may still open the older way.
    client.initialize("2025-06-18").await;
    for _ in 0..3 {
        let newer = modern(&client, "tools/list", json!({})).await;
        let older = client
            .request("tools/list", json!({}), LIMIT)
            .await
            .unwrap();
        assert_eq!(newer["resultType"], "complete");
        assert!(older.get("resultType").is_none());
        assert_eq!(newer["tools"], older["tools"]);
        let call = json!({"name": "get_active_sandbox", "arguments": {}});
        assert_eq!(
            modern(&client, "tools/call", call.clone()).await["resultType"],
            "complete"
        );
        let older = client.request("tools/call", call, LIMIT).await.unwrap();
        assert!(older.get("resultType").is_none());
        modern(&client, "server/discover", json!({})).await;
        client.request("ping", json!({}), LIMIT).await.unwrap();
    }
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn revision_that_nobody_knows_is_refused_with_the_known_ones() {
    let client = ready(builder(&[]).start()).await;
    let params = json!({"_meta": modern_meta("2099-01-01")});
    let refused = client
        .request("tools/list", params, LIMIT)
        .await
        .unwrap_err();
    let McpError::Rpc { code, data, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(code, -32022);
    assert!(
        data["supported"]
            .as_array()
            .unwrap()
            .contains(&json!("2025-11-25"))
    );
}

#[tokio::test]
async fn cancelling_what_is_unknown_or_over_changes_nothing() {
    let (_sshd, client) = one().await;
    let over = client
        .start_call("exec_bash", json!({"command": "echo first"}))
        .await;
    client.wait_tool_reply(over, LIMIT).await.unwrap();
    client.cancel(over).await;
    client.cancel(987_654).await;
    client
        .notify("notifications/cancelled", json!({"requestId": "no such"}))
        .await;
    client.notify("notifications/cancelled", json!({})).await;
    assert_eq!(
        exec(&client, "echo second").await.json["stdout"],
        "second\n"
    );
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn cancelled_call_falls_silent() {
    let (_sshd, client) = one().await;
    let command = "while sleep 0.05; do echo 9271.5; done";
    let call = client
        .start_call("exec_bash", json!({"command": command}))
        .await;
    let told = |least| client.notifications_for(call).len() >= least;
    assert!(wait_until(LIMIT, || told(3)).await);
    client.cancel(call).await;
    // The reply to a request that is read after the cancellation marks the place in the stream.
    let mark = client.start_request("ping", json!({})).await;
    client.wait_reply(mark, LIMIT).await.unwrap();
    exec(&client, "sleep 1").await;
    assert!(!client.has_reply(call));
    let mark = client.reply_line(mark).unwrap();
    let late = progress_lines(&client, call)
        .iter()
        .filter(|line| **line > mark)
        .count();
    // One may be on its way to the pipe when the cancellation is read.
    assert!(late <= 1, "{late} notifications after the cancellation");
}

/// Where the progress notifications of a call stand among all lines of output.
fn progress_lines(client: &McpClient, call: u64) -> Vec<usize> {
    let lines = client.stdout_lines();
    let messages = lines.iter().enumerate().filter_map(|(position, line)| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["params"]["progressToken"] == json!(call)).then_some(position)
    });
    messages.collect()
}

#[tokio::test]
async fn progress_comes_at_once_then_with_the_last_line_at_most_four_times_a_second() {
    let (_sshd, client) = one().await;
    exec(&client, "true").await;
    let begun = Instant::now();
    let command = "for n in $(seq 1 400); do echo line-$n; sleep 0.005; done";
    let call = client
        .start_call("exec_bash", json!({"command": command}))
        .await;
    assert!(wait_until(LIMIT, || !client.notifications_for(call).is_empty()).await);
    assert!(!client.has_reply(call));
    let first = client.notifications_for(call)[0].clone();
    assert_eq!(first["message"], "starting");
    client.wait_tool_reply(call, LIMIT).await.unwrap();
    let elapsed = begun.elapsed().as_secs_f64();
    let notes = client.notifications_for(call);
    assert!(notes.len() >= 4, "{notes:?}");
    assert!(
        (notes.len() as f64) <= 2.0 + elapsed * 4.0,
        "{} in {elapsed} s",
        notes.len()
    );
    let steps: Vec<f64> = notes
        .iter()
        .map(|note| note["progress"].as_f64().unwrap())
        .collect();
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
    for note in &notes[1..] {
        let message = note["message"].as_str().unwrap();
        assert!(
            message.starts_with("running for ") && message.contains(" bytes: line-"),
            "{message}"
        );
    }
    let reply = client.reply_line(call).unwrap();
    assert!(
        progress_lines(&client, call)
            .iter()
            .all(|line| *line < reply)
    );
}

#[tokio::test]
async fn progress_never_comes_after_the_reply() {
    let (_sshd, client) = one().await;
    exec(&client, "true").await;
    let mut calls = Vec::new();
    // Ends are spread around the moment at which the second notification is due.
    for round in 0..8 {
        for step in 0..6 {
            let pause = f64::from(round * 6 + step) * 0.006;
            let command = format!("echo a; sleep {pause:.3}; echo b");
            calls.push(
                client
                    .start_call("exec_bash", json!({"command": command}))
                    .await,
            );
        }
        for call in calls.iter().rev().take(6) {
            client.wait_reply(*call, LIMIT).await.unwrap();
        }
    }
    client.request("ping", json!({}), LIMIT).await.unwrap();
    for call in calls {
        let reply = client.reply_line(call).unwrap();
        let told = progress_lines(&client, call);
        assert!(
            !told.is_empty() && told.iter().all(|line| *line < reply),
            "call {call}"
        );
    }
}

#[tokio::test]
async fn request_without_a_token_gets_no_progress() {
    let (_sshd, client) = one().await;
    let call = json!({"jsonrpc": "2.0", "id": "plain", "method": "tools/call",
        "params": {"name": "exec_bash", "arguments": {"command": "echo a; sleep 0.6; echo b"}}});
    client.send_raw(format!("{call}\n").as_bytes()).await;
    let replied = || {
        client
            .stdout_lines()
            .iter()
            .any(|line| line.contains("\"plain\""))
    };
    assert!(wait_until(LIMIT, replied).await);
    assert!(
        client.notifications().is_empty(),
        "{:?}",
        client.notifications()
    );
}

#[tokio::test]
#[ignore = "minutes: half a minute of silence"]
async fn progress_breaks_the_silence_every_ten_seconds() {
    let (_sshd, client) = one().await;
    let call = client
        .start_call("exec_bash", json!({"command": "sleep 34"}))
        .await;
    let mut seen = Instant::now();
    let mut count = 0;
    let mut longest = Duration::ZERO;
    let ended = wait_until(Duration::from_secs(60), || {
        let now = client.notifications_for(call).len();
        longest = longest.max(seen.elapsed());
        if now > count {
            (count, seen) = (now, Instant::now());
        }
        client.has_reply(call)
    });
    assert!(ended.await);
    assert!(count >= 4, "{count} notifications");
    assert!(longest < Duration::from_millis(11_500), "{longest:?}");
    let notes = client.notifications_for(call);
    let last = notes.last().unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(last.contains("no output yet"), "{last}");
}

#[tokio::test]
async fn text_style_gives_a_verdict_line_and_plain_text() {
    let sshd = Sshd::start();
    let started = builder(&[entry("box", &sshd)]).env("REMOTE_SANDBOX_RESULT_STYLE", "text");
    let client = ready(started.start()).await;
    let reply = exec(&client, "echo 'a \"b\"'; echo problem >&2; exit 3").await;
    assert!(!reply.is_error && reply.json.is_null(), "{}", reply.text);
    let (verdict, body) = reply.text.split_once('\n').unwrap();
    assert!(
        verdict.starts_with("exit 3 in ") && verdict.ends_with("(sandbox box)"),
        "{verdict}"
    );
    assert_eq!(body, "a \"b\"\n\n[stderr]\nproblem\n");
    let refused = client
        .call_tool("select_sandbox", json!({"sandbox_name": "zzz"}))
        .await;
    assert!(refused.is_error);
    assert!(
        refused.text.starts_with("not_found: ") && refused.text.contains("known: box"),
        "{}",
        refused.text
    );
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert!(
        list.text.starts_with("1 sandboxes\n") && list.text.contains("\"box\""),
        "{}",
        list.text
    );
}

#[tokio::test]
async fn wrong_result_style_is_told_and_json_stays() {
    let started = builder(&[]).env("REMOTE_SANDBOX_RESULT_STYLE", "yaml");
    let client = ready(started.start()).await;
    let list = client.call_tool("list_sandboxes", json!({})).await;
    let problem = list.json["problems"][0].as_str().unwrap();
    assert!(problem.contains("REMOTE_SANDBOX_RESULT_STYLE"), "{problem}");
}
