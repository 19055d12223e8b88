use tempfile::TempDir;

use super::*;

const LENGTH: Duration = Duration::from_secs(30);

fn mark(pid: u32) -> Option<ProcessMark> {
    Some(ProcessMark {
        pid,
        start: 8,
        boot: "boot".to_owned(),
    })
}

#[tokio::test]
async fn lease_tells_its_holder_and_each_sign_of_life() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(store.lease("x").await.unwrap(), None);
    let fence = store.take_lease("x", None, "first", mark(7), LENGTH).await;
    let fence = fence.unwrap().unwrap();
    let seen = store.lease("x").await.unwrap().unwrap();
    assert_eq!(seen.holder.as_deref(), Some("first"));
    assert_eq!(seen.process, mark(7));
    assert_eq!(seen.expires, seen.renewed + LENGTH);
    assert!(store.renew_lease(&fence, LENGTH).await.unwrap());
    let renewed = store.lease("x").await.unwrap().unwrap();
    assert_ne!(renewed.renewed, seen.renewed);
    // It has shown itself meanwhile, so it is not what was seen.
    let taken = store.take_lease("x", Some(seen), "second", mark(8), LENGTH);
    assert_eq!(taken.await.unwrap(), None);
}

#[tokio::test]
async fn lease_that_was_given_back_has_a_higher_fence_next_time() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let first = store.take_lease("x", None, "first", mark(7), LENGTH).await;
    let first = first.unwrap().unwrap();
    store.release_lease(&first).await.unwrap();
    let seen = store.lease("x").await.unwrap();
    assert_eq!(seen.as_ref().and_then(|seen| seen.holder.clone()), None);
    assert!(!store.renew_lease(&first, LENGTH).await.unwrap());
    let second = store.take_lease("x", seen, "second", mark(8), LENGTH).await;
    let second = second.unwrap().unwrap();
    assert!(second.number() > first.number());
    store.release_lease(&first).await.unwrap();
    let held = store.lease("x").await.unwrap().unwrap();
    assert_eq!(held.holder.as_deref(), Some("second"));
}
