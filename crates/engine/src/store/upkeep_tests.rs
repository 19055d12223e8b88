use remote_sandbox_core::job::JobId;
use tempfile::TempDir;

use super::super::WatchId;
use super::super::testing::new_job;
use super::*;

async fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    (folder, store)
}

/// A job that was over an hour ago, and its watch.
async fn old_job(store: &Store) -> (JobId, WatchId) {
    let new = new_job(7);
    let id = new.id.clone();
    let row = store.begin_job(new).await.unwrap();
    over_for(store, Duration::from_secs(3600)).await;
    (id, row.watch_id.unwrap())
}

async fn over_for(store: &Store, time: Duration) {
    let ended = milliseconds(crate::clock::wall().saturating_sub(time));
    let done = store
        .commit(move |transaction| transaction.execute("UPDATE attempts SET ended = ?1", [ended]));
    done.await.unwrap();
}

async fn run(store: &Store, change: &'static str) {
    let done = store.commit(move |transaction| transaction.execute_batch(change));
    done.await.unwrap();
}

async fn is_old(store: &Store) -> bool {
    let old = store.old_jobs(Some("local"), None, Duration::MAX, 9).await;
    !old.unwrap().is_empty()
}

#[tokio::test]
async fn job_of_which_something_is_still_to_be_told_is_not_forgotten() {
    let (_folder, store) = store().await;
    let (_, watch) = old_job(&store).await;
    run(&store, "UPDATE watches SET status = 'completed'").await;
    assert!(is_old(&store).await);
    let number = watch.0;
    let told = store.commit(move |transaction| {
        let event =
            "INSERT INTO events (watch, principal, sandbox, type, summary, payload, created)
            VALUES (?1, 'local', 'box', 'completed', '', '{}', 0)";
        transaction.execute(event, [number])?;
        let delivery = "INSERT INTO deliveries (event, channel, status, next_try)
            VALUES (last_insert_rowid(), 'webhook', 'pending', 0)";
        transaction.execute(delivery, [])
    });
    told.await.unwrap();
    assert!(!is_old(&store).await, "its event would never be told");
    run(&store, "UPDATE deliveries SET status = 'dead'").await;
    assert!(is_old(&store).await);
}

#[tokio::test]
async fn lost_job_that_nobody_resumes_is_over_for_upkeep() {
    let (_folder, store) = store().await;
    let (_, watch) = old_job(&store).await;
    assert!(!is_old(&store).await, "it is watched");
    run(
        &store,
        "UPDATE watches SET interrupted = 1000, history = json_set(history, '$.phase',
            json('{\"phase\":\"interrupted\",\"due\":2000}'))",
    )
    .await;
    let before = Duration::from_secs(3600);
    assert!(!is_old(&store).await, "it is to be resumed");
    store.forget_old_watches(before).await.unwrap();
    assert!(store.watch(watch, "local").await.unwrap().is_some());
    run(
        &store,
        "UPDATE watches SET history = json_set(history, '$.phase.due', NULL)",
    )
    .await;
    assert!(is_old(&store).await);
    let earlier = Duration::from_millis(999);
    store.forget_old_watches(earlier).await.unwrap();
    assert!(store.watch(watch, "local").await.unwrap().is_some());
    store.forget_old_watches(before).await.unwrap();
    assert_eq!(store.watch(watch, "local").await.unwrap(), None);
}

#[tokio::test]
async fn job_whose_watch_no_watchdog_looked_at_is_forgotten_after_a_day() {
    let (_folder, store) = store().await;
    let _ = old_job(&store).await;
    let held = || store.held_jobs("local", None, Duration::MAX);
    assert!(!is_old(&store).await, "its end may still be told");
    assert_eq!(held().await.unwrap(), 1);
    over_for(&store, TOLD_WITHIN * 2).await;
    assert!(is_old(&store).await);
    assert_eq!(held().await.unwrap(), 0);
}

#[tokio::test]
async fn job_that_is_to_be_resumed_is_kept_for_half_a_year() {
    let (_folder, store) = store().await;
    let _ = old_job(&store).await;
    let due = r#"UPDATE watches SET history = '{"phase": {"phase": "interrupted", "due": 1}}'"#;
    run(&store, due).await;
    over_for(&store, TOLD_WITHIN * 2).await;
    assert!(!is_old(&store).await);
    over_for(&store, HELD_AT_MOST * 2).await;
    assert!(is_old(&store).await);
}
