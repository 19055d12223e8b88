//! A resume by hand and one by the watchdog at once.

use std::process::{Command, Output, Stdio};

use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::{Dog, LIMIT, Stage, begun};
use crate::support::{entry, program};

const RACES: usize = 20;

fn resume(stage: &Stage, job: &Value) -> std::process::Child {
    let list = Value::from(vec![entry("box", &stage.host.sshd)]).to_string();
    Command::new(program())
        .args(["job", "resume", job["task_id"].as_str().unwrap()])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", stage.home())
        .env("REMOTE_SANDBOX_LIST", list)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn f38_of_a_resume_by_hand_and_one_by_the_watchdog_one_runs() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let mut jobs = Vec::new();
    for number in 0..RACES {
        let again = format!("echo again{number} >>{}; sleep 600", marker.display());
        let more = json!({"resume_command": again, "auto_resume": true});
        jobs.push(stage.job("sleep 600", more).await);
    }
    let dog = Dog::start(stage.home());
    let (mut by_hand, mut refused) = (0, 0);
    for (number, job) in jobs.iter().enumerate() {
        stage.kill(job);
        // A little later each time, from before the watchdog looks to after it has resumed.
        tokio::time::sleep(std::time::Duration::from_millis(30 * number as u64)).await;
        let child = resume(&stage, job);
        let output: Output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap())
            .await
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            by_hand += 1;
        } else {
            assert!(words.contains("already_resuming: attempt 2"), "{words}");
            refused += 1;
        }
        let word = format!("again{number}");
        assert!(
            wait_until(LIMIT, || begun(&marker, &word) == 1).await,
            "{}",
            dog.log()
        );
    }
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    for number in 0..RACES {
        assert_eq!(
            begun(&marker, &format!("again{number}")),
            1,
            "{}",
            dog.log()
        );
    }
    println!("{by_hand} by hand, {refused} by the watchdog");
    assert_eq!(by_hand + refused, RACES);
}
