use std::path::Path;

use remote_sandbox_core::config::{Environment, Sources, resolve};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::store::{WatchId, WatchStatus};

/// The tables of the package, with one column that only some versions have left out.
const SCHEMA: &str = "PRAGMA journal_mode = WAL;
    CREATE TABLE watches (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, name TEXT,
        sandbox_name TEXT NOT NULL, tmux_session TEXT NOT NULL, log_file TEXT NOT NULL, cwd TEXT,
        launch_command TEXT, resume_command TEXT, resume_plan_json TEXT, checkpoint_path TEXT,
        checkpoint_format TEXT, checkpoint_command TEXT, interval_s INTEGER, max_log_lines INTEGER,
        status TEXT, last_state TEXT, webhook_url TEXT, event_command TEXT, auto_resume INTEGER,
        resume_attempts INTEGER, max_resume_attempts INTEGER, alert_after_failures INTEGER,
        notify_local INTEGER, metadata_json TEXT, created_ts INTEGER, next_check_ts INTEGER);
    CREATE TABLE daemon_meta (key TEXT PRIMARY KEY, value TEXT, updated_ts INTEGER);
    INSERT INTO watches (run_id, name, sandbox_name, tmux_session, log_file, cwd, launch_command,
        resume_command, resume_plan_json, checkpoint_path, checkpoint_format, interval_s,
        max_log_lines, status, webhook_url, event_command, auto_resume, resume_attempts,
        max_resume_attempts, notify_local, metadata_json, created_ts)
    VALUES ('r1', 'one', 'old', 'train', '/l', '/w', 'run', 'run --resume', '{}', 'p.json', 'json',
        60, 40, 'active', '', '', 1, 1, 3, 0, '{\"a\":1}', 1000),
        ('', 'two', 'gone', 'other', '/m', '', '', '', '{}', '', 'text', 0, 80, 'active', 'nonsense',
        '', 1, 0, 1, 1, '{}', 1001),
        ('', 'over', 'old', 'done', '/n', '', '', '', '{}', '', 'text', 300, 80, 'completed', '',
        '', 0, 0, 1, 1, '{}', 1002);";

fn state(home: &TempDir) -> std::path::PathBuf {
    let state = home.path().join("state");
    fsio::private_directory(&state).unwrap();
    state
}

#[expect(clippy::disallowed_methods, reason = "stands for another program")]
fn package(state: &Path, heartbeat: Option<u64>) -> Connection {
    let connection = Connection::open(state.join("watchdog.sqlite3")).unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    if let Some(at) = heartbeat.and_then(|at| i64::try_from(at).ok()) {
        let value = json!({"ts": at, "stale_after_s": 180}).to_string();
        let change = "INSERT INTO daemon_meta VALUES ('heartbeat', ?1, ?2)";
        connection.execute(change, (value, at)).unwrap();
    }
    let entry = json!({"sandboxes": [{"name": "old", "host": "h.example", "port": 22, "user": "me",
        "password": "the-old-password"}]});
    let path = state.join("config.json");
    fsio::write_atomically(&path, entry.to_string().as_bytes()).unwrap();
    connection
}

fn engine(home: &TempDir) -> Engine {
    let environment = Environment::from([
        ("HOME".to_owned(), home.path().display().to_string()),
        (
            "REMOTE_SANDBOX_MCP_HOME".to_owned(),
            state(home).display().to_string(),
        ),
    ]);
    let config = resolve(&Sources {
        environment: environment.clone(),
        file: None,
    });
    Engine::new(&config, &environment).unwrap()
}

fn content(state: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(state)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .filter(|(name, _)| name.starts_with("watchdog.sqlite3") || name == "config.json")
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn watches_of_the_package_are_taken_over_once_with_their_wishes_and_their_sandbox() {
    let home = TempDir::new().unwrap();
    // Still open, so that all of it is in its write-ahead log.
    let _open = package(&state(&home), Some(1000));
    let before = content(&state(&home));
    assert!(before.iter().any(|(name, _)| name.ends_with("-wal")));
    let engine = engine(&home);
    assert_eq!(
        engine.take_over_package().await.unwrap(),
        TakeOver::Taken(2)
    );
    assert_eq!(
        engine.take_over_package().await.unwrap(),
        TakeOver::Taken(0)
    );
    assert_eq!(content(&state(&home)), before, "no file of its was changed");
    let row = |number| engine.store().watch(WatchId::new(number).unwrap(), "local");
    let one = row(1).await.unwrap().unwrap();
    assert_eq!(one.status, WatchStatus::Active);
    assert_eq!(
        (one.session.as_str(), one.log_file.as_str()),
        ("train", "/l")
    );
    assert_eq!(one.order.resume.command.as_deref(), Some("run --resume"));
    let policy = &one.order.policy;
    assert_eq!((policy.interval_s, policy.max_resume_attempts), (60, 3));
    assert!(policy.auto_resume && !one.order.notify_local);
    assert_eq!((one.history.resumes, one.order.max_log_lines), (1, 40));
    let key = one.entry.expect("its sandbox is kept");
    let kept = engine.store().watched_sandbox(&key).await.unwrap().unwrap();
    assert!(!kept.entry.contains("the-old-password"), "{}", kept.entry);
    let config = engine.entry_config(&key).await.unwrap();
    assert_eq!(config.name.as_str(), "old");
    let two = row(2).await.unwrap().unwrap();
    assert_eq!(two.entry, None, "nobody knows its sandbox");
    assert!(!two.order.policy.auto_resume && two.order.webhook_url.is_none());
    assert!(row(3).await.unwrap().is_none(), "it was over");
    let left = std::fs::read_dir(state(&home)).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("package-"));
    assert_eq!(left.count(), 0, "no copy stays");
}

#[test]
fn broken_plan_is_left_out_and_the_rest_of_the_watch_stays() {
    for plan in [
        "{",
        "[]",
        r#"{"resume_command": 7}"#,
        r#"{"checkpoint_format": "xml"}"#,
    ] {
        let mut old = OldWatch {
            resume_plan_json: plan.to_owned(),
            resume_command: "again".to_owned(),
            checkpoint_path: "state.json".to_owned(),
            webhook_url: "nonsense".to_owned(),
            auto_resume: Some(1),
            ..OldWatch::default()
        };
        let order = order_of(&old).unwrap();
        assert_eq!(order.resume.command.as_deref(), Some("again"), "{plan}");
        assert_eq!(order.resume.plan, None, "{plan}");
        assert_eq!(order.checkpoint_path.as_deref(), Some("state.json"));
        assert!(order.policy.auto_resume);
        old.resume_command.clear();
        assert!(!order_of(&old).unwrap().policy.auto_resume, "{plan}");
    }
}

#[test]
fn command_that_wakes_codex_becomes_the_wakeup_and_others_are_left_out() {
    let home = TempDir::new().unwrap();
    let engine = engine(&home);
    let allowed = |command: &str| {
        let old = OldWatch {
            event_command: command.to_owned(),
            ..OldWatch::default()
        };
        let order = engine.allowed(&old, order_of(&old).unwrap());
        (order.codex_wakeup, order.event_command)
    };
    let written = |program: &str| {
        format!(
            "case \"$RSMCP_EVENT_TYPE\" in ssh_unreachable|interrupted|resume_failed|completed|config_missing) {program} exec \"$RSMCP_SUGGESTED_PROMPT\" ;; esac"
        )
    };
    for wakes in [
        " codex exec \"$RSMCP_SUGGESTED_PROMPT\"",
        &written("codex"),
        &written("/opt/homebrew/bin/codex"),
    ] {
        assert_eq!(allowed(wakes), (true, None), "{wakes}");
    }
    for other in [
        &written("/tmp/evil"),
        &written("evil; codex"),
        &written("$(evil)/codex"),
        "codex exec \"$RSMCP_SUGGESTED_PROMPT\"; evil",
        "codex exec $RSMCP_SUGGESTED_PROMPT",
        "notify.sh",
    ] {
        assert_eq!(allowed(other), (false, None), "{other}");
    }
}

#[tokio::test]
async fn watches_stay_with_the_package_while_its_watchdog_works() {
    let home = TempDir::new().unwrap();
    let now = clock::wall().as_secs();
    let _open = package(&state(&home), Some(now - 20));
    let engine = engine(&home);
    assert_eq!(engine.take_over_package().await.unwrap(), TakeOver::InUse);
    assert!(engine.store().taken_over().await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_is_taken_over_where_there_is_nothing_or_nonsense() {
    let home = TempDir::new().unwrap();
    let engine = engine(&home);
    assert_eq!(engine.take_over_package().await.unwrap(), TakeOver::Nothing);
    let path = state(&home).join("watchdog.sqlite3");
    fsio::write_atomically(&path, b"this is no database").unwrap();
    let failure = engine.take_over_package().await.unwrap_err();
    assert!(failure.message.contains("watchdog.sqlite3"), "{failure:?}");
}

#[test]
fn sandboxes_of_the_package_are_found_in_every_form() {
    let entry = json!({"host": "h", "user": "u"});
    for text in [
        json!([{"name": "a", "host": "h", "user": "u"}]),
        json!({"sandboxes": [{"name": "a", "host": "h", "user": "u"}]}),
        json!({"sandboxes": {"a": entry}}),
        json!({"a": entry}),
    ] {
        let named = named_entries(text.clone());
        assert_eq!(named.keys().collect::<Vec<_>>(), ["a"], "{text}");
        assert_eq!(named["a"]["host"], "h");
    }
    assert_eq!(named_entries(json!([entry])).keys().next().unwrap(), "h");
}
