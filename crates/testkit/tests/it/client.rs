//! The MCP client, against a little server written in shell.

use std::time::Duration;

use remote_sandbox_testkit::process::is_alive;
use remote_sandbox_testkit::{McpClient, McpError, wait_until};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(10);

/// Answers by method and tool name; the id of a request is cut out of the line.
const SERVER: &str = r#"
echo "started as $HOME" >&2
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18"}}' ;;
    *'"method":"notifications/initialized"'*) echo '{"jsonrpc":"2.0","method":"notifications/saw_initialized"}' ;;
    *'"method":"server/discover"'*io.modelcontextprotocol/protocolVersion*2026-07-28*)
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"supportedVersions":["2026-07-28"]}}' ;;
    *'"name":"greet"'*)
      echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$id',"progress":1}}'
      echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":999,"progress":1}}'
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"{\"word\":\"hello\"}"}]}}' ;;
    *'"name":"fail"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"isError":true,"content":[{"type":"text","text":"no"}]}}' ;;
    *'"name":"broken"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32602,"message":"bad","data":{"a":1}}}' ;;
    *'"name":"chatter"'*) echo 'hello world'; echo '{"id":1}'; echo '{"jsonrpc":"2.0","id":77,"result":{}}'
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
    *'"name":"ask"'*) echo '{"jsonrpc":"2.0","id":"s1","method":"ping"}'; read -r answer; echo "$answer" >&2
      echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
    *notifications/cancelled*) echo '{"jsonrpc":"2.0","method":"notifications/saw_cancel"}' ;;
    *'"name":"environment"'*) env >&2; echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;;
    raw*) echo '{"jsonrpc":"2.0","method":"notifications/saw_raw"}' ;;
  esac
done
exit 5
"#;

fn start() -> McpClient {
    McpClient::builder("/bin/sh").args(["-c", SERVER]).start()
}

fn saw(client: &McpClient, method: &str) -> bool {
    client
        .notifications()
        .iter()
        .any(|note| note["method"] == method)
}

#[tokio::test]
async fn client_opens_both_eras() {
    let client = start();
    let answer = client.initialize("2025-06-18").await;
    assert_eq!(answer["protocolVersion"], "2025-06-18");
    assert!(wait_until(LIMIT, || saw(&client, "notifications/saw_initialized")).await);
    let answer = client.discover().await;
    assert_eq!(answer["supportedVersions"][0], "2026-07-28");
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn client_reads_results_errors_and_progress() {
    let client = start();
    let reply = client.call_tool("greet", json!({})).await;
    assert!(!reply.is_error);
    assert_eq!(reply.json["word"], "hello");
    assert_eq!(reply.notifications.len(), 1);
    let reply = client.call_tool("fail", json!({})).await;
    assert!(reply.is_error);
    assert_eq!((reply.text.as_str(), reply.json.is_null()), ("no", true));
    let error = client.try_call_tool("broken", json!({}), LIMIT).await;
    assert_eq!(
        error.unwrap_err(),
        McpError::Rpc {
            code: -32602,
            message: "bad".to_owned(),
            data: json!({"a": 1})
        }
    );
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
}

#[tokio::test]
async fn client_notices_lines_that_are_no_protocol() {
    let client = start();
    client.call_tool("chatter", json!({})).await;
    let violations = client.stdout_violations();
    assert_eq!(violations.len(), 3, "{violations:?}");
    assert!(violations[0].contains("hello world"));
    assert_eq!(client.stdout_lines().len(), 4);
}

#[tokio::test]
async fn client_times_out_cancels_and_answers_the_server() {
    let client = start();
    let id = client.start_call("never", json!({})).await;
    let outcome = client.wait_reply(id, Duration::from_millis(100)).await;
    assert_eq!(outcome, Err(McpError::TimedOut));
    assert!(!client.has_reply(id));
    client.cancel(id).await;
    assert!(wait_until(LIMIT, || saw(&client, "notifications/saw_cancel")).await);
    client.call_tool("ask", json!({})).await;
    assert_eq!(client.server_requests().len(), 1);
    assert!(client.stderr().contains(r#""id":"s1","result":{}"#));
    client.send_raw(b"raw bytes\n").await;
    assert!(wait_until(LIMIT, || saw(&client, "notifications/saw_raw")).await);
}

#[tokio::test]
async fn client_gives_a_clean_environment_and_a_fresh_home() {
    let client = McpClient::builder("/bin/sh")
        .args(["-c", SERVER])
        .env("FLAVOUR", "vanilla")
        .start();
    client.call_tool("environment", json!({})).await;
    assert!(wait_until(LIMIT, || client.stderr().contains("FLAVOUR=vanilla")).await);
    let text = client.stderr();
    assert!(text.contains(&format!("HOME={}", client.home().display())));
    assert!(!text.contains("CARGO"), "{text}");
    assert!(client.home().exists());
}

#[tokio::test]
async fn client_sees_the_end_of_the_server() {
    let client = start();
    assert!(wait_until(LIMIT, || client.rss_kb() > 100).await);
    assert!(client.wait_exit(Duration::from_millis(50)).await.is_none());
    let id = client.start_call("never", json!({})).await;
    client.close_stdin().await;
    let status = client.wait_exit(LIMIT).await.unwrap();
    assert_eq!(status.code(), Some(5));
    assert_eq!(client.wait_reply(id, LIMIT).await, Err(McpError::Closed));
}

#[tokio::test]
async fn client_kills_the_server_when_dropped() {
    let client = start();
    let pid = client.pid();
    assert!(is_alive(pid));
    drop(client);
    assert!(wait_until(LIMIT, || !is_alive(pid)).await);
}
