//! Targets that cannot be written, on this machine (f60) and in the sandbox (f63).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use remote_sandbox_testkit::{Sshd, process, skip};
use rstest::rstest;
use serde_json::json;

use super::stage::{Random, Stage, Way, contents, unfinished};
use super::{Pair, problems, snapshot};
use crate::files::{Kind, mkfifo, write};

/// A file system of its own, gone with the test.
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts one of so many bytes at a folder; nothing without root.
    pub(super) fn mount(folder: &Path, bytes: u64) -> Option<Self> {
        if !process::is_root() {
            skip("needs root: a file system of its own");
            return None;
        }
        fs::create_dir_all(folder).unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "testkit-sync"])
            .arg(folder)
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip("this machine lets nothing be mounted");
            return None;
        }
        Some(Disk(folder.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[rstest]
#[case::many_up(Way::Up, 60, 100_000)]
#[case::large_up(Way::Up, 1, 9_000_000)]
#[case::many_down(Way::Down, 60, 100_000)]
#[case::large_down(Way::Down, 1, 9_000_000)]
#[tokio::test]
async fn f60_f63_full_disk_is_told_keeps_the_old_files_and_is_over_when_there_is_room(
    #[case] way: Way,
    #[case] files: usize,
    #[case] size: usize,
) {
    let stage = Stage::new().await;
    let room = stage.target(way).to_owned();
    let Some(_disk) = Disk::mount(&room, 8_000_000) else {
        return;
    };
    let name = |number: usize| format!("d/f{number}");
    for number in 0..files {
        stage.write(way, &name(number), "old");
    }
    stage.sync(way, json!({})).await;
    let old = contents(&room);
    fs::write(room.join("ballast"), vec![0; 5_000_000]).unwrap();
    for number in 0..files {
        let bytes = Random::new(number as u64).bytes(size);
        stage.write(way, &name(number), bytes);
    }
    let new = contents(stage.source(way));
    let full = stage.call(way, json!({})).await;
    let is_told = full.json["code"] == "no_space"
        || full.json["problem_count"].as_u64() > Some(0) && full.text.contains("space");
    assert!(is_told, "{}", full.text);
    let mut now = contents(&room);
    now.remove(Path::new("ballast"));
    assert_eq!(now.len(), files);
    for (name, content) in now {
        let is_known = old.get(&name) == Some(&content) || new.get(&name) == Some(&content);
        assert!(is_known, "{} is neither old nor new", name.display());
    }
    assert!(unfinished(&room).len() <= usize::from(files == 1));
    drop(_disk);
    let _disk = Disk::mount(&room, 40_000_000);
    stage.sync(way, json!({})).await;
    stage.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn f60_pipe_device_socket_and_directory_in_the_way_are_told_and_left(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in ["pipe", "socket", "directory", "free"] {
        pair.write_there(name, "new");
    }
    mkfifo(&pair.here.join("pipe"));
    let _listener = std::os::unix::net::UnixListener::bind(pair.here.join("socket")).unwrap();
    pair.write("directory/inner", "kept");
    let done = pair.down(json!({"overwrite": true})).await;
    let told = problems(&done);
    for name in ["pipe", "socket", "directory"] {
        assert!(told.contains_key(name), "{name}: {told:?}");
    }
    let kind_of = |name: &str| {
        fs::symlink_metadata(pair.here.join(name))
            .unwrap()
            .file_type()
    };
    assert!(kind_of("pipe").is_fifo() && kind_of("socket").is_socket());
    assert_eq!(
        fs::read(pair.here.join("directory/inner")).unwrap(),
        b"kept"
    );
    assert_eq!(fs::read(pair.here.join("free")).unwrap(), b"new");
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn f60_f63_read_only_target_is_told_and_stays_as_it_is(#[case] way: Way) {
    let stage = Stage::new().await;
    let room = stage.target(way).to_owned();
    let Some(_disk) = Disk::mount(&room, 8_000_000) else {
        return;
    };
    stage.write(way, "a", "old");
    stage.sync(way, json!({})).await;
    stage.write(way, "a", "newer");
    let again = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&room)
        .status();
    assert!(again.unwrap().success());
    let reply = stage.call(way, json!({})).await;
    let is_told = reply.is_error || problems(&reply.json).contains_key("a");
    assert!(
        is_told && reply.text.to_lowercase().contains("read-only"),
        "{}",
        reply.text
    );
    assert_eq!(fs::read(room.join("a")).unwrap(), b"old");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn f63_link_in_the_target_is_replaced_and_never_written_through(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    let outside = pair.ground.at("outside");
    write(&outside, "untouched");
    let large = Random::new(1).bytes(9_000_000);
    pair.write("small", "new");
    pair.write("large", &large);
    fs::create_dir_all(&pair.there).unwrap();
    for name in ["small", "large"] {
        symlink(&outside, pair.there.join(name)).unwrap();
    }
    pair.up(json!({})).await;
    assert_eq!(fs::read(&outside).unwrap(), b"untouched");
    pair.assert_same();
}

#[tokio::test]
async fn f63_root_that_is_a_link_is_synced_where_it_leads() {
    let stage = Stage::new().await;
    let real = stage.there.with_file_name("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, &stage.there).unwrap();
    stage.write(Way::Up, "a", "1");
    stage.sync(Way::Up, json!({})).await;
    assert_eq!(fs::read(real.join("a")).unwrap(), b"1");
    assert!(stage.there.is_symlink());
}

#[rstest]
#[case::few_requests("internal-sftp -P posix-rename,hardlink,fsync,statvfs,lsetstat")]
#[case::no_files("")]
#[tokio::test]
async fn f63_host_with_a_poor_file_protocol_gets_everything_whole(#[case] subsystem: &str) {
    let line = match subsystem.is_empty() {
        true => "Subsystem other /bin/false".to_owned(),
        false => format!("Subsystem sftp {subsystem}"),
    };
    let host = Sshd::builder().extra_config(&line);
    let stage = Stage::with(host, json!({}), &[]).await;
    for (round, way) in [Way::Up, Way::Up, Way::Down].into_iter().enumerate() {
        let mut random = Random::new(round as u64);
        stage.write(way, "large", random.bytes(9_000_000));
        for number in 0..20 {
            stage.write(way, &format!("d{number}/f"), random.bytes(1000));
        }
        fs::set_permissions(
            stage.source(way).join("d3/f"),
            PermissionsExt::from_mode(0o750),
        )
        .unwrap();
        let done = stage.sync(way, json!({})).await;
        assert_eq!(done["problem_count"], 0, "{done}");
        stage.assert_same();
    }
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn f63_modes_of_small_and_large_files_are_kept_under_any_umask(#[case] way: Way) {
    let stage = Stage::new().await;
    fs::write(stage.sshd.dir().join("home/.bashrc"), "umask 077\n").unwrap();
    for (name, size) in [("small", 10), ("large", 9_000_000)] {
        for mode in [0o600, 0o644, 0o755, 0o444] {
            let name = format!("{name}-{mode:o}");
            stage.write(way, &name, Random::new(mode).bytes(size));
            let file = stage.source(way).join(&name);
            fs::set_permissions(
                file,
                PermissionsExt::from_mode(u32::try_from(mode).unwrap()),
            )
            .unwrap();
        }
    }
    stage.sync(way, json!({})).await;
    stage.assert_same();
    let mode = fs::metadata(stage.target(way).join("large-755"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[tokio::test]
async fn f63_user_account_whose_target_another_one_owns_is_refused_with_the_hosts_words() {
    let Some(user) = remote_sandbox_testkit::TestUser::create() else {
        return;
    };
    let host = Sshd::builder().user(&user);
    let stage = Stage::with(host, json!({"user": user.name()}), &[]).await;
    stage.write(Way::Up, "a", "1");
    let reply = stage
        .call(Way::Up, json!({"remote_path": "/usr/lib/x"}))
        .await;
    assert_eq!(reply.json["code"], "permission_denied", "{}", reply.text);
    assert!(reply.text.contains("ermission denied"), "{}", reply.text);
    assert_eq!(snapshot(&stage.here).len(), 1);
}
