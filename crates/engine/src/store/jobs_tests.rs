use remote_sandbox_core::job::{HostWord, LostReason};
use tempfile::TempDir;

use super::super::testing::new_job as new;
use super::*;

fn id(number: u8) -> JobId {
    JobId::from_uuid_bytes([number; 16])
}

fn process(pid: u32) -> ProcessIdentity {
    ProcessIdentity {
        pid,
        start_time: HostWord::parse("17").unwrap(),
        boot_id: HostWord::parse("boot").unwrap(),
        session: pid,
        node: None,
    }
}

async fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn job_is_found_by_id_watch_and_session_and_only_by_its_principal() {
    let (_folder, store) = store().await;
    let row = store.begin_job(new(1)).await.unwrap();
    assert_eq!(row.attempt.state, JobState::Starting);
    let watch = row.watch_id.unwrap();
    assert_eq!(
        store.job(&id(1), "local").await.unwrap().as_ref(),
        Some(&row)
    );
    assert_eq!(store.job(&id(1), "other").await.unwrap(), None);
    let found = store.job_of_watch(watch, "local").await.unwrap();
    assert_eq!(found.as_ref(), Some(&row));
    let session = row.session.as_str();
    let found = store.job_in_session("box", session, "local").await.unwrap();
    assert_eq!(found, Some(row.clone()));
    let beginning = session.get(..10).unwrap();
    let found = store
        .job_in_session("box", beginning, "local")
        .await
        .unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn job_that_is_over_never_changes() {
    let (_folder, store) = store().await;
    let number = store.begin_job(new(1)).await.unwrap().attempt.number;
    let over = JobState::Exited { code: 3 };
    let job = id(1);
    let note = |state| store.note_job_state(&job, number, state, Some(process(9)));
    assert!(note(JobState::Running).await.unwrap());
    assert!(note(over.clone()).await.unwrap());
    let lost = LostReason::ProcessGone;
    assert!(!note(JobState::Lost { reason: lost }).await.unwrap());
    let started = StartedJob {
        process: process(10),
        log_file: "/l".to_owned(),
        log_offset: 0,
        cwd: "/".to_owned(),
        gpus: None,
    };
    assert!(
        !store
            .note_job_started(&id(1), number, started)
            .await
            .unwrap()
    );
    assert!(!store.note_stop_asked(&id(1), number).await.unwrap());
    let row = store.job(&id(1), "local").await.unwrap().unwrap();
    assert_eq!(
        (row.attempt.state, row.attempt.process),
        (over, Some(process(9)))
    );
    assert!(row.attempt.ended.is_some());
}

#[tokio::test]
async fn second_open_attempt_of_a_job_is_refused_by_the_store_itself() {
    let (_folder, store) = store().await;
    store.begin_job(new(1)).await.unwrap();
    let second = "INSERT INTO attempts (job, number, nonce, command, state, created)
        VALUES (?1, 2, 'x', '', '{}', 0)";
    let added = store.commit(|transaction| transaction.execute(second, [id(1).as_str()]));
    assert!(added.await.is_err());
}

#[tokio::test]
async fn jobs_come_newest_first_and_the_old_ones_are_found() {
    let (_folder, store) = store().await;
    for number in 1..=3 {
        store.begin_job(new(number)).await.unwrap();
    }
    let ids = |rows: Vec<JobRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
    let all = store.jobs("local", Some("box"), 10).await.unwrap();
    assert_eq!(ids(all), [id(3), id(2), id(1)]);
    assert!(
        store
            .jobs("local", Some("other"), 10)
            .await
            .unwrap()
            .is_empty()
    );
    let now = u64::try_from(crate::clock::wall().as_millis()).unwrap() - 10_000;
    let age = |number: u8, ended: u64| {
        let ended = i64::try_from(now + ended).unwrap();
        store.commit(move |transaction| {
            let change = "UPDATE attempts SET ended = ?2 WHERE job = ?1";
            transaction.execute(change, params![id(number).as_str(), ended])
        })
    };
    let watched = "UPDATE watches SET status = 'completed' WHERE job = ?1";
    age(1, 1000).await.unwrap();
    age(2, 3000).await.unwrap();
    // What is still watched has something to tell.
    let all = store.old_jobs(Some("local"), None, Duration::MAX, 9).await;
    assert!(all.unwrap().is_empty());
    for number in 1..=2 {
        let over =
            store.commit(move |transaction| transaction.execute(watched, [id(number).as_str()]));
        over.await.unwrap();
    }
    let old = |before| store.old_jobs(Some("local"), None, Duration::from_millis(now + before), 9);
    assert_eq!(ids(old(2000).await.unwrap()), [id(1)]);
    assert_eq!(ids(old(3000).await.unwrap()), [id(1), id(2)]);
    let of_other = store.old_jobs(Some("other"), None, Duration::MAX, 9).await;
    assert!(of_other.unwrap().is_empty());
    store.forget_job(&id(3)).await.unwrap();
    assert_eq!(store.job(&id(3), "local").await.unwrap(), None);
}
