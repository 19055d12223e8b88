//! A host that sends what nobody asked for.

use remote_sandbox_core::archive::BLOCK;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::{Entry, Kind, LinkEnd, Mtime};
use rstest::rstest;

use super::testing::{StandIn, Streams, bring, bring_over, gzip, packing, unchanged};
use super::{DownError, Planned};
use crate::beneath::testing::{Ground, names, path};

const TIME: i64 = 1_600_000_000;

fn planned(text: &str, kind: Kind, size_bytes: u64) -> Planned {
    let entry = Entry {
        path: path(text),
        kind,
        size_bytes,
        mtime: Mtime::exact(TIME, 5).unwrap(),
        mode: 0o644,
        identity: None,
    };
    Planned {
        local: entry.path.clone(),
        entry,
        replaces: None,
    }
}

fn file(text: &str, size_bytes: u64) -> Planned {
    planned(text, Kind::File, size_bytes)
}

fn link(text: &str, target: &str) -> Planned {
    let kind = Kind::Link {
        target: target.as_bytes().into(),
        end: LinkEnd::Unknown,
    };
    planned(text, kind, 0)
}

/// A header, whatever it says.
fn header(name: &str, letter: u8, target: &str, size_bytes: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000640\0");
    put(124, format!("{size_bytes:011o}\0").as_bytes());
    put(136, format!("{TIME:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, &[letter]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A file with its content.
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, b'0', "", content.len() as u64);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes.extend(unchanged());
    bytes
}

async fn brought(archive: Vec<u8>, files: Vec<Planned>) -> (Ground, super::DownDone) {
    let target = Ground::with(&["d/"]);
    let far = StandIn::sending(vec![archive]);
    let done = bring(&far, b"/", &target.tree(), files).await.unwrap();
    (target, done)
}

fn problem<'a>(done: &'a super::DownDone, path: &str) -> &'a str {
    let found = done.problems.iter().find(|problem| problem.path == path);
    found.map_or("none", |problem| problem.problem.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_was_asked_for_is_taken_and_once() {
    let sent = archive(&[
        member("./unasked", b"evil"),
        member("./a", b"first"),
        member("./a", b"other"),
        header("./d/", b'5', "", 0),
        header("./.bashrc", b'2', "/etc/passwd", 0),
        member("./z", b"last"),
    ]);
    let (target, done) = brought(sent, vec![file("a", 5), file("z", 4), file("m", 1)]).await;
    assert_eq!(done.arrived, [true, true, false]);
    assert_eq!(names(&target.real()), ["a", "d", "z"]);
    assert_eq!(std::fs::read(target.at("a")).unwrap(), b"first");
    assert!(problem(&done, "unasked").contains("without having been asked for"));
    assert!(problem(&done, ".bashrc").contains("without having been asked for"));
    assert!(problem(&done, "a").contains("twice"));
    assert!(problem(&done, "m").contains("did not come"));
    let here = target.tree().look(&path("a")).unwrap().unwrap();
    assert_eq!(here.mtime, Mtime::exact(TIME, 5).unwrap());
    assert_eq!(here.mode, 0o640);
}

#[rstest]
#[case("../x")]
#[case("/etc/x")]
#[case("a/../../x")]
#[case("./a//b")]
#[case("d/./x")]
#[tokio::test(flavor = "multi_thread")]
async fn name_that_leads_out_ends_it(#[case] name: &str) {
    let outside = Ground::with(&["target/"]);
    let tree = crate::beneath::Tree::open(&outside.clean("target")).unwrap();
    let far = StandIn::sending(vec![archive(&[member("./a", b"x"), member(name, b"evil")])]);
    let error = bring(&far, b"/", &tree, vec![file("a", 1), file("b", 1)]).await;
    let failure = Failure::from(error.unwrap_err());
    assert_eq!(failure.code, Code::PathRefused, "{failure:?}");
    assert_eq!(names(&outside.real()), ["target"]);
    // What came before it came from a host that is not to be trusted, which has not said either that it is whole.
    assert!(names(&outside.at("target")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn link_is_made_as_a_link_and_never_followed() {
    let outside = Ground::with(&["target/", "precious/x"]);
    let tree = crate::beneath::Tree::open(&outside.clean("target")).unwrap();
    let precious = outside.at("precious");
    let precious = precious.to_str().unwrap();
    // A link where the plan has a directory's content behind it, then a file through it.
    let sent = archive(&[
        header("./way", b'2', precious, 0),
        member("./way/x", b"overwritten"),
        header("./file", b'2', precious, 0),
    ]);
    let files = vec![link("way", precious), file("way/x", 1), file("file", 1)];
    let far = StandIn::sending(vec![sent]);
    let done = bring(&far, b"/", &tree, files).await.unwrap();
    assert_eq!(done.arrived, [true, false, false]);
    assert!(problem(&done, "way/x").contains("link"));
    assert!(problem(&done, "file").contains("something else"));
    assert_eq!(
        std::fs::read(outside.at("precious/x")).unwrap(),
        b"precious/x"
    );
    let made = std::fs::read_link(outside.at("target/way")).unwrap();
    assert_eq!(made.to_str().unwrap(), precious);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_name_takes_the_content_of_what_came_and_of_nothing_else() {
    let target = Ground::with(&["secret"]);
    let first = archive(&[
        member("./a", b"content"),
        header("./b", b'1', "./a", 0),
        header("./c", b'1', "./secret", 0),
    ]);
    // Asked for once more, it comes by itself.
    let second = archive(&[member("./c", b"c")]);
    let far = StandIn::sending(vec![first, second]);
    let files = vec![file("a", 7), file("b", 7), file("c", 1)];
    let done = bring(&far, b"/", &target.tree(), files).await.unwrap();
    assert_eq!(done.problem_count, 0, "{done:?}");
    assert_eq!(std::fs::read(target.at("b")).unwrap(), b"content");
    assert_eq!(std::fs::read(target.at("c")).unwrap(), b"c");
    let lists = far.lists.lock().unwrap().clone();
    assert_eq!(lists, [b"./a\0./b\0./c\0".to_vec(), b"./c\0".to_vec()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_grew_waits_for_a_second_look_and_one_that_lies_is_left_while_the_rest_comes() {
    let mut first = archive(&[member("./grown", &[1; 5000])]);
    first.extend(header("./huge", b'0', "", 10 << 30));
    let second = archive(&[member("./z", b"z")]);
    let far = StandIn::sending(vec![first, second]);
    let target = Ground::new();
    let files = vec![file("grown", 10), file("huge", 10), file("z", 1)];
    let done = bring(&far, b"/", &target.tree(), files).await.unwrap();
    // This host does not say how it is now; it may be something else that came in its place.
    assert_eq!(done.arrived, [false, false, true]);
    assert!(problem(&done, "grown").contains("changed"));
    assert!(problem(&done, "huge").contains("larger"));
    assert_eq!(names(&target.real()), ["z"]);
    assert_eq!(far.lists.lock().unwrap().last().unwrap(), b"./z\0");
}

#[rstest]
#[case::content(member("./unasked", &[0; 100_000]))]
#[case::filling(vec![0; 64 * 1024])]
#[case::the_same_again(member("./a", b"x"))]
#[tokio::test(flavor = "multi_thread")]
async fn endless_stream_comes_to_an_end(#[case] bytes: Vec<u8>) {
    let target = Ground::new();
    let far = StandIn::new(Streams::Endless(bytes), None);
    let error = bring(&far, b"/", &target.tree(), vec![file("a", 1)]).await;
    let error = error.unwrap_err();
    assert!(matches!(error, DownError::Unasked { .. }), "{error}");
    assert!(names(&target.real()).len() <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_breaks_off_never_gets_its_name() {
    let target = Ground::new();
    let mut sent = header("./a", b'0', "", 1 << 20);
    sent.extend([7; 1000]);
    let far = StandIn::sending(vec![sent]);
    let error = bring(&far, b"/", &target.tree(), vec![file("a", 1 << 20)]).await;
    let failure = Failure::from(error.unwrap_err());
    assert_eq!(failure.code, Code::RemoteRefused, "{failure:?}");
    assert!(names(&target.real()).is_empty());
}

#[rstest]
#[case::fifo(b'6')]
#[case::device(b'3')]
#[case::directory(b'5')]
#[tokio::test(flavor = "multi_thread")]
async fn other_kind_in_the_place_of_a_file_is_not_made(#[case] letter: u8) {
    let sent = archive(&[header("./a", letter, "", 0), member("./z", b"z")]);
    let (target, done) = brought(sent, vec![file("a", 1), file("z", 1)]).await;
    assert_eq!(done.arrived, [false, true]);
    assert_eq!(names(&target.real()), ["d", "z"]);
}

async fn brought_packed(
    packed: Vec<u8>,
    files: Vec<Planned>,
) -> (Ground, Result<super::DownDone, DownError>) {
    let target = Ground::with(&["d/"]);
    let far = StandIn::sending(vec![packed]);
    let done = bring_over(&far, b"/", &target.tree(), files, &packing()).await;
    (target, done)
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_archive_is_taken_only_when_that_was_asked_for() {
    let packed = gzip(&archive(&[member("./a", b"first")]));
    let (target, done) = brought_packed(packed.clone(), vec![file("a", 5)]).await;
    assert_eq!(done.unwrap().arrived, [true]);
    assert_eq!(std::fs::read(target.at("a")).unwrap(), b"first");
    let target = Ground::new();
    let far = StandIn::sending(vec![packed]);
    let done = bring(&far, b"/", &target.tree(), vec![file("a", 5)]).await;
    assert!(matches!(done, Err(DownError::Archive { .. })), "{done:?}");
    // One that has no gzip sends it as it is.
    let plain = archive(&[member("./a", b"first")]);
    let (_, done) = brought_packed(plain, vec![file("a", 5)]).await;
    assert_eq!(done.unwrap().arrived, [true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_archive_never_becomes_more_than_was_asked_for() {
    // Each may have grown since the scan, but not all of them.
    let large = vec![0; 9 * 1024 * 1024];
    let names = ["a", "b", "c", "e"];
    let members = names.map(|name| member(&format!("./{name}"), &large));
    let packed = gzip(&archive(&members));
    assert!(packed.len() < 1024 * 1024);
    let (target, done) = brought_packed(packed, names.map(|name| file(name, 10)).into()).await;
    assert!(matches!(done, Err(DownError::TooMuch { .. })), "{done:?}");
    assert_eq!(Failure::from(done.unwrap_err()).code, Code::RemoteRefused);
    assert!(names_of(&target).len() < names.len());
}

fn names_of(target: &Ground) -> Vec<String> {
    names(&target.real())
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_bytes_that_nobody_asked_for_are_put_up_with_up_to_a_bound() {
    let zeros = vec![0; 80 * 1024 * 1024];
    let members = [member("./unasked", &zeros), member("./a", b"first")];
    let packed = gzip(&archive(&members));
    let (_, done) = brought_packed(packed, vec![file("a", 5)]).await;
    assert!(matches!(done, Err(DownError::Unasked { .. })), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_archive_that_is_cut_gives_nothing_half() {
    let content = vec![b'x'; 300_000];
    let packed = gzip(&archive(&[member("./a", &content)]));
    for length in [2, 20, packed.len() / 2] {
        let half = packed[..length].to_vec();
        let (target, done) = brought_packed(half, vec![file("a", 300_000)]).await;
        assert!(matches!(done, Err(DownError::Packed(_))), "{done:?}");
        assert_eq!(names_of(&target), ["d"]);
    }
}
