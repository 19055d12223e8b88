use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use remote_sandbox_core::config::Transport;
use remote_sandbox_core::sync::Mtime;
use remote_sandbox_testkit::SftpServer;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait_until;
use rstest::rstest;

use super::testing::{StandIn, Streams, bring, bring_over, packing, plan};
use super::{DownError, DownJob, Planned, download};
use crate::beneath::testing::{Ground, names, path, token};
use crate::sandbox::Sandbox;
use crate::ssh::sandbox_on;
use crate::ssh::sftp::Client;
use crate::sync::Progress;
use crate::sync::gauge::Gauge;

/// A tree with everything that has to come as it is.
fn source() -> Ground {
    let ground = Ground::with(&[
        "a",
        "d/e/f",
        "d/with space",
        "-rf",
        "empty",
        "d/back\\slash",
    ]);
    let odd = OsStr::from_bytes(b"d/\xff\xfe");
    std::fs::write(ground.at(odd), "odd").unwrap();
    std::fs::write(ground.at("new\nline"), "newline").unwrap();
    std::fs::write(ground.at(format!("d/{}", "x".repeat(255))), "long").unwrap();
    std::fs::write(ground.at("empty"), "").unwrap();
    std::fs::write(ground.at("d/large"), vec![7; 700_000]).unwrap();
    std::fs::hard_link(ground.at("a"), ground.at("z")).unwrap();
    symlink("d/e", ground.at("link")).unwrap();
    symlink("/nowhere/at all", ground.at("d/dangling")).unwrap();
    let tree = ground.tree();
    let mtime = Mtime::exact(1_600_000_000, 123_456_789);
    for (name, mode) in [("a", 0o755), ("d/e/f", 0o600)] {
        tree.set_attributes(&path(name), Some(mode), mtime).unwrap();
    }
    ground
}

fn assert_same(source: &Ground, target: &Ground) {
    let (from, to) = (source.tree(), target.tree());
    for planned in plan(source, &to) {
        let name = planned.local;
        let (seen, here) = (from.look(&name).unwrap(), to.look(&name).unwrap());
        let (seen, here) = (seen.unwrap(), here.expect("is here"));
        assert_eq!(seen.kind, here.kind, "{name:?}");
        if seen.kind.is_file() {
            assert_eq!((seen.mode, seen.mtime), (here.mode, here.mtime), "{name:?}");
            let at = OsStr::from_bytes(name.as_bytes());
            let content = std::fs::read(source.at(at)).unwrap();
            assert!(content == std::fs::read(target.at(at)).unwrap(), "{name:?}");
        }
    }
    // The two names of one file are two files here.
    let number = |name: &str| std::fs::metadata(target.at(name)).unwrap().ino();
    assert_ne!(number("a"), number("z"));
}

/// A link that is known to be slow, or of which nothing is known.
fn link(is_packed: bool) -> Gauge {
    match is_packed {
        true => packing(),
        false => Gauge::default(),
    }
}

/// Folders of programs; none where the host lacks what the case is about.
fn programs(kind: &str, folder: &Path) -> Option<String> {
    let usual = "/usr/local/bin:/usr/bin:/bin";
    match kind {
        "usual" => Some(usual.to_owned()),
        "busybox" => {
            let busybox = ["/bin/busybox", "/usr/bin/busybox"];
            let busybox = busybox.into_iter().find(|path| Path::new(path).exists())?;
            symlink(busybox, folder.join("tar")).unwrap();
            Some(format!("{}:{usual}", folder.display()))
        }
        _ => Some(folder.display().to_string()),
    }
}

#[rstest]
#[case("usual")]
#[case("busybox")]
#[tokio::test(flavor = "multi_thread")]
async fn tree_comes_as_it_is_in_an_archive(
    #[case] kind: &str,
    #[values(false, true)] is_packed: bool,
) {
    let folder = tempfile::tempdir().unwrap();
    let Some(programs) = programs(kind, folder.path()) else {
        return;
    };
    let far = StandIn::new(Streams::Here(programs), None);
    let (source, target) = (source(), Ground::new());
    let tree = target.tree();
    let files = plan(&source, &tree);
    let count = files.len() as u64;
    let root = source.real();
    let root = root.as_os_str().as_bytes();
    let done = bring_over(&far, root, &tree, files, &link(is_packed)).await;
    let done = done.unwrap();
    assert_eq!((done.files, done.problem_count), (count, 0), "{done:?}");
    assert!(done.arrived.iter().all(|arrived| *arrived));
    assert_same(&source, &target);
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_comes_as_it_is_by_the_file_protocol_where_there_is_no_tar() {
    let (source, target) = (source(), Ground::new());
    let Some((_server, read, write)) = SftpServer::start(&source.real()) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let nothing = programs("none", folder.path()).unwrap();
    let far = StandIn::new(Streams::Here(nothing.clone()), Some(client));
    let tree = target.tree();
    let files = plan(&source, &tree);
    let (count, root) = (files.len() as u64, source.real());
    let root = root.as_os_str().as_bytes();
    let done = bring(&far, root, &tree, files.clone()).await.unwrap();
    assert_eq!((done.files, done.problem_count), (count, 0), "{done:?}");
    assert_same(&source, &target);
    let neither = StandIn::new(Streams::Here(nothing), None);
    let error = bring(&neither, root, &tree, files).await.unwrap_err();
    assert!(matches!(error, DownError::NoTar), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_comes_from_a_real_host_both_ways() {
    let sshd = Sshd::start();
    let (sandbox, _folder) = sandbox_on(&sshd, Transport::Builtin);
    let source = source();
    for number in 0..600 {
        std::fs::write(source.at(format!("d/e/{number}")), vec![1; 5000]).unwrap();
    }
    let root = source.real();
    let root = root.as_os_str().as_bytes();
    let target = Ground::new();
    let tree = target.tree();
    let files = plan(&source, &tree);
    let done = bring(&sandbox, root, &tree, files.clone()).await.unwrap();
    assert_eq!((done.problem_count, done.files), (0, files.len() as u64));
    assert_same(&source, &target);
    let client = sandbox.files().await.unwrap().unwrap();
    let other = Ground::new();
    let progress = Progress::default();
    let job = DownJob {
        remote_root: root.to_vec(),
        follow_links: false,
        tree: other.tree(),
        transfer: token(),
        progress: &progress,
        gauge: &Gauge::default(),
        files: plan(&source, &other.tree()).into(),
    };
    let done = super::by_sftp::download(&sandbox, &client, &job)
        .await
        .unwrap();
    assert_eq!((done.problem_count, done.files), (0, files.len() as u64));
    assert_eq!(progress.figures().bytes_done, done.bytes);
    assert_same(&source, &other);
    sandbox.close().await;
}

#[rstest]
#[case("usual")]
#[case("none")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_or_something_else_is_told_and_the_rest_comes(#[case] kind: &str) {
    let source = Ground::with(&["a", "gone", "fifo", "was_file", "z"]);
    let Some((_server, read, write)) = SftpServer::start(&source.real()) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let programs = programs(kind, folder.path()).unwrap();
    let far = StandIn::new(Streams::Here(programs), Some(client));
    let target = Ground::with(&["z"]);
    let tree = target.tree();
    let files = plan(&source, &tree);
    std::fs::remove_file(source.at("gone")).unwrap();
    std::fs::remove_file(source.at("was_file")).unwrap();
    symlink("/etc/passwd", source.at("was_file")).unwrap();
    std::fs::remove_file(source.at("fifo")).unwrap();
    let (mode, fifo) = (rustix::fs::Mode::RUSR, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, source.at("fifo"), fifo, mode, 0).unwrap();
    let root = source.real();
    let bringing = bring(&far, root.as_os_str().as_bytes(), &tree, files);
    let limit = Duration::from_secs(20);
    let done = tokio::time::timeout(limit, bringing).await.unwrap();
    let done = done.unwrap();
    assert_eq!(done.arrived, [true, false, false, false, false]);
    let mut told: Vec<_> = done.problems.iter().map(|it| it.path.as_str()).collect();
    told.retain(|path| *path != ".");
    told.sort_unstable();
    // What is in the place of `z` was not there when the scan looked.
    assert_eq!(told, ["fifo", "gone", "was_file", "z"]);
    assert_eq!(names(&target.real()), ["a", "z"]);
}

/// A `tar` that packs, and then has one of the files changed as if that had happened while it was read.
fn restless_tar(folder: &Path, is_busybox: bool, status: u32) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let (real, words) = match is_busybox {
        true => ("/bin/busybox tar", "busybox"),
        false => ("/bin/tar", "tar (GNU tar) 1.34"),
    };
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || {{ echo '{words}'; exit 0; }}\n{real} \"$@\"\nprintf more >> ./restless\nexit {status}\n"
    );
    std::fs::write(folder.join("tar"), script).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("tar"), mode).unwrap();
    !is_busybox || Path::new("/bin/busybox").exists()
}

#[rstest]
#[case::complaining(false, 1)]
#[case::not_looking(true, 0)]
#[tokio::test(flavor = "multi_thread")]
async fn file_that_changed_while_it_was_read_never_gets_its_name(
    #[case] is_busybox: bool,
    #[case] status: u32,
    #[values(false, true)] is_packed: bool,
) {
    let folder = tempfile::tempdir().unwrap();
    if !restless_tar(folder.path(), is_busybox, status) {
        return;
    }
    let source = Ground::with(&["calm", "restless", "twin"]);
    std::fs::hard_link(source.at("calm"), source.at("twice")).unwrap();
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["calm", "restless"] {
        let file = std::fs::File::open(source.at(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    let target = Ground::new();
    let tree = target.tree();
    let files = plan(&source, &tree);
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.path().display());
    let far = StandIn::new(Streams::Here(path), None);
    let root = source.real();
    let root = root.as_os_str().as_bytes();
    let done = bring_over(&far, root, &tree, files, &link(is_packed)).await;
    let done = done.unwrap();
    assert_eq!(done.arrived, [true, false, true, true], "{done:?}");
    assert_eq!(names(&target.real()), ["calm", "twice", "twin"]);
    assert_eq!(std::fs::read(target.at("twice")).unwrap(), b"calm");
    let told = done.problems.iter().find(|told| told.path == "restless");
    assert!(told.unwrap().problem.contains("changed"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_that_packs_and_cannot_look_is_looked_at_over_the_file_protocol() {
    let folder = tempfile::tempdir().unwrap();
    if !restless_tar(folder.path(), true, 0) {
        return;
    }
    for name in ["sh", "xargs"] {
        let program = if name == "sh" {
            "/bin/sh"
        } else {
            "/bin/busybox"
        };
        symlink(program, folder.path().join(name)).unwrap();
    }
    // What `xargs` is tried with.
    symlink("/bin/busybox", folder.path().join("true")).unwrap();
    let source = Ground::with(&["calm", "restless"]);
    let Some((_server, read, write)) = SftpServer::start(&source.real()) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let target = Ground::new();
    let files = plan(&source, &target.tree());
    let path = folder.path().display().to_string();
    let far = StandIn::new(Streams::Here(path), Some(client));
    let root = source.real();
    let done = bring(&far, root.as_os_str().as_bytes(), &target.tree(), files).await;
    let done = done.unwrap();
    assert_eq!(done.arrived, [true, false], "{done:?}");
    assert_eq!(names(&target.real()), ["calm"]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_files_get_their_names_while_others_still_come(
    #[values(false, true)] is_packed: bool,
) {
    let source = Ground::new();
    for number in 0..2500 {
        std::fs::write(source.at(format!("f{number}")), number.to_string()).unwrap();
    }
    let target = Ground::new();
    let tree = target.tree();
    let files = plan(&source, &tree);
    let far = StandIn::new(Streams::Here("/usr/bin:/bin".to_owned()), None);
    let root = source.real();
    let root = root.as_os_str().as_bytes();
    let done = bring_over(&far, root, &tree, files, &link(is_packed)).await;
    let done = done.unwrap();
    assert_eq!((done.files, done.problem_count), (2500, 0), "{done:?}");
    assert_eq!(names(&target.real()).len(), 2500);
}

#[tokio::test(flavor = "multi_thread")]
async fn root_that_is_not_there_is_told() {
    let source = Ground::with(&["a"]);
    let target = Ground::new();
    let far = StandIn::new(Streams::Here("/usr/bin:/bin".to_owned()), None);
    let files = plan(&source, &target.tree());
    let error = bring(&far, b"/nowhere/at all", &target.tree(), files).await;
    assert!(matches!(error, Err(DownError::NoRoot { .. })), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn download_that_is_dropped_leaves_no_temporary_file() {
    let source = Ground::with(&["a"]);
    std::fs::write(source.at("a"), vec![0; 3_000_000]).unwrap();
    let target = Ground::new();
    let tree = target.tree();
    let files = plan(&source, &tree);
    // The beginning of the archive, and then nothing more.
    let root = source.real();
    let packed = std::process::Command::new("tar")
        .args(["-C", root.to_str().unwrap(), "-cf", "-", "./a"])
        .output()
        .unwrap();
    let cut = packed.stdout.get(..1_000_000).unwrap().to_vec();
    let far = StandIn::new(Streams::Hanging(cut), None);
    let progress = Progress::default();
    let job = DownJob {
        remote_root: b"/".to_vec(),
        follow_links: false,
        tree: tree.clone(),
        transfer: token(),
        progress: &progress,
        gauge: &Gauge::default(),
        files: files.into(),
    };
    {
        let downloading = download(&far, &job);
        tokio::pin!(downloading);
        while names(&target.real()).is_empty() {
            let moment = tokio::time::timeout(Duration::from_millis(20), &mut downloading);
            assert!(moment.await.is_err());
        }
        assert_eq!(names(&target.real()).len(), 1);
    }
    let is_clean = || names(&target.real()).is_empty();
    assert!(wait_until(Duration::from_secs(5), is_clean).await);
}

#[rstest]
#[case("usual")]
#[case("none")]
#[tokio::test(flavor = "multi_thread")]
async fn followed_link_comes_as_what_it_leads_to(#[case] kind: &str) {
    let source = Ground::with(&["real"]);
    symlink("real", source.at("link")).unwrap();
    let Some((_server, read, write)) = SftpServer::start(&source.real()) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let programs = programs(kind, folder.path()).unwrap();
    let far = StandIn::new(Streams::Here(programs), Some(client));
    let target = Ground::new();
    let mut entry = source.tree().look(&path("real")).unwrap().unwrap();
    entry.path = path("link");
    let files = vec![Planned {
        local: path("link"),
        entry,
        replaces: None,
    }];
    let progress = Progress::default();
    let root = source.real();
    let job = DownJob {
        remote_root: root.as_os_str().as_bytes().to_vec(),
        follow_links: true,
        tree: target.tree(),
        transfer: token(),
        progress: &progress,
        gauge: &Gauge::default(),
        files: files.into(),
    };
    let done = download(&far, &job).await.unwrap();
    assert_eq!(done.problem_count, 0, "{done:?}");
    let here = target.tree().look(&path("link")).unwrap().unwrap();
    assert!(here.kind.is_file());
    assert_eq!(std::fs::read(target.at("link")).unwrap(), b"real");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_ends_it_with_one_failure_and_nothing_is_left() {
    let target = Ground::with(&["small/"]);
    let Some(_disk) = SmallDisk::mount(&target.at("small")) else {
        return;
    };
    let source = Ground::with(&["a", "b", "c"]);
    for name in ["b", "c"] {
        std::fs::write(source.at(name), vec![1; 2_000_000]).unwrap();
    }
    let tree = crate::beneath::Tree::open(&target.clean("small")).unwrap();
    let files = plan(&source, &tree);
    let far = StandIn::new(Streams::Here("/usr/bin:/bin".to_owned()), None);
    let root = source.real();
    let error = bring(&far, root.as_os_str().as_bytes(), &tree, files).await;
    let error = error.unwrap_err();
    assert!(matches!(error, DownError::NoSpace(_)), "{error}");
    // Nobody has said of the first one that it did not change.
    assert!(names(&target.at("small")).is_empty());
}

/// A disk of one megabyte, where this user may have one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        is_mounted.then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .args(["-l"])
            .arg(&self.0)
            .status();
    }
}
