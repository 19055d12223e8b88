//! What the log of a task tells of before its end, and wherever it stands.

use serde_json::json;

use super::{Dog, Stage, events};

#[tokio::test]
async fn alarms_of_a_task_that_ends_at_once_and_writes_much_are_told_before_its_end() {
    let stage = Stage::new().await;
    let noise = "head -c 400000 /dev/zero | tr '\\0' 'x' | fold -w 100";
    let command = format!("{noise}; echo RuntimeError: CUDA out of memory; {noise}; exit 1");
    stage.job(&command, json!({})).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let dog = Dog::start(stage.home());
    let types = ["alarm", "completed"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    let told = events(stage.home());
    assert!(told[0].to_string().contains("out_of_memory"), "{}", told[0]);
}
