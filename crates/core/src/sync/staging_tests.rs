use super::*;
use crate::sync::entry::Identity;
use crate::sync::plan::Difference;
use crate::sync::samples::{directory, file, link, path};

fn token() -> RunToken {
    RunToken::from_uuid_bytes([7; 16])
}

fn send(text: &str, size_bytes: u64) -> Action {
    Action::SendFile {
        entry: file(text, size_bytes, 0),
        replaces: None,
        difference: Difference::Missing,
    }
}

fn make(text: &str) -> Action {
    Action::MakeDirectory {
        entry: directory(text),
        replaces: None,
    }
}

fn on_device(mut entry: Entry, device: u64) -> Entry {
    entry.identity = Some(Identity {
        device,
        inode: 1,
        links: 1,
    });
    entry
}

fn texts(batch: &Batch) -> (Vec<String>, Vec<(String, String)>) {
    let prefix = temporary_name(&token(), 0);
    let short = |path: &RelPath| path.shown().text.replace(&prefix, "T");
    let staged = batch.staged.iter().map(|staged| short(&staged.place));
    let renames = batch.renames.iter();
    let renames = renames.map(|rename| (short(&rename.from), short(&rename.to)));
    (staged.collect(), renames.collect())
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(one, other): &(&str, &str)| ((*one).to_owned(), (*other).to_owned());
    list.iter().map(owned).collect()
}

#[test]
fn new_directory_is_renamed_as_a_whole_and_files_of_old_ones_one_by_one() {
    let regions = Regions::default();
    let mut stager = Stager::new(token(), &regions);
    for action in [
        send("a/x", 1),
        send("a/y", 2),
        make("n"),
        make("n/m"),
        send("n/m/deep", 3),
        send("n/z", 4),
        send("top", 5),
    ] {
        stager.add(action).unwrap();
    }
    let batch = stager.take().unwrap();
    let (staged, renames) = texts(&batch);
    let expected = [
        "T/1/x",
        "T/1/y",
        "T/2/n",
        "T/2/n/m",
        "T/2/n/m/deep",
        "T/2/n/z",
        "T/2/top",
    ];
    assert_eq!(staged, expected);
    let expected = [
        ("T/1/x", "a/x"),
        ("T/1/y", "a/y"),
        ("T/2/n", "n"),
        ("T/2/top", "top"),
    ];
    assert_eq!(renames, pairs(&expected));
    assert_eq!(batch.bytes, 15);
    assert_eq!((batch.folders.len(), batch.inner_folders.len()), (1, 2));
    assert!(stager.take().is_none());
}

#[test]
fn new_directory_that_is_cut_between_batches_counts_as_there_in_the_second() {
    let regions = Regions::default();
    let mut stager = Stager::new(token(), &regions);
    stager.add(make("n")).unwrap();
    stager.add(send("n/a", 1)).unwrap();
    stager.take().unwrap();
    stager.add(send("n/b", 1)).unwrap();
    stager.add(make("n/c")).unwrap();
    let (staged, renames) = texts(&stager.take().unwrap());
    assert_eq!(staged, ["T/2/b", "T/2/c"]);
    assert_eq!(renames, pairs(&[("T/2/b", "n/b"), ("T/2/c", "n/c")]));
}

#[test]
fn part_of_the_tree_on_another_file_system_has_a_folder_there() {
    let target = [
        on_device(directory("home"), 1),
        on_device(directory("mnt"), 2),
        on_device(directory("mnt/in"), 2),
        on_device(directory("mnt/in/deeper"), 3),
    ];
    let regions = Regions::of(target.into_iter(), Some(1), &[], false);
    let mut stager = Stager::new(token(), &regions);
    for text in ["home/a", "mnt/a", "mnt/in/a", "mnt/in/deeper/a", "mntx"] {
        stager.add(send(text, 1)).unwrap();
    }
    let batch = stager.take().unwrap();
    let (staged, _) = texts(&batch);
    let expected = [
        "T/1/a",
        "mnt/T/2/a",
        "mnt/T/3/a",
        "mnt/in/deeper/T/4/a",
        "T/5/mntx",
    ];
    assert_eq!(staged, expected);
    assert_eq!(batch.folders.len(), 3);
}

#[test]
fn link_to_a_directory_is_a_region_when_files_go_through_it() {
    let target = || [directory("d"), link("d/l", "/srv", LinkEnd::Directory)].into_iter();
    let regions = Regions::of(target(), None, &[], true);
    assert_eq!(
        regions.of_directory(Some(&path("d/l/x"))),
        Some(&(path("d/l"), true))
    );
    let regions = Regions::of(target(), None, &[], false);
    assert_eq!(regions.of_directory(Some(&path("d/l/x"))), None);
}

#[test]
fn batch_is_full_by_entries_and_by_bytes() {
    let regions = Regions::default();
    let mut stager = Stager::new(token(), &regions);
    stager.add(send("a", MOST_BYTES - 1)).unwrap();
    assert!(!stager.is_full());
    stager.add(send("b", 1)).unwrap();
    assert!(stager.is_full());
    stager.take().unwrap();
    for number in 0..MOST_ENTRIES {
        assert!(!stager.is_full());
        stager.add(send(&format!("f{number}"), 0)).unwrap();
    }
    assert!(stager.is_full());
}

#[test]
fn batch_is_full_by_its_names() {
    let regions = Regions::default();
    let mut stager = Stager::new(token(), &regions);
    let long = vec!["n".repeat(255); 15].join("/");
    for _ in 0..2 {
        let added = (0..MOST_ENTRIES).take_while(|number| {
            stager.add(send(&format!("{long}/{number}"), 0)).unwrap();
            !stager.is_full()
        });
        let added = added.count();
        assert!((200..400).contains(&added), "{added}");
        stager.take().unwrap();
    }
}

#[test]
fn actions_that_send_nothing_are_passed_over() {
    let regions = Regions::default();
    let mut stager = Stager::new(token(), &regions);
    stager
        .add(Action::Keep {
            entry: file("a", 1, 0),
        })
        .unwrap();
    stager
        .add(Action::Delete {
            target: file("b", 1, 0),
        })
        .unwrap();
    assert!(stager.take().is_none());
}

#[test]
fn mount_of_the_same_file_system_is_a_region_too() {
    let target = [on_device(directory("a"), 1), on_device(directory("b"), 1)];
    let regions = Regions::of(target.into_iter(), Some(1), &[path("b")], false);
    let mut stager = Stager::new(token(), &regions);
    stager.add(send("a/x", 1)).unwrap();
    stager.add(send("b/x", 1)).unwrap();
    let (staged, _) = texts(&stager.take().unwrap());
    assert_eq!(staged, ["T/1/x", "b/T/2/x"]);
}

#[test]
fn directories_behind_a_link_are_made_one_by_one() {
    let target = [link("l", "/srv", LinkEnd::Directory)].into_iter();
    let regions = Regions::of(target, None, &[], true);
    let mut stager = Stager::new(token(), &regions);
    stager.add(make("l/d")).unwrap();
    stager.add(send("l/d/x", 1)).unwrap();
    let batch = stager.take().unwrap();
    assert_eq!(batch.directories, [directory("l/d")]);
    let (staged, renames) = texts(&batch);
    assert_eq!(staged, ["l/T/2/x"]);
    assert_eq!(renames, pairs(&[("l/T/2/x", "l/d/x")]));
}

#[test]
fn entry_whose_place_would_be_too_long_is_named_and_the_others_go() {
    let deep = vec!["d".repeat(255); 15].join("/");
    let deep = format!("{deep}/{}", "m".repeat(235));
    let target = [on_device(directory(&deep), 2)].into_iter();
    let regions = Regions::of(target, Some(1), &[], false);
    let mut stager = Stager::new(token(), &regions);
    let refused = stager.add(send(&format!("{deep}/x"), 1)).unwrap_err();
    assert_eq!(refused.path.as_bytes(), format!("{deep}/x").as_bytes());
    stager.add(send("y", 1)).unwrap();
    assert_eq!(stager.take().unwrap().staged.len(), 1);
}
