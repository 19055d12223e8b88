//! `watch` and `events` on the command line, and the watches of the Python package.

use std::process::{Command, Output, Stdio};

use remote_sandbox_testkit::process;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ends, Host};
use crate::support::{entry, program};

/// A person with a home and a host.
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

    fn command(&self, list: &Value, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("REMOTE_SANDBOX_LIST", list.to_string())
            .env("REMOTE_SANDBOX_WATCHDOG", "off")
            // Never the keychain of whoever runs the tests.
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let list = json!([entry("box", &self.host.sshd)]);
        self.command(&list, words).output().unwrap()
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(words)).unwrap()
    }

    /// Has a session watched whose log tells that it ended.
    fn ended_task(&self) -> String {
        let log = self.host.home().join("task.log");
        std::fs::write(&log, "far\nEXIT_CODE=3\n").unwrap();
        let log = log.to_str().unwrap();
        let added = self.json(&[
            "watch",
            "add",
            "box",
            "some-session",
            log,
            "--name",
            "mine",
            "--json",
        ]);
        added["watch_id"].to_string()
    }
}

#[test]
fn watch_is_added_listed_shown_and_cancelled_on_the_command_line() {
    let person = Person::new();
    let id = person.ended_task();
    let list = person.says(&["watch", "list"]);
    assert!(
        list.contains(&id) && list.contains("mine") && list.contains("active"),
        "{list}"
    );
    let shown = person.says(&["watch", "show", &id]);
    assert!(
        shown.contains("some-session") && shown.contains("task.log"),
        "{shown}"
    );
    let progress = person.says(&["watch", "progress", &id]);
    assert!(progress.contains("far\n"), "{progress}");
    let progress = person.json(&["watch", "progress", &id, "--json"]);
    assert_eq!(progress["live"]["task"]["exit_code"], 3, "{progress:#}");
    let stored = person.json(&["watch", "progress", &id, "--stored", "--json"]);
    assert_eq!(stored["live"], Value::Null);
    let ended = person.json(&["watch", "cancel", &id, "--json"]);
    assert_eq!(ended["watch"]["status"], "cancelled");
    assert_eq!(
        person.json(&["watch", "list", "--status", "active", "--json"])["watches"],
        json!([])
    );
    for wrong in [
        &["watch", "show", "17"][..],
        &["watch", "list", "--status", "odd"],
        &["watch", "cancel", "17"],
    ] {
        let output = person.run(wrong);
        assert!(!output.status.success(), "{wrong:?}");
    }
    let said = person.run(&["watch", "show", "17"]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("Unknown watch id: 17"));
}

#[test]
fn events_are_listed_and_followed_on_the_command_line() {
    let person = Person::new();
    let id = person.ended_task();
    assert!(!person.says(&["events"]).contains("completed"));
    person.says(&["watchdog", "run", "--once", "--lease", "3"]);
    let list = person.says(&["events"]);
    assert!(list.contains("completed") && list.contains(&id), "{list}");
    let events = person.json(&["events", "--watch", &id, "--json"]);
    assert_eq!(events["events"][0]["event_type"], "completed", "{events:#}");
    // There is no desktop here; that is told, and nothing waits or has failed because of it.
    let status = person.json(&["watchdog", "status", "--json"]);
    let why = status["notify_local_impossible"].as_str().unwrap();
    assert!(why.starts_with("notifications cannot be shown"), "{why}");
    assert_eq!(status["deliveries"], json!({"pending": 0, "dead": 0}));
    let shown = person.says(&["watchdog", "status"]);
    assert!(shown.contains("\ndesktop: notifications cannot"), "{shown}");
    let last = events["last_event_id"].to_string();
    assert_eq!(
        person.json(&["events", "--after", &last, "--json"])["events"],
        json!([])
    );
    let list = json!([]);
    let mut follow = person
        .command(&list, &["events", "--follow", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(follow.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["event_type"], "completed");
    process::signal(follow.id(), rustix::process::Signal::INT);
    assert_eq!(follow.wait().unwrap().code(), Some(130));
    let wrong = person.run(&["events", "--watch", "17"]);
    assert!(!wrong.status.success());
}

/// What the Python package would have left behind, its write-ahead log included.
const PACKAGE: &str = r#"
import json, os, shutil, sqlite3, sys
state, port, key, log, beat = sys.argv[1:]
os.makedirs(state, mode=0o755, exist_ok=True)
path = os.path.join(state, "watchdog.sqlite3")
db = sqlite3.connect(path)
db.execute("PRAGMA journal_mode=WAL")
db.execute("""CREATE TABLE watches (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, name TEXT,
 sandbox_name TEXT, tmux_session TEXT, log_file TEXT, cwd TEXT, launch_command TEXT, resume_command TEXT,
 resume_plan_json TEXT, checkpoint_path TEXT, checkpoint_format TEXT, checkpoint_command TEXT,
 interval_s INTEGER, max_log_lines INTEGER, status TEXT, last_state TEXT, last_summary TEXT, last_error TEXT,
 last_exit_code INTEGER, last_log_digest TEXT, last_log_tail TEXT, last_checkpoint_text TEXT,
 last_checkpoint_digest TEXT, checkpoint_updated_ts INTEGER, webhook_url TEXT, event_command TEXT,
 auto_resume INTEGER, resume_attempts INTEGER, max_resume_attempts INTEGER, alert_after_failures INTEGER,
 consecutive_ssh_failures INTEGER, ssh_alert_sent INTEGER, notify_local INTEGER, resume_delay_s INTEGER,
 interrupted_ts INTEGER, resume_due_ts INTEGER, metadata_json TEXT, created_ts INTEGER, updated_ts INTEGER,
 last_checked_ts INTEGER, next_check_ts INTEGER, last_event_ts INTEGER)""")
db.execute("CREATE TABLE daemon_meta (key TEXT PRIMARY KEY, value TEXT, updated_ts INTEGER)")
db.execute("""INSERT INTO watches (run_id, name, sandbox_name, tmux_session, log_file, interval_s, max_log_lines,
 status, auto_resume, resume_attempts, max_resume_attempts, notify_local, metadata_json, resume_plan_json, created_ts)
 VALUES ('r', 'old one', 'oldbox', 'old-session', ?, 300, 80, 'active', 0, 0, 1, 0, '{}', '{}', 1700000000)""", (log,))
db.execute("INSERT INTO daemon_meta VALUES ('heartbeat', ?, ?)", (json.dumps({"ts": int(beat)}), int(beat)))
db.commit()
user = sys.stdin.read().strip()
with open(os.path.join(state, "config.json"), "w") as file:
    json.dump({"sandboxes": [{"name": "oldbox", "host": "127.0.0.1", "port": int(port), "user": user,
        "key_file": key}]}, file)
# Closing it would empty its log.
os._exit(0)
"#;

impl Person {
    fn leave_package(&self, log: &str, beat: u64) {
        let state = self.home.path().join(".local/state/remote-sandbox-mcp");
        let port = self.host.sshd.port().to_string();
        let key = self.host.sshd.client_key_path();
        let user = remote_sandbox_testkit::users::TestUser::current();
        let mut python = Command::new("python3")
            .args(["-c", PACKAGE])
            .args([state.to_str().unwrap(), &port, key.to_str().unwrap(), log])
            .arg(beat.to_string())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = python.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, user.name().as_bytes()).unwrap();
        drop(input);
        assert!(python.wait().unwrap().success());
    }
}

#[test]
fn watches_of_the_python_package_are_taken_over_when_its_watchdog_is_gone() {
    let _ends = Ends("sleep 75.125");
    let person = Person::new();
    let log = person.host.home().join("old.log");
    std::fs::write(&log, "far\nEXIT_CODE=0\n").unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    person.leave_package(log.to_str().unwrap(), now - 10);
    let nothing = json!([]);
    let once = || {
        let output = person
            .command(&nothing, &["watchdog", "run", "--once", "--lease", "3"])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    once();
    assert_eq!(
        person.json(&["watch", "list", "--json"])["watches"],
        json!([]),
        "it is the package's"
    );
    let state = person.home.path().join(".local/state/remote-sandbox-mcp");
    std::fs::remove_file(state.join("watchdog.sqlite3")).unwrap();
    std::fs::remove_file(state.join("watchdog.sqlite3-wal")).unwrap();
    let _ = std::fs::remove_file(state.join("watchdog.sqlite3-shm"));
    person.leave_package(log.to_str().unwrap(), now - 1000);
    let before = std::fs::read(state.join("watchdog.sqlite3-wal")).unwrap();
    once();
    once();
    let list = person.json(&["watch", "list", "--json"]);
    let watches = list["watches"].as_array().unwrap();
    assert_eq!(watches.len(), 1, "{list:#}");
    assert_eq!(
        (&watches[0]["id"], &watches[0]["name"]),
        (&json!(1), &json!("old one"))
    );
    assert_eq!(
        (&watches[0]["status"], &watches[0]["last_exit_code"]),
        (&json!("completed"), &json!(0)),
        "{list:#}"
    );
    let after = std::fs::read(state.join("watchdog.sqlite3-wal")).unwrap();
    assert!(before == after, "its files are not changed");
}
