use std::fs;
use std::os::unix::fs::PermissionsExt;

use remote_sandbox_core::failure::{Code, Failure};
use rstest::rstest;
use tempfile::TempDir;

use super::tests::begin;
use super::*;

/// A folder whose store has a few rows and was closed.
async fn closed_store() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    for number in 0..40 {
        begin(&store, &format!("{number} {}", "x".repeat(2000)))
            .await
            .unwrap();
    }
    drop(store);
    let path = folder.path().join(FILE_NAME);
    assert!(!folder.path().join("store.sqlite3-wal").exists());
    assert!(fs::metadata(&path).unwrap().len() > 80_000);
    (folder, path)
}

/// A folder whose store was not closed: its write-ahead log has what the file has not.
async fn left_store() -> (TempDir, PathBuf) {
    let (used, _) = closed_store().await;
    let store = Store::open(used.path()).await.unwrap();
    begin(&store, "the last one").await.unwrap();
    let folder = TempDir::new().unwrap();
    for name in [FILE_NAME, "store.sqlite3-wal"] {
        fs::copy(used.path().join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join(FILE_NAME);
    (folder, path)
}

async fn rows(store: &Store) -> usize {
    store.transfers("local").await.unwrap().len()
}

/// Bytes of everything that was set aside.
fn set_aside(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.contains(".damaged-") {
            found.push((name, fs::read(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}

async fn assert_set_aside_and_begun_anew(folder: &Path, damaged: &[u8]) {
    let store = Store::open(folder).await.unwrap();
    assert_eq!(rows(&store).await, 0);
    begin(&store, "new").await.unwrap();
    let kept = set_aside(folder);
    assert!(kept.iter().any(|(_, bytes)| bytes == damaged), "not kept");
    let listed = damaged_files(folder);
    assert_eq!(listed.len(), 1, "{kept:?}");
    drop(store);
    // The next one finds nothing wrong and leaves the backup alone.
    let store = Store::open(folder).await.unwrap();
    assert_eq!(rows(&store).await, 1);
    assert_eq!(set_aside(folder), kept);
}

#[rstest]
#[case::truncated(|bytes: &mut Vec<u8>| bytes.truncate(20_000))]
#[case::truncated_within_a_page(|bytes: &mut Vec<u8>| bytes.truncate(1000))]
#[case::truncated_within_the_header(|bytes: &mut Vec<u8>| bytes.truncate(50))]
#[case::all_garbage(|bytes: &mut Vec<u8>| bytes.fill(b'x'))]
#[case::text(|bytes: &mut Vec<u8>| *bytes = b"not a database\n".repeat(40))]
#[case::garbage_in_the_first_page(|bytes: &mut Vec<u8>| bytes[100..4096].fill(0xa5))]
#[tokio::test]
async fn f53_damaged_store_is_set_aside_when_it_is_opened(#[case] damage: fn(&mut Vec<u8>)) {
    let (folder, path) = closed_store().await;
    let mut bytes = fs::read(&path).unwrap();
    damage(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    assert_set_aside_and_begun_anew(folder.path(), &bytes).await;
}

#[tokio::test]
async fn f53_garbage_page_is_noticed_at_the_opening_after_an_end_without_closing() {
    let (folder, path) = left_store().await;
    let mut bytes = fs::read(&path).unwrap();
    bytes[8 * 4096..12 * 4096].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let log = fs::read(folder.path().join("store.sqlite3-wal")).unwrap();
    assert_set_aside_and_begun_anew(folder.path(), &bytes).await;
    let kept = set_aside(folder.path());
    let is_log = |(name, bytes): &(String, Vec<u8>)| name.ends_with("-wal") && *bytes == log;
    assert!(kept.iter().any(is_log), "the log was not kept");
}

#[tokio::test]
async fn f53_garbage_page_is_noticed_by_the_call_that_meets_it() {
    let (folder, path) = closed_store().await;
    let store = Store::open(folder.path()).await.unwrap();
    let pages = store.read(|transaction| {
        let query = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'transfers'";
        let mut statement = transaction.prepare(query)?;
        let pages = statement.query_map([], |row| row.get::<_, u32>(0))?;
        pages.collect::<rusqlite::Result<Vec<u32>>>()
    });
    let pages = pages.await.unwrap();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    for page in pages.into_iter().map(|page| page as usize) {
        bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    }
    fs::write(&path, &bytes).unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let error = store.transfers("local").await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let failure = Failure::from(error);
    assert_eq!(failure.code, Code::StoreUnavailable);
    assert!(failure.retry && failure.message.contains(FILE_NAME));
    // The next call works, on a new file.
    assert_eq!(rows(&store).await, 0);
    assert_eq!(damaged_files(folder.path()).len(), 1);
}

#[rstest]
#[case::empty(true)]
#[case::missing(false)]
#[tokio::test]
async fn f53_log_without_its_store_is_set_aside_and_not_thrown_away(#[case] is_there: bool) {
    let (folder, path) = left_store().await;
    let log = fs::read(folder.path().join("store.sqlite3-wal")).unwrap();
    fs::remove_file(&path).unwrap();
    if is_there {
        fs::write(&path, b"").unwrap();
    }
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(rows(&store).await, 0);
    let kept = set_aside(folder.path());
    assert!(kept.iter().any(|(_, bytes)| *bytes == log), "{kept:?}");
}

#[rstest]
#[case::of_a_full_store(3, true)]
#[case::of_the_first_change(0, false)]
#[tokio::test]
async fn f53_empty_store_with_a_journal_is_damaged_when_it_had_pages(
    #[case] pages: u8,
    #[case] is_damage: bool,
) {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(FILE_NAME), b"").unwrap();
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    journal.resize(600, 0);
    journal[19] = pages;
    fs::write(folder.path().join("store.sqlite3-journal"), &journal).unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(rows(&store).await, 0);
    assert_eq!(
        set_aside(folder.path()).len(),
        if is_damage { 2 } else { 0 }
    );
}

#[tokio::test]
async fn f53_store_that_was_left_open_keeps_all_its_rows() {
    let (folder, _) = left_store().await;
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(rows(&store).await, 41);
    assert_eq!(set_aside(folder.path()), []);
}

#[tokio::test]
async fn f53_older_store_gets_what_it_lacks() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(FILE_NAME);
    // Made, but nothing in it yet: the oldest of all.
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    begin(&store, "pair").await.unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(set_aside(folder.path()), []);
}

/// Makes a store look like one of a version to come.
async fn make_newer(folder: &Path, minimum_reader: i64) {
    let store = Store::open(folder).await.unwrap();
    begin(&store, "pair").await.unwrap();
    let changed = store.commit(move |transaction| {
        transaction.execute_batch("CREATE TABLE moons (name TEXT)")?;
        let set = "UPDATE about SET value = ?2 WHERE key = ?1";
        transaction.execute(set, ("minimum_reader", minimum_reader))?;
        transaction.execute(set, ("written_by", "9.8.7"))?;
        transaction.pragma_update(None, "user_version", 99)
    });
    changed.await.unwrap();
}

#[tokio::test]
async fn f53_newer_store_is_refused_when_it_says_so_and_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    make_newer(folder.path(), 50).await;
    let before = fs::read(folder.path().join(FILE_NAME)).unwrap();
    let error = Store::open(folder.path()).await.unwrap_err();
    let text = error.to_string();
    let ours = env!("CARGO_PKG_VERSION");
    assert!(
        text.ends_with(&format!("written by version 9.8.7, this is {ours}")),
        "{text}"
    );
    assert_eq!(Failure::from(error).code, Code::StoreUnavailable);
    assert_eq!(fs::read(folder.path().join(FILE_NAME)).unwrap(), before);
    assert_eq!(set_aside(folder.path()), []);
}

#[tokio::test]
async fn f53_newer_store_is_used_when_it_allows_that() {
    let folder = TempDir::new().unwrap();
    make_newer(folder.path(), 1).await;
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(rows(&store).await, 1);
    begin(&store, "another").await.unwrap();
}

#[tokio::test]
async fn database_of_another_program_is_refused_and_stays_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(FILE_NAME);
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (a)").unwrap();
    drop(foreign);
    let error = Store::open(folder.path()).await.unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(set_aside(folder.path()), []);
    let foreign = Connection::open(&path).unwrap();
    foreign
        .execute_batch("INSERT INTO theirs VALUES (1)")
        .unwrap();
}

#[tokio::test]
async fn f53_store_that_is_deleted_while_open_is_noticed_and_begun_anew() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    begin(&store, "pair").await.unwrap();
    for entry in fs::read_dir(folder.path()).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    assert_eq!(rows(&store).await, 0);
    begin(&store, "another").await.unwrap();
    drop(store);
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(rows(&store).await, 1);
}

#[tokio::test]
async fn f53_sure_commit_into_a_deleted_store_is_not_acknowledged() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let path = folder.path().join(FILE_NAME);
    let commit = store.commit_surely(move |transaction| {
        fs::remove_file(path).unwrap();
        transaction.execute("INSERT INTO about (key, value) VALUES ('a', 1)", [])
    });
    let error = commit.await.unwrap_err();
    assert!(matches!(error, StoreError::Gone(_)), "{error:?}");
    begin(&store, "pair").await.unwrap();
}

#[rstest]
#[case::group(0o770)]
#[case::everybody(0o777)]
#[case::everybody_sticky(0o1777)]
#[tokio::test]
async fn f54_folder_that_others_may_write_to_is_refused(#[case] mode: u32) {
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    let error = Store::open(folder.path()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("others may write"), "{text}");
    assert!(!folder.path().join(FILE_NAME).exists());
}

#[tokio::test]
async fn f54_folder_of_another_user_is_refused() {
    let folder = TempDir::new().unwrap();
    if std::os::unix::fs::chown(folder.path(), Some(12_345), None).is_err() {
        return remote_sandbox_testkit::skip("needs root: a folder of another user");
    }
    let error = Store::open(folder.path()).await.unwrap_err();
    let text = Failure::from(error).message;
    assert!(text.contains("another user"), "{text}");
}

#[tokio::test]
async fn f54_link_in_the_place_of_the_store_is_refused() {
    let (elsewhere, path) = closed_store().await;
    let before = fs::read(&path).unwrap();
    let folder = TempDir::new().unwrap();
    std::os::unix::fs::symlink(&path, folder.path().join(FILE_NAME)).unwrap();
    let error = Store::open(folder.path()).await.unwrap_err();
    assert!(error.to_string().ends_with("it is a link"), "{error}");
    assert_eq!(fs::read(elsewhere.path().join(FILE_NAME)).unwrap(), before);
}

#[tokio::test]
async fn f54_pipe_in_the_place_of_the_store_is_refused_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(FILE_NAME);
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let opening = Store::open(folder.path());
    let opened = tokio::time::timeout(std::time::Duration::from_secs(5), opening).await;
    let error = opened.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("it is a pipe"), "{error}");
}

#[tokio::test]
async fn folder_may_be_reached_through_a_link() {
    let parent = TempDir::new().unwrap();
    let real = parent.path().join("real");
    fs::create_dir(&real).unwrap();
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let store = Store::open(&link).await.unwrap();
    begin(&store, "pair").await.unwrap();
    assert!(real.join(FILE_NAME).exists());
}
