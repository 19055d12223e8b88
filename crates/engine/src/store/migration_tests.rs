//! f53: files of older versions, made from what those versions said and not from what the code says now.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use remote_sandbox_core::job::{JobId, JobState, Nonce, SessionName};
use rstest::rstest;
use rusqlite::params;
use tempfile::TempDir;

use super::tests::begin;
use super::*;

/// What each version added, as it was written then: a copy on purpose, for a change of the code must not change these.
const ADDED: [&str; 2] = [
    include_str!("old_schemas/step_1.sql"),
    include_str!("old_schemas/step_2.sql"),
];

fn job() -> JobId {
    JobId::from_uuid_bytes([7; 16])
}

/// A folder with a store of a version, which has rows and was closed.
fn store_of_version(version: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(FILE_NAME);
    let connection = Connection::open(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    connection
        .pragma_update(None, "journal_mode", "wal")
        .unwrap();
    for statements in &ADDED[..version] {
        connection.execute_batch(statements).unwrap();
    }
    let marks =
        "INSERT INTO about (key, value) VALUES ('minimum_reader', 1), ('written_by', '0.0.1');
        PRAGMA application_id = 0x52534d43;";
    connection.execute_batch(marks).unwrap();
    connection
        .pragma_update(None, "user_version", version as i64)
        .unwrap();
    add_transfers(&connection);
    if version >= 2 {
        add_job(&connection);
    }
    folder
}

fn add_transfers(connection: &Connection) {
    let change =
        "INSERT INTO transfers (id, principal, sandbox, direction, local_path, remote_path,
            request, pair_key, status, pid, pid_start, boot_id, log_file, progress, result, error,
            created, updated, finished)
        VALUES (?1, 'local', 'box', 'down', '/here', 'there', '{\"a\":1}', ?2, ?3, 42, 43, 'boot',
            '/logs/x', '{\"p\":1}', ?4, NULL, 1700000000000, 1700000001000, ?5)";
    let ended = params![7, "pair", "completed", "{\"r\":1}", 1_700_000_002_000_i64];
    connection.execute(change, ended).unwrap();
    let none = None::<String>;
    let open = params![8, "pair", "running", none, None::<i64>];
    connection.execute(change, open).unwrap();
}

fn add_job(connection: &Connection) {
    let change = "INSERT INTO jobs (id, principal, sandbox, session, log_file, cwd, command, spec,
            name, watch_id, created, updated)
        VALUES (?1, 'local', 'box', ?2, '/log', '/work', 'make', '{}', 'build', 5, 1, 2)";
    let session = SessionName::for_job(&job());
    let values = [job().as_str().to_owned(), session.as_str().to_owned()];
    connection.execute(change, values).unwrap();
    let change =
        "INSERT INTO attempts (job, number, nonce, command, state, created, started, ended)
        VALUES (?1, 1, ?2, 'make', '{\"state\":\"exited\",\"code\":3}', 1, 2, 3)";
    let nonce = Nonce::from_bytes([9; 16]);
    let values = [job().as_str().to_owned(), nonce.as_str().to_owned()];
    connection.execute(change, values).unwrap();
}

/// The statements of every table and index, and how many steps the file has.
async fn shape(store: &Store) -> (Vec<String>, i64) {
    let read = store.read(|transaction| {
        let query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = transaction.prepare(query)?;
        let all = statement.query_map([], |row| row.get::<_, String>(0))?;
        let all: Vec<String> = all.collect::<rusqlite::Result<_>>()?;
        let version = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((all, version))
    });
    let (all, version) = read.await.unwrap();
    let in_one_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    (all.into_iter().map(in_one_line).collect(), version)
}

#[rstest]
#[case::first(1)]
#[case::second(2)]
#[tokio::test]
async fn f53_store_of_an_older_version_becomes_one_of_this_version_and_keeps_its_rows(
    #[case] version: usize,
) {
    let folder = store_of_version(version);
    let store = Store::open(folder.path()).await.unwrap();
    let fresh = TempDir::new().unwrap();
    let fresh = Store::open(fresh.path()).await.unwrap();
    assert_eq!(shape(&store).await, shape(&fresh).await);
    assert!(damaged_files(folder.path()).is_empty());

    let id = |number| TransferId::new(number).unwrap();
    let ended = store.transfer(id(7), "local").await.unwrap().unwrap();
    assert_eq!(ended.status, TransferStatus::Completed);
    assert_eq!(ended.result.as_deref(), Some("{\"r\":1}"));
    assert_eq!(ended.request, "{\"a\":1}");
    assert_eq!(ended.created, Duration::from_secs(1_700_000_000));
    assert_eq!(ended.finished, Some(Duration::from_secs(1_700_000_002)));
    // One that was at work then is still the one of its pair.
    let open = store.transfer(id(8), "local").await.unwrap().unwrap();
    assert_eq!(open.worker.as_ref().map(|worker| worker.pid), Some(42));
    assert_eq!(begin(&store, "pair").await.unwrap(), open);

    let found = store.job(&job(), "local").await.unwrap();
    assert_eq!(found.is_some(), version >= 2);
    if let Some(found) = found {
        assert_eq!(found.attempt.state, JobState::Exited { code: 3 });
        assert_eq!(found.name.as_deref(), Some("build"));
    }
    // What came with later versions works, too, and a second opening has nothing left to do.
    let new = store.begin_job(testing::new_job(1)).await.unwrap();
    drop(store);
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(store.transfers("local").await.unwrap().len(), 2);
    assert!(store.job(&new.id, "local").await.unwrap().is_some());
}

#[tokio::test]
async fn f53_store_of_an_older_version_is_brought_up_to_date_once_by_many_at_a_time() {
    let folder = store_of_version(1);
    let open = || Store::open(folder.path());
    let (a, b, c, d) = tokio::join!(open(), open(), open(), open());
    for store in [a, b, c, d] {
        let store = store.unwrap();
        assert_eq!(store.transfers("local").await.unwrap().len(), 2);
        assert_eq!(shape(&store).await.1, 3);
    }
}
