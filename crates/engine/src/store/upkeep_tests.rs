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

/// A job that was over long ago, and its watch.
async fn old_job(store: &Store) -> (JobId, WatchId) {
    let new = new_job(7);
    let id = new.id.clone();
    let row = store.begin_job(new).await.unwrap();
    run(store, "UPDATE attempts SET ended = 1000").await;
    (id, row.watch_id.unwrap())
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
