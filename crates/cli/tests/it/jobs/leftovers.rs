//! What a job has started and what outlives it.

use std::fs;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::{Ends, LIMIT, check, end_of, folder, one, started};

#[tokio::test]
async fn job_whose_child_outlives_runner_and_shell_still_runs_and_can_be_stopped() {
    let _ends = Ends("sleep 66.125");
    let (host, client) = one().await;
    let job = started(&client, "setsid sleep 66.125 & sleep 66.125", json!({})).await;
    let running = || process::with_command_line("sleep 66.125").len();
    assert!(wait_until(LIMIT, || running() == 2).await);
    let pid_in = |file: &str| {
        let words = fs::read_to_string(folder(&host, &job).join(file)).unwrap();
        let pid: u32 = words.split_whitespace().next().unwrap().parse().unwrap();
        pid
    };
    assert!(process::kill_and_wait(&[
        pid_in("process"),
        pid_in("child")
    ]));
    let seen = check(&client, json!({"task_id": job["task_id"]})).await;
    assert_eq!(seen["status"], "running", "{seen}");
    let reply = stopped(&client, &job).await;
    assert_eq!(reply["status"], "stopped", "{reply}");
    assert_eq!(running(), 0);
}

#[tokio::test]
async fn what_an_exited_job_has_left_is_told_and_stopping_ends_it() {
    let _ends = Ends("sleep 67.125");
    let (_host, client) = one().await;
    let command = "sleep 67.125 & setsid sleep 67.125 & exit 0";
    let job = started(&client, command, json!({})).await;
    assert_eq!(end_of(&client, &job["task_id"]).await["status"], "exited");
    let mut note = Value::Null;
    for _ in 0..100 {
        note = check(&client, json!({"task_id": job["task_id"]})).await["note"].clone();
        if !note.is_null() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(note.to_string().contains("stop_background_task"), "{note}");
    let reply = stopped(&client, &job).await;
    assert_eq!(reply["status"], "exited", "{reply}");
    assert_eq!(reply["exit_code"], 0, "{reply}");
    assert_eq!(reply["ended_count"], 2, "{reply}");
    assert_eq!(process::with_command_line("sleep 67.125").len(), 0);
}

async fn stopped(client: &remote_sandbox_testkit::mcp::McpClient, job: &Value) -> Value {
    let arguments = json!({"task_id": job["task_id"]});
    client
        .call_tool("stop_background_task", arguments)
        .await
        .json
}
