//! A resume by hand and one by the watchdog at once.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::stored::rows_of;
use super::{Dog, LIMIT, Stage, begun};
use crate::support::{entry, program};

/// Races of one round. Their jobs are over before the next round, or each look would take longer than the one before.
const AT_ONCE: usize = 20;

/// Who came first, how often.
#[derive(Debug, Default)]
struct Won {
    by_hand: usize,
    by_watchdog: usize,
}

fn resume(stage: &Stage, job: &Value) -> Child {
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

/// Resumes a job by hand; whether it was not too late. Then the attempt of the watchdog was named.
async fn is_first(stage: &Stage, job: &Value) -> bool {
    let child = resume(stage, job);
    let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap());
    let output = output.await.unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    let is_first = output.status.success();
    assert!(
        is_first || words.contains("already_resuming: attempt 2"),
        "{words}"
    );
    is_first
}

/// Kills some jobs, one after the other, and has each resumed by hand while the watchdog is about to.
async fn race(stage: &Stage, dog: &Dog, round: usize, won: &mut Won) {
    let folder = stage.host.sshd.dir();
    let (marker, gate) = (folder.join("begun"), folder.join(format!("gate{round}")));
    let word = |number: usize| format!("again{round}.{number}");
    let mut jobs = Vec::new();
    for number in 0..AT_ONCE {
        let again = format!(
            "echo {} >>{}; until [ -e {} ]; do sleep 1; done",
            word(number),
            marker.display(),
            gate.display()
        );
        let more = json!({"resume_command": again, "auto_resume": true});
        jobs.push(stage.job("sleep 600", more).await);
    }
    for (number, job) in jobs.iter().enumerate() {
        stage.kill(job);
        // A little later each time, from before the watchdog looks to after it has resumed.
        tokio::time::sleep(Duration::from_millis(30 * number as u64)).await;
        match is_first(stage, job).await {
            true => won.by_hand += 1,
            false => won.by_watchdog += 1,
        }
        let is_begun = || begun(&marker, &word(number)) == 1;
        assert!(wait_until(LIMIT, is_begun).await, "{}", dog.log());
    }
    // Time for whoever came second to begin another one.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for number in 0..AT_ONCE {
        assert_eq!(begun(&marker, &word(number)), 1, "{}", dog.log());
    }
    fs::write(&gate, "").unwrap();
    let active = "SELECT session FROM watches WHERE status = 'active'";
    let are_over = || rows_of(stage.home(), active).is_empty();
    assert!(wait_until(LIMIT, are_over).await, "{}", dog.log());
}

async fn play(rounds: usize) -> Won {
    let stage = Stage::new().await;
    let dog = Dog::start(stage.home());
    let mut won = Won::default();
    for round in 0..rounds {
        race(&stage, &dog, round, &mut won).await;
    }
    println!("{won:?}");
    assert_eq!(won.by_hand + won.by_watchdog, rounds * AT_ONCE);
    // It tells of its own resumes, each once, and not of those that it was too late for.
    let told = "SELECT DISTINCT cast(watch AS text) FROM events WHERE type = 'resume_started'";
    let all = "SELECT type FROM events WHERE type = 'resume_started'";
    let counts = [told, all].map(|query| rows_of(stage.home(), query).len());
    assert_eq!(counts, [won.by_watchdog; 2], "{}", dog.log());
    won
}

#[tokio::test]
async fn f38_of_a_resume_by_hand_and_one_by_the_watchdog_one_runs() {
    play(1).await;
}

#[tokio::test]
#[ignore = "minutes: a hundred races"]
async fn f38_of_a_hundred_resumes_by_hand_and_by_the_watchdog_one_of_each_two_runs() {
    let won = play(5).await;
    // Else nobody raced.
    assert!(won.by_hand > 0 && won.by_watchdog > 0, "{won:?}");
}
