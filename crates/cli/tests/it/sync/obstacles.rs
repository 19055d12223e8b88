//! Targets that cannot be written, on this machine (f60) and in the sandbox (f63).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use remote_sandbox_testkit::{McpClient, Sshd, process, skip};
use rstest::rstest;
use serde_json::json;

use super::stage::{Random, Stage, Way, contents, unfinished};
use super::{Pair, problems, snapshot};
use crate::files::{Kind, mkfifo, write};
use crate::support::{entry, program, ready};

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

/// Makes a device of this kind and these numbers; false, and a printed reason, where that is not allowed.
fn make_device(path: &Path, kind: char, numbers: &str) -> bool {
    let made = Command::new("mknod")
        .arg(path)
        .arg(kind.to_string())
        .args(numbers.split(' '))
        .status();
    let is_made = made.is_ok_and(|status| status.success());
    if !is_made {
        skip("no device can be made here");
    }
    is_made
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
    let has_device = make_device(&pair.here.join("device"), 'c', "1 3");
    pair.write_there("device", "new");
    let done = pair.down(json!({"overwrite": true})).await;
    let told = problems(&done);
    for name in ["pipe", "socket", "directory", "device"] {
        let is_told = told.contains_key(name);
        assert!(
            is_told || name == "device" && !has_device,
            "{name}: {told:?}"
        );
    }
    let kind_of = |name: &str| {
        fs::symlink_metadata(pair.here.join(name))
            .unwrap()
            .file_type()
    };
    assert!(kind_of("pipe").is_fifo() && kind_of("socket").is_socket());
    assert_eq!(kind_of("device").is_char_device(), has_device);
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

#[rstest]
#[tokio::test]
async fn f60_device_in_the_source_is_passed_over_and_told(
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
    #[values(Way::Up, Way::Down)] way: Way,
) {
    let pair = Pair::new(kind).await;
    let (source, target) = match way {
        Way::Up => (&pair.here, &pair.there),
        Way::Down => (&pair.there, &pair.here),
    };
    write(&source.join("a"), "1");
    write(&source.join("d/b"), "2");
    // To read from either would never end: all the zeroes there are, and a disk.
    let is_made = make_device(&source.join("zero"), 'c', "1 5")
        && make_device(&source.join("d/disk"), 'b', "7 250");
    if !is_made {
        return;
    }
    for follow_links in [false, true] {
        let more = json!({"follow_links": follow_links});
        let done = match way {
            Way::Up => pair.up(more).await,
            Way::Down => pair.down(more).await,
        };
        let told = problems(&done);
        assert_eq!(done["passed_over"], 2 + u64::from(follow_links), "{done}");
        for name in ["zero", "d/disk"] {
            assert!(told[name].contains("special"), "{told:?}");
            assert!(!target.join(name).exists(), "{name}");
        }
        // What leads to a device is no file either.
        let leads = told.get("leads");
        assert_eq!(leads.is_some(), follow_links, "{told:?}");
        assert_eq!(fs::read(target.join("d/b")).unwrap(), b"2");
        symlink("/dev/zero", source.join("leads")).unwrap_or_default();
    }
}

/// How much one file may have for a command on the host, in KiB.
const MOST_KB: u32 = 2000;

/// A host whose commands and whose file server may write files of a limited size only, while there is a limit.
async fn limited(folder: &Path) -> Option<Stage> {
    let server = Path::new("/usr/lib/openssh/sftp-server");
    if !server.exists() {
        skip("there is no file server as a program");
        return None;
    }
    fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    let limit = folder.join("limit");
    fs::write(&limit, "").unwrap();
    let script = folder.join("file-server");
    let text = format!(
        "#!/bin/bash\n. {}\nexec {}\n",
        limit.display(),
        server.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let line = format!("Subsystem sftp {}", script.display());
    let stage = Stage::with(Sshd::builder().extra_config(&line), json!({}), &[]).await;
    let settings = stage.sshd.dir().join("home/.bashrc");
    fs::write(settings, format!(". {}\n", limit.display())).unwrap();
    Some(stage)
}

#[rstest]
#[case::small(3_000_000, "")]
#[case::small_without_the_signal(3_000_000, "trap '' XFSZ")]
// With the signal the host's file server ends.
#[case::large(12_000_000, "")]
#[case::large_without_the_signal(12_000_000, "trap '' XFSZ")]
#[tokio::test]
async fn f60_f63_limit_of_the_host_for_the_size_of_a_file_is_told_and_leaves_no_half_file(
    #[case] size: usize,
    #[case] signal: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let Some(stage) = limited(folder.path()).await else {
        return;
    };
    for name in ["a", "d/b", "too-much"] {
        stage.write(Way::Up, name, "old");
    }
    stage.sync(Way::Up, json!({})).await;
    let old = contents(&stage.there);
    let limit = format!("{signal}\nulimit -f {MOST_KB}\n");
    fs::write(folder.path().join("limit"), limit).unwrap();
    // What waits on the host was started without the limit.
    stage.sshd.kill_sessions();
    stage.write(Way::Up, "a", "newer");
    stage.write(Way::Up, "too-much", Random::new(3).bytes(size));
    stage.write(Way::Up, "too-much-as-well", Random::new(4).bytes(size));
    let reply = stage.call(Way::Up, json!({})).await;
    assert!(!reply.is_error, "{}", reply.text);
    let told = problems(&reply.json);
    let named: Vec<&str> = told.keys().map(String::as_str).collect();
    assert_eq!(named, ["too-much", "too-much-as-well"], "{told:?}");
    let mut wanted = old;
    wanted.insert("a".into(), b"newer".into());
    assert!(contents(&stage.there) == wanted, "{}", reply.text);
    fs::write(folder.path().join("limit"), "").unwrap();
    stage.sshd.kill_sessions();
    stage.sync(Way::Up, json!({})).await;
    stage.assert_same();
}

#[rstest]
#[case::small(3_000_000)]
#[case::large(12_000_000)]
#[tokio::test]
async fn f60_limit_of_this_machine_for_the_size_of_a_file_is_told_and_leaves_no_half_file(
    #[case] size: usize,
) {
    let sshd = Sshd::start();
    let there = sshd.dir().join("home/copy");
    let list = json!([entry("box", &sshd)]).to_string();
    let limit = format!("--fsize={}", MOST_KB * 1000);
    let program = program();
    let server = McpClient::builder("prlimit")
        .args([limit.as_str(), program.to_str().unwrap()])
        .env("REMOTE_SANDBOX_LIST", list);
    let client = ready(server.start()).await;
    let here = client.home().join("project");
    for name in ["a", "d/b", "too-much"] {
        write(&there.join(name), "old");
    }
    let paths = json!({"local_path": here, "remote_path": "copy"});
    let down = || client.call_tool("sync_remote_to_local", paths.clone());
    assert!(!down().await.is_error);
    let mut wanted = contents(&here);
    write(&there.join("a"), "newer");
    wanted.insert("a".into(), b"newer".into());
    for (number, name) in ["too-much", "too-much-as-well"].into_iter().enumerate() {
        write(&there.join(name), Random::new(number as u64).bytes(size));
    }
    for _ in 0..2 {
        let reply = down().await;
        assert!(!reply.is_error, "{}", reply.text);
        let told = problems(&reply.json);
        let named: Vec<&str> = told.keys().map(String::as_str).collect();
        assert_eq!(named, ["too-much", "too-much-as-well"], "{told:?}");
        let is_clear = |words: &String| words.contains("too large");
        assert!(told.values().all(is_clear), "{told:?}");
        assert!(contents(&here) == wanted, "{}", reply.text);
    }
}
