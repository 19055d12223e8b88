use rstest::rstest;

use super::super::ignore::Filter;
use super::super::samples::{directory, fifo, file, link, path};
use super::super::{Entry, LinkEnd, Mtime};
use super::*;

const UP: PlanOptions = PlanOptions {
    direction: Direction::Up,
    delete_extras: false,
    checksum: false,
    keep_dirlinks: false,
    follow_links: false,
    overwrite: false,
};
const MIRROR: PlanOptions = PlanOptions {
    delete_extras: true,
    ..UP
};
const DOWN: PlanOptions = PlanOptions {
    direction: Direction::Down,
    ..UP
};

fn told(action: &Action) -> String {
    let path = action.path().shown().text;
    match action {
        Action::SendFile {
            difference,
            replaces,
            ..
        } => {
            let over = replaces.as_ref().map(|old| old.kind.name());
            format!(
                "send {path} {difference:?} over {}",
                over.unwrap_or("nothing")
            )
        }
        Action::MakeDirectory { replaces, .. } | Action::SendLink { replaces, .. } => {
            let over = replaces.as_ref().map(|old| old.kind.name());
            format!(
                "{} {path} over {}",
                Word::of(action).name(),
                over.unwrap_or("nothing")
            )
        }
        Action::Conflict { obstacle, .. } => format!("conflict {path} {obstacle:?}"),
        Action::CompareContent { obstacle, .. } => format!("compare {path} {obstacle:?}"),
        Action::Skip { reason, .. } => format!("skip {path} {reason:?}"),
        other => format!("{} {path}", Word::of(other).name()),
    }
}

fn sorted(entries: &[Entry]) -> Vec<Entry> {
    let mut entries = entries.to_vec();
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    entries
}

fn planned(
    options: PlanOptions,
    patterns: &[&str],
    source: &[Entry],
    target: &[Entry],
    base: &[BaseEntry],
) -> Vec<String> {
    let patterns: Vec<&[u8]> = patterns.iter().map(|text| text.as_bytes()).collect();
    let filter = Filter::new(None, &patterns).unwrap();
    let planner = Planner::new(
        options,
        &filter,
        sorted(source).into_iter(),
        sorted(target).into_iter(),
        base.iter().cloned(),
    );
    planner.map(|action| told(&action.unwrap())).collect()
}

fn plan(options: PlanOptions, source: &[Entry], target: &[Entry]) -> Vec<String> {
    planned(options, &[], source, target, &[])
}

#[test]
fn new_tree_is_made_with_directories_first() {
    let source = [
        directory("d"),
        directory("d/empty"),
        file("d/f", 3, 0),
        link("l", "d/f", LinkEnd::Other),
        fifo("p"),
    ];
    assert_eq!(
        plan(UP, &source, &[]),
        [
            "make_directory d over nothing",
            "make_directory d/empty over nothing",
            "send d/f Missing over nothing",
            "send_link l over nothing",
            "skip p Special",
        ]
    );
}

#[test]
fn same_tree_needs_nothing() {
    let tree = [
        directory("d"),
        file("d/f", 3, 0),
        link("l", "d/f", LinkEnd::Other),
    ];
    assert_eq!(plan(MIRROR, &tree, &tree), ["keep d", "keep d/f", "keep l"]);
}

#[test]
fn file_is_sent_when_size_or_time_differs_down_to_the_nanosecond() {
    let mut nearly = file("c", 1, 0);
    nearly.mtime = Mtime::exact(nearly.mtime.seconds, 6).unwrap();
    let mut coarse = file("d", 1, 0);
    coarse.mtime = Mtime::whole(coarse.mtime.seconds);
    let source = [
        file("a", 1, 0),
        file("b", 1, 0),
        file("c", 1, 0),
        file("d", 1, 0),
    ];
    let target = [file("a", 2, 0), file("b", 1, -1), nearly, coarse];
    assert_eq!(
        plan(UP, &source, &target),
        [
            "send a Size over file",
            "send b Time over file",
            "send c Time over file",
            "keep d"
        ]
    );
}

#[test]
fn permissions_alone_do_not_send_a_file() {
    let (mut script, mut folder) = (file("run", 1, 0), directory("d"));
    script.mode = 0o755;
    folder.mode = 0o700;
    let target = [file("run", 1, 0), directory("d")];
    assert_eq!(
        plan(UP, &[script.clone(), folder], &target),
        ["set_attributes d", "set_attributes run"]
    );
    // Bits that are not carried over do not count.
    script.mode = 0o4644;
    assert_eq!(plan(UP, &[script], &[file("run", 1, 0)]), ["keep run"]);
}

#[test]
fn checksum_compares_content_when_only_the_time_could_tell() {
    let options = PlanOptions {
        checksum: true,
        ..UP
    };
    let source = [file("a", 1, 0), file("b", 1, 9), file("c", 1, 0)];
    let target = [file("a", 1, 0), file("b", 1, 0), file("c", 2, 0)];
    assert_eq!(
        plan(options, &source, &target),
        ["compare a None", "compare b None", "send c Size over file"]
    );
}

#[test]
fn extras_stay_unless_they_are_to_be_deleted() {
    let target = [
        directory("d"),
        directory("d/e"),
        file("d/e/f", 1, 0),
        file("x", 1, 0),
        link("l", "x", LinkEnd::Other),
        fifo("p"),
    ];
    assert_eq!(plan(UP, &[], &target), [] as [&str; 0]);
    assert_eq!(
        plan(MIRROR, &[], &target),
        [
            "delete d/e/f",
            "delete d/e",
            "delete d",
            "delete l",
            "skip p SpecialStays",
            "delete x"
        ]
    );
}

#[test]
fn excluded_entries_and_the_directories_that_hold_them_are_never_deleted() {
    let target = [
        directory("old"),
        file("old/a", 1, 0),
        directory("old/sub"),
        file("old/sub/keep.log", 1, 0),
        directory("old/node_modules"),
        directory("gone"),
        file("gone/a", 1, 0),
    ];
    assert_eq!(
        planned(MIRROR, &["*.log"], &[], &target, &[]),
        ["delete gone/a", "delete gone", "delete old/a"]
    );
}

#[test]
fn directory_of_what_was_taken_back_is_made_only_when_needed() {
    let source = [
        directory("data"),
        file("data/big", 9, 0),
        directory("data/keep"),
        file("data/keep/x", 1, 0),
    ];
    assert_eq!(
        planned(UP, &["data/", "!data/keep/x"], &source, &[], &[]),
        [
            "make_directory data over nothing",
            "make_directory data/keep over nothing",
            "send data/keep/x Missing over nothing"
        ]
    );
    assert_eq!(
        planned(UP, &["data/", "!data/keep/y"], &source, &[], &[]),
        [] as [&str; 0]
    );
}

#[rstest]
#[case::file_over_empty_directory(UP, file("x", 1, 0), vec![directory("x")], vec!["send x Kind over directory"])]
#[case::file_over_full_directory(UP, file("x", 1, 0), vec![directory("x"), file("x/a", 1, 0)], vec!["conflict x DirectoryInTheWay"])]
#[case::file_over_full_directory_with_deleting(
    MIRROR, file("x", 1, 0), vec![directory("x"), file("x/a", 1, 0)], vec!["delete x/a", "send x Kind over directory"])]
#[case::file_over_directory_that_holds_something_excluded(
    MIRROR, file("x", 1, 0), vec![directory("x"), directory("x/.git")], vec!["conflict x DirectoryInTheWay"])]
#[case::link_over_full_directory(
    UP, link("x", "y", LinkEnd::Other), vec![directory("x"), directory("x/a")], vec!["conflict x DirectoryInTheWay"])]
#[case::link_over_directory(UP, link("x", "y", LinkEnd::Other), vec![directory("x")], vec!["send_link x over directory"])]
#[case::link_over_file(UP, link("x", "y", LinkEnd::Other), vec![file("x", 1, 0)], vec!["send_link x over file"])]
#[case::link_over_link(UP, link("x", "y", LinkEnd::Other), vec![link("x", "z", LinkEnd::Directory)], vec!["send_link x over link"])]
#[case::file_over_link(UP, file("x", 1, 0), vec![link("x", "z", LinkEnd::Directory)], vec!["send x Kind over link"])]
#[case::file_over_fifo(MIRROR, file("x", 1, 0), vec![fifo("x")], vec!["conflict x SpecialInTheWay"])]
#[case::fifo_over_directory(MIRROR, fifo("x"), vec![directory("x"), file("x/a", 1, 0)], vec!["skip x Special"])]
fn change_of_kind_loses_nothing_that_was_not_to_go(
    #[case] options: PlanOptions,
    #[case] source: Entry,
    #[case] target: Vec<Entry>,
    #[case] expected: Vec<&str>,
) {
    assert_eq!(plan(options, &[source], &target), expected);
}

#[rstest]
#[case::over_file(file("x", 1, 0), UP, vec!["make_directory x over file", "send x/a Missing over nothing"])]
#[case::over_dead_link(link("x", "y", LinkEnd::Nothing), UP, vec!["make_directory x over link", "send x/a Missing over nothing"])]
#[case::over_directory_link(link("x", "y", LinkEnd::Directory), UP, vec!["conflict x DirectoryLink", "conflict x/a Above"])]
#[case::over_unknown_link(link("x", "y", LinkEnd::Unknown), UP, vec!["conflict x DirectoryLink", "conflict x/a Above"])]
#[case::through_directory_link(
    link("x", "y", LinkEnd::Directory), PlanOptions { keep_dirlinks: true, ..UP }, vec!["keep x", "send x/a Missing over nothing"])]
#[case::over_fifo(fifo("x"), UP, vec!["conflict x SpecialInTheWay", "conflict x/a Above"])]
fn directory_takes_the_place_only_of_what_may_go(
    #[case] target: Entry,
    #[case] options: PlanOptions,
    #[case] expected: Vec<&str>,
) {
    assert_eq!(
        plan(options, &[directory("x"), file("x/a", 1, 0)], &[target]),
        expected
    );
}

#[test]
fn nothing_below_an_obstacle_is_sent_at_any_depth() {
    let source = [directory("x"), directory("x/d"), file("x/d/f", 1, 0)];
    assert_eq!(
        plan(UP, &source, &[fifo("x")]),
        [
            "conflict x SpecialInTheWay",
            "conflict x/d Above",
            "conflict x/d/f Above"
        ]
    );
}

#[test]
fn dangling_link_is_skipped_when_links_are_followed() {
    let options = PlanOptions {
        follow_links: true,
        ..UP
    };
    assert_eq!(
        plan(options, &[link("l", "gone", LinkEnd::Nothing)], &[]),
        ["skip l DanglingLink"]
    );
}

/// What is remembered of a file of size 1 at the second 0 on both sides.
fn base(text: &str) -> BaseEntry {
    let stamp = file(text, 1, 0).stamp();
    BaseEntry {
        path: path(text),
        local: stamp,
        remote: stamp,
        is_intended: false,
    }
}

#[rstest]
#[case::only_remote_changed(file("f", 2, 5), file("f", 1, 0), true, "send f Size over file")]
#[case::only_local_changed(file("f", 1, 0), file("f", 1, 9), true, "conflict f ChangedInTarget")]
#[case::both_changed(file("f", 2, 9), file("f", 3, 5), true, "conflict f ChangedOnBoth")]
#[case::both_changed_alike(file("f", 2, 5), file("f", 2, 5), true, "keep f")]
#[case::nothing_remembered_and_local_newer(
    file("f", 2, 0),
    file("f", 3, 5),
    false,
    "conflict f NewerInTarget"
)]
#[case::nothing_remembered_and_local_older(
    file("f", 2, 5),
    file("f", 3, 0),
    false,
    "send f Size over file"
)]
fn download_keeps_what_was_edited_here(
    #[case] remote: Entry,
    #[case] local: Entry,
    #[case] is_remembered: bool,
    #[case] expected: &str,
) {
    let base: Vec<BaseEntry> = is_remembered.then(|| base("f")).into_iter().collect();
    let (source, target) = ([remote], [local]);
    assert_eq!(planned(DOWN, &[], &source, &target, &base), [expected]);
    let overwrite = PlanOptions {
        overwrite: true,
        ..DOWN
    };
    let forced = planned(overwrite, &[], &source, &target, &base);
    assert!(!forced[0].starts_with("conflict"), "{forced:?}");
    // An upload asks nobody: what is here is what is wanted there.
    assert!(!planned(UP, &[], &source, &target, &base)[0].starts_with("conflict"));
}

#[test]
fn download_deletes_no_file_that_was_edited_here() {
    let options = PlanOptions {
        delete_extras: true,
        ..DOWN
    };
    let target = [
        directory("d"),
        file("d/edited", 1, 9),
        file("d/same", 1, 0),
        file("new", 1, 0),
    ];
    let base = [base("d/edited"), base("d/same")];
    assert_eq!(
        planned(options, &[], &[], &target, &base),
        [
            "conflict d/edited ChangedInTarget",
            "delete d/same",
            "delete new"
        ]
    );
}

#[test]
fn download_makes_no_directory_over_a_file_that_was_edited_here() {
    let source = [directory("x"), file("x/a", 1, 0)];
    assert_eq!(
        planned(DOWN, &[], &source, &[file("x", 1, 9)], &[base("x")]),
        ["conflict x ChangedOnBoth", "conflict x/a Above"]
    );
}

#[test]
fn checksum_download_says_what_happens_when_the_content_differs() {
    let options = PlanOptions {
        checksum: true,
        ..DOWN
    };
    assert_eq!(
        planned(
            options,
            &[],
            &[file("f", 1, 0)],
            &[file("f", 1, 9)],
            &[base("f")]
        ),
        ["compare f Some(ChangedInTarget)"]
    );
}

#[test]
fn remembered_stamps_tell_that_nothing_changed_where_times_are_coarse() {
    let mut coarse = file("f", 1, 0);
    coarse.mtime = Mtime::exact(coarse.mtime.seconds, 0).unwrap();
    let remembered = BaseEntry {
        remote: coarse.stamp(),
        ..base("f")
    };
    let target = [coarse];
    assert_eq!(
        planned(
            UP,
            &[],
            &[file("f", 1, 0)],
            &target,
            std::slice::from_ref(&remembered)
        ),
        ["keep f"]
    );
    // An edit within the same second is still seen.
    let mut edited = file("f", 1, 0);
    edited.mtime = Mtime::exact(edited.mtime.seconds, 77).unwrap();
    assert_eq!(
        planned(UP, &[], &[edited], &target, &[remembered]),
        ["send f Time over file"]
    );
}

#[test]
fn orphan_of_the_source_is_skipped() {
    let source = [
        file("a", 1, 0),
        file("a/b", 1, 0),
        file("c/d", 1, 0),
        file("e", 1, 0),
    ];
    assert_eq!(
        plan(UP, &source, &[]),
        [
            "send a Missing over nothing",
            "skip a/b Orphan",
            "skip c/d Orphan",
            "send e Missing over nothing"
        ]
    );
}

#[rstest]
#[case(vec![file("b", 1, 0), file("a", 1, 0)])]
#[case(vec![file("a", 1, 0), file("a", 1, 0)])]
fn scan_out_of_order_is_an_error_that_ends_the_plan(#[case] entries: Vec<Entry>) {
    let filter = Filter::default();
    let mut planner = Planner::new(
        UP,
        &filter,
        entries.into_iter(),
        std::iter::empty(),
        std::iter::empty(),
    );
    assert!(planner.next().unwrap().is_ok());
    let error = planner.next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the scan of the source is out of order at `a`"
    );
    assert_eq!(planner.next(), None);
}

#[test]
fn what_lies_behind_a_directory_link_is_compared_and_never_deleted() {
    let options = PlanOptions {
        keep_dirlinks: true,
        ..MIRROR
    };
    let source = [
        directory("x"),
        file("x/a", 1, 0),
        file("x/b", 2, 0),
        directory("x/d"),
    ];
    let target = [
        file("w", 1, 0),
        link("x", "y", LinkEnd::Directory),
        file("x/a", 1, 0),
        file("x/b", 1, 0),
        directory("x/d"),
        file("x/d/extra", 1, 0),
        directory("x/e"),
        file("x/e/extra", 1, 0),
    ];
    assert_eq!(
        plan(options, &source, &target),
        [
            "delete w",
            "keep x",
            "keep x/a",
            "send x/b Size over file",
            "keep x/d",
        ]
    );
}
