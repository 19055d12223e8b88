use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::Ordering;

use remote_sandbox_core::sync::roots::{LocalPlaces, LocalRoots};
use remote_sandbox_core::sync::scan::ScanProblem;
use remote_sandbox_core::sync::temporary::temporary_name;
use remote_sandbox_core::sync::{Filter, Kind, LinkEnd, Prune, Special};
use rustix::fs::{FileType, Mode};

use super::testing::{Ground, listed, path, problems, token};
use super::{BeneathError, LocalScanOptions, scan};

fn plain() -> LocalScanOptions {
    LocalScanOptions::default()
}

fn following() -> LocalScanOptions {
    LocalScanOptions {
        follow_links: true,
        ..plain()
    }
}

#[test]
fn scan_lists_every_kind_with_what_it_is() {
    let ground = Ground::with(&["a/b/c", "a/empty/", "z"]);
    symlink("a", ground.at("to_dir")).unwrap();
    symlink("z", ground.at("to_file")).unwrap();
    symlink("nowhere", ground.at("dangling")).unwrap();
    std::fs::write(ground.at(OsStr::from_bytes(b"\xff")), "").unwrap();
    std::fs::hard_link(ground.at("z"), ground.at("zz")).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, ground.at("fifo"), FileType::Fifo, mode, 0).unwrap();
    let scan = ground.scan(&plain());
    let expected = [
        "a/", "a/b/", "a/b/c", "a/empty/", "dangling", "fifo", "to_dir", "to_file", "z", "zz",
        "\\xff",
    ];
    assert_eq!(listed(&scan), expected);
    assert_eq!((scan.problem_count, scan.entries.misplaced_count()), (0, 0));
    let tree = ground.tree();
    for entry in &scan.entries {
        assert_eq!(tree.look(&entry.path).unwrap().unwrap(), entry);
        match entry.path.as_bytes() {
            b"fifo" => assert_eq!(entry.kind, Kind::Special(Special::Fifo)),
            b"zz" => assert_eq!(entry.identity.unwrap().links, 2),
            b"to_dir" => assert!(
                matches!(&entry.kind, Kind::Link { target, end: LinkEnd::Directory } if **target == *b"a")
            ),
            b"to_file" => assert!(matches!(
                entry.kind,
                Kind::Link {
                    end: LinkEnd::Other,
                    ..
                }
            )),
            b"dangling" => assert!(matches!(
                entry.kind,
                Kind::Link {
                    end: LinkEnd::Nothing,
                    ..
                }
            )),
            _ => {}
        }
    }
}

#[test]
fn left_out_directory_is_listed_but_not_entered_unless_something_is_taken_back() {
    let ground = Ground::with(&[
        "node_modules/x/y",
        "src/node_modules/deep/z",
        "data/keep/a",
        "data/other/b",
        "logs/l",
        "pruned/p",
    ]);
    let patterns: [&[u8]; 3] = [b"data/", b"!/data/keep/", b"logs/"];
    let mut filter = Filter::new(None, &patterns).unwrap();
    let options = LocalScanOptions {
        prunes: vec![Prune::Path(path("pruned"))],
        ..plain()
    };
    let scan = scan(&ground.tree(), &options, &mut filter).unwrap();
    let expected = [
        "data/",
        "data/keep/",
        "data/keep/a",
        "data/other/",
        "logs/",
        "node_modules/",
        "pruned/",
        "src/",
        "src/node_modules/",
    ];
    assert_eq!(listed(&scan), expected);
}

#[test]
fn gitignore_files_count_before_their_directories_are_judged() {
    let ground = Ground::with(&[
        "build/big/x",
        "src/gen/y",
        "src/main.c",
        "src/deep/build/z",
        "other/gen/w",
    ]);
    std::fs::write(ground.at(".gitignore"), "build/\n").unwrap();
    std::fs::write(ground.at("src/.gitignore"), "/gen/\n").unwrap();
    let options = LocalScanOptions {
        gitignore: true,
        ..plain()
    };
    let mut filter = Filter::default();
    let scan = scan(&ground.tree(), &options, &mut filter).unwrap();
    let expected = [
        ".gitignore",
        "build/",
        "other/",
        "other/gen/",
        "other/gen/w",
        "src/",
        "src/.gitignore",
        "src/deep/",
        "src/deep/build/",
        "src/gen/",
        "src/main.c",
    ];
    assert_eq!(listed(&scan), expected);
    let mut judge = filter.judge();
    assert!(!judge.verdict(&path("src/gen"), true).is_included());
    assert!(judge.verdict(&path("other/gen"), true).is_included());
}

#[test]
fn gitignore_file_that_cannot_be_used_is_an_error_and_a_link_is_not_one() {
    let ground = Ground::with(&["a/x"]);
    let options = LocalScanOptions {
        gitignore: true,
        ..plain()
    };
    symlink("/dev/zero", ground.at("a/.gitignore")).unwrap();
    assert_eq!(
        listed(&ground.scan(&options)),
        ["a/", "a/.gitignore", "a/x"]
    );
    std::fs::remove_file(ground.at("a/.gitignore")).unwrap();
    std::fs::write(ground.at("a/.gitignore"), vec![b'\n'; 1024 * 1024 + 1]).unwrap();
    let error = scan(&ground.tree(), &options, &mut Filter::default()).unwrap_err();
    assert!(error.to_string().contains("a/.gitignore"), "{error}");
}

#[test]
fn temporaries_of_ours_are_invisible_but_remembered() {
    let ours = temporary_name(&token(), 3);
    let ground = Ground::with(&["d/x", &format!("d/{ours}"), &format!("{ours}/y")]);
    let scan = ground.scan(&plain());
    assert_eq!(listed(&scan), ["d/", "d/x"]);
    let mut met = scan.temporaries.clone();
    met.sort();
    assert_eq!(met, [path(&ours), path(format!("d/{ours}"))]);
}

#[test]
fn avoided_places_are_neither_listed_nor_entered() {
    let ground = Ground::with(&["home/.ssh/id", "home/.netrc", "home/x", ".ssh/y"]);
    symlink(ground.at("home/.ssh/id"), ground.at("file_link")).unwrap();
    symlink(ground.at("home/.ssh"), ground.at("dir_link")).unwrap();
    let options = LocalScanOptions {
        avoid: vec![ground.clean("home/.ssh"), ground.clean("home/.netrc")],
        ..following()
    };
    let scan = ground.scan(&options);
    let expected = [
        ".ssh/",
        ".ssh/y",
        "dir_link",
        "file_link",
        "home/",
        "home/x",
    ];
    assert_eq!(listed(&scan), expected);
    assert_eq!(scan.problem_count, 2);
}

#[test]
fn followed_links_are_listed_as_what_they_lead_to() {
    let ground = Ground::with(&["root/real/f", "root/real/sub/g", "else/where/h"]);
    symlink("real", ground.at("root/dir")).unwrap();
    symlink("real/f", ground.at("root/file")).unwrap();
    symlink("nowhere", ground.at("root/dangling")).unwrap();
    symlink(ground.at("else"), ground.at("root/out")).unwrap();
    symlink("/etc/passwd", ground.at("root/passwd")).unwrap();
    let tree = super::Tree::open(&ground.clean("root")).unwrap();
    let options = LocalScanOptions {
        roots: Some(LocalRoots::new(LocalPlaces {
            configured: Some(vec![ground.clean("root")]),
            ..LocalPlaces::default()
        })),
        ..following()
    };
    let scan = scan(&tree, &options, &mut Filter::default()).unwrap();
    let expected = [
        "dangling",
        "dir/",
        "dir/f",
        "dir/sub/",
        "dir/sub/g",
        "file",
        "out",
        "passwd",
        "real/",
        "real/f",
        "real/sub/",
        "real/sub/g",
    ];
    assert_eq!(listed(&scan), expected);
    let mut told = problems(&scan);
    told.sort();
    assert_eq!(told.len(), 2);
    assert!(
        told[0].contains("`out`") && told[1].contains("`passwd`"),
        "{told:?}"
    );
    let kinds: Vec<_> = scan.entries.iter().map(|entry| entry.kind.name()).collect();
    assert_eq!(kinds[0], "link");
    assert_eq!((kinds[5], kinds[6], kinds[7]), ("file", "link", "link"));
}

#[test]
fn loops_of_links_end() {
    let ground = Ground::with(&["a/b/x", "c/"]);
    symlink("..", ground.at("a/b/up")).unwrap();
    symlink("self", ground.at("self")).unwrap();
    symlink(".", ground.at("here")).unwrap();
    symlink("../a", ground.at("c/over")).unwrap();
    let scan = ground.scan(&following());
    let expected = [
        "a/",
        "a/b/",
        "a/b/up",
        "a/b/x",
        "c/",
        "c/over/",
        "c/over/b/",
        "c/over/b/up",
        "c/over/b/x",
        "here",
        "self",
    ];
    assert_eq!(listed(&scan), expected);
    let loops = scan.problems.iter();
    let loops = loops.filter(|problem| matches!(problem, ScanProblem::Loop { .. }));
    assert_eq!((loops.count(), scan.problem_count), (3, 3));
}

#[test]
fn tree_above_the_root_is_not_walked_twice_through_a_link() {
    let ground = Ground::with(&["root/x", "beside"]);
    symlink("..", ground.at("root/up")).unwrap();
    let tree = super::Tree::open(&ground.clean("root")).unwrap();
    let scan = scan(&tree, &following(), &mut Filter::default()).unwrap();
    assert_eq!(listed(&scan), ["up/", "up/beside", "up/root/", "x"]);
    assert_eq!(scan.problem_count, 1);
}

#[test]
fn unreadable_directory_is_a_problem_and_the_rest_goes_on() {
    let ground = Ground::with(&["a/x", "closed/y", "z"]);
    let permit = |path: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(ground.at(path), permissions).unwrap();
    };
    permit("", 0o755);
    permit("closed", 0o000);
    let scan = as_nobody(|| ground.scan(&plain()));
    permit("closed", 0o700);
    assert_eq!(listed(&scan), ["a/", "a/x", "closed/", "z"]);
    assert_eq!(problems(&scan), ["the directory `closed` cannot be read"]);
}

#[test]
fn entries_that_may_not_be_looked_at_are_told_as_denied_and_not_as_gone() {
    let ground = Ground::with(&["a", "names/inner/", "names/x"]);
    let permit = |path: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(ground.at(path), permissions).unwrap();
    };
    permit("", 0o755);
    // Its names can be read, what they stand for cannot.
    permit("names", 0o444);
    let scan = as_nobody(|| ground.scan(&plain()));
    permit("names", 0o700);
    assert_eq!(listed(&scan), ["a", "names/"]);
    let mut told = problems(&scan);
    told.sort();
    assert_eq!(
        told,
        [
            "`names/inner` could not be looked at: permission denied",
            "`names/x` could not be looked at: permission denied",
            "the directory `names/inner` cannot be read",
        ]
    );
}

/// Does something as a user who may not read everything, in a thread of its own.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            #[cfg(target_os = "linux")]
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65_534);
                rustix::thread::set_thread_uid(nobody).unwrap();
            }
            work()
        });
        working.join().unwrap()
    })
}

#[test]
fn scan_of_a_deep_tree_needs_neither_stack_nor_descriptors() {
    const DEPTH: usize = 1000;
    let ground = Ground::new();
    let tree = ground.tree();
    let mut at = "d".to_owned();
    for _ in 0..DEPTH {
        tree.make_directory(&path(&at), 0o755).unwrap();
        at.push_str("/d");
    }
    let file = tree.begin_file(&path(&at), &token(), 1, 0).unwrap();
    let mtime = remote_sandbox_core::sync::Mtime::whole(1);
    file.commit(0o600, mtime, None).unwrap();
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let scan = std::thread::scope(|scope| {
        let scanning = small.spawn_scoped(scope, || ground.scan(&plain()));
        scanning.unwrap().join().unwrap()
    });
    assert_eq!(scan.entries.iter().count(), DEPTH + 1);
    assert_eq!(scan.problem_count, 0);
    assert!(tree.open_file(&path(&at)).is_ok());
}

#[test]
fn path_that_is_too_long_is_a_problem_and_the_rest_goes_on() {
    let ground = Ground::with(&["x"]);
    let name = "n".repeat(255);
    let mut here = std::fs::File::open(ground.real()).unwrap();
    for _ in 0..17 {
        rustix::fs::mkdirat(&here, name.as_str(), Mode::from_raw_mode(0o700)).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        let below = rustix::fs::openat(&here, name.as_str(), flags, Mode::empty()).unwrap();
        here = below.into();
    }
    let scan = ground.scan(&plain());
    assert_eq!(scan.entries.iter().count(), 17);
    assert_eq!(scan.problem_count, 1);
    assert!(matches!(scan.problems[0], ScanProblem::Path(_)));
}

#[test]
fn wide_and_nested_tree_is_listed_completely_by_all_readers() {
    let ground = Ground::new();
    for directory in 0..200 {
        let folder = ground.at(format!("d{directory}/inner"));
        std::fs::create_dir_all(&folder).unwrap();
        // More than readers may hold back, so that they have to wait for the walk.
        let files = if directory % 50 == 49 { 1500 } else { 5 };
        for file in 0..files {
            std::fs::write(folder.join(format!("f{file}")), "").unwrap();
        }
    }
    let scan = ground.scan(&plain());
    assert_eq!(scan.entries.iter().count(), 200 * 2 + 4 * 1500 + 196 * 5);
    assert_eq!((scan.entries.misplaced_count(), scan.problem_count), (0, 0));
}

#[test]
fn scan_ends_when_it_is_cancelled() {
    let ground = Ground::with(&["a/b"]);
    let options = plain();
    options.cancelled.store(true, Ordering::Relaxed);
    let error = scan(&ground.tree(), &options, &mut Filter::default()).unwrap_err();
    assert!(matches!(error, BeneathError::Cancelled));
}

#[cfg(target_os = "linux")]
#[test]
fn scan_of_200_000_entries_takes_little_memory() {
    let ground = Ground::new();
    for directory in 0..20 {
        let folder = ground.at(format!("directory-{directory}"));
        std::fs::create_dir(&folder).unwrap();
        let handle = std::fs::File::open(&folder).unwrap();
        for file in 0..10_000 {
            let name = format!("some-file-of-a-data-set-{file}");
            let kind = FileType::RegularFile;
            let mode = Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(&handle, name, kind, mode, 0).unwrap();
        }
    }
    let spool = tempfile::tempdir().unwrap();
    let options = LocalScanOptions {
        spool: spool.path().join("spool"),
        ..plain()
    };
    let before = resident_kilobytes();
    let scan = ground.scan(&options);
    let taken = resident_kilobytes().saturating_sub(before);
    assert_eq!(scan.entries.iter().count(), 200_020);
    assert!(taken < 40 * 1024, "{taken} kB");
}

/// The most memory this process ever had.
#[cfg(target_os = "linux")]
fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.unwrap().split_whitespace().nth(1);
    words.unwrap().parse().unwrap()
}
