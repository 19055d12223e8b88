//! `jobs` and `job` on the command line.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::Value;
use tempfile::TempDir;

use super::{Ends, Host, LIMIT};
use crate::support::{entry, program};

/// A person with a home and one sandbox.
struct Person {
    host: Host,
    home: TempDir,
}

impl Person {
    fn new() -> Self {
        Person {
            host: Host::start(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        let list = Value::from(vec![entry("box", &self.host.sshd)]).to_string();
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("REMOTE_SANDBOX_LIST", list)
            // Never the keychain of whoever runs the tests.
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a job and gives what the program prints about it.
    fn start(&self, command: &str) -> Value {
        let text = self.says(&["job", "start", "box", "--json", "--", command]);
        serde_json::from_str(&text).unwrap()
    }
}

#[test]
fn job_is_started_listed_shown_and_stopped_on_the_command_line() {
    let _ends = Ends("sleep 70.375");
    let person = Person::new();
    let job = person.start("echo hello; sleep 70.375");
    let id = job["task_id"].as_str().unwrap();
    let list = person.says(&["jobs"]);
    assert!(list.contains(id) && list.contains("running"), "{list}");
    let shown = person.says(&["job", "show", id]);
    assert!(
        shown.contains("hello\n") && shown.contains("running"),
        "{shown}"
    );
    let stopped = person.says(&["job", "stop", id]);
    assert!(stopped.contains("stopped"), "{stopped}");
    assert!(process::with_command_line("sleep 70.375").is_empty());
    let list: Value = serde_json::from_str(&person.says(&["jobs", "--json"])).unwrap();
    assert_eq!(list["tasks"][0]["status"], "stopped", "{list}");
    let wrong = person.run(&["job", "show", "nonsense"]);
    assert!(!wrong.status.success());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("job_"));
}

#[tokio::test]
async fn logs_follow_across_broken_links_without_losing_or_repeating_a_byte() {
    let person = Person::new();
    let lines = "for n in $(seq 1 1500); do echo \"line $n\"; [ $((n % 10)) != 0 ] || sleep 0.04; done; printf 'no end'";
    let job = person.start(lines);
    let id = job["task_id"].as_str().unwrap().to_owned();
    let follow = person
        .command(&["job", "logs", "-f", &id])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        person.host.sshd.kill_sessions();
    }
    let followed = tokio::task::spawn_blocking(move || follow.wait_with_output().unwrap());
    let followed = tokio::time::timeout(LIMIT * 2, followed)
        .await
        .unwrap()
        .unwrap();
    let log = std::fs::read(job["log_file"].as_str().unwrap()).unwrap();
    assert!(log.ends_with(b"no end\nEXIT_CODE=0\n"));
    assert!(
        followed.stdout == log,
        "{} and {} bytes",
        followed.stdout.len(),
        log.len()
    );
    assert!(String::from_utf8_lossy(&followed.stderr).contains("exited 0"));
    let all = person.says(&["job", "logs", &id]);
    assert_eq!(all.as_bytes(), log);
    let last = person.says(&["job", "logs", "-n", "2", &id]);
    assert_eq!(last, "no end\nEXIT_CODE=0\n");
}

#[tokio::test]
async fn prune_forgets_what_is_over_and_keeps_what_runs_and_all_logs() {
    let _ends = Ends("sleep 71.375");
    let person = Person::new();
    let done = person.start("echo kept");
    let live = person.start("sleep 71.375");
    let over = || person.says(&["jobs"]).contains("exited 0");
    assert!(wait_until(LIMIT, over).await);
    let said = person.says(&["job", "prune"]);
    assert_eq!(said, "1 jobs forgotten\n");
    let jobs = person.host.home().join(".remote-sandbox-mcp/jobs");
    assert!(!jobs.join(done["task_id"].as_str().unwrap()).exists());
    assert!(jobs.join(live["task_id"].as_str().unwrap()).exists());
    assert!(std::path::Path::new(done["log_file"].as_str().unwrap()).exists());
    let list = person.says(&["jobs"]);
    assert!(!list.contains(done["task_id"].as_str().unwrap()), "{list}");
    person.says(&["job", "stop", live["task_id"].as_str().unwrap()]);
}

#[test]
fn attach_follows_the_log_where_there_is_no_terminal() {
    let person = Person::new();
    let job = person.start("echo one; sleep 0.5; echo two");
    let text = person.says(&["job", "attach", job["task_id"].as_str().unwrap()]);
    assert_eq!(text, "one\ntwo\nEXIT_CODE=0\n");
}
