//! `jobs` and `job` on the command line.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{Direction, FaultProxy, McpClient, process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::beside::Beside;
use super::{Ends, Host, LIMIT};
use crate::support::{entry, entry_via, program, ready};

/// A person with a home and one sandbox.
pub(super) struct Person {
    pub(super) host: Host,
    home: TempDir,
}

impl Person {
    pub(super) fn new() -> Self {
        Person {
            host: Host::start(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.command_via(self.host.sshd.port(), words)
    }

    /// The same with the host behind another port.
    pub(super) fn command_via(&self, port: u16, words: &[&str]) -> Command {
        self.command_with(entry_via("box", &self.host.sshd, port), words)
    }

    /// The same where the name means another host.
    pub(super) fn command_on(&self, host: &Host, words: &[&str]) -> Command {
        self.command_with(entry("box", &host.sshd), words)
    }

    fn command_with(&self, sandbox: Value, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        let list = Value::from(vec![sandbox]).to_string();
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("REMOTE_SANDBOX_LIST", list)
            .env("REMOTE_SANDBOX_WATCHDOG", "off")
            // Never the keychain of whoever runs the tests.
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    pub(super) fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(words)).unwrap()
    }

    /// Starts a job and gives what the program prints about it.
    pub(super) fn start(&self, command: &str) -> Value {
        self.json(&["job", "start", "box", "--json", "--", command])
    }

    /// The only job there is.
    pub(super) fn only_job(&self) -> Option<String> {
        let list = self.json(&["jobs", "--json"]);
        Some(list["tasks"][0]["task_id"].as_str()?.to_owned())
    }
}

fn assert_followed(followed: &Output, log: &[u8], end: &str) {
    let errors = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.success(), "{errors}");
    assert!(
        followed.stdout == log,
        "{} and {} bytes: {errors}",
        followed.stdout.len(),
        log.len()
    );
    assert!(errors.contains(end), "{errors}");
}

const LINES: &str = "for n in $(seq 1 40); do echo \"line $n\"; sleep 0.1; done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_follow_a_job_that_has_no_log_yet_to_its_end() {
    let person = Person::new();
    let proxy = FaultProxy::start(person.host.sshd.port()).await;
    proxy.freeze_all();
    let words = [
        "job",
        "start",
        "box",
        "--no-watch",
        "--",
        "echo up; sleep 1; exit 5",
    ];
    let mut start = Beside::start(person.command_via(proxy.port(), &words));
    assert!(wait_until(LIMIT, || person.only_job().is_some()).await);
    let id = person.only_job().unwrap();
    let words = ["job", "logs", "-f", &id];
    let mut follow = Beside::start(person.command_via(proxy.port(), &words));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(start.runs(), "the start is under way");
    assert!(follow.runs(), "the job is not over, it has not begun");
    proxy.thaw();
    assert!(start.end().await.status.success());
    let followed = follow.end().await;
    assert_followed(&followed, b"up\nEXIT_CODE=5\n", "exited 5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_follow_when_the_link_is_lost_while_a_job_is_adopted() {
    let person = Person::new();
    let proxy = FaultProxy::start(person.host.sshd.port()).await;
    // The server that starts the job dies before it hears of it.
    let list = Value::from(vec![entry("box", &person.host.sshd)]).to_string();
    let client = McpClient::builder(program())
        .env("REMOTE_SANDBOX_LIST", list)
        .env("REMOTE_SANDBOX_FAILPOINT", "job_launched")
        .home(person.home.path());
    let client = ready(client.start()).await;
    let order = json!({ "command": LINES });
    client.start_call("exec_bash_background", order).await;
    assert!(client.wait_exit(LIMIT).await.is_some(), "it did not die");
    let store = person.home.path().join(".local/state/remote-sandbox-mcp");
    assert!(store.join("store.sqlite3").exists());
    // As many bytes as a login and one look take: whatever is asked besides is cut off.
    let mut simple = person.command_via(proxy.port(), &["exec", "box", "--", "true"]);
    assert!(simple.output().unwrap().status.success());
    let login = proxy.bytes(Direction::ToServer);
    let folder = person.host.home().join(".remote-sandbox-mcp/jobs");
    let job = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
    let id = job.file_name().into_string().unwrap();
    for more in [4_000, 8_000, 12_000] {
        proxy.cut_each_after(Some(login + more), Direction::ToServer);
        let mut follow =
            Beside::start(person.command_via(proxy.port(), &["job", "logs", "-f", &id]));
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert!(follow.runs(), "it gave up at a link that is cut");
    }
    let follow = Beside::start(person.command_via(proxy.port(), &["job", "logs", "-f", &id]));
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.cut_each_after(None, Direction::ToServer);
    proxy.close_all();
    let followed = follow.end().await;
    let mut log: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    log.push_str("EXIT_CODE=0\n");
    assert_followed(&followed, log.as_bytes(), "exited 0");
}

/// After how many bytes to the host a login is cut when it has been shown the key, and nothing more.
fn bytes_to_the_key(person: &Person, proxy: &FaultProxy) -> u64 {
    let (mut low, mut high) = (100, 12_000);
    while high - low > 8 {
        let middle = u64::midpoint(low, high);
        proxy.cut_each_after(Some(middle), Direction::ToServer);
        let words = ["exec", "box", "--", "true"];
        let output = person.command_via(proxy.port(), &words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("closed the connection when") {
            return middle;
        }
        let is_early = ["banner", "key exchange", "during the login"];
        match is_early.iter().any(|word| said.contains(word)) {
            true => low = middle,
            false => high = middle,
        }
    }
    panic!("no cut leaves a login at its key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_follow_when_a_login_is_cut_just_when_the_key_is_shown() {
    let person = Person::new();
    let proxy = FaultProxy::start(person.host.sshd.port()).await;
    let cut = bytes_to_the_key(&person, &proxy);
    proxy.cut_each_after(None, Direction::ToServer);
    let words = ["job", "start", "box", "--json", "--no-watch", "--", LINES];
    let job = person.command_via(proxy.port(), &words).output().unwrap();
    let job: Value = serde_json::from_slice(&job.stdout).unwrap();
    let id = job["task_id"].as_str().unwrap().to_owned();
    let words = ["job", "logs", "-f", &id];
    // The first login of all, and one after a connection that was good.
    proxy.cut_each_after(Some(cut), Direction::ToServer);
    let dials = proxy.connections();
    let first = Beside::start(person.command_via(proxy.port(), &words));
    assert!(wait_until(LIMIT, || proxy.connections() > dials).await);
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.cut_each_after(None, Direction::ToServer);
    let second = Beside::start(person.command_via(proxy.port(), &words));
    tokio::time::sleep(Duration::from_millis(1200)).await;
    proxy.cut_each_after(Some(cut), Direction::ToServer);
    let dials = proxy.connections();
    proxy.close_all();
    assert!(wait_until(LIMIT, || proxy.connections() > dials).await);
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.cut_each_after(None, Direction::ToServer);
    let mut log: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    log.push_str("EXIT_CODE=0\n");
    assert_followed(&second.end().await, log.as_bytes(), "exited 0");
    assert_followed(&first.end().await, log.as_bytes(), "exited 0");
    // A host that always hangs up there may mean it, and counts.
    proxy.cut_each_after(Some(cut), Direction::ToServer);
    let dials = proxy.connections();
    let refused = Beside::start(person.command_via(proxy.port(), &words));
    let refused = refused.end().await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("closed the connection when"), "{said}");
    let dials = proxy.connections() - dials;
    assert!((2..=4).contains(&dials), "{dials} dials: {said}");
}

#[test]
fn job_of_the_command_line_is_watched_as_one_of_the_tool_is() {
    let person = Person::new();
    let job = person.start("true");
    let usual = person.json(&["watch", "show", &job["watch_id"].to_string(), "--json"]);
    let usual = &usual["watch"];
    assert_eq!(
        (
            &usual["task_id"],
            &usual["interval_s"],
            &usual["auto_resume"]
        ),
        (&job["task_id"], &json!(300), &json!(false)),
        "{usual:#}"
    );
    let words = [
        "job",
        "start",
        "box",
        "--json",
        "--watch-name",
        "night run",
        "--interval",
        "7",
        "--resume-command",
        "true",
        "--auto-resume",
        "--checkpoint",
        "progress",
        "--",
        "true",
    ];
    let job = person.json(&words);
    let own = person.json(&["watch", "show", &job["watch_id"].to_string(), "--json"]);
    let own = &own["watch"];
    for (name, value) in [
        ("name", json!("night run")),
        ("interval_s", json!(7)),
        ("resume_command", json!("true")),
        ("auto_resume", json!(true)),
        ("checkpoint_path", json!("progress")),
    ] {
        assert_eq!(own[name], value, "{name}");
    }
}

#[test]
fn job_of_the_command_line_is_not_watched_when_nobody_wants_that_nor_started_when_it_is_wrong() {
    let person = Person::new();
    let job = person.json(&["job", "start", "box", "--json", "--no-watch", "--", "true"]);
    assert_eq!(job["watch_id"], Value::Null, "{job}");
    let page = person.says(&["job", "start", "box", "--", "true"]);
    assert!(
        page.lines().any(|line| line.starts_with("watch: ")),
        "{page}"
    );
    let wrong = [
        "job",
        "start",
        "box",
        "--auto-resume",
        "--no-watch",
        "--",
        "true",
    ];
    let wrong = person.run(&wrong);
    assert!(!wrong.status.success());
    let refused = [
        "job",
        "start",
        "box",
        "--event-command",
        "rm x",
        "--",
        "true",
    ];
    let refused = person.run(&refused);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("event_commands"));
    let list = person.json(&["jobs", "--json"]);
    assert_eq!(list["tasks"].as_array().unwrap().len(), 2, "{list:#}");
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
    let follow = Beside::start(person.command(&["job", "logs", "-f", &id]));
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        person.host.sshd.kill_sessions();
    }
    let followed = follow.end().await;
    let log = std::fs::read(job["log_file"].as_str().unwrap()).unwrap();
    assert!(log.ends_with(b"no end\nEXIT_CODE=0\n"));
    assert_followed(&followed, &log, "exited 0");
    let all = person.says(&["job", "logs", &id]);
    assert_eq!(all.as_bytes(), log);
    let last = person.says(&["job", "logs", "-n", "2", &id]);
    assert_eq!(last, "no end\nEXIT_CODE=0\n");
}

#[tokio::test]
async fn prune_forgets_what_is_over_and_keeps_what_runs_and_all_logs() {
    let _ends = Ends("sleep 71.375");
    let person = Person::new();
    // A job that is watched stays until the watchdog has seen its end.
    let start = ["job", "start", "box", "--json", "--no-watch", "--"];
    let start = |command| person.json(&[&start[..], &[command]].concat());
    let (done, live) = (start("echo kept"), start("sleep 71.375"));
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
