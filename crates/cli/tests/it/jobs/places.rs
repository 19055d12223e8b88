//! Jobs whose folder, or whose host, is not where somebody looks for them.

use std::fs;
use std::path::Path;

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::{Ends, Host, LIMIT, check, end_of, folder, one, started};
use crate::support::{builder, entry, ready};

async fn stop(client: &McpClient, job: &Value) -> Value {
    let arguments = json!({"task_id": job["task_id"]});
    client
        .call_tool("stop_background_task", arguments)
        .await
        .json
}

/// Another server with the same state, for which `name` is this host.
async fn second(home: &Path, name: &str, host: &Host) -> McpClient {
    let server = builder(&[entry(name, &host.sshd)]).home(home);
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    ready(server.start()).await
}

#[tokio::test]
async fn stop_of_a_running_job_whose_folder_is_missing_ends_it_and_never_says_not_started() {
    let _ends = Ends("sleep 63.125");
    let (host, client) = one().await;
    let job = started(&client, "setsid sleep 63.125 & sleep 63.125", json!({})).await;
    let running = || process::with_command_line("sleep 63.125").len();
    assert!(wait_until(LIMIT, || running() == 2).await);
    let folder = folder(&host, &job);
    let whole = folder.parent().unwrap();
    let aside = host.sshd.dir().join("aside");
    fs::rename(whole, &aside).unwrap();
    let reply = stop(&client, &job).await;
    assert_eq!(reply["status"], "unknown", "{reply}");
    assert!(reply["ended_count"].as_u64().unwrap() >= 3, "{reply}");
    assert_eq!(running(), 0);
    assert!(!whole.exists());
    fs::rename(&aside, whole).unwrap();
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["status"], "stopped", "{seen}");
}

#[tokio::test]
async fn job_is_found_on_its_own_host_by_a_server_for_which_the_name_means_another_or_nothing() {
    let _ends = Ends("sleep 64.125");
    let (host, client) = one().await;
    let other = Host::start();
    let job = started(&client, "sleep 64.125", json!({"ensure_watchdog": false})).await;
    let task = json!({"task_id": job["task_id"]});
    for (name, host) in [("box", &other), ("else", &host)] {
        let second = second(client.home(), name, host).await;
        let seen = check(&second, task.clone()).await;
        assert_eq!(seen["status"], "running", "{name}: {seen}");
        let tasks = second.call_tool("list_background_tasks", json!({})).await;
        assert_eq!(
            tasks.json["tasks"][0]["status"], "running",
            "{}",
            tasks.text
        );
    }
    let second = second(client.home(), "box", &other).await;
    let stopped = stop(&second, &job).await;
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert_eq!(process::with_command_line("sleep 64.125").len(), 0);
}

#[tokio::test]
async fn server_for_which_the_name_means_another_host_refuses_a_job_that_nobody_watches() {
    let _ends = Ends("sleep 65.125");
    let (_host, client) = one().await;
    let other = Host::start();
    let job = started(&client, "sleep 65.125", json!({"watch": false})).await;
    let second = second(client.home(), "box", &other).await;
    let refused = stop(&second, &job).await;
    assert_eq!(refused["code"], "not_configured", "{refused}");
    let port = other.sshd.port().to_string();
    assert!(
        refused["error"].as_str().unwrap().contains(&port),
        "{refused}"
    );
    assert!(!other.home().join(".remote-sandbox-mcp").exists());
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["status"], "running", "{seen}");
    assert_eq!(stop(&client, &job).await["status"], "stopped");
}

#[tokio::test]
async fn old_job_is_forgotten_by_a_later_start_only_on_the_host_it_was_started_on() {
    let (host, client) = one().await;
    let unwatched = json!({"watch": false});
    let stays = started(&client, "true", unwatched.clone()).await;
    end_of(&client, &stays["task_id"]).await;
    let other = Host::start();
    let server = second(client.home(), "box", &other).await;
    let goes = started(&server, "true", unwatched.clone()).await;
    end_of(&server, &goes["task_id"]).await;
    let store = client
        .home()
        .join(".local/state/remote-sandbox-mcp/store.sqlite3");
    let store = rusqlite::Connection::open(store).unwrap();
    store.busy_timeout(LIMIT).unwrap();
    let days = "UPDATE attempts SET ended = ended - 40 * 24 * 3600 * 1000";
    assert_eq!(store.execute(days, []).unwrap(), 2);
    started(&server, "true", unwatched).await;
    let is_kept = |job: &Value| {
        let query = "SELECT count(*) FROM jobs WHERE id = ?1";
        let id = job["task_id"].as_str().unwrap();
        let count: i64 = store.query_row(query, [id], |row| row.get(0)).unwrap();
        count == 1
    };
    assert!(wait_until(LIMIT, || !is_kept(&goes)).await);
    assert!(is_kept(&stays));
    assert!(folder(&host, &stays).exists() && !folder(&other, &goes).exists());
}
