use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use remote_sandbox_core::sync::{Entry, Mtime};
use remote_sandbox_testkit::Direction;
use rstest::rstest;

use super::testing::{MIB, World, noise};
use super::*;
use crate::sandbox::Sandbox;
use crate::sync::Progress;
use crate::sync::gauge::Gauge;

async fn down(world: &World, entry: &Entry) -> Result<LargeReceived, LargeError> {
    down_with(world, entry, &Progress::default()).await
}

async fn down_with(
    world: &World,
    entry: &Entry,
    progress: &Progress,
) -> Result<LargeReceived, LargeError> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(world.near("big"))
        .unwrap();
    let job = LargeDown {
        file,
        entry,
        remote_root: &world.far_root(),
        path: &entry.path,
        progress,
        gauge: &Gauge::default(),
    };
    download_large(&world.sandbox, job).await
}

#[tokio::test(flavor = "multi_thread")]
async fn large_file_comes_whole() {
    let world = World::new().await;
    let content = noise(24 * MIB + 77, 1);
    let entry = world.write_far("big", &content);
    // What lies here already is no part of it, and longer.
    fs::write(world.near("big"), noise(30 * MIB, 2)).unwrap();
    let progress = Progress::default();
    let received = down_with(&world, &entry, &progress).await.unwrap();
    assert_eq!(
        (received.received_bytes, received.resumed_bytes),
        (entry.size_bytes, 0)
    );
    assert!(fs::read(world.near("big")).unwrap() == content);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    world.sandbox.close().await;
}

#[rstest]
#[case::at_once(0)]
#[case::early(1)]
#[case::half(50)]
#[case::late(99)]
#[tokio::test(flavor = "multi_thread")]
async fn cut_file_is_continued_from_its_right_beginning(#[case] percent: usize) {
    let world = World::new().await;
    let content = noise(32 * MIB, 1);
    let entry = world.write_far("big", &content);
    world.sandbox.check().await.unwrap();
    let bytes = (content.len() / 100 * percent) as u64;
    world.proxy.cut_after(bytes.max(1), Direction::ToClient);
    match down(&world, &entry).await {
        Err(LargeError::Cut { .. } | LargeError::Unreachable(_)) => {}
        // Cut before anything was begun on it, the connection is opened anew.
        Ok(received) if percent == 0 => {
            assert_eq!(received.received_bytes, entry.size_bytes);
            assert!(fs::read(world.near("big")).unwrap() == content);
            fs::write(world.near("big"), b"").unwrap();
        }
        other => panic!("{other:?}"),
    }
    let left = fs::read(world.near("big")).unwrap();
    assert!(content.starts_with(&left));
    if percent == 99 {
        // A part that was spoiled meanwhile is not believed.
        let file = File::options().write(true).open(world.near("big")).unwrap();
        file.write_all_at(b"spoiled", 13 * MIB as u64).unwrap();
    }
    let progress = Progress::default();
    let received = down_with(&world, &entry, &progress).await.unwrap();
    assert!(fs::read(world.near("big")).unwrap() == content);
    assert_eq!(
        received.received_bytes + received.resumed_bytes,
        entry.size_bytes
    );
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    match percent {
        99 => assert_eq!(received.resumed_bytes, 12 * MIB as u64),
        50 => assert!(received.resumed_bytes > 0, "{received:?}"),
        _ => assert_eq!(received.resumed_bytes, 0),
    }
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_changes_on_the_host_is_told() {
    let world = World::new().await;
    let content = noise(24 * MIB, 1);
    let entry = world.write_far("big", &content);
    world.sandbox.check().await.unwrap();
    world.proxy.trickle(Some(16 * MIB as u64));
    let changing = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        let file = File::options().write(true).open(world.far("big")).unwrap();
        file.set_len(MIB as u64).unwrap();
    };
    let (received, ()) = tokio::join!(down(&world, &entry), changing);
    let error = received.unwrap_err();
    assert!(matches!(error, LargeError::Changed { .. }), "{error:?}");
    world.proxy.trickle(None);
    // What the scan saw is another file, or no file at all.
    let error = down(&world, &entry).await.unwrap_err();
    assert!(matches!(error, LargeError::Changed { .. }), "{error:?}");
    let mut other = world.write_far("big", &content);
    other.mtime = Mtime::whole(5);
    let error = down(&world, &other).await.unwrap_err();
    assert!(matches!(error, LargeError::Changed { .. }), "{error:?}");
    fs::remove_file(world.far("big")).unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(world.far("big"))
        .status();
    assert!(pipe.unwrap().success());
    let limit = Duration::from_secs(10);
    let asked = tokio::time::timeout(limit, down(&world, &entry)).await;
    let error = asked.unwrap().unwrap_err();
    assert!(matches!(error, LargeError::Changed { .. }), "{error:?}");
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_disk_that_takes_nothing_is_told() {
    let world = World::new().await;
    let entry = world.write_far("big", &noise(9 * MIB, 1));
    let job = LargeDown {
        file: File::options()
            .read(true)
            .write(true)
            .open("/dev/full")
            .unwrap(),
        entry: &entry,
        remote_root: &world.far_root(),
        path: &entry.path,
        progress: &Progress::default(),
        gauge: &Gauge::default(),
    };
    let error = download_large(&world.sandbox, job).await.unwrap_err();
    let LargeError::Write { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    world.sandbox.close().await;
}
