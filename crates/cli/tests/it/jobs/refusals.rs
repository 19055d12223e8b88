//! What cannot work is refused when it is asked for, and what failed is told as what it is.

use remote_sandbox_testkit::McpClient;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Host, one, start};
use crate::support::{builder, entry, ready};

/// A server with all tools, and perhaps a configuration of its own.
async fn advanced(host: &Host, config: &str) -> McpClient {
    let file = host.sshd.dir().join("own.toml");
    std::fs::write(&file, config).unwrap();
    let server = builder(&[entry("box", &host.sshd)])
        .arg("--config")
        .arg(&file);
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    ready(server.start()).await
}

#[rstest]
#[case::cwd(json!({"cwd": "a\nb", "checkpoint_path": "c"}), "cwd")]
#[case::log(json!({"log_file": "a\nb"}), "log_file")]
#[case::long_log(json!({"log_file": format!("/{}", "x".repeat(5000))}), "log_file")]
#[case::folder(json!({"log_file": "/tmp/"}), "log_file")]
#[case::session(json!({"tmux_session": "q\u{7}"}), "tmux_session")]
#[tokio::test]
async fn watch_that_no_host_could_be_asked_for_is_refused(
    #[case] more: Value,
    #[case] field: &str,
) {
    let host = Host::start();
    let client = advanced(&host, "").await;
    let usual = json!({"tmux_session": "q", "log_file": "/tmp/zz", "interval_s": 1,
        "ensure_watchdog": false});
    let task = crate::support::with(usual, more);
    let reply = client.call_tool("watch_background_task", task).await;
    assert_eq!(reply.json["code"], "invalid_params", "{}", reply.text);
    let error = reply.json["error"].as_str().unwrap();
    assert!(error.contains(&format!("`{field}`")), "{error}");
    let list = client.call_tool("list_background_watches", json!({})).await;
    assert_eq!(list.json["watches"], json!([]), "{}", list.text);
}

#[rstest]
#[case("http://localhost:9/x")]
#[case("http://hooks.localhost:9/x")]
#[case("http://127.0.0.1:9/x")]
#[tokio::test]
async fn webhook_on_this_machine_fails_the_start_although_any_host_is_allowed(#[case] url: &str) {
    let host = Host::start();
    let client = advanced(&host, "[watchdog]\nallow_event_command = \"any\"\n").await;
    let order = json!({"webhook_url": url, "ensure_watchdog": false});
    let reply = start(&client, "true", order).await;
    assert_eq!(reply.json["code"], "policy_denied", "{}", reply.text);
    let hint = reply.json["hint"].as_str().unwrap();
    assert!(hint.contains("webhook_hosts = ["), "{hint}");
    assert!(!hint.contains("allow_event_command"), "{hint}");
    assert!(!host.home().join(".remote-sandbox-mcp").exists());
}

#[tokio::test]
async fn more_gpus_than_the_host_has_are_not_worth_another_try() {
    let (_host, client) = one().await;
    let reply = start(&client, "true", json!({"gpus": 99})).await;
    assert_eq!(reply.json["code"], "unsupported", "{}", reply.text);
    assert_ne!(reply.json["retry"], true, "{}", reply.text);
}

#[tokio::test]
async fn task_of_somebody_else_on_a_host_that_is_down_is_unreachable() {
    let (mut host, client) = one().await;
    host.sshd.stop();
    let task = json!({"tmux_session": "zz"});
    let reply = client.call_tool("check_background_task", task).await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["connection_error"], true, "{}", reply.text);
    assert_eq!(reply.json["status"], "unreachable", "{}", reply.text);
    assert_eq!(reply.json["running"], Value::Null, "{}", reply.text);
    assert_eq!(reply.json["tmux_session"], "zz", "{}", reply.text);
    assert!(
        reply.json["error"]
            .as_str()
            .is_some_and(|error| !error.is_empty())
    );
}
