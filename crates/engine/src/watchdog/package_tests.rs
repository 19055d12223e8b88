use std::path::Path;

use remote_sandbox_core::config::{Config, Environment};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::clock;
use crate::fsio;

/// What is needed of the package's tables.
const SCHEMA: &str = "
    CREATE TABLE watches (id INTEGER PRIMARY KEY, sandbox_name TEXT, tmux_session TEXT,
        log_file TEXT, status TEXT, created_ts INTEGER);
    CREATE TABLE daemon_meta (key TEXT PRIMARY KEY, value TEXT, updated_ts INTEGER);
    INSERT INTO watches VALUES (1, 'box', 'train', '/l', 'active', 1000);";

#[expect(clippy::disallowed_methods, reason = "stands for another program")]
fn package(state: &Path) -> Connection {
    let connection = Connection::open(state.join("watchdog.sqlite3")).unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    connection
}

fn beat(connection: &Connection, at: u64) {
    let change = "INSERT OR REPLACE INTO daemon_meta VALUES ('heartbeat', '', ?1)";
    connection
        .execute(change, [i64::try_from(at).unwrap()])
        .unwrap();
}

fn engine(home: &Path) -> Engine {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let environment = Environment::from([
        ("HOME".to_owned(), text(home)),
        (
            "REMOTE_SANDBOX_MCP_HOME".to_owned(),
            text(&home.join("state")),
        ),
    ]);
    Engine::new(&Config::default(), &environment).unwrap()
}

async fn watches(engine: &Engine) -> usize {
    let due = engine.store().due_watches(clock::wall(), 9).await;
    due.unwrap().len()
}

#[tokio::test]
async fn watches_of_the_package_are_taken_over_later_when_its_watchdog_worked_at_first() {
    let home = TempDir::new().unwrap();
    let state = home.path().join("state");
    fsio::private_directory(&state).unwrap();
    let package = package(&state);
    beat(&package, clock::wall().as_secs());
    let engine = engine(home.path());
    let begin = clock::instant();
    let mut next = NextLook::At(begin);
    next.take_over(&engine, begin).await;
    assert_eq!(next, NextLook::At(begin + LOOK_EVERY));
    beat(&package, 1000);
    let early = begin + LOOK_EVERY / 2;
    next.take_over(&engine, early).await;
    assert_eq!(watches(&engine).await, 0, "not before its time");
    next.take_over(&engine, begin + LOOK_EVERY).await;
    assert_eq!(next, NextLook::Never);
    assert_eq!(watches(&engine).await, 1);
    next.take_over(&engine, begin + LOOK_EVERY * 9).await;
    assert_eq!(watches(&engine).await, 1);
}

#[tokio::test]
async fn nothing_of_the_package_is_looked_for_once() {
    let home = TempDir::new().unwrap();
    let mut next = NextLook::At(clock::instant());
    next.take_over(&engine(home.path()), clock::instant()).await;
    assert_eq!(next, NextLook::Never);
}
