//! Two state folders that know the same job, and starts that a host broke off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::{Dog, LIMIT, Stage, begun, events, marked};

const STATE: &str = ".local/state/remote-sandbox-mcp";

/// Copies a state folder into another home.
fn copy_state(from: &Path, to: &Path) {
    fs::create_dir_all(to.join(STATE).parent().unwrap()).unwrap();
    let copied = Command::new("cp")
        .arg("-a")
        .args([from.join(STATE), to.join(STATE)])
        .status();
    assert!(copied.unwrap().success());
}

fn types(home: &Path) -> Vec<String> {
    let told = events(home);
    let word = |event: &Value| event["event_type"].as_str().unwrap().to_owned();
    told.iter().map(word).collect()
}

async fn told(home: &Path, dog: &Dog, expected: &[&str]) {
    let enough = wait_until(LIMIT, || types(home).len() >= expected.len()).await;
    let found = types(home);
    assert!(enough && found == expected, "{found:?}\n{}", dog.log());
}

#[tokio::test]
async fn of_two_copies_of_a_store_one_resumes_and_the_other_adopts_that_attempt() {
    let stage = Stage::new().await;
    let folder = stage.host.sshd.dir();
    let (marker, go) = (folder.join("begun"), folder.join("go"));
    let again = format!(
        "echo again >>{}; until [ -e {} ]; do sleep 0.1; done; exit 3",
        marker.display(),
        go.display()
    );
    let more = json!({"resume_command": again, "auto_resume": true, "max_resume_attempts": 3});
    let job = stage.job(&marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    let copy = tempfile::tempdir().unwrap();
    copy_state(stage.home(), copy.path());
    let one = Dog::start(stage.home());
    let other = Dog::start(copy.path());
    let resumed = ["interrupted", "resume_started"];
    told(stage.home(), &one, &resumed).await;
    told(copy.path(), &other, &resumed).await;
    // Time for whoever came second to think of resuming it once more.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(begun(&marker, "again"), 1, "{}{}", one.log(), other.log());
    fs::write(&go, "").unwrap();
    let ended = ["interrupted", "resume_started", "completed"];
    told(stage.home(), &one, &ended).await;
    told(copy.path(), &other, &ended).await;
    for home in [stage.home(), copy.path()] {
        let last = events(home).pop().unwrap();
        assert_eq!(last["payload"]["exit_code"], 3, "{last}");
        assert_eq!(last["payload"]["attempt"], 2, "{last}");
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(begun(&marker, "again"), 1, "{}{}", one.log(), other.log());
    told(stage.home(), &one, &ended).await;
    told(copy.path(), &other, &ended).await;
}

/// The word of the second attempt of a job.
fn nonce(home: &Path, task: &str) -> String {
    let store = super::stored::open(&home.join(STATE).join("store.sqlite3")).unwrap();
    let query = "SELECT nonce FROM attempts WHERE job = ?1 AND number = 2";
    store.query_row(query, [task], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn start_that_a_reboot_broke_off_does_not_use_up_the_only_resume() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({"resume_command": marked(&marker, "again"), "auto_resume": true, "max_resume_attempts": 1});
    let job = stage.job(&marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    let seam = [("REMOTE_SANDBOX_FAILPOINT", "resume_recorded")];
    let mut first = Dog::start_with(stage.home(), &[], &seam);
    assert!(first.ended().await, "{}", first.log());
    let task = job["task_id"].as_str().unwrap();
    let nonce = nonce(stage.home(), task);
    // What a host has of a start in the middle of which it was booted.
    let jobs: PathBuf = stage.host.home().join(".remote-sandbox-mcp/jobs");
    let attempt = jobs.join(task).join("2");
    fs::create_dir(&attempt).unwrap();
    fs::write(attempt.join("claim"), format!("{task} 2 999999999 1\n")).unwrap();
    fs::write(attempt.join("nonce"), format!("{nonce}\n")).unwrap();
    let second = Dog::start(stage.home());
    // The next try has its pause.
    let limit = Duration::from_secs(120);
    let resumed = wait_until(limit, || begun(&marker, "again") == 1).await;
    assert!(resumed, "{:?}\n{}", stage.events(), second.log());
    let types = ["interrupted", "resume_started"];
    stage.told(&second, &types).await;
    let last = events(stage.home()).pop().unwrap();
    assert_eq!(last["payload"]["resume_attempt"], 1, "{last}");
    assert_eq!(
        fs::read_to_string(attempt.join("process")).unwrap(),
        "void\n"
    );
}
