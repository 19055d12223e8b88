use remote_sandbox_core::job::{Nonce, SessionName};
use tempfile::TempDir;

use super::super::testing::order;
use super::super::{NewJob, NewWatch, WatchStatus};
use super::*;

async fn store() -> (TempDir, Store) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    (folder, store)
}

fn foreign(session: &str) -> ForeignWatch {
    ForeignWatch {
        principal: "local".to_owned(),
        sandbox: "box".to_owned(),
        session: session.to_owned(),
        log_file: "/l".to_owned(),
        cwd: None,
        launch_command: "train".to_owned(),
        run_id: None,
        name: None,
        metadata: None,
        watch: NewWatch {
            order: order(),
            entry: None,
        },
    }
}

fn job(number: u8) -> NewJob {
    let id = JobId::from_uuid_bytes([number; 16]);
    NewJob {
        session: SessionName::for_job(&id),
        id,
        principal: "local".to_owned(),
        sandbox: "box".to_owned(),
        log_file: "/l".to_owned(),
        cwd: None,
        command: "make".to_owned(),
        spec: "{}".to_owned(),
        metadata: None,
        run_id: None,
        name: None,
        watch: None,
        nonce: Nonce::from_bytes([number; 16]),
        starter: None,
    }
}

#[tokio::test]
async fn task_that_is_watched_keeps_its_watch_with_the_new_wishes() {
    let (_folder, store) = store().await;
    let first = store.register_watch(foreign("s"), None).await.unwrap();
    assert!(!first.was_watched);
    let mut wish = foreign("s");
    wish.watch.order.policy.interval_s = 7;
    wish.name = Some("again".to_owned());
    let second = store.register_watch(wish, None).await.unwrap();
    assert!(second.was_watched);
    assert_eq!(second.row.id, first.row.id);
    assert_eq!(second.row.order.policy.interval_s, 7);
    assert_eq!(second.row.name.as_deref(), Some("again"));
    let other = store.register_watch(foreign("t"), None).await.unwrap();
    assert_ne!(other.row.id, first.row.id);
    let mut stranger = foreign("s");
    stranger.principal = "somebody".to_owned();
    let strange = store.register_watch(stranger, None).await.unwrap();
    assert!(!strange.was_watched);
}

#[tokio::test]
async fn cancelled_watch_of_another_task_is_not_woken_but_that_of_a_job_is() {
    let (_folder, store) = store().await;
    let first = store.register_watch(foreign("s"), None).await.unwrap();
    store.cancel_watch(first.row.id, "local").await.unwrap();
    let second = store.register_watch(foreign("s"), None).await.unwrap();
    assert_ne!(second.row.id, first.row.id);
    let row = store.begin_job(job(1)).await.unwrap();
    let id = row.id.clone();
    let mine = store
        .register_watch(foreign("j"), Some(id.clone()))
        .await
        .unwrap();
    assert_eq!(mine.row.job, Some(id.clone()));
    let now = store.job(&id, "local").await.unwrap().unwrap();
    assert_eq!(now.watch_id, Some(mine.row.id));
    store.cancel_watch(mine.row.id, "local").await.unwrap();
    let woken = store.register_watch(foreign("j"), Some(id)).await.unwrap();
    assert_eq!(woken.row.id, mine.row.id);
    assert_eq!(woken.row.status, WatchStatus::Active);
}

#[tokio::test]
async fn watch_for_which_somebody_waits_is_due_soon_but_not_again_and_again() {
    let (_folder, store) = store().await;
    let mut new = job(2);
    new.watch = Some(NewWatch {
        order: order(),
        entry: None,
    });
    store.begin_job(new).await.unwrap();
    let due = || async { store.due_watches(clock::wall(), 9).await.unwrap().len() };
    assert_eq!(due().await, 0);
    let long_ago = clock::wall().saturating_sub(Duration::from_secs(60));
    store.hasten_watches("local", None, long_ago).await.unwrap();
    assert_eq!(due().await, 0, "it was begun just now");
    store
        .hasten_watches("stranger", None, clock::wall())
        .await
        .unwrap();
    assert_eq!(due().await, 0, "it is not theirs");
    store
        .hasten_watches("local", None, clock::wall())
        .await
        .unwrap();
    assert_eq!(due().await, 1);
}

#[tokio::test]
async fn watches_of_the_package_are_taken_once_and_keep_their_numbers_where_they_are_free() {
    let (_folder, store) = store().await;
    let taken = |number: i64, created: i64| TakenWatch {
        number,
        mark: format!("{number}:{created}"),
        resumes: 2,
        watch: foreign(&format!("s{number}-{created}")),
    };
    let both = vec![taken(1, 10), taken(2, 10)];
    assert_eq!(store.take_over(both.clone()).await.unwrap(), 2);
    assert_eq!(store.take_over(both).await.unwrap(), 0);
    let one = WatchId::new(1).unwrap();
    let row = store.watch(one, "local").await.unwrap().unwrap();
    assert_eq!((row.session.as_str(), row.history.resumes), ("s1-10", 2));
    // The package's file was begun anew.
    assert_eq!(store.take_over(vec![taken(1, 99)]).await.unwrap(), 1);
    let all = store.watches("local", None, 9).await.unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(store.taken_over().await.unwrap().len(), 3);
}
