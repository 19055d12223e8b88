use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::clock;

pub(super) fn new_transfer(pair: &str) -> NewTransfer {
    NewTransfer {
        principal: "local".to_owned(),
        sandbox: "box".to_owned(),
        direction: "up".to_owned(),
        local_path: "/a".to_owned(),
        remote_path: "b".to_owned(),
        request: "{}".to_owned(),
        pair_key: pair.to_owned(),
        log_folder: "/logs".to_owned(),
    }
}

pub(super) async fn begin(store: &Store, pair: &str) -> Result<TransferRow, StoreError> {
    Ok(match store.begin_transfer(new_transfer(pair)).await? {
        Begun::New(row) | Begun::Same(row) => row,
    })
}

pub(super) fn mark() -> ProcessMark {
    ProcessMark {
        pid: 7,
        start: 8,
        boot: "boot".to_owned(),
    }
}

pub(super) fn end(status: TransferStatus) -> TransferEnd {
    TransferEnd {
        status,
        progress: None,
        result: Some("{}".to_owned()),
        error: None,
    }
}

async fn pragma(store: &Store, name: &'static str) -> String {
    let value = store.read(move |transaction| {
        transaction.pragma_query_value(None, name, |row| {
            Ok(format!("{:?}", row.get::<_, rusqlite::types::Value>(0)?))
        })
    });
    value.await.unwrap()
}

#[tokio::test]
async fn transfer_goes_from_its_start_to_its_end_and_no_further() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let row = begin(&store, "pair").await.unwrap();
    assert_eq!(row.status, TransferStatus::Queued);
    assert_eq!(row.log_file, format!("/logs/transfer-{}.log", row.id));
    assert_eq!(TransferId::new(row.id.number()), Some(row.id));
    assert!(store.note_worker(row.id, mark()).await.unwrap());
    assert!(!store.note_progress(row.id, "1".into()).await.unwrap());
    let claimed = store.claim_transfer(row.id, mark()).await.unwrap().unwrap();
    assert_eq!(claimed.worker, Some(mark()));
    assert_eq!(claimed.status, TransferStatus::Running);
    let again = store.claim_transfer(row.id, mark()).await.unwrap();
    assert_eq!(again, None);
    assert!(!store.note_worker(row.id, mark()).await.unwrap());
    assert!(store.note_progress(row.id, "1".into()).await.unwrap());
    let done = end(TransferStatus::Completed);
    assert!(store.finish_transfer(row.id, done).await.unwrap());
    let late = end(TransferStatus::Failed);
    assert!(!store.finish_transfer(row.id, late).await.unwrap());
    assert!(!store.note_progress(row.id, "2".into()).await.unwrap());
    let found = store.transfer(row.id, "local").await.unwrap().unwrap();
    assert_eq!(found.status, TransferStatus::Completed);
    assert_eq!(found.progress.as_deref(), Some("1"));
    assert!(found.finished.is_some());
    assert_eq!(store.transfers("local").await.unwrap(), [found]);
}

#[tokio::test]
async fn transfer_belongs_to_its_principal() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let row = begin(&store, "pair").await.unwrap();
    assert_eq!(store.transfer(row.id, "other").await.unwrap(), None);
    assert_eq!(store.transfers("other").await.unwrap(), []);
}

#[tokio::test]
async fn second_transfer_of_a_pair_is_the_first_one_until_that_has_ended() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let row = begin(&store, "pair").await.unwrap();
    let again = store.begin_transfer(new_transfer("pair")).await.unwrap();
    assert!(matches!(again, Begun::Same(same) if same.id == row.id));
    let other = store.begin_transfer(new_transfer("other")).await.unwrap();
    assert!(matches!(other, Begun::New(_)));
    let done = end(TransferStatus::Cancelled);
    store.finish_transfer(row.id, done).await.unwrap();
    let next = store.begin_transfer(new_transfer("pair")).await.unwrap();
    assert!(matches!(next, Begun::New(next) if next.id != row.id));
}

#[tokio::test]
async fn transfers_that_ended_long_ago_are_forgotten_with_their_logs() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let old = begin(&store, "old").await.unwrap();
    let young = begin(&store, "young").await.unwrap();
    let open = begin(&store, "open").await.unwrap();
    for id in [old.id, young.id] {
        let done = end(TransferStatus::Completed);
        store.finish_transfer(id, done).await.unwrap();
    }
    let day = 24 * 3600 * 1000;
    let number = old.id.number();
    let now = clock::wall().as_millis() as u64;
    let change = format!(
        "UPDATE transfers SET created = 0, finished = CASE id WHEN {number} THEN {} WHEN {} THEN {} END",
        now - 31 * day,
        young.id,
        now - 29 * day
    );
    let changed = store.commit(move |transaction| transaction.execute(&change, []));
    assert_eq!(changed.await.unwrap(), 3);
    assert_eq!(store.prune_transfers().await.unwrap(), [old.log_file]);
    let left = store.transfers("local").await.unwrap();
    let mut left: Vec<u64> = left.iter().map(|row| row.id.number()).collect();
    let mut wanted = vec![young.id.number(), open.id.number()];
    left.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(left, wanted);
}

#[test]
fn transfer_ids_are_exact_in_json() {
    assert_eq!(TransferId::new(0), None);
    assert_eq!(TransferId::new(1 << 53), None);
    assert_eq!(TransferId::new(u64::MAX), None);
    assert!(TransferId::new((1 << 53) - 1).is_some());
}

#[tokio::test]
async fn store_is_private_with_all_its_files() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("state");
    let store = Store::open(&folder).await.unwrap();
    begin(&store, "pair").await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        assert_eq!(mode(&entry.path()), 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    assert!(names.contains(&"store.sqlite3-wal".to_owned()), "{names:?}");
}

#[tokio::test]
async fn connection_has_the_wanted_settings_also_after_a_sure_commit() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let sure = store.commit_surely(|transaction| {
        transaction.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0))
    });
    assert_eq!(sure.await.unwrap(), 2);
    for (name, wanted) in [
        ("synchronous", "Integer(1)"),
        ("mmap_size", "Integer(0)"),
        ("busy_timeout", "Integer(5000)"),
        ("trusted_schema", "Integer(0)"),
        ("journal_mode", "Text(\"wal\")"),
    ] {
        assert_eq!(pragma(&store, name).await, wanted, "{name}");
    }
}

#[test]
fn write_ahead_log_is_not_used_where_other_machines_may_write() {
    for remote in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997] {
        assert!(crate::disk::is_remote_kind(remote), "{remote:x}");
    }
    // ext, xfs, btrfs, tmpfs, overlay
    for here in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
        assert!(!crate::disk::is_remote_kind(here), "{here:x}");
    }
}

#[tokio::test]
async fn store_with_a_rollback_journal_can_be_used() {
    let folder = TempDir::new().unwrap();
    drop(Store::open(folder.path()).await.unwrap());
    let path = folder.path().join(FILE_NAME);
    let (connection, has_log) = opening::connect(&path, true, false).unwrap();
    assert!(!has_log);
    let level = connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0));
    assert_eq!(level.unwrap(), 2);
    drop(connection);
    let (_, has_log) = opening::connect(&path, false, true).unwrap();
    assert!(has_log);
}

#[test]
fn library_that_loses_pages_is_refused() {
    let error = opening::check_library(3_051_002).unwrap_err();
    assert!(matches!(error, StoreError::OldLibrary(_)));
    opening::check_library(3_051_003).unwrap();
    opening::check_library(rusqlite::version_number()).unwrap();
}

#[tokio::test]
async fn change_that_fails_leaves_nothing_behind() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let failed = store.commit(|transaction| {
        transaction.execute("INSERT INTO about (key, value) VALUES ('a', 1)", [])?;
        transaction.execute("INSERT INTO nowhere VALUES (1)", [])
    });
    assert!(matches!(failed.await, Err(StoreError::Sqlite { .. })));
    let count = store.read(|transaction| {
        transaction.query_row("SELECT count(*) FROM about WHERE key = 'a'", [], |row| {
            row.get::<_, i64>(0)
        })
    });
    assert_eq!(count.await.unwrap(), 0);
}
