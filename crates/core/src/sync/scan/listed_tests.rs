use rstest::rstest;

use super::super::samples::path;
use super::super::temporary::temporary_name;
use super::super::{Kind, LinkEnd, Mtime, Prune, Special};
use super::testing::{Host, mark};
use super::*;
use crate::ids::RunToken;
use crate::sftp::{Attributes, Times};

fn told(mode: u32) -> Attributes {
    Attributes {
        size_bytes: Some(7),
        mode: Some(mode),
        times: Some(Times {
            accessed_s: 1,
            modified_s: 9,
        }),
        ..Attributes::default()
    }
}

#[rstest]
#[case::file(0o104_755, Kind::File)]
#[case::directory(0o040_700, Kind::Directory)]
#[case::fifo(0o010_644, Kind::Special(Special::Fifo))]
#[case::socket(0o140_644, Kind::Special(Special::Socket))]
#[case::device(0o020_644, Kind::Special(Special::CharacterDevice))]
#[case::unknown(0o030_644, Kind::Special(Special::Unknown))]
fn entry_is_made_of_what_a_server_says(#[case] mode: u32, #[case] kind: Kind) {
    let entry = listed_entry(path("d/a"), &told(mode), None).unwrap();
    assert_eq!(entry.kind, kind);
    assert_eq!((entry.size_bytes, entry.mtime), (7, Mtime::whole(9)));
    assert_eq!(u32::from(entry.mode), mode & 0o7777);
    assert_eq!(entry.identity, None);
}

#[test]
fn link_needs_its_text_and_everything_else_its_size_and_time() {
    let link = told(0o120_777);
    let entry = listed_entry(path("l"), &link, Some((b"a/b", LinkEnd::Directory)));
    let expected = Kind::Link {
        target: b"a/b".as_slice().into(),
        end: LinkEnd::Directory,
    };
    assert_eq!(entry.unwrap().kind, expected);
    assert_eq!(listed_entry(path("l"), &link, None), None);
    let silent = Some((b"".as_slice(), LinkEnd::Nothing));
    assert_eq!(listed_entry(path("l"), &link, silent), None);
    for part in 0..3 {
        let mut lacking = told(0o100_644);
        match part {
            0 => lacking.size_bytes = None,
            1 => lacking.mode = None,
            _ => lacking.times = None,
        }
        assert_eq!(listed_entry(path("a"), &lacking, None), None, "{part}");
    }
}

#[test]
fn directories_are_passed_over_by_name_by_path_and_when_they_are_ours() {
    let prunes = [
        Prune::Name(b"data".as_slice().into()),
        Prune::Path(path("a/out")),
    ];
    let ours = temporary_name(&RunToken::from_uuid_bytes([3; 16]), 0);
    let is_over = |text: &str| is_passed_over(&prunes, &path(text));
    for text in ["data", "a/b/data", "a/out", &ours] {
        assert!(is_over(text), "{text}");
    }
    for text in ["data2", "data/x", "out", "a/out/b", ".rsmcp-sync-notes"] {
        assert!(!is_over(text), "{text}");
    }
}

#[test]
fn script_without_a_program_says_only_what_and_where_the_root_is() {
    let host = Host::new();
    host.write(b"root/d/a", "1");
    host.write(b"file", "1");
    for (name, kind) in [
        (b"root".as_slice(), RootKind::Directory),
        (b"file", RootKind::File),
        (b"nothing", RootKind::Missing),
    ] {
        let root = HostPath::parse(name).unwrap();
        let request = ScanRequest {
            root: &root,
            scanner: Scanner::Files,
            prunes: &[],
            follow_links: false,
            sorted_by: SortedBy::Reader,
            depth: ScanDepth::Tree,
            lone_file: LoneFile::AsItIs,
        };
        // Not even the usual programs are there.
        let script = format!("PATH=/nowhere\n{}", scan_script(&request, &mark()));
        let output = host.run(&script);
        let (entries, problems, summary) = super::testing::read(Scanner::Files, &output);
        assert!(entries.is_empty() && problems.is_empty());
        assert_eq!(summary.root, kind);
        assert!(summary.home.starts_with(b"/"));
        let expected = [b"/".as_slice(), name].concat();
        assert!(summary.location.ends_with(&expected));
    }
}

#[test]
fn summary_counts_what_is_listed_later_and_keeps_ours_apart() {
    let host = Host::new();
    host.write(b"root/a", "1");
    let root = HostPath::parse(b"root").unwrap();
    let request = ScanRequest {
        root: &root,
        scanner: Scanner::Files,
        prunes: &[],
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: ScanDepth::Tree,
        lone_file: LoneFile::Unlisted,
    };
    let (_, _, mut summary) = host.scan(&request);
    let found = |text: &str| {
        Found::Entry(listed_entry(path(text), &told(0o100_644), None).expect("an entry"))
    };
    let ours = temporary_name(&RunToken::from_uuid_bytes([3; 16]), 0);
    assert!(summary.count(found("a")).is_some());
    assert!(summary.count(found(&ours)).is_none());
    assert!(summary.count(found(&format!("{ours}/x"))).is_none());
    let problem = Found::Problem(ScanProblem::Vanished {
        shown: "b".to_owned(),
    });
    assert!(summary.count(problem).is_some());
    assert_eq!((summary.entries, summary.problems), (1, 1));
    assert_eq!(summary.temporaries.len(), 1);
}
