use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use remote_sandbox_testkit::{Direction, Sshd};
use rstest::rstest;

use super::testing::{MIB, World, entry, noise};
use super::*;
use crate::sandbox::Sandbox;
use crate::sync::Progress;

#[tokio::test(flavor = "multi_thread")]
async fn large_file_arrives_whole_with_its_mode_and_time() {
    let world = World::new().await;
    let content = noise(24 * MIB + 12_345, 1);
    let mut entry = world.write_near("big", &content);
    entry.mode = 0o4751;
    let progress = Progress::default();
    let done = world.up_with(&entry, None, &progress).await.unwrap();
    assert!(fs::read(world.far("big")).unwrap() == content);
    let found = fs::metadata(world.far("big")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o751);
    assert_eq!(found.mtime(), 1_700_000_000);
    assert_eq!(
        done,
        LargeDone {
            sent_bytes: entry.size_bytes,
            resumed_bytes: 0,
            is_delta: false,
            is_packed: false,
            pending_mtime: Some(entry.mtime),
        }
    );
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    assert!(world.unfinished().is_empty());
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_file_arrives_over_the_one_session_that_a_host_gives() {
    let world = World::on(Sshd::builder().max_sessions(1).start()).await;
    let content = noise(20 * MIB, 1);
    let entry = world.write_near("big", &content);
    world.up(&entry, None).await.unwrap();
    assert!(fs::read(world.far("big")).unwrap() == content);
    world.sandbox.close().await;
}

#[rstest]
#[case::at_once(0)]
#[case::early(1)]
#[case::half(50)]
#[case::late(99)]
#[tokio::test(flavor = "multi_thread")]
async fn cut_file_is_continued_and_the_old_one_stays_until_then(#[case] percent: usize) {
    let world = World::new().await;
    let content = noise(40 * MIB, 1);
    let entry = world.write_near("big", &content);
    world.write_far("big", b"old");
    // The connection is open before, so that only the file is counted.
    world.sandbox.check().await.unwrap();
    let bytes = (content.len() / 100 * percent) as u64;
    world.proxy.cut_after(bytes.max(1), Direction::ToServer);
    match world.up(&entry, None).await {
        // The host can be reached again at once.
        Err(LargeError::Dropped { .. } | LargeError::Unreachable(_)) => {
            assert_eq!(fs::read(world.far("big")).unwrap(), b"old");
        }
        // Cut before anything was begun on it, the connection is opened anew.
        Ok(done) if percent == 0 => {
            assert_eq!(done.sent_bytes, entry.size_bytes);
            assert!(fs::read(world.far("big")).unwrap() == content);
            fs::write(world.far("big"), b"old").unwrap();
        }
        other => panic!("{other:?}"),
    }
    let progress = Progress::default();
    let done = world.up_with(&entry, None, &progress).await.unwrap();
    assert!(fs::read(world.far("big")).unwrap() == content);
    assert_eq!(done.sent_bytes + done.resumed_bytes, entry.size_bytes);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    if percent >= 50 {
        assert!(done.resumed_bytes > 0, "{done:?}");
    }
    assert!(world.unfinished().is_empty());
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_is_wrong_in_what_was_left_is_sent_again() {
    let world = World::new().await;
    let content = noise(24 * MIB, 1);
    let entry = world.write_near("big", &content);
    world.sandbox.check().await.unwrap();
    world.proxy.cut_after(23 * MIB as u64, Direction::ToServer);
    world.up(&entry, None).await.unwrap_err();
    let left = world.unfinished();
    assert_eq!(left.len(), 1, "{left:?}");
    let mut damaged = fs::read(&left[0]).unwrap();
    damaged[9 * MIB] ^= 1;
    fs::write(&left[0], damaged).unwrap();
    let done = world.up(&entry, None).await.unwrap();
    assert!(done.resumed_bytes > 0 && done.sent_bytes >= 8 * MIB as u64);
    assert!(fs::read(world.far("big")).unwrap() == content);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn link_in_the_place_of_an_unfinished_file_is_not_followed() {
    let world = World::new().await;
    let entry = world.write_near("big", &noise(9 * MIB, 1));
    world.sandbox.check().await.unwrap();
    world.proxy.cut_after(5 * MIB as u64, Direction::ToServer);
    world.up(&entry, None).await.unwrap_err();
    let left = world.unfinished().remove(0);
    fs::remove_file(&left).unwrap();
    let precious = world.near("precious");
    fs::write(&precious, "mine").unwrap();
    std::os::unix::fs::symlink(&precious, &left).unwrap();
    world.up(&entry, None).await.unwrap();
    assert_eq!(fs::read(&precious).unwrap(), b"mine");
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_changes_on_the_way_is_not_put_in_place() {
    let world = World::new().await;
    let content = noise(24 * MIB, 1);
    let seen = world.write_near("big", &content);
    world.write_far("big", b"old");
    world.proxy.trickle(Some(12 * MIB as u64));
    let changing = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        fs::write(world.near("big"), noise(24 * MIB, 2)).unwrap();
    };
    let (sent, ()) = tokio::join!(world.up(&seen, None), changing);
    let error = sent.unwrap_err();
    assert!(matches!(error, LargeError::Changed { .. }), "{error:?}");
    assert_eq!(fs::read(world.far("big")).unwrap(), b"old");
    assert!(world.unfinished().is_empty());
    // What the scan saw is gone already when it begins.
    let error = world.up(&seen, None).await.unwrap_err();
    assert!(matches!(error, LargeError::Changed { .. }), "{error:?}");
    world.proxy.trickle(None);
    world.sandbox.close().await;
}

/// The old content with small edits and an insertion.
fn edited(old: &[u8]) -> Vec<u8> {
    let mut new = old.to_vec();
    for place in 0..20 {
        let at = place * (old.len() / 20);
        new[at..at + 4096].copy_from_slice(&noise(4096, place as u64 + 7));
    }
    new.splice(old.len() / 3..old.len() / 3, noise(104, 99));
    new
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_is_sent_when_the_link_is_slow() {
    let world = World::new().await;
    let old = noise(24 * MIB, 1);
    let new = edited(&old);
    let old_entry = world.write_far("big", &old);
    let new_entry = world.write_near("big", &new);
    world.sandbox.check().await.unwrap();
    world.proxy.trickle(Some(4 * MIB as u64));
    let progress = Progress::default();
    let before = world.proxy.bytes(Direction::ToServer);
    let done = world.up_with(&new_entry, Some(&old_entry), &progress).await;
    let done = done.unwrap();
    let sent = world.proxy.bytes(Direction::ToServer) - before;
    assert!(done.is_delta, "{done:?}");
    assert!(sent < 12 * MIB as u64, "{sent} bytes were sent");
    assert!(fs::read(world.far("big")).unwrap() == new);
    let found = entry(&world.far("big"), "big");
    assert_eq!(found.mtime, new_entry.mtime);
    assert_eq!(found.mode, new_entry.mode);
    assert_eq!(progress.figures().bytes_done, new_entry.size_bytes);
    assert!(world.unfinished().is_empty());
    world.proxy.trickle(None);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_file_is_sent_when_most_of_it_is_new() {
    let world = World::new().await;
    let old = noise(12 * MIB, 1);
    let mut new = noise(16 * MIB, 2);
    new[..3 * MIB].copy_from_slice(&old[..3 * MIB]);
    let old_entry = world.write_far("big", &old);
    let new_entry = world.write_near("big", &new);
    world.sandbox.check().await.unwrap();
    world.proxy.trickle(Some(6 * MIB as u64));
    let progress = Progress::default();
    let done = world.up_with(&new_entry, Some(&old_entry), &progress).await;
    let done = done.unwrap();
    assert!(!done.is_delta, "{done:?}");
    assert_eq!(progress.figures().bytes_done, new_entry.size_bytes);
    assert!(fs::read(world.far("big")).unwrap() == new);
    assert!(world.unfinished().is_empty());
    world.proxy.trickle(None);
    world.sandbox.close().await;
}
