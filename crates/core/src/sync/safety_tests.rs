use rstest::rstest;

use super::super::plan::Action;
use super::super::samples::{directory, file};
use super::*;

const ROOT: RootPlace<'static> = RootPlace {
    location: b"/srv/project",
    home: Some(b"/srv/people/ann"),
};

fn summary(files: u64, directories: u64) -> Summary {
    let mut summary = Summary::default();
    for number in 0..files {
        let target = file(&format!("f{number}"), 1, 0);
        summary.add(&Action::Delete { target });
    }
    for number in 0..directories {
        let target = directory(&format!("d{number}"));
        summary.add(&Action::Delete { target });
    }
    summary
}

fn request() -> DeleteRequest<'static> {
    DeleteRequest {
        source: Some(ROOT),
        target: ROOT,
        source_files: 100,
        target_files: 100,
        scan_problems: 0,
        confirmed: None,
    }
}

fn at(location: &[u8]) -> RootPlace<'_> {
    RootPlace { location, ..ROOT }
}

#[test]
fn few_deletions_are_allowed() {
    assert_eq!(allow_deletes(&request(), &summary(50, 3)), Ok(()));
    assert_eq!(allow_deletes(&request(), &summary(0, 0)), Ok(()));
}

#[test]
fn source_that_is_missing_or_empty_deletes_nothing() {
    let missing = DeleteRequest {
        source: None,
        confirmed: Some(3),
        ..request()
    };
    assert_eq!(
        allow_deletes(&missing, &summary(3, 0)),
        Err(DeleteRefusal::SourceMissing)
    );
    let empty = DeleteRequest {
        source_files: 0,
        ..request()
    };
    let refusal = allow_deletes(&empty, &summary(2, 1)).unwrap_err();
    assert_eq!(refusal, DeleteRefusal::SourceEmpty { count: 3 });
    assert_eq!(
        refusal.to_string(),
        "the source is empty, and 3 entries of the target would be deleted"
    );
    assert_eq!(
        refusal.hint(),
        "look at them with `dry_run: true`; if they are to go, call again with `confirm_delete: 3`, or without `delete_extras`"
    );
    assert_eq!(allow_deletes(&empty, &summary(0, 0)), Ok(()));
}

#[rstest]
#[case::top(b"/", true)]
#[case::top_written_oddly(b"//.", true)]
#[case::own_home(b"/srv/people/ann", false)]
#[case::above_home(b"/srv/people/", false)]
#[case::linux_home(b"/home/bob", false)]
#[case::all_homes(b"/home", false)]
#[case::mac_home(b"/Users/bob", false)]
#[case::root_home(b"/root", false)]
fn root_that_is_a_home_or_the_top_deletes_nothing(#[case] location: &[u8], #[case] is_top: bool) {
    let place = at(location);
    for (side, request) in [
        (
            Side::Source,
            DeleteRequest {
                source: Some(place),
                ..request()
            },
        ),
        (
            Side::Target,
            DeleteRequest {
                target: place,
                ..request()
            },
        ),
    ] {
        let expected = if is_top {
            DeleteRefusal::TopDirectory { side, count: 1 }
        } else {
            DeleteRefusal::HomeDirectory { side, count: 1 }
        };
        assert_eq!(allow_deletes(&request, &summary(1, 0)), Err(expected));
    }
}

#[rstest]
#[case(b"/home/bob/project")]
#[case(b"/srv/people/anna")]
#[case(b"/srv/people/ann/project")]
#[case(b"/root/project")]
fn root_within_a_home_may_delete(#[case] location: &[u8]) {
    let request = DeleteRequest {
        target: at(location),
        ..request()
    };
    assert_eq!(allow_deletes(&request, &summary(1, 0)), Ok(()));
}

#[test]
fn scan_with_problems_deletes_nothing() {
    let request = DeleteRequest {
        scan_problems: 2,
        ..request()
    };
    let refusal = allow_deletes(&request, &summary(1, 0)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the scans had 2 problems, so it is not sure that 1 entries are really superfluous"
    );
}

#[rstest]
#[case(20, 10, true)]
#[case(20, 11, false)]
#[case(19, 19, true)]
#[case(1000, 501, false)]
fn more_than_half_of_many_files_is_too_much(
    #[case] all: u64,
    #[case] files: u64,
    #[case] is_allowed: bool,
) {
    let request = DeleteRequest {
        target_files: all,
        ..request()
    };
    let expected = if is_allowed {
        Ok(())
    } else {
        Err(DeleteRefusal::MoreThanHalf {
            files,
            all,
            count: files + 5,
        })
    };
    assert_eq!(allow_deletes(&request, &summary(files, 5)), expected);
}

#[test]
fn right_number_overrules_every_doubt_and_a_wrong_one_none() {
    let doubtful = DeleteRequest {
        source: Some(at(b"/")),
        source_files: 0,
        scan_problems: 7,
        target_files: 20,
        ..request()
    };
    let with = |confirmed| DeleteRequest {
        confirmed: Some(confirmed),
        ..doubtful
    };
    assert_eq!(allow_deletes(&with(22), &summary(20, 2)), Ok(()));
    assert_eq!(
        allow_deletes(&with(20), &summary(20, 2)),
        Err(DeleteRefusal::OtherNumber {
            confirmed: 20,
            count: 22
        })
    );
    let harmless = DeleteRequest {
        confirmed: Some(2),
        ..request()
    };
    assert!(allow_deletes(&harmless, &summary(1, 0)).is_err());
}
