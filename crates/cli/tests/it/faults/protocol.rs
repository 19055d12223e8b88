//! Broken protocol: a client that sends nonsense does not end the server, and gets nothing but protocol.

use std::time::Duration;

use remote_sandbox_testkit::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{builder, entry, exec, exec_with, ready, serve};

const LIMIT: Duration = Duration::from_secs(20);

/// What a broken line is answered with.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    /// Nothing: there is nobody to answer.
    Nothing,
    /// An error without an id, because none could be read.
    Anonymous(i64),
    /// An error for the request `broken`.
    Error(i64),
    /// A result for the request `broken`.
    Served,
}

fn line(text: &str) -> Vec<u8> {
    format!("{text}\n").into_bytes()
}

fn call(arguments: &str) -> Vec<u8> {
    let start = r#"{"jsonrpc":"2.0","id":"broken","method":"tools/call","params":"#;
    line(&format!("{start}{arguments}}}"))
}

fn exec_call(arguments: &str) -> Vec<u8> {
    call(&format!(
        r#"{{"name":"exec_bash","arguments":{arguments}}}"#
    ))
}

fn ping_with_id(id: &str) -> Vec<u8> {
    line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#))
}

fn deep(open: &str, close: &str) -> Vec<u8> {
    let value = format!("{}{}", open.repeat(10_000), close.repeat(10_000));
    line(&format!(
        r#"{{"jsonrpc":"2.0","id":"broken","method":"ping","params":{value}}}"#
    ))
}

fn messages(client: &McpClient, from: usize) -> Vec<Value> {
    let lines = client.stdout_lines();
    let rest = lines.iter().skip(from);
    rest.map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Sends a line, then sound requests, and gives all that came back but the answers to the latter.
async fn answers_to(client: &McpClient, bytes: &[u8], expected: usize) -> Vec<Value> {
    let before = client.stdout_lines().len();
    client.send_raw(bytes).await;
    for _ in 0..2 {
        let ping = client.request("ping", json!({}), LIMIT).await;
        ping.expect("the next request is served");
    }
    let answers = || {
        let all = messages(client, before).into_iter();
        all.filter(|message| !message["id"].is_u64())
            .collect::<Vec<_>>()
    };
    // Requests are served side by side, so the answer may come after those to the pings.
    let _ = wait_until(LIMIT, || answers().len() >= expected).await;
    answers()
}

fn check(answers: &[Value], expected: Answer) {
    match expected {
        Answer::Nothing => assert_eq!(answers, [] as [Value; 0]),
        Answer::Anonymous(code) => {
            assert_eq!(answers.len(), 1, "{answers:?}");
            assert_eq!(answers[0]["error"]["code"], code);
            assert!(answers[0]["id"].is_null());
        }
        Answer::Error(code) => {
            assert_eq!(answers.len(), 1, "{answers:?}");
            assert_eq!(answers[0]["error"]["code"], code, "{answers:?}");
            assert_eq!(answers[0]["id"], "broken");
        }
        Answer::Served => {
            assert_eq!(answers.len(), 1, "{answers:?}");
            assert_eq!(answers[0]["id"], "broken");
            assert!(answers[0]["result"].is_object(), "{answers:?}");
        }
    }
}

#[rstest]
#[case::not_json(line("hello"), Answer::Nothing)]
#[case::half_a_message(line(r#"{"jsonrpc":"2.0","id":1,"#), Answer::Nothing)]
#[case::blank(line(""), Answer::Nothing)]
#[case::nul_bytes(line("\0\0\0"), Answer::Nothing)]
#[case::two_on_a_line(
    line(
        r#"{"jsonrpc":"2.0","id":"a","method":"ping"}{"jsonrpc":"2.0","id":"b","method":"ping"}"#
    ),
    Answer::Nothing
)]
#[case::array(line("[]"), Answer::Anonymous(-32600))]
#[case::batch(line(r#"[{"jsonrpc":"2.0","id":"a","method":"ping"}]"#), Answer::Anonymous(-32600))]
#[case::number(line("5"), Answer::Anonymous(-32600))]
#[case::null(line("null"), Answer::Anonymous(-32600))]
#[case::no_id(line(r#"{"jsonrpc":"2.0","method":"ping"}"#), Answer::Nothing)]
#[case::null_id(ping_with_id("null"), Answer::Anonymous(-32600))]
#[case::fraction_id(ping_with_id("1.5"), Answer::Anonymous(-32600))]
#[case::object_id(ping_with_id("{}"), Answer::Anonymous(-32600))]
#[case::array_id(ping_with_id("[1]"), Answer::Anonymous(-32600))]
#[case::flag_id(ping_with_id("true"), Answer::Anonymous(-32600))]
#[case::endless_id(ping_with_id("99999999999999999999999"), Answer::Anonymous(-32600))]
#[case::text_id(ping_with_id(r#""broken""#), Answer::Served)]
#[case::two_ids(line(r#"{"jsonrpc":"2.0","id":"a","id":"b","method":"ping"}"#), Answer::Anonymous(-32600))]
#[case::two_methods(line(r#"{"jsonrpc":"2.0","id":"a","method":"ping","method":"tools/list"}"#), Answer::Anonymous(-32600))]
#[case::deep_arrays(deep("[", "]"), Answer::Nothing)]
#[case::deep_objects(deep(r#"{"a":"#, "}"), Answer::Nothing)]
#[case::open_arrays(line(&"[".repeat(100_000)), Answer::Nothing)]
#[case::not_utf8(b"{\"jsonrpc\":\"2.0\",\"id\":\"broken\",\"method\":\"\xff\xfe\"}\n".to_vec(), Answer::Nothing)]
#[case::half_a_surrogate(call(r#"{"name":"\ud800"}"#), Answer::Nothing)]
#[case::carriage_return(
    line("{\"jsonrpc\":\"2.0\",\"id\":\"broken\",\"method\":\"ping\"}\r"),
    Answer::Served
)]
#[case::byte_order_mark(
    line("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"broken\",\"method\":\"ping\"}"),
    Answer::Served
)]
#[case::unknown_method(line(r#"{"jsonrpc":"2.0","id":"broken","method":"nope/nope"}"#), Answer::Error(-32601))]
#[case::unknown_notification(
    line(r#"{"jsonrpc":"2.0","method":"notifications/nope"}"#),
    Answer::Nothing
)]
#[case::other_version(line(r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#), Answer::Anonymous(-32600))]
#[case::no_version(line(r#"{"id":"a","method":"ping"}"#), Answer::Anonymous(-32600))]
#[case::method_is_a_number(line(r#"{"jsonrpc":"2.0","id":"a","method":5}"#), Answer::Anonymous(-32600))]
#[case::no_method(line(r#"{"jsonrpc":"2.0","id":"a"}"#), Answer::Anonymous(-32600))]
#[case::params_are_text(call(r#""x""#), Answer::Anonymous(-32600))]
#[case::params_are_a_list(call("[1]"), Answer::Anonymous(-32600))]
#[case::params_are_missing(line(r#"{"jsonrpc":"2.0","id":"broken","method":"tools/call"}"#), Answer::Error(-32602))]
#[case::name_is_a_number(call(r#"{"name":5}"#), Answer::Error(-32602))]
#[case::arguments_are_a_list(exec_call("[1]"), Answer::Error(-32602))]
#[case::arguments_are_null(call(r#"{"name":"list_sandboxes","arguments":null}"#), Answer::Served)]
#[case::second_handshake_is_empty(line(r#"{"jsonrpc":"2.0","id":"broken","method":"initialize","params":{}}"#), Answer::Error(-32602))]
#[case::too_large_a_number(exec_call(r#"{"command":"true","timeout_s":1e400}"#), Answer::Nothing)]
#[case::not_a_number(exec_call(r#"{"command":"true","wait_s":NaN}"#), Answer::Nothing)]
#[case::reply_to_nothing(line(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#), Answer::Nothing)]
#[case::error_to_nothing(
    line(r#"{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}"#),
    Answer::Nothing
)]
#[case::cancels_a_list(
    line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}"#),
    Answer::Nothing
)]
#[case::progress_token_is_an_object(
    call(r#"{"name":"list_sandboxes","_meta":{"progressToken":{}}}"#),
    Answer::Served
)]
#[case::meta_is_a_number(call(r#"{"name":"list_sandboxes","_meta":5}"#), Answer::Anonymous(-32600))]
#[tokio::test]
async fn f68_broken_line_gets_its_answer_and_the_next_request_is_served(
    #[case] bytes: Vec<u8>,
    #[case] expected: Answer,
) {
    let client = serve(&[]).await;
    let count = usize::from(expected != Answer::Nothing);
    check(&answers_to(&client, &bytes, count).await, expected);
    assert_eq!(client.stdout_violations(), Vec::<String>::new());

    // The same before the session has begun: whatever comes back, the handshake works.
    let early = builder(&[]).start();
    early.send_raw(&bytes).await;
    early.initialize("2025-06-18").await;
    assert_eq!(early.stdout_violations(), Vec::<String>::new());
}

#[rstest]
#[case::fraction(r#"{"command":"true","timeout_s":-1e308}"#, "timeout_s")]
#[case::flag(r#"{"command":true}"#, "command")]
#[case::object(r#"{"command":{"a":1}}"#, "command")]
#[case::null(r#"{"command":null}"#, "command")]
#[case::nothing("{}", "command")]
#[case::number_in_environment(r#"{"command":"true","env":{"A":1}}"#, "env")]
#[case::list_as_environment(r#"{"command":"true","env":["A=1"]}"#, "env")]
#[case::unknown(r#"{"command":"true","colour":"red"}"#, "colour")]
#[case::two_keys(r#"{"command":"true","timeout_s":1,"timeout_s":"x"}"#, "timeout_s")]
#[tokio::test]
async fn f68_wrong_argument_is_named_and_nothing_runs(
    #[case] arguments: &str,
    #[case] field: &str,
) {
    let client = serve(&[]).await;
    let answers = answers_to(&client, &exec_call(arguments), 1).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["result"]["isError"], true, "{answers:?}");
    let text = answers[0]["result"]["content"][0]["text"].as_str().unwrap();
    let failure: Value = serde_json::from_str(text).unwrap();
    assert_eq!(failure["code"], "invalid_params");
    assert!(failure["error"].as_str().unwrap().contains(field), "{text}");
}

#[tokio::test]
async fn f68_huge_lines_are_dropped_and_memory_stays_flat() {
    let client = serve(&[]).await;
    let command = "a".repeat(17 << 20);
    let huge = exec_call(&format!(r#"{{"command":"{command}"}}"#));
    assert_eq!(answers_to(&client, &huge, 0).await, Vec::<Value>::new());
    let first = client.rss_kb();
    for _ in 0..4 {
        assert_eq!(answers_to(&client, &huge, 0).await, Vec::<Value>::new());
    }
    // Without an end in sight, it is dropped as it comes.
    client.send_raw("b".repeat(40 << 20).as_bytes()).await;
    assert_eq!(answers_to(&client, b"\n", 0).await, Vec::<Value>::new());
    let last = client.rss_kb();
    assert!(last < 64 << 10, "{last} KiB");
    assert!(last < first + (8 << 10), "from {first} to {last} KiB");
    assert!(client.stderr().len() < 10_000);
}

#[tokio::test]
async fn f68_ten_thousand_broken_lines_leave_memory_flat() {
    let client = serve(&[]).await;
    let lines = [
        line("nonsense"),
        line("[1]"),
        ping_with_id("{}"),
        deep("[", "]"),
        exec_call(r#"{"command":5}"#),
        line(r#"{"jsonrpc":"2.0","id":"x","method":"nope"}"#),
    ]
    .concat();
    let round = async || {
        for _ in 0..100 {
            client.send_raw(&lines).await;
        }
        client.request("ping", json!({}), LIMIT).await.unwrap();
        client.rss_kb()
    };
    let first = round().await;
    let mut last = first;
    for _ in 0..4 {
        last = round().await;
    }
    assert!(last < first + (8 << 10), "from {first} to {last} KiB");
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn f68_message_in_pieces_and_messages_in_one_piece_are_the_same() {
    let client = serve(&[]).await;
    let pings: Vec<Vec<u8>> = (0..50)
        .map(|number| ping_with_id(&format!("\"piece {number}\"")))
        .collect();
    let answered = |times: usize| {
        let lines = client.stdout_lines();
        let found = lines.iter().filter(|line| line.contains("\"piece "));
        found.count() == times
    };
    for byte in &pings[0] {
        client.send_raw(&[*byte]).await;
    }
    assert!(wait_until(LIMIT, || answered(1)).await);
    client.send_raw(&pings[1..].concat()).await;
    assert!(wait_until(LIMIT, || answered(50)).await);
}

#[tokio::test]
async fn f68_last_line_without_an_end_is_not_a_request() {
    let client = serve(&[]).await;
    let mut request = ping_with_id(r#""broken""#);
    request.pop();
    client.send_raw(&request).await;
    client.close_stdin().await;
    let status = client
        .wait_exit(Duration::from_secs(8))
        .await
        .expect("it ends");
    assert!(status.success(), "{status}");
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn f69_every_line_of_output_is_protocol_whatever_happens() {
    let mut sshd = remote_sandbox_testkit::Sshd::start();
    let broken = json!({"name": "broken", "host": "h"});
    let started = builder(&[entry("box", &sshd), broken]).arg("-vv");
    let client = ready(started.start()).await;
    exec(
        &client,
        "echo '{\"jsonrpc\":\"2.0\"}'; echo plain; printf 'no end'",
    )
    .await;
    exec(
        &client,
        "printf '\\000\\033[31m\\377\\n\\r\\n'; printf 'x\\342\\200\\250y' >&2",
    )
    .await;
    exec_with(
        &client,
        "yes",
        json!({"timeout_s": 1, "max_output_chars": 50_000}),
    )
    .await;
    client
        .call_tool("list_sandboxes", json!({"check_resources": true}))
        .await;
    client.call_tool("no_such_tool\n", json!({})).await;
    client
        .call_tool(
            "exec_bash",
            json!({"command": "true", "sandbox_name": "broken"}),
        )
        .await;
    let cancelled = client
        .start_call("exec_bash", json!({"command": "sleep 9269.5"}))
        .await;
    assert!(
        wait_until(LIMIT, || !process::with_command_line("sleep 9269.5")
            .is_empty())
        .await
    );
    client.cancel(cancelled).await;
    assert!(
        wait_until(LIMIT, || process::with_command_line("sleep 9269.5")
            .is_empty())
        .await
    );
    sshd.stop();
    exec(&client, "true").await;
    client.send_raw(b"nonsense\n").await;
    client.request("ping", json!({}), LIMIT).await.unwrap();
    client.close_stdin().await;
    client
        .wait_exit(Duration::from_secs(8))
        .await
        .expect("it ends");
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
    assert!(client.stdout_lines().len() > 10);
    assert!(client.stderr().contains("DEBUG"), "the log was on");
}

#[rstest]
#[case::help("--help", true)]
#[case::version("--version", true)]
#[case::wrong_flag("--no-such-flag", false)]
#[case::missing_file("--config=/no/such/file.toml", false)]
#[tokio::test]
async fn f69_what_is_no_session_says_why_and_ends(#[case] argument: &str, #[case] good: bool) {
    let client = builder(&[]).arg(argument).start();
    let status = client.wait_exit(LIMIT).await.expect("it ends");
    assert_eq!(status.success(), good);
    if !good {
        // Complaints are for people.
        assert_eq!(client.stdout_lines(), Vec::<String>::new());
        let complained = || !client.stderr().is_empty();
        assert!(wait_until(LIMIT, complained).await);
    }
}
