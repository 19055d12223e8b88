//! Hosts that lack something: space, a way to rename, memory of ours to waste.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use remote_sandbox_core::sync::RelPath;
use remote_sandbox_testkit::{Sshd, process, skip, wait_until};
use tempfile::TempDir;

use super::testing::{MIB, World, entry, noise};
use super::*;
use crate::sandbox::Sandbox;

const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// A host whose `far` is a small disk of its own, for the first conversation; what is done there can be said in shell.
/// All of it vanishes with the last process in it.
async fn small_disk(mebibytes: usize, meanwhile: &str) -> Option<(World, TempDir)> {
    if !process::is_root() || !Path::new(SERVER).exists() {
        skip("only root can mount a disk, and it needs OpenSSH's sftp-server");
        return None;
    }
    let setting = TempDir::new().unwrap();
    let place = setting.path().display().to_string();
    let meanwhile = meanwhile.replace("SETTING", &place);
    let script = format!(
        "mkdir {place}/taken || exit 1\n\
         exec unshare -m sh -c 'mount -t tmpfs -o size={mebibytes}m none \"$1\" || exit 1\n\
         ( cd \"$1\"; {meanwhile} ) </dev/null >/dev/null 2>&1 &\n\
         exec {SERVER}' serve \"$(cat {place}/far)\"\n"
    );
    fs::write(setting.path().join("serve"), script).unwrap();
    let line = format!("Subsystem sftp sh {place}/serve");
    let world = World::on(Sshd::builder().extra_config(&line).start()).await;
    fs::write(setting.path().join("far"), world.far_root()).unwrap();
    world.sandbox.check().await.unwrap();
    Some((world, setting))
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_that_is_too_small_is_told_before_anything_is_sent() {
    let Some((world, _setting)) = small_disk(12, "true").await else {
        return;
    };
    let entry = world.write_near("big", &noise(16 * MIB, 1));
    let error = world.up(&entry, None).await.unwrap_err();
    let LargeError::NoSpace { needed_bytes, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(needed_bytes, entry.size_bytes);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disk_that_gets_full_on_the_way_is_told_and_nothing_is_left() {
    let meanwhile = "sleep 0.7; cat /dev/zero >filler; sleep 4; ls -a >SETTING/listing";
    let Some((world, setting)) = small_disk(24, meanwhile).await else {
        return;
    };
    let entry = world.write_near("big", &noise(16 * MIB, 1));
    world.proxy.trickle(Some(6 * MIB as u64));
    let error = world.up(&entry, None).await.unwrap_err();
    assert!(matches!(error, LargeError::NoSpace { .. }), "{error:?}");
    world.proxy.trickle(None);
    let listing = setting.path().join("listing");
    let is_there = || fs::read_to_string(&listing).is_ok_and(|text| text.contains("filler"));
    assert!(wait_until(Duration::from_secs(15), is_there).await);
    let names = fs::read_to_string(&listing).unwrap();
    assert_eq!(names.lines().collect::<Vec<_>>(), [".", "..", "filler"]);
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_gets_its_name_where_the_host_cannot_rename_over_another() {
    let line = "Subsystem sftp internal-sftp -P posix-rename";
    let world = World::on(Sshd::builder().extra_config(line).start()).await;
    let client = world.sandbox.files().await.unwrap().unwrap();
    let extension = remote_sandbox_core::sftp::Extension::PosixRename;
    assert!(!client.extensions().has(extension));
    drop(client);
    for seed in 1..3 {
        let content = noise(9 * MIB, seed);
        let entry = world.write_near("big", &content);
        world.up(&entry, None).await.unwrap();
        assert!(fs::read(world.far("big")).unwrap() == content);
    }
    assert!(world.unfinished().is_empty());
    // What cannot give way stays, and nothing lies beside it.
    fs::remove_file(world.far("big")).unwrap();
    fs::create_dir_all(world.far("big")).unwrap();
    fs::write(world.far("big/inside"), "kept").unwrap();
    let entry = world.write_near("big", &noise(9 * MIB, 3));
    let error = world.up(&entry, None).await.unwrap_err();
    assert!(matches!(error, LargeError::Refused { .. }), "{error:?}");
    assert_eq!(fs::read(world.far("big/inside")).unwrap(), b"kept");
    assert!(world.unfinished().is_empty());
    world.sandbox.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_that_became_a_directory_is_left_alone() {
    let world = World::new().await;
    fs::create_dir(world.far("big")).unwrap();
    fs::write(world.far("big/inside"), "kept").unwrap();
    let entry = world.write_near("big", &noise(9 * MIB, 3));
    let error = world.up(&entry, None).await.unwrap_err();
    assert!(matches!(error, LargeError::Refused { .. }), "{error:?}");
    assert_eq!(fs::read(world.far("big/inside")).unwrap(), b"kept");
    assert!(world.unfinished().is_empty());
    world.sandbox.close().await;
}

/// A figure of this process in bytes, from the kernel.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.unwrap().trim_matches([':', ' ', '\t', 'k', 'B']);
    kibibytes.parse::<usize>().unwrap() * 1024
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn memory_stays_small_whatever_the_size_of_the_file() {
    let world = World::new().await;
    let mut file = fs::File::create(world.near("big")).unwrap();
    for seed in 1..65 {
        file.write_all(&noise(MIB, seed)).unwrap();
    }
    drop(file);
    let entry = entry(&world.near("big"), "big");
    world.sandbox.check().await.unwrap();
    let before = memory("VmRSS");
    // From here on the highest figure counts anew.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    world.up(&entry, None).await.unwrap();
    let sent = memory("VmHWM").saturating_sub(before);
    assert!(sent < 40 * MIB, "sending took {} MiB", sent / MIB);
    let job = LargeDown {
        file: fs::File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(world.near("back"))
            .unwrap(),
        entry: &entry,
        remote_root: &world.far_root(),
        path: &RelPath::parse(b"big").unwrap(),
        progress: &crate::sync::Progress::default(),
        gauge: &crate::sync::gauge::Gauge::default(),
    };
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let received = download_large(&world.sandbox, job).await.unwrap();
    assert_eq!(received.received_bytes, entry.size_bytes);
    let taken = memory("VmHWM").saturating_sub(before);
    assert!(taken < 40 * MIB, "receiving took {} MiB", taken / MIB);
    world.sandbox.close().await;
}
