use proptest::prelude::*;

use super::super::samples::{directory, fifo, file, link, path};
use super::*;
use crate::sync::LinkEnd;

fn sorted(entries: &[Entry]) -> SortedEntries {
    let mut list = EntryList::default();
    for entry in entries {
        list.push(entry.clone()).unwrap();
    }
    list.sorted()
}

#[test]
fn list_hands_out_what_it_took_in_the_order_of_paths() {
    let mut entries = vec![
        directory("b"),
        file("b/z", 7, -5),
        directory("b/a"),
        file("b/a/deep", 1 << 40, 0),
        link("b/l", "../x y", LinkEnd::Nothing),
        file("b-c", 0, 0),
        directory("a"),
        fifo("a/pipe"),
    ];
    entries[1].mtime = Mtime::whole(-3);
    entries[3].identity = Some(Identity {
        device: 77,
        inode: 1 << 50,
        links: 3,
    });
    entries[3].mode = 0o7755;
    let list = sorted(&entries);
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(list.iter().collect::<Vec<_>>(), entries);
    assert_eq!((list.len(), list.misplaced_count()), (8, 0));
}

#[test]
fn list_finds_the_directory_of_an_entry_that_comes_late() {
    let entries = [
        directory("a"),
        file("a/x", 1, 0),
        directory("b"),
        file("b/x", 1, 0),
        file("a/late", 2, 0),
    ];
    let paths: Vec<_> = sorted(&entries).iter().map(|entry| entry.path).collect();
    assert_eq!(paths, ["a", "a/late", "a/x", "b", "b/x"].map(path));
}

#[test]
fn entry_is_left_out_and_reported_when_its_directory_is_missing_or_a_file() {
    let list = sorted(&[file("f", 1, 0), file("f/x", 1, 0), file("gone/x", 1, 0)]);
    assert_eq!(list.iter().count(), 1);
    assert_eq!(
        list.misplaced(),
        [
            (path("f/x"), Misplaced::NoDirectory),
            (path("gone/x"), Misplaced::NoDirectory)
        ]
    );
}

#[test]
fn second_of_two_equal_paths_is_left_out_and_reported() {
    let list = sorted(&[
        file("a", 1, 0),
        directory("d"),
        file("d/x", 2, 0),
        file("a", 3, 0),
    ]);
    let sizes: Vec<_> = list.iter().map(|entry| entry.size_bytes).collect();
    assert_eq!(sizes, [1, 0, 2]);
    assert_eq!(list.misplaced(), [(path("a"), Misplaced::Twice)]);
}

#[test]
fn list_is_full_at_its_limit() {
    let mut list = EntryList::new(1);
    list.push(file("a", 1, 0)).unwrap();
    assert_eq!(
        list.push(file("b", 1, 0)),
        Err(ListError::Full { limit: 1 })
    );
}

#[test]
fn record_of_an_entry_stays_small() {
    assert!(size_of::<Packed>() <= 56, "{}", size_of::<Packed>());
    let mut list = EntryList::default();
    for folder in 0..1000 {
        list.push(directory(&format!("package-{folder:06}")))
            .unwrap();
        for number in 0..99 {
            let name = format!("package-{folder:06}/source-file-{number:06}.py");
            list.push(file(&name, 1, 0)).unwrap();
        }
    }
    let list = list.sorted();
    let bytes = list.records.capacity() * size_of::<Packed>()
        + list.text.capacity()
        + list.order.capacity() * size_of::<u32>();
    assert_eq!(list.iter().count(), 100_000);
    // Two lists of twice this size have to leave room in 60 MB.
    assert!(bytes < 11 * 1024 * 1024, "{bytes}");
}

proptest! {
    #[test]
    fn list_agrees_with_a_sort_of_whole_paths(names in prop::collection::btree_set("[ab\u{1}.-]{1,2}(/[ab-]{1,2}){0,3}", 0..40)) {
        let is_plain = |name: &&String| !name.split('/').any(|part| part == "." || part == "..");
        let mut all: Vec<RelPath> = names
            .iter()
            .filter(is_plain)
            .flat_map(|name| {
                let last = path(name);
                std::iter::successors(Some(last), RelPath::parent).collect::<Vec<_>>()
            })
            .collect();
        all.sort();
        all.dedup();
        // Found in another order than the one wanted, but with directories first.
        let mut found = all.clone();
        found.sort_by_key(|path| (path.components().count(), std::cmp::Reverse(path.clone())));
        let mut list = EntryList::default();
        for path in &found {
            list.push(directory(std::str::from_utf8(path.as_bytes()).unwrap())).unwrap();
        }
        let sorted = list.sorted();
        prop_assert_eq!(sorted.misplaced_count(), 0);
        prop_assert_eq!(sorted.iter().map(|entry| entry.path).collect::<Vec<_>>(), all);
    }
}

#[test]
fn entries_below_a_link_are_kept_only_where_that_was_asked_for() {
    let entries = [
        link("data", "elsewhere", LinkEnd::Directory),
        directory("data/d"),
        file("data/d/x", 1, 0),
        link("data/inner", "further", LinkEnd::Unknown),
        file("z", 1, 0),
        // These come late, as those of a second scan do.
        file("data/inner/y", 1, 0),
        file("data/a", 1, 0),
    ];
    let list = |list: EntryList| {
        let mut list = list;
        for entry in &entries {
            list.push(entry.clone()).unwrap();
        }
        list.sorted()
    };
    let with = list(EntryList::default().looking_behind_links());
    assert_eq!(with.misplaced_count(), 0);
    let paths: Vec<String> = with.iter().map(|entry| entry.path.shown().text).collect();
    let expected = [
        "data",
        "data/a",
        "data/d",
        "data/d/x",
        "data/inner",
        "data/inner/y",
        "z",
    ];
    assert_eq!(paths, expected);
    let without = list(EntryList::default());
    assert_eq!(without.misplaced_count(), 5);
    let paths: Vec<String> = without
        .iter()
        .map(|entry| entry.path.shown().text)
        .collect();
    assert_eq!(paths, ["data", "z"]);
}

#[test]
fn list_is_full_by_names_targets_and_whole_paths_of_strays() {
    let taken = |entry: &dyn Fn(usize) -> Entry| {
        let mut list = EntryList::default();
        let pushed = (0..MOST_ENTRIES).take_while(|number| list.push(entry(*number)).is_ok());
        pushed.count() * entry(0).text_bytes()
    };
    let about = MOST_TEXT..MOST_TEXT + 20_000;
    let name = "n".repeat(240);
    let names = taken(&|number| file(&format!("{name}{number:06}"), 1, 0));
    assert!(about.contains(&names), "{names}");
    let target = "t".repeat(4000);
    let targets = taken(&|number| link(&format!("{number:06}"), &target, LinkEnd::Nothing));
    assert!(about.contains(&targets), "{targets}");
    let folder = vec![name; 16].join("/");
    let strays = taken(&|number| file(&format!("{folder}/{number:06}"), 1, 0));
    assert!(about.contains(&strays), "{strays}");
}
