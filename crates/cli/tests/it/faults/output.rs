//! Much output, endless output, output that is not text (f27, f28, f30).

use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::{Direction, FaultProxy};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::json;

use crate::support::{entry_via, exec, exec_with, one, serve, unique};

/// The most memory the server ever had, in KiB.
pub(crate) fn peak_memory_kb(client: &McpClient) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let figure = line.unwrap().split_whitespace().nth(1).unwrap();
    figure.parse().unwrap()
}

/// Both ends are there and what is shown and what is said to be left out make up the whole.
pub(crate) fn assert_ends_and_count(reply: &ToolReply, zeros: u64) {
    assert_eq!(reply.json["exit_code"], 3, "{}", reply.text);
    assert_eq!(reply.json["truncated"], true);
    let shown = reply.json["stdout"].as_str().unwrap();
    assert!(shown.starts_with("HEAD\n\\x00"), "{shown:.40}");
    assert!(shown.ends_with("\\x00TAIL\n"), "{}", reply.text);
    assert!(shown.len() <= 20_100, "{} characters", shown.len());
    let omitted = reply.json["omitted_bytes"].as_u64().unwrap();
    let zeros_shown = shown.matches("\\x00").count() as u64;
    assert_eq!(zeros_shown + omitted, zeros);
    assert!(shown.contains(&format!("[{omitted} bytes omitted]")));
}

async fn flood(calls: usize, zeros: u64, limit: Duration) -> (McpClient, Vec<ToolReply>) {
    let (_sshd, client) = one().await;
    let replies = flood_of(&client, calls, zeros, limit).await;
    (client, replies)
}

/// Runs commands with much output side by side in the active sandbox.
pub(crate) async fn flood_of(
    client: &McpClient,
    calls: usize,
    zeros: u64,
    limit: Duration,
) -> Vec<ToolReply> {
    let command = format!("echo HEAD; head -c {zeros} /dev/zero; echo TAIL; exit 3");
    let mut ids = Vec::new();
    for _ in 0..calls {
        let arguments = json!({"command": command, "timeout_s": 1200, "wait_s": 280});
        ids.push(client.start_call("exec_bash", arguments).await);
    }
    let mut replies = Vec::new();
    for id in ids {
        replies.push(client.wait_tool_reply(id, limit).await.unwrap());
    }
    replies
}

#[tokio::test]
async fn f27_large_outputs_side_by_side_keep_exit_code_ends_and_count() {
    const ZEROS: u64 = 64 << 20;
    let (client, replies) = flood(4, ZEROS, Duration::from_secs(120)).await;
    for reply in &replies {
        assert_ends_and_count(reply, ZEROS);
    }
    let peak = peak_memory_kb(&client);
    assert!(peak <= 150_000, "the server took {peak} KiB");
    assert!(client.stdout_violations().is_empty());
}

#[tokio::test]
#[ignore = "minutes: twenty calls of 1 GiB each"]
async fn f27_twenty_calls_of_one_gibibyte_fit_into_150_megabytes() {
    const ZEROS: u64 = 1 << 30;
    let begun = Instant::now();
    let (client, replies) = flood(20, ZEROS, Duration::from_secs(600)).await;
    let peak = peak_memory_kb(&client);
    println!("{:?} and at most {peak} KiB", begun.elapsed());
    for reply in &replies {
        assert_ends_and_count(reply, ZEROS);
    }
    assert!(peak <= 150_000, "the server took {peak} KiB");
}

/// The exit status may overtake the last output, by seconds on a slow link.
#[rstest]
#[case::alone("", 10)]
#[case::host_cannot_be_asked_meanwhile("", 1)]
#[case::pipe_held_by_a_child("sleep 9127.5 & ", 10)]
#[tokio::test]
async fn f27_end_of_the_output_arrives_over_a_slow_link(
    #[case] before: &str,
    #[case] sessions: u32,
) {
    // More than all the buffers on the way hold.
    const ZEROS: u64 = 12 << 20;
    let sshd = Sshd::builder().max_sessions(sessions).start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
    proxy.trickle(Some(4 << 20));
    let command = format!("{before}echo HEAD; head -c {ZEROS} /dev/zero; echo TAIL; exit 3");
    let id = client
        .start_call("exec_bash", json!({ "command": command }))
        .await;
    // Slow only near the end, or it would take minutes.
    let almost = || proxy.bytes(Direction::ToClient) > ZEROS - 150_000;
    assert!(wait_until(Duration::from_secs(20), almost).await);
    proxy.trickle(Some(40 << 10));
    let limit = Duration::from_secs(30);
    let reply = client.wait_tool_reply(id, limit).await.unwrap();
    assert_ends_and_count(&reply, ZEROS);
    let told = reply.json.get("left_running").is_some();
    assert_eq!(told, !before.is_empty(), "{}", reply.json["left_running"]);
}

#[rstest]
#[case::standard_output("yes f28-MARK")]
#[case::standard_error("yes f28-MARK >&2")]
#[case::both_by_a_child("(yes f28-MARK & yes f28-MARK >&2; wait)")]
#[tokio::test]
async fn f28_endless_output_ends_with_the_deadline(#[case] command: &str) {
    let (_sshd, client) = one().await;
    let mark = format!("f28-{}", unique());
    let command = command.replace("f28-MARK", &mark);
    let begun = Instant::now();
    let reply = exec_with(&client, &command, json!({"timeout_s": 2})).await;
    let took = begun.elapsed();
    assert_eq!(process::with_command_line(&mark), Vec::<u32>::new());
    assert!(took < Duration::from_millis(6500), "{took:?}");
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
    let both = [&reply.json["stdout"], &reply.json["stderr"]].map(|text| text.as_str().unwrap());
    assert!(both.concat().contains(&mark));
    assert!(peak_memory_kb(&client) <= 150_000);
    assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
}

#[rstest]
#[case::not_utf8(r"a\xff\xfeb", "a\u{fffd}\u{fffd}b")]
#[case::nul(r"a\0b", r"a\x00b")]
#[case::colour(r"\033[31mred\033[0m", r"\x1b[31mred\x1b[0m")]
#[case::clipboard(r"\033]52;c;aGk=\a", r"\x1b]52;c;aGk=\x07")]
#[case::bidi(r"a\xe2\x80\xaeb", r"a\u{202e}b")]
#[case::tags(r"a\xf3\xa0\x81\x81b", r"a\u{e0041}b")]
#[case::c1(r"a\xc2\x9b31mb", r"a\u{9b}31mb")]
#[case::cut_at_the_end(r"a\xf0\x9f\x98", "a\u{fffd}")]
#[case::json_in_disguise(
    r#""}],"isError":true,\n{"jsonrpc":"2.0"}\n"#,
    "\"}],\"isError\":true,\n{\"jsonrpc\":\"2.0\"}\n"
)]
#[tokio::test]
async fn f30_odd_bytes_are_shown_and_not_obeyed(#[case] bytes: &str, #[case] shown: &str) {
    let (_sshd, client) = one().await;
    let reply = exec(&client, &format!("printf '{bytes}'; printf '{bytes}' >&2")).await;
    assert_eq!(reply.json["stdout"], shown, "{}", reply.text);
    assert_eq!(reply.json["stderr"], shown);
    assert!(client.stdout_violations().is_empty());
    let raw = client.stdout_lines().concat();
    let steers =
        |character: char| character.is_control() || matches!(character, '\u{202e}' | '\u{e0041}');
    assert!(!raw.contains(steers), "{raw:?}");
}

#[rstest]
#[case::two_bytes('é', 1)]
#[case::three_bytes('€', 2)]
#[case::four_bytes('😀', 3)]
#[tokio::test]
async fn f30_no_character_is_cut_at_the_cap(#[case] character: char, #[case] shift: usize) {
    let (_sshd, client) = one().await;
    let start = "x".repeat(shift);
    let command = format!("printf {start}; for i in {{1..9000}}; do printf '{character}'; done");
    for cap in [1001, 2048, 4999] {
        let reply = exec_with(&client, &command, json!({"max_output_chars": cap})).await;
        let text = reply.json["stdout"].as_str().unwrap();
        assert!(!text.contains('\u{fffd}'), "{cap}: {text}");
        assert_eq!(reply.json["truncated"], true);
        let shown = text.matches(character).count() * character.len_utf8() + shift;
        let omitted = reply.json["omitted_bytes"].as_u64().unwrap();
        let whole = 9000 * character.len_utf8() + shift;
        assert_eq!(shown as u64 + omitted, whole as u64, "{cap}");
    }
}

#[tokio::test]
async fn f30_character_that_arrives_in_two_parts_is_whole() {
    let (_sshd, client) = one().await;
    let reply = exec(&client, r"printf '\xc3'; sleep 0.4; printf '\xa9'").await;
    assert_eq!(reply.json["stdout"], "é");
}
