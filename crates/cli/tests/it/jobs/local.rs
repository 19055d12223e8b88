//! Jobs in sandboxes on this machine.

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::{LIMIT, check, end_of, started};
use crate::local::support::Setup;

#[tokio::test]
async fn job_of_a_local_sandbox_outlives_the_server_and_ends_with_the_sandbox() {
    let local = Setup::new().start().await;
    let job = started(&local.client, "echo up; sleep 69.375", json!({})).await;
    assert_eq!(job["sandbox"], "local");
    assert!(
        job["note"]
            .as_str()
            .unwrap()
            .contains("deleting its sandbox"),
        "{job}"
    );
    let running = || !process::with_command_line("sleep 69.375").is_empty();
    assert!(wait_until(LIMIT, running).await);
    local.client.close_stdin().await;
    assert!(local.client.wait_exit(LIMIT).await.is_some());
    assert!(running());
    let second = local.server.start().await;
    let query = json!({"task_id": job["task_id"]});
    let seen = check(&second, query.clone()).await;
    assert_eq!(seen["running"], true, "{seen}");
    assert_eq!(seen["log_tail"], "up\n", "{seen}");
    let short = started(&second, "exit 6", json!({})).await;
    assert_eq!(end_of(&second, &short["task_id"]).await["exit_code"], 6);
    let stopped = second.call_tool("stop_background_task", query).await.json;
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert!(wait_until(LIMIT, || !running()).await);
    let last = started(&second, "sleep 69.375", json!({})).await;
    assert!(wait_until(LIMIT, running).await);
    let delete = json!({"sandbox_id": "local"});
    second.call_tool("delete_sandbox", delete).await;
    assert!(wait_until(LIMIT, || !running()).await, "{last}");
}
