use remote_sandbox_core::job::{HostWord, LostReason, ProcessIdentity, SessionName};
use tempfile::TempDir;

use super::super::testing::new_job;
use super::super::{BegunResume, JobRow, NewAttempt, ResumeOrder};
use super::*;

fn id() -> JobId {
    JobId::from_uuid_bytes([1; 16])
}

fn word(number: u8) -> Nonce {
    Nonce::from_bytes([number; 16])
}

fn number(number: u32) -> AttemptNumber {
    AttemptNumber::new(number).unwrap()
}

fn process() -> ProcessIdentity {
    ProcessIdentity {
        pid: 9,
        start_time: HostWord::parse("17").unwrap(),
        boot_id: HostWord::parse("boot").unwrap(),
        session: 9,
        node: None,
    }
}

/// A store with a job whose first attempt ran and is lost.
async fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let new = new_job(1);
    store.begin_job(new).await.unwrap();
    let lost = JobState::Lost {
        reason: LostReason::ProcessGone,
    };
    let note = store
        .note_job_state(&id(), number(1), lost, Some(process()))
        .await
        .unwrap();
    assert!(note);
    (folder, store)
}

async fn row(store: &Store) -> JobRow {
    store.job(&id(), "local").await.unwrap().unwrap()
}

/// Writes the next attempt down.
async fn resume(store: &Store, nonce: Nonce) -> AttemptNumber {
    let order = ResumeOrder {
        attempt: NewAttempt {
            nonce,
            command: "again".to_owned(),
            starter: None,
        },
        job: id(),
        session: SessionName::for_job(&id()),
        spec: "{}".to_owned(),
    };
    let watch = row(store).await.watch_id.unwrap();
    match store.begin_resume(watch, "local", order).await.unwrap() {
        BegunResume::Begun(row) => row.attempt.number,
        other => panic!("{other:?}"),
    }
}

async fn never_began(store: &Store, attempt: AttemptNumber) {
    let never = JobState::NotStarted;
    let noted = store
        .note_job_state(&id(), attempt, never, None)
        .await
        .unwrap();
    assert!(noted);
}

#[tokio::test]
async fn attempt_of_the_same_number_takes_the_place_of_ours_and_is_open() {
    let (_folder, store) = store().await;
    let ours = resume(&store, word(2)).await;
    let adopted = store
        .adopt_attempt(&id(), ours, ours, word(7))
        .await
        .unwrap();
    assert!(adopted);
    let attempt = row(&store).await.attempt;
    assert_eq!((attempt.number, attempt.nonce), (number(2), word(7)));
    assert_eq!((attempt.state, attempt.ended), (JobState::Starting, None));
    assert_eq!(attempt.starter, None);
    let watch = row(&store).await.watch_id.unwrap();
    let order = ResumeOrder {
        attempt: NewAttempt {
            nonce: word(3),
            command: "again".to_owned(),
            starter: None,
        },
        job: id(),
        session: SessionName::for_job(&id()),
        spec: "{}".to_owned(),
    };
    let begun = store.begin_resume(watch, "local", order).await.unwrap();
    assert!(
        matches!(begun, BegunResume::AlreadyResuming(attempt) if attempt == number(2)),
        "{begun:?}"
    );
}

#[tokio::test]
async fn later_attempt_follows_ours_which_never_began() {
    let (_folder, store) = store().await;
    let ours = resume(&store, word(2)).await;
    let adopted = store
        .adopt_attempt(&id(), ours, number(4), word(7))
        .await
        .unwrap();
    assert!(adopted);
    let attempt = row(&store).await.attempt;
    assert_eq!((attempt.number, attempt.nonce), (number(4), word(7)));
    // Somebody hears it a second time.
    let again = store
        .adopt_attempt(&id(), ours, number(4), word(7))
        .await
        .unwrap();
    assert!(again);
    assert_eq!(row(&store).await.attempt.number, number(4));
}

#[tokio::test]
async fn earlier_attempt_that_was_taken_for_one_that_never_began_comes_back() {
    let (_folder, store) = store().await;
    let second = resume(&store, word(2)).await;
    never_began(&store, second).await;
    let third = resume(&store, word(3)).await;
    let adopted = store
        .adopt_attempt(&id(), third, second, word(7))
        .await
        .unwrap();
    assert!(adopted);
    let attempt = row(&store).await.attempt;
    assert_eq!((attempt.number, attempt.nonce), (second, word(7)));
    assert_eq!((attempt.state, attempt.ended), (JobState::Starting, None));
}

#[tokio::test]
async fn attempt_that_is_known_to_be_over_stays_over() {
    let (_folder, store) = store().await;
    let ours = resume(&store, word(2)).await;
    let same = store
        .adopt_attempt(&id(), ours, number(1), word(1))
        .await
        .unwrap();
    assert!(!same);
    assert_eq!(row(&store).await.attempt.state, JobState::NotStarted);
    let third = resume(&store, word(3)).await;
    let other = store
        .adopt_attempt(&id(), third, number(1), word(7))
        .await
        .unwrap();
    assert!(!other, "one that ran is not another one");
    assert_eq!(row(&store).await.attempt.number, third);
}
