use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use remote_sandbox_core::sync::scan::{LoneFile, Scanner, SortedBy};
use remote_sandbox_core::sync::{Entry, Filter, Kind, Prune};
use remote_sandbox_testkit::SftpServer;
use tempfile::TempDir;

use super::*;
use crate::beneath::{LocalScanOptions, Tree, scan};
use crate::ssh::sftp::stand_in::{
    Act, Asked, END_OF_FILE, OK, OPENDIR, READDIR, handle, names as listed, reply, stand_in, status,
};
use remote_sandbox_core::sync::roots::CleanPath;

fn request<'a>(root: &'a HostPath, prunes: &'a [Prune]) -> ScanRequest<'a> {
    ScanRequest {
        root,
        scanner: Scanner::Files,
        prunes,
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: ScanDepth::Tree,
        lone_file: LoneFile::AsItIs,
    }
}

fn summary(root: RootKind, location: &Path) -> ScanSummary {
    ScanSummary {
        root,
        location: location.as_os_str().as_bytes().to_vec(),
        is_detour: false,
        home: b"/nowhere".to_vec(),
        mounts: Vec::new(),
        device: None,
        mode: None,
        entries: 0,
        problems: 0,
        temporaries: Vec::new(),
    }
}

fn host_path(path: &Path) -> HostPath {
    HostPath::parse(path.as_os_str().as_bytes()).unwrap()
}

fn write(root: &Path, name: &[u8]) {
    let path = root.join(std::ffi::OsStr::from_bytes(name));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, name).unwrap();
}

/// Everything that was found, sorted.
async fn found(
    client: &Client,
    request: &ScanRequest<'_>,
    summary: &ScanSummary,
) -> (Vec<Entry>, Vec<ScanProblem>) {
    let (mut entries, mut problems) = (Vec::new(), Vec::new());
    let take = |found| {
        match found {
            Found::Entry(entry) => entries.push(entry),
            Found::Problem(problem) => problems.push(problem),
        }
        true
    };
    list(client, request, summary, take).await.unwrap();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    (entries, problems)
}

fn names(entries: &[Entry]) -> Vec<String> {
    let names = entries.iter().map(|entry| entry.path.shown().text);
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn walk_lists_what_a_scan_of_the_same_tree_lists() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for number in 0..300 {
        write(
            &root,
            format!("d{}/e{}/f{number}", number % 7, number % 40).as_bytes(),
        );
    }
    for name in [b"with space".as_slice(), b"-rf", b"new\nline", b"odd\xff"] {
        write(&root, name);
    }
    fs::create_dir(root.join("empty")).unwrap();
    symlink("d1", root.join("to directory")).unwrap();
    symlink("-rf", root.join("to file")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    fs::set_permissions(root.join("-rf"), fs::Permissions::from_mode(0o751)).unwrap();
    let Some((_server, read, write)) = SftpServer::start(&root) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let tree = Tree::open(&CleanPath::parse(&root).unwrap()).unwrap();
    let options = LocalScanOptions::default();
    let expected = scan(&tree, &options, &mut Filter::default()).unwrap();
    let path = host_path(&root);
    let summary = summary(RootKind::Directory, &root);
    let (entries, problems) = found(&client, &request(&path, &[]), &summary).await;
    assert_eq!(problems, []);
    let expected: Vec<Entry> = expected.entries.iter().collect();
    assert_eq!(names(&entries), names(&expected));
    for (entry, expected) in entries.iter().zip(&expected) {
        match (&entry.kind, &expected.kind) {
            (Kind::Link { target, .. }, Kind::Link { target: other, .. }) => {
                assert_eq!(target, other);
            }
            (kind, other) => assert_eq!(kind, other, "{:?}", entry.path),
        }
        if entry.kind.is_file() {
            assert!(entry.stamp().agrees(expected.stamp()), "{:?}", entry.path);
            assert_eq!(entry.mode, expected.mode, "{:?}", entry.path);
        }
    }
    let ends: Vec<_> = entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            Kind::Link { end, .. } => Some(*end),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [LinkEnd::Nothing, LinkEnd::Directory, LinkEnd::Other]);
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_directory_is_never_opened() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in [b"data/x".as_slice(), b"a/data/y", b"a/out/z", b"a/b"] {
        write(&root, name);
    }
    // The account of the server may not open it, so it would be told if that was tried.
    for name in ["data", "a/data", "a/out"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let Some((_server, read, write)) = SftpServer::start_as_nobody(&root) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let path = host_path(&root);
    let summary = summary(RootKind::Directory, &root);
    let prunes = [
        Prune::Name(b"data".as_slice().into()),
        Prune::Path(RelPath::parse(b"a/out").unwrap()),
    ];
    let (entries, problems) = found(&client, &request(&path, &prunes), &summary).await;
    assert_eq!(problems, []);
    assert_eq!(names(&entries), ["a", "a/b", "a/data", "a/out", "data"]);
    let (_, problems) = found(&client, &request(&path, &[]), &summary).await;
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_that_cannot_be_read_or_entered_is_a_problem_and_the_rest_is_listed() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in [b"shut/x".as_slice(), b"blind/y", b"open/z"] {
        write(&root, name);
    }
    fs::create_dir(root.join("empty")).unwrap();
    for (name, mode) in [("shut", 0o711), ("blind", 0o744), ("open", 0o755)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let Some((_server, read, write)) = SftpServer::start_as_nobody(&root) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let path = host_path(&root);
    let summary = summary(RootKind::Directory, &root);
    let (entries, problems) = found(&client, &request(&path, &[]), &summary).await;
    assert_eq!(
        names(&entries),
        ["blind", "empty", "open", "open/z", "shut"]
    );
    let shown: BTreeSet<String> = problems.iter().map(ScanProblem::path).collect();
    assert_eq!(shown, BTreeSet::from(["blind".into(), "shut".into()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_followed_on_request_and_a_circle_ends() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in [b"t/a/f".as_slice(), b"aside/g"] {
        write(&root, name);
    }
    symlink("..", root.join("t/a/up")).unwrap();
    symlink("../../aside", root.join("t/a/aside")).unwrap();
    symlink("../t/a", root.join("aside/back")).unwrap();
    symlink("nowhere", root.join("t/dangling")).unwrap();
    let Some((_server, read, write)) = SftpServer::start(&root) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let tree = root.join("t");
    let path = host_path(&tree);
    let summary = summary(RootKind::Directory, &tree);
    let request = ScanRequest {
        follow_links: true,
        ..request(&path, &[])
    };
    let (entries, problems) = found(&client, &request, &summary).await;
    assert_eq!(
        names(&entries),
        [
            "a",
            "a/aside",
            "a/aside/back",
            "a/aside/g",
            "a/f",
            "a/up",
            "dangling"
        ]
    );
    let shown: BTreeSet<String> = problems.iter().map(ScanProblem::path).collect();
    assert_eq!(
        shown,
        BTreeSet::from(["a/aside/back".into(), "a/up".into()])
    );
    assert!(matches!(entries[6].kind, Kind::Link { .. }));
    assert!(entries[1].kind.is_directory());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_is_listed_by_its_name_and_a_level_without_what_is_below() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in [b"d/f".as_slice(), b"a"] {
        write(&root, name);
    }
    let Some((_server, read, write)) = SftpServer::start(&root) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let file = host_path(&root.join("d/f"));
    let summary_file = summary(RootKind::File, Path::new(""));
    let (entries, _) = found(&client, &request(&file, &[]), &summary_file).await;
    assert_eq!(names(&entries), ["f"]);
    assert_eq!(entries[0].size_bytes, 3);
    symlink("d/f", root.join("link")).unwrap();
    let link = host_path(&root.join("link"));
    for (lone_file, is_file) in [(LoneFile::AsItIs, false), (LoneFile::Followed, true)] {
        let request = ScanRequest {
            lone_file,
            ..request(&link, &[])
        };
        let (entries, _) = found(&client, &request, &summary_file).await;
        assert_eq!(names(&entries), ["link"]);
        assert_eq!(entries[0].kind.is_file(), is_file);
    }
    fs::remove_file(root.join("link")).unwrap();
    let path = host_path(&root);
    let level = ScanRequest {
        depth: ScanDepth::Level,
        ..request(&path, &[])
    };
    let there = summary(RootKind::Directory, &root);
    let (entries, _) = found(&client, &level, &there).await;
    assert_eq!(names(&entries), ["a", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn walk_ends_when_nobody_wants_more() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for number in 0..500 {
        write(&root, format!("d{number}/f").as_bytes());
    }
    let Some((_server, read, write)) = SftpServer::start(&root) else {
        return;
    };
    let client = Client::start(read, write).await.unwrap();
    let path = host_path(&root);
    let summary = summary(RootKind::Directory, &root);
    let mut count = 0;
    let take = |_| {
        count += 1;
        false
    };
    list(&client, &request(&path, &[]), &summary, take)
        .await
        .unwrap();
    assert!(count < 500, "{count}");
}

/// The answers of a server that has these names in its directories, and says of each what its mode is.
fn lying(asked: &Asked, has_listed: &mut BTreeSet<Vec<u8>>) -> Vec<u8> {
    const LSTAT: u8 = 7;
    let long = [b'n'; 300];
    let endless = [b'n'; 5000];
    let wrong: [&[u8]; 9] = [
        b"../x",
        b"/etc/x",
        b"a/../../x",
        b"",
        b"a/b",
        b"nul\0byte",
        b"esc\x1b[31m/x",
        &long,
        &endless,
    ];
    let top: Vec<&[u8]> = [b".".as_slice(), b"..", b"good", b"sub"]
        .into_iter()
        .chain(wrong)
        .collect();
    match asked.kind {
        OPENDIR => handle(asked.id, asked.subject()),
        READDIR if !has_listed.insert(asked.subject().to_vec()) => status(asked.id, END_OF_FILE),
        READDIR if asked.subject().ends_with(b"sub") => listed(asked.id, &[b"inner", b"../../out"]),
        READDIR => listed(asked.id, &top),
        LSTAT => {
            let mode: u32 = match asked.subject().ends_with(b"sub") {
                true => 0o040_755,
                false => 0o100_644,
            };
            // Size, mode and both times.
            let (flags, size) = (0xd_u32.to_be_bytes(), 3_u64.to_be_bytes());
            let (mode, times) = (mode.to_be_bytes(), [0; 8]);
            reply(105, asked.id, &[&flags[..], &size, &mode, &times].concat())
        }
        _ => status(asked.id, OK),
    }
}

#[tokio::test]
async fn f55_names_that_are_none_are_told_by_their_paths_and_the_rest_is_listed() {
    let mut has_listed = BTreeSet::new();
    let (read, write) = stand_in(move |asked| Act::Say(lying(&asked, &mut has_listed)));
    let client = Client::start(read, write).await.unwrap();
    let root = host_path(Path::new("/tree"));
    let asked = request(&root, &[]);
    let summary = summary(RootKind::Directory, Path::new("/tree"));
    let (entries, problems) = found(&client, &asked, &summary).await;
    assert_eq!(names(&entries), ["good", "sub", "sub/inner"]);
    let told: Vec<String> = problems.iter().map(ScanProblem::path).collect();
    assert_eq!(told.len(), 10, "{told:?}");
    for path in ["../x", "/etc/x", "a/../../x", "", "a/b", "sub/../../out"] {
        assert!(told.iter().any(|told| told == path), "{path}: {told:?}");
    }
    for begin in ["nul", "esc", "nnnn"] {
        let is_told = |told: &String| told.starts_with(begin) && !told.contains(['\0', '\x1b']);
        assert!(told.iter().any(is_told), "{begin}: {told:?}");
    }
}
