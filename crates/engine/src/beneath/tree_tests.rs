use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use remote_sandbox_core::sync::temporary::temporary_name;
use remote_sandbox_core::sync::{Entry, Kind, LinkEnd, Mtime};

use super::testing::{Ground, names, path, token};
use super::{BeneathError, Removed, Tree};

fn at(seconds: i64, nanoseconds: u32) -> Mtime {
    Mtime::exact(seconds, nanoseconds).unwrap()
}

fn look(tree: &Tree, text: &str) -> Entry {
    tree.look(&path(text)).unwrap().unwrap()
}

#[test]
fn new_file_gets_content_mode_and_nanoseconds_in_one_step() {
    let ground = Ground::with(&["d/"]);
    let tree = ground.tree();
    let mut file = tree.begin_file(&path("d/a"), &token(), 1, 5).unwrap();
    file.write_all(b"he").unwrap();
    file.write_at(b"llo", 2).unwrap();
    assert_eq!(names(&ground.at("d")), [temporary_name(&token(), 1)]);
    file.commit(0o4751, at(1_700_000_000, 123_456_789), None)
        .unwrap();
    assert_eq!(names(&ground.at("d")), ["a"]);
    assert_eq!(std::fs::read(ground.at("d/a")).unwrap(), b"hello");
    let entry = look(&tree, "d/a");
    assert_eq!(entry.mtime, at(1_700_000_000, 123_456_789));
    assert_eq!(entry.mode, 0o751);
    assert_eq!(entry.identity.unwrap().links, 1);
}

#[test]
fn time_before_the_epoch_is_kept() {
    let ground = Ground::with(&["a"]);
    let tree = ground.tree();
    tree.set_attributes(&path("a"), None, Some(at(-5, 7)))
        .unwrap();
    assert_eq!(look(&tree, "a").mtime, at(-5, 7));
}

#[test]
fn file_that_is_dropped_leaves_nothing() {
    let ground = Ground::with(&["a"]);
    let tree = ground.tree();
    let mut file = tree.begin_file(&path("a"), &token(), 1, 5).unwrap();
    file.append(b"half").unwrap();
    drop(file);
    assert_eq!(names(&ground.real()), ["a"]);
    assert_eq!(std::fs::read(ground.at("a")).unwrap(), b"a");
}

#[test]
fn commit_replaces_only_what_was_seen() {
    let ground = Ground::with(&["a"]);
    let tree = ground.tree();
    let seen = look(&tree, "a");
    let begin = || {
        let mut file = tree.begin_file(&path("a"), &token(), 1, 3).unwrap();
        file.append(b"new").unwrap();
        file
    };
    let unseen = begin().commit(0o644, at(1, 0), None).unwrap_err();
    assert!(matches!(unseen, BeneathError::Changed { .. }), "{unseen}");
    std::fs::write(ground.at("a"), "edited meanwhile").unwrap();
    let edited = begin().commit(0o644, at(1, 0), Some(&seen)).unwrap_err();
    assert!(matches!(edited, BeneathError::Changed { .. }), "{edited}");
    assert_eq!(std::fs::read(ground.at("a")).unwrap(), b"edited meanwhile");
    let seen = look(&tree, "a");
    begin().commit(0o644, at(1, 0), Some(&seen)).unwrap();
    assert_eq!(std::fs::read(ground.at("a")).unwrap(), b"new");
    std::fs::remove_file(ground.at("a")).unwrap();
    begin().commit(0o644, at(1, 0), Some(&seen)).unwrap();
    assert_eq!(names(&ground.real()), ["a"]);
}

#[test]
fn link_in_the_place_is_replaced_and_not_followed() {
    let ground = Ground::with(&["target"]);
    let tree = ground.tree();
    symlink("target", ground.at("a")).unwrap();
    let seen = look(&tree, "a");
    let file = tree.begin_file(&path("a"), &token(), 1, 0).unwrap();
    file.commit(0o644, at(1, 0), Some(&seen)).unwrap();
    assert!(look(&tree, "a").kind.is_file());
    assert_eq!(std::fs::read(ground.at("target")).unwrap(), b"target");
}

#[test]
fn resumable_file_keeps_what_it_holds_only_when_asked() {
    let ground = Ground::new();
    let tree = ground.tree();
    let name = temporary_name(&token(), 0);
    let mut file = tree.begin_resumable(&path("big"), &name).unwrap();
    file.append(b"first").unwrap();
    file.keep();
    drop(file);
    let file = tree.begin_resumable(&path("big"), &name).unwrap();
    assert_eq!(file.file().metadata().unwrap().len(), 5);
    file.write_at(b" half", 5).unwrap();
    file.set_length(8).unwrap();
    file.sync().unwrap();
    file.commit(0o644, at(1, 0), None).unwrap();
    assert_eq!(std::fs::read(ground.at("big")).unwrap(), b"first ha");
    drop(tree.begin_resumable(&path("other"), &name).unwrap());
    assert_eq!(names(&ground.real()), ["big"]);
    let error = tree.begin_resumable(&path("big"), "mine").unwrap_err();
    assert!(matches!(error, BeneathError::NotTemporary { .. }));
}

#[test]
fn resumable_file_that_somebody_prepared_is_refused() {
    let ground = Ground::with(&["victim"]);
    let tree = ground.tree();
    let name = temporary_name(&token(), 0);
    std::fs::hard_link(ground.at("victim"), ground.at(&name)).unwrap();
    assert!(tree.begin_resumable(&path("big"), &name).is_err());
    std::fs::remove_file(ground.at(&name)).unwrap();
    symlink("victim", ground.at(&name)).unwrap();
    assert!(tree.begin_resumable(&path("big"), &name).is_err());
    assert_eq!(std::fs::read(ground.at("victim")).unwrap(), b"victim");
}

#[test]
fn link_says_its_target_byte_for_byte() {
    let ground = Ground::with(&["d/x"]);
    let tree = ground.tree();
    tree.make_link(&path("l"), b"d/\xff", &token(), 1, None)
        .unwrap();
    let seen = look(&tree, "l");
    let expected = Kind::Link {
        target: b"d/\xff".as_slice().into(),
        end: LinkEnd::Nothing,
    };
    assert_eq!(seen.kind, expected);
    tree.make_link(&path("l"), b"d", &token(), 2, Some(&seen))
        .unwrap();
    let now = look(&tree, "l");
    assert!(matches!(
        now.kind,
        Kind::Link {
            end: LinkEnd::Directory,
            ..
        }
    ));
    assert!(tree.make_link(&path("l"), b"e", &token(), 3, None).is_err());
    assert_eq!(names(&ground.real()), ["d", "l"]);
}

#[test]
fn directory_is_made_once_and_never_in_the_place_of_something_else() {
    let ground = Ground::with(&["file"]);
    let tree = ground.tree();
    assert!(tree.make_directory(&path("d"), 0o755).unwrap());
    assert!(!tree.make_directory(&path("d"), 0o755).unwrap());
    symlink("d", ground.at("l")).unwrap();
    for taken in ["file", "l"] {
        let error = tree.make_directory(&path(taken), 0o755).unwrap_err();
        assert!(
            matches!(error, BeneathError::NotADirectory { .. }),
            "{error}"
        );
    }
    assert!(
        tree.make_directory(&path("none/d"), 0o755)
            .unwrap_err()
            .is_missing()
    );
}

#[test]
fn missing_root_is_made_on_the_way() {
    let ground = Ground::with(&["d/"]);
    assert!(Tree::open(&ground.clean("d/e/f")).unwrap_err().is_missing());
    let tree = Tree::open_or_make(&ground.clean("d/e/f"), None).unwrap();
    assert_eq!(tree.path(), ground.at("d/e/f"));
    assert!(tree.make_directory(&path("g"), 0o755).unwrap());
    assert!(ground.at("d/e/f/g").is_dir());
    symlink("d", ground.at("l")).unwrap();
    for root in ["l", "l/e", "l/new"] {
        let error = Tree::open_or_make(&ground.clean(root), None).unwrap_err();
        assert!(
            matches!(error, BeneathError::Link { .. }),
            "{root}: {error}"
        );
    }
    assert!(!ground.at("d/new").exists());
    assert!(tree.free_bytes().unwrap() > 0);
}

#[test]
fn attributes_are_set_on_files_and_directories_but_not_through_links() {
    let ground = Ground::with(&["d/", "f"]);
    let tree = ground.tree();
    symlink("f", ground.at("l")).unwrap();
    tree.set_attributes(&path("d"), Some(0o700), Some(at(5, 6)))
        .unwrap();
    let entry = look(&tree, "d");
    assert_eq!((entry.mode, entry.mtime), (0o700, at(5, 6)));
    for mode in [0o000, 0o640, 0o200] {
        tree.set_attributes(&path("f"), Some(mode), None).unwrap();
        assert_eq!(look(&tree, "f").mode, mode);
    }
    assert!(tree.set_attributes(&path("l"), Some(0o777), None).is_err());
    let before = look(&tree, "f");
    tree.set_attributes(&path("l"), None, Some(at(9, 0)))
        .unwrap();
    assert_eq!(look(&tree, "f"), before);
    assert_eq!(look(&tree, "l").mtime, at(9, 0));
}

#[test]
fn removal_takes_only_what_was_seen() {
    let ground = Ground::with(&["a", "d/x", "e/"]);
    let tree = ground.tree();
    let [a, d, e] = ["a", "d", "e"].map(|name| look(&tree, name));
    std::fs::write(ground.at("a"), "longer than before").unwrap();
    assert_eq!(tree.remove(&a).unwrap(), Removed::Changed);
    assert_eq!(tree.remove(&d).unwrap(), Removed::NotEmpty);
    assert_eq!(tree.remove(&look(&tree, "d/x")).unwrap(), Removed::Gone);
    assert_eq!(tree.remove(&d).unwrap(), Removed::Gone);
    assert_eq!(tree.remove(&d).unwrap(), Removed::Missing);
    std::fs::remove_dir(ground.at("e")).unwrap();
    symlink("a", ground.at("e")).unwrap();
    assert_eq!(tree.remove(&e).unwrap(), Removed::Changed);
    assert_eq!(tree.remove(&look(&tree, "e")).unwrap(), Removed::Gone);
    assert_eq!(tree.remove(&look(&tree, "a")).unwrap(), Removed::Gone);
    assert!(names(&ground.real()).is_empty());
}

#[test]
fn file_swapped_for_one_of_the_same_size_and_time_is_not_removed() {
    let ground = Ground::with(&["a", "b"]);
    let tree = ground.tree();
    tree.set_attributes(&path("a"), None, Some(at(5, 5)))
        .unwrap();
    tree.set_attributes(&path("b"), None, Some(at(5, 5)))
        .unwrap();
    let seen = look(&tree, "a");
    std::fs::rename(ground.at("b"), ground.at("a")).unwrap();
    assert_eq!(tree.remove(&seen).unwrap(), Removed::Changed);
}

#[test]
fn only_old_temporaries_of_ours_are_removed() {
    let ground = Ground::with(&["d/mine"]);
    let tree = ground.tree();
    let ours = format!("d/{}", temporary_name(&token(), 4));
    std::fs::write(ground.at(&ours), "x").unwrap();
    // The time of the file itself says nothing: it is that of the file it becomes.
    tree.set_attributes(&path(&ours), None, Some(at(5, 0)))
        .unwrap();
    let found = [path(&ours), path("d/mine"), path("gone")];
    let now = crate::clock::wall();
    assert_eq!(tree.remove_old_temporaries(&found, now), 0);
    let tomorrow = now + Duration::from_secs(25 * 60 * 60);
    assert_eq!(tree.remove_old_temporaries(&found, tomorrow), 1);
    assert_eq!(names(&ground.at("d")), ["mine"]);
}

#[test]
fn file_is_opened_with_what_it_is() {
    let ground = Ground::with(&["d/a"]);
    let tree = ground.tree();
    let (mut file, entry) = tree.open_file(&path("d/a")).unwrap();
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!((content.as_str(), entry.size_bytes), ("d/a", 3));
    let about = std::fs::metadata(ground.at("d/a")).unwrap();
    assert_eq!(entry.identity.unwrap().inode, about.ino());
    assert_eq!(u32::from(entry.mode), about.permissions().mode() & 0o7777);
    assert!(tree.open_file(&path("d/b")).unwrap_err().is_missing());
}

#[test]
fn strange_and_long_names_are_taken_as_they_are() {
    let ground = Ground::new();
    let tree = ground.tree();
    let long = vec![b'x'; 255];
    for name in [
        b"-rf".as_slice(),
        b"a\nb",
        b"\xff\xfe",
        b"~",
        b"C:\\x",
        &long,
    ] {
        let file = tree.begin_file(&path(name), &token(), 1, 0).unwrap();
        file.commit(0o600, at(1, 2), None).unwrap();
        assert!(tree.open_file(&path(name)).is_ok());
    }
    assert_eq!(names(&ground.real()).len(), 6);
}
