use proptest::prelude::*;
use rstest::rstest;

use super::super::Mtime;
use super::super::samples::path;
use super::testing::{mark, read};
use super::tests::paths;
use super::*;

#[rstest]
#[case(b"", "the remote path is empty; write `.` for the home directory")]
#[case(b"a\0", "the remote path has a NUL byte in it")]
#[case(
    b"~root/x",
    "the remote path `~root/x` names the home of another user; write it out, or `./~name` for a file of that name"
)]
fn host_path_is_refused_with_its_reason(#[case] bytes: &[u8], #[case] expected: &str) {
    assert_eq!(HostPath::parse(bytes).unwrap_err().to_string(), expected);
}

#[test]
fn host_path_knows_home_and_directory() {
    for (written, kept, from_home, directory) in [
        (b"/a".as_slice(), b"/a".as_slice(), false, false),
        (b"~", b"./", true, false),
        (b"~/a/", b"./a/", true, true),
        (b" a ", b"./ a ", true, false),
        (b"-", b"./-", true, false),
    ] {
        let path = HostPath::parse(written).unwrap();
        assert_eq!(
            (path.as_bytes(), path.is_from_home(), path.wants_directory()),
            (kept, from_home, directory)
        );
    }
}

fn output(records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("noise\nRSMCP:{}:scan\n", mark()).into_bytes();
    for record in records {
        bytes.extend_from_slice(record);
        bytes.push(0);
    }
    bytes
}

#[test]
fn bad_records_are_problems_and_the_rest_is_read() {
    let (entries, problems, summary) = read(
        Scanner::Find,
        &output(&[
            b"//home /home/u",
            b"//root d",
            b"../x//f f 644 1 5.5 1 2 3//",
            b"/etc/x//f f 644 1 5 1 2 3//",
            b"a//f f 644 1",
            b"a//f f 644 -1 5 1 2 3//",
            b"a//f f 999 1 5 1 2 3//",
            b"l//l d 777 1 5 1 2 3//",
            b"ok//f f 644 1 -5.25 1 2 3//",
            b"//status 1",
            b"//what is this",
            b"//end 0",
            b"after//f f 644 1 5 1 2 3//",
        ]),
    );
    assert_eq!(paths(&entries), [path("ok")]);
    assert_eq!(entries[0].mtime, Mtime::exact(-5, 250_000_000).unwrap());
    assert_eq!(problems.len(), 8);
    assert_eq!((summary.entries, summary.problems), (1, 8));
    assert!(matches!(&problems[0], ScanProblem::Path(error) if error.shown == "../x"));
}

#[test]
fn scan_without_its_end_is_an_error() {
    let feed = |bytes: &[u8]| {
        let mut reader = ScanReader::new(&mark(), Scanner::Find);
        reader.feed(bytes, &mut |_| {})?;
        reader.finish()
    };
    assert_eq!(feed(b"no shell here\n"), Err(ScanError::NotBegun));
    assert_eq!(feed(&vec![b'x'; 100_000]), Err(ScanError::NotBegun));
    let begun = output(&[b"//root d", b"a//f f 644 1 5 1 2 3//"]);
    assert_eq!(feed(&begun), Err(ScanError::BrokenOff { entries: 1 }));
    let endless = [begun, vec![b'x'; 10_000]].concat();
    assert_eq!(feed(&endless), Err(ScanError::RecordTooLong));
}

proptest! {
    #[test]
    fn any_bytes_after_the_mark_are_read_without_a_panic(
        bytes in prop::collection::vec(prop::sample::select(b"/a.\0 dflx0159-\n".to_vec()), 0..300),
        cut in 1_usize..50,
    ) {
        for scanner in [Scanner::Find, Scanner::FindStat] {
            let whole = [output(&[]), bytes.clone()].concat();
            let collect = |size: usize| {
                let mut found = Vec::new();
                let mut reader = ScanReader::new(&mark(), scanner);
                let fed = whole.chunks(size).try_for_each(|piece| reader.feed(piece, &mut |one| found.push(one)));
                (found, fed, reader.finish())
            };
            prop_assert_eq!(collect(cut), collect(whole.len()));
        }
    }
}
