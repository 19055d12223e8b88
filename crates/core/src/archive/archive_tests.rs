use proptest::prelude::*;
use rstest::rstest;

use super::header::{self, Header};
use super::*;
use crate::sync::path::PathFault;
use crate::sync::samples::{directory, fifo, file, link, path};
use crate::sync::{Entry, Kind, LinkEnd, Mtime, RelPath, Special};

/// Packs entries; the content of a file is its size in letters.
pub(super) fn pack(entries: &[Entry], precision: Precision) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(precision);
    let mut archive = Vec::new();
    for entry in entries {
        archive.extend(writer.begin(entry).unwrap());
        if entry.kind.is_file() {
            let content = vec![b'c'; usize::try_from(entry.size_bytes).unwrap()];
            writer.content(content.len()).unwrap();
            archive.extend(content);
        }
        archive.extend(writer.end_entry().unwrap());
        assert_eq!(archive.len() % BLOCK, 0);
    }
    archive.extend(writer.finish().unwrap());
    archive
}

/// Everything in an archive, read in pieces of one size.
pub(super) fn unpack(archive: &[u8], piece: usize) -> Result<Vec<(Member, Vec<u8>)>, ArchiveError> {
    let mut reader = ArchiveReader::default();
    let mut members: Vec<(Member, Vec<u8>)> = Vec::new();
    let mut is_open = false;
    for mut bytes in archive.chunks(piece) {
        loop {
            let (used, event) = reader.read(bytes)?;
            bytes = &bytes[used..];
            match event {
                Event::Remark(_) => panic!("none is known"),
                Event::More | Event::End => {
                    assert!(bytes.is_empty());
                    break;
                }
                Event::Member(member) => {
                    assert!(!is_open);
                    is_open = true;
                    members.push((member, Vec::new()));
                }
                Event::Content(content) => {
                    assert!(is_open && !content.is_empty());
                    members.last_mut().unwrap().1.extend_from_slice(content);
                }
                Event::MemberEnd => {
                    assert!(is_open);
                    is_open = false;
                }
            }
        }
    }
    reader.finish()?;
    Ok(members)
}

fn expected(entry: &Entry, precision: Precision) -> Member {
    let kind = match &entry.kind {
        Kind::File => MemberKind::File,
        Kind::Directory => MemberKind::Directory,
        Kind::Link { target, .. } => MemberKind::Link(target.clone()),
        Kind::Special(special) => MemberKind::Special(*special),
    };
    let exact = Mtime::exact(
        entry.mtime.seconds,
        entry.mtime.nanoseconds().unwrap_or_default(),
    )
    .unwrap();
    let has_fraction = exact.nanoseconds() != Some(0) || exact.seconds < 0;
    Member {
        place: Place::Below(entry.path.clone()),
        size_bytes: if kind == MemberKind::File {
            entry.size_bytes
        } else {
            0
        },
        kind,
        mtime: match precision {
            Precision::Nanoseconds if has_fraction => exact,
            _ => Mtime::whole(entry.mtime.seconds.max(0)),
        },
        mode: entry.mode,
    }
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let name = prop::collection::vec(prop::sample::select(b"abc.-\xff\n ".to_vec()), 1..120)
        .prop_filter("a name", |name| name != b"." && name != b"..");
    let path = prop::collection::vec(name, 1..5)
        .prop_map(|names| RelPath::parse(&names.join(&b'/')).unwrap());
    let kind = prop_oneof![
        3 => Just(Kind::File),
        1 => Just(Kind::Directory),
        1 => prop::collection::vec(1_u8..=255, 1..400)
            .prop_map(|target| Kind::Link { target: target.into(), end: LinkEnd::Unknown }),
    ];
    (
        path,
        kind,
        0_u64..2000,
        -10_000_i64..10_000_000_000,
        0_u32..3,
        0_u16..0o7777,
    )
        .prop_map(
            |(path, kind, size_bytes, seconds, nanoseconds, mode)| Entry {
                path,
                kind,
                size_bytes,
                mtime: Mtime::exact(seconds, nanoseconds * 250_000_001).unwrap(),
                mode,
                identity: None,
            },
        )
}

proptest! {
    #[test]
    fn archive_is_read_as_it_was_written_in_pieces_of_any_size(
        entries in prop::collection::vec(any_entry(), 0..6),
        piece in 1_usize..1500,
        is_exact in any::<bool>(),
    ) {
        let precision = if is_exact { Precision::Nanoseconds } else { Precision::Seconds };
        let archive = pack(&entries, precision);
        let found = unpack(&archive, piece).unwrap();
        let members: Vec<Member> = found.iter().map(|(member, _)| member.clone()).collect();
        let wanted: Vec<Member> = entries.iter().map(|entry| expected(entry, precision)).collect();
        prop_assert_eq!(members, wanted);
        for (member, content) in found {
            prop_assert_eq!(content.len() as u64, member.size_bytes);
        }
    }

    #[test]
    fn cut_archive_is_never_taken_for_a_whole_one(entries in prop::collection::vec(any_entry(), 1..4), cut in any::<prop::sample::Index>()) {
        let archive = pack(&entries, Precision::Nanoseconds);
        let cut = cut.index(archive.len() - 1);
        prop_assert_eq!(unpack(&archive[..cut], 700).err(), Some(ArchiveError::BrokenOff));
    }

    #[test]
    fn damaged_archive_gives_an_error_or_members_but_no_panic(
        entries in prop::collection::vec(any_entry(), 1..3),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut archive = pack(&entries, Precision::Nanoseconds);
        for (at, byte) in damage {
            let at = at.index(archive.len());
            archive[at] = byte;
        }
        prop_assert_eq!(unpack(&archive, 1), unpack(&archive, archive.len()));
    }
}

/// One header with a right checksum, and whatever follows.
fn raw(letter: u8, name: &[u8], change: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = Header::new(letter);
    header.put(header::NAME, name);
    header.put_number(header::MODE, 0o644);
    header.put_number(header::SIZE, 0);
    header.put_number(header::MTIME, 7);
    change(&mut header);
    header.sealed().to_vec()
}

fn ended(mut archive: Vec<u8>) -> Vec<u8> {
    archive.extend([0; 2 * BLOCK]);
    archive
}

fn extended(letter: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = raw(letter, b"x", |header| {
        header.put_number(header::SIZE, content.len() as u64)
    });
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + padding(content.len() as u64), 0);
    bytes
}

#[rstest]
#[case(b"/etc/passwd", PathFault::Absolute)]
#[case(b"../x", PathFault::Dots)]
#[case(b"a/../../x", PathFault::Dots)]
#[case(b"./../x", PathFault::Dots)]
#[case(b"a//b", PathFault::EmptyName)]
#[case(b"a/./b", PathFault::Dots)]
#[case(b"", PathFault::Empty)]
#[case(b"/", PathFault::Absolute)]
#[case(b".//etc", PathFault::Absolute)]
fn name_that_leads_out_is_refused_however_it_is_written(
    #[case] name: &[u8],
    #[case] fault: PathFault,
) {
    let fault_of = |archive: Vec<u8>| match unpack(&ended(archive), 512) {
        Err(ArchiveError::Path(error)) => error.fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault_of(raw(b'0', name, |_| {})), fault);
    assert_eq!(
        fault_of([extended(b'L', name), raw(b'0', b"ok", |_| {})].concat()),
        fault
    );
    assert_eq!(
        fault_of(
            [
                extended(b'x', &pax::record("path", name)),
                raw(b'0', b"ok", |_| {})
            ]
            .concat()
        ),
        fault
    );
    let hard_link = raw(b'1', b"ok", |header| header.put(header::LINK_TARGET, name));
    assert_eq!(fault_of(hard_link), fault);
}

#[test]
fn root_and_slashes_at_the_end_are_understood() {
    let archive = [
        raw(b'5', b"./", |_| {}),
        raw(b'5', b".", |_| {}),
        raw(b'5', b"./a/", |_| {}),
        raw(b'0', b"old/", |_| {}),
    ]
    .concat();
    let places: Vec<(Place, MemberKind)> = unpack(&ended(archive), 512)
        .unwrap()
        .into_iter()
        .map(|(member, _)| (member.place, member.kind))
        .collect();
    let below = |text| (Place::Below(path(text)), MemberKind::Directory);
    let root = (Place::Root, MemberKind::Directory);
    assert_eq!(places, [root.clone(), root, below("a"), below("old")]);
}

#[rstest]
#[case::sparse(raw(b'S', b"a", |_| {}), ArchiveError::Sparse)]
#[case::pax_sparse([extended(b'x', &pax::record("GNU.sparse.map", b"0,1")), raw(b'0', b"a", |_| {})].concat(), ArchiveError::Sparse)]
#[case::unknown(raw(b'V', b"a", |_| {}), ArchiveError::UnknownType { shown: "a".to_owned(), letter: b'V' })]
#[case::size(raw(b'0', b"a", |header| header.put(header::SIZE, b"99")), ArchiveError::Number { shown: "a".to_owned(), field: "size" })]
#[case::negative_size(raw(b'0', b"a", |header| header.put(header::SIZE, &[0xff; 12])), ArchiveError::Number { shown: "a".to_owned(), field: "size" })]
#[case::time(raw(b'0', b"a", |header| header.put(header::MTIME, b"x")), ArchiveError::Number { shown: "a".to_owned(), field: "time" })]
#[case::huge_extension(raw(b'x', b"a", |header| header.put_number(header::SIZE, 1 << 40)), ArchiveError::ExtensionTooLarge { size_bytes: 1 << 40 })]
#[case::pax(extended(b'x', b"9 path"), ArchiveError::Pax)]
#[case::global_path(extended(b'g', &pax::record("path", b"a")), ArchiveError::Pax)]
#[case::link_to_nothing(raw(b'2', b"a", |_| {}), ArchiveError::LinkTarget { shown: "a".to_owned() })]
#[case::directory_with_content(raw(b'5', b"a", |header| header.put_number(header::SIZE, 1)), ArchiveError::UnexpectedContent { shown: "a".to_owned() })]
#[case::root_as_a_link(raw(b'2', b"./", |header| header.put(header::LINK_TARGET, b"/etc")), ArchiveError::RootNotDirectory)]
#[case::no_archive(vec![b'x'; 1024], ArchiveError::Checksum)]
fn entry_that_cannot_be_trusted_is_an_error(#[case] archive: Vec<u8>, #[case] error: ArchiveError) {
    assert_eq!(unpack(&ended(archive), 100), Err(error));
}

#[test]
fn header_with_any_changed_byte_is_refused() {
    let whole = ended(raw(b'0', b"name", |_| {}));
    for at in (0..BLOCK).filter(|at| !(148..156).contains(at)) {
        let mut archive = whole.clone();
        archive[at] ^= 1;
        assert_eq!(unpack(&archive, 512), Err(ArchiveError::Checksum), "{at}");
    }
}

#[test]
fn extensions_without_an_entry_come_to_an_end() {
    let archive: Vec<u8> = (0..100).flat_map(|_| extended(b'L', b"name\0")).collect();
    assert_eq!(unpack(&archive, 512), Err(ArchiveError::TooManyExtensions));
    // Spread over entries they are fine.
    let archive: Vec<u8> = (0..100)
        .flat_map(|_| {
            [
                extended(b'g', &pax::record("comment", b"x")),
                raw(b'0', b"a", |_| {}),
            ]
            .concat()
        })
        .collect();
    assert_eq!(unpack(&ended(archive), 512).unwrap().len(), 100);
}

#[test]
fn extension_holds_for_one_entry_only_and_pax_comes_before_the_long_name() {
    let archive = [
        extended(b'x', &pax::record("path", b"pax")),
        extended(b'L', b"gnu\0"),
        extended(b'x', &pax::record("mtime", b"1.5")),
        raw(b'0', b"one", |_| {}),
        raw(b'0', b"two", |_| {}),
    ]
    .concat();
    let members = unpack(&ended(archive), 512).unwrap();
    assert_eq!(members[0].0.place, Place::Below(path("gnu")));
    assert_eq!(members[0].0.mtime, Mtime::exact(1, 500_000_000).unwrap());
    assert_eq!(
        (&members[1].0.place, members[1].0.mtime),
        (&Place::Below(path("two")), Mtime::whole(7))
    );
}

#[test]
fn pax_size_counts_and_devices_are_told() {
    let mut archive = [
        extended(b'x', &pax::record("size", b"3")),
        raw(b'0', b"a", |_| {}),
    ]
    .concat();
    archive.extend(b"abc");
    archive.resize(archive.len() + padding(3), 0);
    archive.extend(raw(b'6', b"p", |_| {}));
    let members = unpack(&ended(archive), 7).unwrap();
    assert_eq!(members[0].1, b"abc");
    assert_eq!(members[1].0.kind, MemberKind::Special(Special::Fifo));
}

#[test]
fn what_follows_the_end_is_filling() {
    let mut archive = pack(&[file("a", 1, 0)], Precision::Seconds);
    archive.extend([7; 5000]);
    assert_eq!(unpack(&archive, 900).unwrap().len(), 1);
}

#[test]
fn reader_gives_the_same_error_again() {
    let mut reader = ArchiveReader::default();
    assert_eq!(reader.read(&[1; BLOCK]), Err(ArchiveError::Checksum));
    assert_eq!(reader.read(&[0; BLOCK]), Err(ArchiveError::Checksum));
    assert_eq!(reader.finish(), Err(ArchiveError::Checksum));
}

#[test]
fn writer_refuses_content_that_does_not_fit() {
    let mut writer = ArchiveWriter::default();
    writer.begin(&file("a", 10, 0)).unwrap();
    assert_eq!(
        writer.content(11),
        Err(WriteError::TooMuch { extra_bytes: 1 })
    );
    writer.content(4).unwrap();
    assert_eq!(writer.missing_bytes(), 6);
    assert_eq!(
        writer.end_entry(),
        Err(WriteError::Incomplete { missing_bytes: 6 })
    );
    assert!(writer.begin(&directory("b")).is_err());
    writer.content(6).unwrap();
    assert_eq!(writer.end_entry().unwrap().len(), 502);
    assert_eq!(
        writer.begin(&fifo("p")),
        Err(WriteError::Special {
            shown: "p".to_owned()
        })
    );
    assert!(writer.begin(&link("l", "x", LinkEnd::Other)).is_ok());
}

#[test]
fn remark_counts_behind_the_end_of_an_archive_and_is_content_within_one() {
    let remark = [b'!'; BLOCK];
    let mut inner = file("a", BLOCK as u64, 0);
    inner.size_bytes = BLOCK as u64;
    let mut archive = pack(&[inner], Precision::Seconds);
    let end = archive.len();
    // Filling of any length may stand before it.
    archive.extend([0; 3 * BLOCK]);
    archive.extend(remark);
    let read = |bytes: &[u8]| {
        let mut reader = ArchiveReader::reading_on().with_remarks(vec![remark]);
        let (mut rest, mut remarks) = (bytes, 0);
        loop {
            let (used, event) = reader.read(rest)?;
            rest = &rest[used..];
            match event {
                Event::More => return reader.finish().map(|()| remarks),
                Event::Remark(number) => remarks += number + 1,
                _ => {}
            }
        }
    };
    assert_eq!(read(&archive), Ok(1));
    let mut twice = archive.clone();
    twice.extend(pack(&[file("b", 1, 0)], Precision::Seconds));
    assert_eq!(read(&twice), Ok(1));
    // In the place of content it is content, and in the place of a header it is a wrong one.
    let mut content = archive[..end].to_vec();
    let at = content
        .windows(BLOCK)
        .position(|part| part == [b'c'; BLOCK]);
    let at = at.unwrap();
    content[at..at + BLOCK].copy_from_slice(&remark);
    assert_eq!(read(&content), Ok(0));
    assert_eq!(read(&remark), Err(ArchiveError::Checksum));
}
