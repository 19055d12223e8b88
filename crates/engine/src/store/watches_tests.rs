use remote_sandbox_core::job::{AttemptNumber, JobState, LostReason, Nonce, Phase, SessionName};
use serde_json::json;
use tempfile::TempDir;

use super::super::testing::order;
use super::super::{
    BegunResume, DeliveryOutcome, DueDelivery, Fence, LookNote, NewAttempt, NewEvent, Noted, Pace,
    ResumeOrder, WatchedSandbox,
};
use super::*;

const LENGTH: Duration = Duration::from_secs(30);

fn job(number: u8) -> NewJob {
    let id = JobId::from_uuid_bytes([number; 16]);
    NewJob {
        session: SessionName::for_job(&id),
        id,
        principal: "local".to_owned(),
        sandbox: "box".to_owned(),
        log_file: "~/x.log".to_owned(),
        cwd: None,
        command: "make".to_owned(),
        spec: "{}".to_owned(),
        metadata: None,
        run_id: Some("run".to_owned()),
        name: None,
        watch: Some(NewWatch {
            order: order(),
            entry: Some("key".to_owned()),
        }),
        nonce: Nonce::from_bytes([number; 16]),
        starter: None,
    }
}

fn foreign() -> ForeignWatch {
    ForeignWatch {
        principal: "local".to_owned(),
        sandbox: "box".to_owned(),
        session: "old.one".to_owned(),
        log_file: "/l".to_owned(),
        cwd: Some("/w".to_owned()),
        launch_command: "train".to_owned(),
        run_id: None,
        name: Some("training".to_owned()),
        metadata: None,
        watch: NewWatch {
            order: order(),
            entry: None,
        },
    }
}

fn event(word: &'static str) -> NewEvent {
    NewEvent {
        event_type: word,
        summary: format!("it is {word}"),
        payload: json!({"a": 1}),
        channels: vec!["webhook".to_owned(), "local".to_owned()],
    }
}

fn note(watch: WatchId) -> LookNote {
    LookNote {
        watch,
        history: WatchHistory::default(),
        status: WatchStatus::Active,
        state: "running".to_owned(),
        error: None,
        exit_code: None,
        seen: None,
        next_check: Some(clock::wall() + Duration::from_secs(300)),
        events: Vec::new(),
        resume: None,
    }
}

fn resume(number: u8) -> ResumeOrder {
    ResumeOrder {
        attempt: NewAttempt {
            nonce: Nonce::from_bytes([number; 16]),
            command: "again".to_owned(),
            starter: None,
        },
        job: JobId::from_uuid_bytes([number; 16]),
        session: SessionName::parse("old_one").unwrap(),
        spec: "{}".to_owned(),
    }
}

async fn store() -> (TempDir, Store, Fence) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let fence = store.take_lease("watchdog", None, "a", None, LENGTH);
    let fence = fence.await.unwrap().unwrap();
    (folder, store, fence)
}

async fn lose(store: &Store, watch: &WatchRow) {
    let id = watch.job.clone().unwrap();
    let lost = JobState::Lost {
        reason: LostReason::ProcessGone,
    };
    let number = store
        .job(&id, "local")
        .await
        .unwrap()
        .unwrap()
        .attempt
        .number;
    assert!(store.note_job_state(&id, number, lost, None).await.unwrap());
}

#[tokio::test]
async fn watch_is_written_down_with_its_job_and_goes_with_it() {
    let (_folder, store, _) = store().await;
    let row = store.begin_job(job(1)).await.unwrap();
    let id = row.watch_id.unwrap();
    let watch = store.watch(id, "local").await.unwrap().unwrap();
    assert_eq!((watch.id, watch.job.as_ref()), (id, Some(&row.id)));
    assert_eq!((watch.order, watch.status), (order(), WatchStatus::Active));
    assert_eq!(watch.entry.as_deref(), Some("key"));
    assert_eq!(store.watch(id, "other").await.unwrap(), None);
    store.forget_job(&row.id).await.unwrap();
    assert_eq!(store.watch(id, "local").await.unwrap(), None);
}

#[tokio::test]
async fn watch_is_due_after_its_interval_and_when_the_clock_was_set_back() {
    let (_folder, store, fence) = store().await;
    let id = store.begin_job(job(1)).await.unwrap().watch_id.unwrap();
    let now = clock::wall();
    let due = |at: Duration| store.due_watches(at, 10);
    assert!(due(now).await.unwrap().is_empty());
    let later = due(now + Duration::from_secs(301)).await.unwrap();
    assert_eq!(later.len(), 1);
    assert_eq!((later[0].id, later[0].entry.as_deref()), (id, Some("key")));
    store.note_looks(&fence, vec![note(id)]).await.unwrap();
    assert!(due(now + Duration::from_secs(1)).await.unwrap().is_empty());
    let before = now.saturating_sub(Duration::from_secs(86_400));
    assert_eq!(due(before).await.unwrap().len(), 1);
}

#[tokio::test]
async fn look_is_written_down_with_its_events_and_deliveries_or_not_at_all() {
    let (_folder, store, fence) = store().await;
    let id = store.begin_job(job(1)).await.unwrap().watch_id.unwrap();
    let mut over = note(id);
    over.status = WatchStatus::Completed;
    over.events = vec![event("alarm"), event("completed")];
    over.exit_code = Some(3);
    let noted = store.note_looks(&fence, vec![over.clone()]).await.unwrap();
    let Noted::Kept { events, .. } = &noted[0] else {
        panic!("{noted:?}");
    };
    let ids: Vec<u64> = events.iter().map(|event| event.id).collect();
    let listed = store.events("local", Some(id), Some(0), 10).await.unwrap();
    assert_eq!(listed.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
    assert_eq!(listed[1].payload, json!({"a": 1}));
    let after = store.events("local", None, Some(ids[0]), 10).await.unwrap();
    assert_eq!(after.len(), 1);
    assert!(
        store
            .events("other", None, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
    let watch = store.watch(id, "local").await.unwrap().unwrap();
    assert_eq!(watch.status, WatchStatus::Completed);
    assert_eq!(watch.last_summary.as_deref(), Some("it is completed"));
    assert_eq!(watch.last_exit_code, Some(3));
    assert_eq!(due(&store, clock::wall()).await.len(), 4);
    let again = store.note_looks(&fence, vec![over]).await.unwrap();
    assert!(matches!(again[0], Noted::Over), "{again:?}");
}

#[tokio::test]
async fn holder_that_lost_its_lease_writes_nothing() {
    let (_folder, store, old) = store().await;
    let id = store.begin_job(job(1)).await.unwrap().watch_id.unwrap();
    let seen = store.lease("watchdog").await.unwrap();
    let new = store.take_lease("watchdog", seen.clone(), "b", None, LENGTH);
    let new = new.await.unwrap().unwrap();
    assert!(new.number() > old.number());
    let late = store.take_lease("watchdog", seen, "c", None, LENGTH).await;
    assert_eq!(late.unwrap(), None);
    let mut told = note(id);
    told.events = vec![event("alarm")];
    let refused = store.note_looks(&old, vec![told.clone()]).await;
    assert!(
        matches!(refused, Err(StoreError::LeaseLost(_))),
        "{refused:?}"
    );
    assert!(!store.renew_lease(&old, LENGTH).await.unwrap());
    assert_eq!(store.last_event("local").await.unwrap(), 0);
    store.note_looks(&new, vec![told]).await.unwrap();
    assert_eq!(store.events("local", None, None, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn of_two_resumes_one_is_written_down() {
    let (_folder, store, fence) = store().await;
    let row = store.begin_job(job(1)).await.unwrap();
    let id = row.watch_id.unwrap();
    let watch = store.watch(id, "local").await.unwrap().unwrap();
    let early = store.begin_resume(id, "local", resume(7)).await.unwrap();
    assert!(
        matches!(early, BegunResume::AlreadyResuming(AttemptNumber::FIRST)),
        "{early:?}"
    );
    lose(&store, &watch).await;
    let begun = store.begin_resume(id, "local", resume(2)).await.unwrap();
    let BegunResume::Begun(begun) = begun else {
        panic!("{begun:?}");
    };
    assert_eq!(begun.attempt.number.get(), 2);
    assert_eq!(begun.attempt.state, JobState::Starting);
    let mut decided = note(id);
    decided.history.phase = Phase::Resuming;
    decided.events = vec![event("interrupted")];
    decided.resume = Some(resume(3));
    let noted = store
        .note_looks(&fence, vec![decided.clone()])
        .await
        .unwrap();
    assert!(
        matches!(noted[0], Noted::AlreadyResuming(number) if number.get() == 2),
        "{noted:?}"
    );
    assert_eq!(store.last_event("local").await.unwrap(), 0);
    let watch = store.watch(id, "local").await.unwrap().unwrap();
    assert_eq!(watch.history.phase, Phase::Watching);
    lose(&store, &watch).await;
    let noted = store.note_looks(&fence, vec![decided]).await.unwrap();
    let Noted::Kept { resume, .. } = &noted[0] else {
        panic!("{noted:?}");
    };
    assert_eq!(resume.as_ref().unwrap().attempt.number.get(), 3);
}

#[tokio::test]
async fn foreign_task_becomes_a_job_when_it_is_resumed() {
    let (_folder, store, fence) = store().await;
    let watch = store.add_watch(foreign()).await.unwrap();
    assert_eq!(watch.job, None);
    assert_eq!(store.due_watches(clock::wall(), 9).await.unwrap().len(), 1);
    let mut decided = note(watch.id);
    decided.resume = Some(resume(9));
    store.note_looks(&fence, vec![decided]).await.unwrap();
    let task = store.watched_tasks(vec![watch.id]).await.unwrap().remove(0);
    let job = task.job.unwrap();
    assert_eq!(job.attempt.number, AttemptNumber::FIRST);
    assert_eq!(
        (job.log_file.as_str(), job.cwd.as_deref()),
        ("/l", Some("/w"))
    );
    assert_eq!(job.watch_id, Some(watch.id));
    assert_eq!(task.watch.session, "old_one");
}

#[tokio::test]
async fn watch_that_was_ended_is_not_looked_at_and_keeps_its_end() {
    let (_folder, store, fence) = store().await;
    let id = store.add_watch(foreign()).await.unwrap().id;
    assert_eq!(store.cancel_watch(id, "other").await.unwrap(), None);
    let row = store.cancel_watch(id, "local").await.unwrap().unwrap();
    assert_eq!(row.status, WatchStatus::Cancelled);
    assert!(
        store
            .due_watches(Duration::MAX, 9)
            .await
            .unwrap()
            .is_empty()
    );
    let noted = store.note_looks(&fence, vec![note(id)]).await.unwrap();
    assert!(matches!(noted[0], Noted::Over));
    let counts = store.watch_counts(Some("local")).await.unwrap();
    assert_eq!((counts.active, counts.cancelled), (0, 1));
}

/// What is due, whatever its pace.
async fn due(store: &Store, at: Duration) -> Vec<DueDelivery> {
    let mut all = Vec::new();
    for pace in Pace::ALL {
        all.extend(store.due_deliveries(at, pace, 9).await.unwrap());
    }
    all
}

#[tokio::test]
async fn delivery_is_tried_until_it_is_done_or_dead() {
    let (_folder, store, fence) = store().await;
    let id = store.add_watch(foreign()).await.unwrap().id;
    let mut told = note(id);
    told.events = vec![event("alarm")];
    store.note_looks(&fence, vec![told]).await.unwrap();
    let first = due(&store, clock::wall()).await;
    assert_eq!(first[0].order.as_ref(), Some(&order()));
    let number = first[0].event.id;
    let at = clock::wall() + Duration::from_secs(10);
    let again = DeliveryOutcome::Again {
        at,
        error: "late".to_owned(),
    };
    let note =
        |channel: &'static str, outcome| store.note_delivery(&fence, number, channel, outcome);
    note("local", DeliveryOutcome::Done).await.unwrap();
    note("webhook", again).await.unwrap();
    assert!(due(&store, clock::wall()).await.is_empty());
    let again = due(&store, at).await;
    assert_eq!((again.len(), again[0].tries), (1, 1));
    let dead = DeliveryOutcome::Dead {
        error: "no".to_owned(),
    };
    note("webhook", dead).await.unwrap();
    let dead = store.dead_letters(Some("local"), 9).await.unwrap();
    assert_eq!((dead[0].channel.as_str(), dead[0].tries), ("webhook", 2));
    assert_eq!(dead[0].error.as_deref(), Some("no"));
    let counts = store.watch_counts(None).await.unwrap();
    assert_eq!((counts.pending_deliveries, counts.dead_deliveries), (0, 1));
}

#[tokio::test]
async fn notice_that_was_not_shown_is_remembered_until_one_is() {
    let (_folder, store, fence) = store().await;
    let id = store.add_watch(foreign()).await.unwrap().id;
    let mut told = note(id);
    told.events = vec![event("alarm"), event("stalled")];
    store.note_looks(&fence, vec![told]).await.unwrap();
    assert_eq!(store.unshown_notice().await.unwrap(), None);
    let mut events = store.events("local", None, None, 9).await.unwrap();
    events.sort_by_key(|event| event.id);
    let impossible = DeliveryOutcome::Impossible {
        error: "no desktop".to_owned(),
    };
    let note = |event: u64, outcome| store.note_delivery(&fence, event, "local", outcome);
    note(events[0].id, impossible).await.unwrap();
    let why = store.unshown_notice().await.unwrap();
    assert_eq!(why.as_deref(), Some("no desktop"));
    assert!(store.dead_letters(None, 9).await.unwrap().is_empty());
    note(events[1].id, DeliveryOutcome::Done).await.unwrap();
    assert_eq!(store.unshown_notice().await.unwrap(), None);
}

#[tokio::test]
async fn host_that_cannot_be_reached_is_counted_once_for_all_its_watches() {
    let (_folder, store, fence) = store().await;
    for (sandbox, state) in [
        ("a", "ssh_unreachable"),
        ("a", "ssh_unreachable"),
        ("b", "running"),
        ("c", "ssh_unreachable"),
    ] {
        let mut new = foreign();
        new.sandbox = sandbox.to_owned();
        new.watch.entry = Some(format!("key of {sandbox}"));
        let id = store.add_watch(new).await.unwrap().id;
        let mut seen = note(id);
        seen.state = state.to_owned();
        store.note_looks(&fence, vec![seen]).await.unwrap();
    }
    let counts = store.watch_counts(Some("local")).await.unwrap();
    assert_eq!((counts.unreachable_hosts, counts.active), (2, 4));
    let others = store.watch_counts(Some("other")).await.unwrap();
    assert_eq!(others.unreachable_hosts, 0);
}

#[tokio::test]
async fn old_watches_and_events_are_forgotten_but_not_what_is_still_to_be_told() {
    let (_folder, store, fence) = store().await;
    let id = store.add_watch(foreign()).await.unwrap().id;
    let mut told = note(id);
    told.events = vec![event("alarm"), event("completed")];
    told.events[1].channels.clear();
    told.status = WatchStatus::Completed;
    store.note_looks(&fence, vec![told]).await.unwrap();
    let kept = |key: &str| WatchedSandbox {
        key: key.to_owned(),
        name: "box".to_owned(),
        entry: "{}".to_owned(),
    };
    store.begin_job(job(1)).await.unwrap();
    store.keep_sandbox(kept("key")).await.unwrap();
    store.keep_sandbox(kept("unused")).await.unwrap();
    let later = clock::wall() + Duration::from_secs(1);
    assert_eq!(store.forget_old_watches(later).await.unwrap().len(), 1);
    // What is to be told is told as this watch wants it.
    assert!(store.watch(id, "local").await.unwrap().is_some());
    let left = store.events("local", None, None, 9).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].event_type, "alarm");
    for channel in ["local", "webhook"] {
        let done = store.note_delivery(&fence, left[0].id, channel, DeliveryOutcome::Done);
        done.await.unwrap();
    }
    store.forget_old_watches(later).await.unwrap();
    assert_eq!(store.watch(id, "local").await.unwrap(), None);
    let unused = store.forget_unused_sandboxes(later).await.unwrap();
    assert_eq!(unused, [kept("unused")]);
    assert!(store.watched_sandbox("key").await.unwrap().is_some());
}
