//! Listing, choosing and asking sandboxes.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::free_port;
use serde_json::json;

use crate::support::{entry, one, serve, serve_nothing, with};

#[tokio::test]
async fn list_shows_living_dead_and_broken_sandboxes_side_by_side() {
    let sshd = Sshd::start();
    let dead = with(entry("dead", &sshd), json!({"port": free_port()}));
    let broken = json!({"name": "broken", "host": "h", "password": "canary-secret-1"});
    let client = serve(&[entry("box", &sshd), dead, broken]).await;
    let reply = client.call_tool("list_sandboxes", json!({})).await;
    assert!(!reply.is_error);
    assert_eq!(reply.json["active_sandbox"], "box");
    let lines = reply.json["sandboxes"].as_array().unwrap();
    assert_eq!(lines[0]["connection_alive"], true);
    assert_eq!(lines[0]["is_active"], true);
    assert_eq!(lines[1]["connection_alive"], false);
    assert!(
        lines[1]["connection_error"]
            .as_str()
            .unwrap()
            .contains("refused")
    );
    assert_eq!(lines[2]["disabled"], true);
    assert!(lines[2]["error"].as_str().unwrap().contains("user"));
    assert!(!reply.text.contains("canary"));
}

#[tokio::test]
async fn list_measures_resources_and_scores_them() {
    let (_sshd, client) = one().await;
    let reply = client
        .call_tool("list_sandboxes", json!({"check_resources": true}))
        .await;
    let resources = &reply.json["sandboxes"][0]["resources"];
    assert!(
        resources["cpu"]["count"].as_u64().unwrap() >= 1,
        "{}",
        reply.text
    );
    assert!(resources["memory"]["total_mb"].as_u64().unwrap() > 0);
    assert!(resources["disk"][0]["free_mb"].is_u64());
    let score = resources["idle_score"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&score));
}

#[tokio::test]
async fn hung_host_delays_the_list_only_by_its_own_limit() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sshd = Sshd::start();
    let silent = json!({"port": listener.local_addr().unwrap().port(), "banner_timeout_s": 1});
    let hung: Vec<_> = (0..4)
        .map(|n| {
            with(
                with(entry("x", &sshd), silent.clone()),
                json!({"name": format!("hung{n}")}),
            )
        })
        .collect();
    let mut all = vec![entry("box", &sshd)];
    all.extend(hung);
    let client = serve(&all).await;
    let begun = Instant::now();
    let reply = client
        .call_tool("list_sandboxes", json!({"check_resources": true}))
        .await;
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(reply.json["sandboxes"][0]["connection_alive"], true);
    assert!(
        reply.json["sandboxes"][1]["connection_error"]
            .as_str()
            .unwrap()
            .contains("banner")
    );
}

#[tokio::test]
async fn select_changes_where_commands_run() {
    let sshd = Sshd::start();
    let client = serve(&[entry("one", &sshd), entry("two", &sshd)]).await;
    let reply = client
        .call_tool("select_sandbox", json!({"sandbox_name": "two"}))
        .await;
    assert_eq!(
        reply.json,
        json!({"active_sandbox": "two", "status": "selected"})
    );
    let run = client
        .call_tool("exec_bash", json!({"command": "true"}))
        .await;
    assert_eq!(run.json["sandbox"], "two");
    let named = json!({"command": "true", "sandbox_name": "one"});
    assert_eq!(
        client.call_tool("exec_bash", named).await.json["sandbox"],
        "one"
    );
    let active = client.call_tool("get_active_sandbox", json!({})).await;
    assert_eq!(active.json["active_sandbox"], "two");
    assert_eq!(active.json["connection_alive"], true);
}

#[tokio::test]
async fn unknown_sandbox_is_refused_with_the_known_ones() {
    let (_sshd, client) = one().await;
    let reply = client
        .call_tool("select_sandbox", json!({"sandbox_name": "zzz"}))
        .await;
    assert!(reply.is_error);
    assert_eq!(reply.json["code"], "not_found");
    assert_eq!(reply.json["available"], json!(["box"]));
}

#[tokio::test]
async fn active_sandbox_is_really_asked() {
    let (mut sshd, client) = one().await;
    let alive = client.call_tool("get_active_sandbox", json!({})).await;
    assert_eq!(alive.json["connection_alive"], true);
    sshd.stop();
    let dead = client.call_tool("get_active_sandbox", json!({})).await;
    assert_eq!(dead.json["connection_alive"], false, "{}", dead.text);
    assert!(!dead.is_error);
}

#[tokio::test]
async fn list_that_cannot_be_read_is_said_with_the_way_out_and_nothing_runs_here_instead() {
    let client = serve_nothing().await;
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert!(!list.is_error);
    assert_eq!(list.json["sandboxes"], json!([]));
    assert!(
        list.json["hint"]
            .as_str()
            .unwrap()
            .contains("REMOTE_SANDBOX_LIST")
    );
    let run = client
        .call_tool("exec_bash", json!({"command": "true"}))
        .await;
    assert_eq!(run.json["code"], "not_configured");
}

#[tokio::test]
async fn default_sandbox_stays_active_and_begins_anew_when_it_is_deleted() {
    use crate::support::{exec, program, ready};
    use remote_sandbox_testkit::mcp::McpClient;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[local]\nisolation = \"none\"\n").unwrap();
    let start = McpClient::builder(program()).arg("--config").arg(&config);
    let client = ready(start.start()).await;
    let reply = exec(&client, "echo x > file; ls").await;
    assert_eq!(reply.json["stdout"], "file\n", "{}", reply.text);
    let order = json!({"sandbox_id": "local"});
    let reply = client.call_tool("delete_sandbox", order.clone()).await;
    assert_eq!(reply.json["status"], "deleted", "{}", reply.text);
    let reply = exec(&client, "ls").await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    assert_eq!(reply.json["stdout"], "");
    assert_eq!(reply.json["sandbox"], "local");
    client.call_tool("delete_sandbox", order).await;
    client.close_stdin().await;
    assert!(client.wait_exit(Duration::from_secs(10)).await.is_some());
}
