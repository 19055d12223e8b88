//! Parts that go and come packed.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use remote_sandbox_core::sync::Entry;
use remote_sandbox_testkit::{Direction, Sshd};
use rstest::rstest;
use tempfile::TempDir;

use super::testing::{MIB, World, noise};
use super::*;
use crate::sandbox::Sandbox;
use crate::sync::Progress;
use crate::sync::gauge::Gauge;

/// Half of it gets smaller.
fn mixed(length: usize) -> Vec<u8> {
    let mut bytes = noise(length, 7);
    for (number, part) in bytes.chunks_mut(1024).enumerate() {
        if number % 2 == 1 {
            part.fill(b'x');
        }
    }
    bytes
}

/// A link that is known to be slow.
fn slow() -> Gauge {
    let gauge = Gauge::default();
    gauge.judge(1, Duration::from_secs(1));
    gauge
}

async fn up(
    world: &World,
    entry: &Entry,
    gauge: &Gauge,
    progress: &Progress,
) -> Result<LargeDone, LargeError> {
    let root = world.far_root();
    let job = LargeUp {
        file: File::open(world.near(&entry.path.shown().text)).unwrap(),
        entry,
        remote_root: &root,
        path: &entry.path,
        owner: b"one",
        old: None,
        progress,
        gauge,
    };
    upload_large(&world.sandbox, job).await
}

async fn down(
    world: &World,
    entry: &Entry,
    gauge: &Gauge,
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
        gauge,
    };
    download_large(&world.sandbox, job).await
}

/// A host whose programs are these alone.
fn host_with(programs: &[&str]) -> (TempDir, Sshd) {
    let folder = TempDir::with_prefix("programs-").unwrap();
    for program in programs {
        let places = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(program));
        let found = places.iter().find(|place| place.exists());
        symlink(found.expect("a usual program"), folder.path().join(program)).unwrap();
    }
    let path = folder.path().display().to_string();
    let sshd = Sshd::builder().session_environment("PATH", &path).start();
    (folder, sshd)
}

#[rstest]
#[case::smaller(true)]
#[case::not_smaller(false)]
#[tokio::test(flavor = "multi_thread")]
async fn file_goes_packed_over_a_slow_link_where_it_gets_smaller(#[case] gets_smaller: bool) {
    let world = World::new().await;
    let content = match gets_smaller {
        true => mixed(12 * MIB + 99),
        false => noise(12 * MIB + 99, 1),
    };
    let entry = world.write_near("big", &content);
    world.sandbox.check().await.unwrap();
    let before = world.proxy.bytes(Direction::ToServer);
    let progress = Progress::default();
    let done = up(&world, &entry, &slow(), &progress).await.unwrap();
    let went = world.proxy.bytes(Direction::ToServer) - before;
    assert!(fs::read(world.far("big")).unwrap() == content);
    assert_eq!(done.is_packed, gets_smaller);
    assert_eq!(went < 9 * MIB as u64, gets_smaller, "{went} bytes");
    assert_eq!((done.sent_bytes, done.resumed_bytes), (entry.size_bytes, 0));
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    assert!(world.unfinished().is_empty());
    world.sandbox.close().await;
}

#[rstest]
#[case::smaller(true)]
#[case::not_smaller(false)]
#[tokio::test(flavor = "multi_thread")]
async fn file_comes_packed_over_a_slow_link_where_it_gets_smaller(#[case] gets_smaller: bool) {
    let world = World::new().await;
    let content = match gets_smaller {
        true => mixed(12 * MIB + 99),
        false => noise(12 * MIB + 99, 1),
    };
    let entry = world.write_far("big", &content);
    world.sandbox.check().await.unwrap();
    let before = world.proxy.bytes(Direction::ToClient);
    let progress = Progress::default();
    let received = down(&world, &entry, &slow(), &progress).await.unwrap();
    let came = world.proxy.bytes(Direction::ToClient) - before;
    assert!(fs::read(world.near("big")).unwrap() == content);
    assert_eq!(received.packed_bytes > 0, gets_smaller);
    assert_eq!(came < 9 * MIB as u64, gets_smaller, "{came} bytes");
    assert_eq!(received.received_bytes, entry.size_bytes);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_upload_that_is_cut_is_continued() {
    let world = World::new().await;
    let content = mixed(32 * MIB);
    let entry = world.write_near("big", &content);
    world.write_far("big", b"old");
    world.sandbox.check().await.unwrap();
    world.proxy.cut_after(10 * MIB as u64, Direction::ToServer);
    let error = up(&world, &entry, &slow(), &Progress::default()).await;
    let error = error.unwrap_err();
    // The host can be reached again at once.
    assert!(matches!(error, LargeError::Dropped { .. }), "{error:?}");
    assert_eq!(fs::read(world.far("big")).unwrap(), b"old");
    let progress = Progress::default();
    let done = up(&world, &entry, &slow(), &progress).await.unwrap();
    assert!(
        done.is_packed && done.resumed_bytes >= 8 * MIB as u64,
        "{done:?}"
    );
    assert_eq!(done.sent_bytes + done.resumed_bytes, entry.size_bytes);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    assert!(fs::read(world.far("big")).unwrap() == content);
    assert!(world.unfinished().is_empty());
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_download_that_is_cut_is_continued() {
    let world = World::new().await;
    let content = mixed(32 * MIB);
    let entry = world.write_far("big", &content);
    world.sandbox.check().await.unwrap();
    world.proxy.cut_after(10 * MIB as u64, Direction::ToClient);
    let cut = down(&world, &entry, &slow(), &Progress::default()).await;
    let error = cut.unwrap_err();
    assert!(
        matches!(error, LargeError::Cut { .. } | LargeError::Unreachable(_)),
        "{error:?}"
    );
    let progress = Progress::default();
    let received = down(&world, &entry, &slow(), &progress).await.unwrap();
    assert!(received.resumed_bytes >= 8 * MIB as u64, "{received:?}");
    assert!(received.packed_bytes > 0);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    assert!(fs::read(world.near("big")).unwrap() == content);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_without_gzip_gets_and_gives_files_as_they_are() {
    let (_programs, sshd) = host_with(&["sh", "dd"]);
    let world = World::on(sshd).await;
    let content = mixed(9 * MIB);
    let entry = world.write_near("big", &content);
    let progress = Progress::default();
    let done = up(&world, &entry, &slow(), &progress).await.unwrap();
    assert!(!done.is_packed);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    assert!(fs::read(world.far("big")).unwrap() == content);
    fs::remove_file(world.near("big")).unwrap();
    let entry = super::testing::entry(&world.far("big"), "big");
    let progress = Progress::default();
    let received = down(&world, &entry, &slow(), &progress).await.unwrap();
    assert_eq!(received.packed_bytes, 0);
    assert_eq!(progress.figures().bytes_done, entry.size_bytes);
    assert!(fs::read(world.near("big")).unwrap() == content);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_that_unpacks_to_more_than_it_said_is_not_believed() {
    let (programs, sshd) = host_with(&["sh", "dd", "gzip", "cat"]);
    let world = World::on(sshd).await;
    let content = mixed(9 * MIB);
    let entry = world.write_far("big", &content);
    // Zeros without end become little that is sent.
    let liar = programs.path().join("gzip");
    fs::remove_file(&liar).unwrap();
    fs::write(&liar, "#!/bin/sh\nexec /usr/bin/gzip -c </dev/zero\n").unwrap();
    fs::set_permissions(&liar, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let received = down(&world, &entry, &slow(), &Progress::default()).await;
    assert_eq!(received.unwrap().packed_bytes, 0);
    assert!(fs::read(world.near("big")).unwrap() == content);
    world.sandbox.close().await;
}
