use proptest::prelude::*;
use rstest::rstest;

use super::*;

#[rstest]
#[case::plain(b"a/b.txt")]
#[case::dots_in_names(b"...a/..b/c.")]
#[case::newline(b"a\nb")]
#[case::dash(b"-rf")]
#[case::home(b"~")]
#[case::blanks(b" a / b ")]
#[case::not_utf8(b"a/\xff\xfe")]
#[case::backslash(br"C:\x")]
fn path_is_taken_when_it_stays_below_the_root(#[case] bytes: &[u8]) {
    assert_eq!(RelPath::parse(bytes).unwrap().as_bytes(), bytes);
}

#[rstest]
#[case(b"", PathFault::Empty)]
#[case(b"/", PathFault::Absolute)]
#[case(b"/etc/x", PathFault::Absolute)]
#[case(b"a//b", PathFault::EmptyName)]
#[case(b"a/", PathFault::EmptyName)]
#[case(b".", PathFault::Dots)]
#[case(b"./a", PathFault::Dots)]
#[case(b"../x", PathFault::Dots)]
#[case(b"a/../../x", PathFault::Dots)]
#[case(b"a/..", PathFault::Dots)]
#[case(b"a\0b", PathFault::Nul)]
#[case(&[b'x'; 256], PathFault::NameTooLong)]
#[case(&[b'x'; 5000], PathFault::TooLong)]
fn path_is_refused_when_it_could_leave_the_root(#[case] bytes: &[u8], #[case] fault: PathFault) {
    let error = RelPath::parse(bytes).unwrap_err();
    assert_eq!(error.fault, fault);
    assert!(error.shown.len() <= 4 * LONGEST_SHOWN);
}

#[test]
fn longest_path_and_longest_name_are_taken() {
    assert!(RelPath::parse(&[b'x'; 255]).is_ok());
    let deep = vec!["d"; 1000].join("/");
    assert_eq!(
        RelPath::parse(deep.as_bytes())
            .unwrap()
            .components()
            .count(),
        1000
    );
}

#[test]
fn directory_comes_before_its_content_and_is_not_torn_apart() {
    let mut names: Vec<RelPath> = [
        "b", "a-b", "a/z", "a", "a/b/c", "a/b", "a.", "a/b-c", "a\u{1}",
    ]
    .iter()
    .map(|name| RelPath::parse(name.as_bytes()).unwrap())
    .collect();
    names.sort();
    let sorted: Vec<&[u8]> = names.iter().map(RelPath::as_bytes).collect();
    assert_eq!(
        sorted,
        [
            b"a".as_slice(),
            b"a/b",
            b"a/b/c",
            b"a/b-c",
            b"a/z",
            b"a-b",
            b"a.",
            b"a\x01",
            b"b"
        ]
    );
}

#[rstest]
#[case(b"a/b", b"a", true)]
#[case(b"a/b/c", b"a", true)]
#[case(b"a", b"a", false)]
#[case(b"ab/c", b"a", false)]
fn path_is_below_only_what_holds_it(
    #[case] path: &[u8],
    #[case] directory: &[u8],
    #[case] below: bool,
) {
    let path = RelPath::parse(path).unwrap();
    assert_eq!(path.is_below(&RelPath::parse(directory).unwrap()), below);
}

#[test]
fn parent_and_name_are_the_two_parts_of_a_path() {
    let path = RelPath::parse(b"a/b/c").unwrap();
    assert_eq!(
        (path.parent().unwrap().as_bytes(), path.name()),
        (b"a/b".as_slice(), b"c".as_slice())
    );
    assert_eq!(path.parent().unwrap().join(b"c").unwrap(), path);
    assert!(path.join(b"..").is_err());
    assert_eq!(RelPath::parse(b"a").unwrap().parent(), None);
}

#[rstest]
#[case::plain("héllo wörld/x".as_bytes(), "héllo wörld/x", false)]
#[case::backslash_alone(br"a\xff", r"a\xff", false)]
#[case::not_utf8(b"a\xff\\", r"a\xff\\", true)]
#[case::newline(b"a\nb", r"a\x0ab", true)]
#[case::escape(b"\x1b[31m", r"\x1b[31m", true)]
#[case::bidi("a\u{202e}b".as_bytes(), r"a\u{202e}b", true)]
fn name_is_shown_escaped_with_a_flag_when_it_is_not_plain(
    #[case] bytes: &[u8],
    #[case] text: &str,
    #[case] escaped: bool,
) {
    assert_eq!(
        shown(bytes),
        Shown {
            text: text.to_owned(),
            escaped
        }
    );
}

/// Component by component, with the two bytes in each other's place.
fn naive_order(left: &[u8], right: &[u8]) -> Ordering {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|byte| *byte == b'/')
            .map(|name| name.iter().map(|byte| exchanged(*byte)).collect())
            .collect()
    };
    parts(left).cmp(&parts(right))
}

fn any_path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::collection::vec(prop::sample::select(b"ab\x01-.\xff".to_vec()), 1..4)
        .prop_filter("a name", |name| name != b"." && name != b"..");
    prop::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'))
}

proptest! {
    #[test]
    fn order_is_by_components(left in any_path(), right in any_path()) {
        let (one, other) = (RelPath::parse(&left).unwrap(), RelPath::parse(&right).unwrap());
        prop_assert_eq!(one.cmp(&other), naive_order(&left, &right));
    }

    #[test]
    fn two_names_are_never_shown_alike_when_one_is_escaped(left in any::<Vec<u8>>(), right in any::<Vec<u8>>()) {
        prop_assume!(left != right);
        prop_assert_ne!(shown(&left), shown(&right));
    }
}

#[test]
fn path_in_a_directory_has_one_slash_between() {
    assert_eq!(inside(b"/srv", b"a/b"), b"/srv/a/b");
    assert_eq!(inside(b"/", b"a"), b"/a");
    assert_eq!(inside(b"./", b"\xff"), b"./\xff");
}
