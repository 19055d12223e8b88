//! Somebody works against us while we work.

use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use remote_sandbox_core::sync::Mtime;
use rustix::fs::{Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::BeneathError;
use super::open::{open_below, open_by_steps};
use super::testing::{Ground, names, path, token};

const ROUNDS: u32 = 10_000;

#[test]
fn planted_link_never_leads_a_write_outside() {
    let ground = Ground::with(&["root/dir/", "outside/dir/", "outside/dir/precious"]);
    symlink(ground.at("outside/dir"), ground.at("root/link")).unwrap();
    let tree = super::Tree::open(&ground.clean("root")).unwrap();
    let (is_over, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut written, mut refused) = (0_u32, 0_u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let root = std::fs::File::open(ground.at("root")).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(&root, "dir", &root, "link", RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut round = 0;
        while round < ROUNDS || swaps.load(Ordering::Relaxed) < ROUNDS {
            round += 1;
            let at = path("dir/planted");
            let seen = tree.look(&at).ok().flatten();
            let done = tree
                .begin_file(&at, &token(), u64::from(round), 1)
                .and_then(|mut file| {
                    file.append(b"x")?;
                    file.commit(0o666, Mtime::whole(1), seen.as_ref())
                });
            let _ = tree.set_attributes(&path("dir/precious"), Some(0o777), None);
            let _ = tree.make_directory(&path("dir/made"), 0o755);
            let _ = tree.make_link(&path("dir/l"), b"x", &token(), 1, None);
            if let Some(seen) = seen {
                let _ = tree.remove(&seen);
            }
            match done {
                Ok(()) => written += 1,
                Err(_) => refused += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(&ground.at("outside/dir")), ["precious"]);
    let mode = super::Tree::open(&ground.clean("outside")).unwrap();
    let precious = mode.look(&path("dir/precious")).unwrap().unwrap();
    assert_ne!(precious.mode, 0o777);
    assert!(written > 0 && refused > 0, "{written} {refused}");
}

#[test]
fn walk_by_steps_refuses_links_as_the_single_call_does() {
    let ground = Ground::with(&["a/b/c"]);
    symlink("a", ground.at("l")).unwrap();
    symlink("c", ground.at("a/b/l")).unwrap();
    let root = std::fs::File::open(ground.real()).unwrap();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    for open in [open_below, open_by_steps] {
        let opened = |path: &[u8], flags| open(root.as_fd(), path, flags, Mode::empty()).err();
        assert_eq!(opened(b"a/b/c", flags), None);
        assert_eq!(opened(b"a/b", flags | OFlags::DIRECTORY), None);
        for link in [b"l".as_slice(), b"l/b/c", b"a/b/l"] {
            assert_eq!(opened(link, flags), Some(Errno::LOOP), "{link:?}");
            assert_eq!(opened(link, flags | OFlags::DIRECTORY), Some(Errno::LOOP));
        }
        assert_eq!(opened(b"a/x/c", flags), Some(Errno::NOENT));
        assert_eq!(opened(b"a/b/c/d", flags), Some(Errno::NOTDIR));
    }
}

#[test]
fn special_file_in_the_place_of_a_file_is_neither_opened_nor_replaced() {
    let ground = Ground::with(&["dir/"]);
    let tree = ground.tree();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        ground.at("fifo"),
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(ground.at("socket")).unwrap();
    let mut places = vec!["fifo", "socket", "dir"];
    // Making a device needs rights that not every test user has.
    let device = rustix::fs::FileType::CharacterDevice;
    let zero = rustix::fs::makedev(1, 5);
    if rustix::fs::mknodat(rustix::fs::CWD, ground.at("device"), device, mode, zero).is_ok() {
        places.push("device");
    }
    for place in &places {
        // A pipe nobody writes to would hang whoever opens it.
        let opened = tree.open_file(&path(place)).unwrap_err();
        assert!(matches!(opened, BeneathError::NotAFile { .. }), "{opened}");
        let seen = tree.look(&path(place)).unwrap().unwrap();
        for replaces in [None, Some(&seen)] {
            let file = tree.begin_file(&path(place), &token(), 1, 0).unwrap();
            assert!(file.commit(0o644, Mtime::whole(1), replaces).is_err());
        }
        if *place != "dir" {
            assert!(tree.remove(&seen).is_err());
            assert!(
                tree.set_attributes(&path(place), Some(0o777), None)
                    .is_err()
            );
        }
        assert_eq!(tree.look(&path(place)).unwrap().unwrap().kind, seen.kind);
    }
    assert_eq!(names(&ground.real()).len(), places.len());
}

#[test]
fn nothing_is_done_behind_a_link() {
    let ground = Ground::with(&["root/", "outside/f", "outside/d/"]);
    symlink(ground.at("outside"), ground.at("root/l")).unwrap();
    symlink(ground.at("outside/f"), ground.at("root/f")).unwrap();
    let tree = super::Tree::open(&ground.clean("root")).unwrap();
    assert!(tree.open_file(&path("f")).is_err());
    assert!(matches!(
        tree.open_file(&path("l/f")),
        Err(BeneathError::Link { .. })
    ));
    assert!(matches!(
        tree.look(&path("l/f")),
        Err(BeneathError::Link { .. })
    ));
    assert!(tree.begin_file(&path("l/new"), &token(), 1, 0).is_err());
    assert!(tree.make_directory(&path("l/new"), 0o755).is_err());
    assert!(
        tree.set_attributes(&path("l/f"), Some(0o777), None)
            .is_err()
    );
    let outside = super::Tree::open(&ground.clean("outside")).unwrap();
    let mut seen = outside.look(&path("f")).unwrap().unwrap();
    seen.path = path("l/f");
    assert!(tree.remove(&seen).is_err());
    assert_eq!(names(&ground.at("outside")), ["d", "f"]);
}

#[test]
fn followed_link_is_opened_only_where_it_may_lead() {
    let ground = Ground::with(&["root/inner/f", "outside/f"]);
    symlink("inner/f", ground.at("root/in")).unwrap();
    symlink("inner", ground.at("root/dir")).unwrap();
    symlink(ground.at("outside/f"), ground.at("root/out")).unwrap();
    symlink("nowhere", ground.at("root/dangling")).unwrap();
    let tree = super::Tree::open(&ground.clean("root")).unwrap();
    let root = ground.at("root");
    let open =
        |text: &str| tree.open_followed(&path(text), |real| real.as_path().starts_with(&root));
    assert_eq!(open("in").unwrap().1.path, path("in"));
    assert_eq!(open("dir/f").unwrap().1.size_bytes, 12);
    assert!(matches!(open("out"), Err(BeneathError::Outside { .. })));
    assert!(matches!(open("dir"), Err(BeneathError::NotAFile { .. })));
    assert!(open("dangling").unwrap_err().is_missing());
}
