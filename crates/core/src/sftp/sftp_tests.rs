use rstest::rstest;

use super::packet::{put_counted, put_number};
use super::*;

fn path(bytes: &[u8]) -> RemotePath {
    RemotePath::new(bytes).unwrap()
}

pub(super) fn handle(bytes: &[u8]) -> HandleBytes {
    HandleBytes::new(bytes).unwrap()
}

pub(super) fn counted(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_counted(&mut out, bytes);
    out
}

pub(super) fn numbers(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

fn long_numbers(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

/// A reply as a server writes it, without its length.
pub(super) fn body(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![kind];
    put_number(&mut out, id);
    out.extend_from_slice(rest);
    out
}

fn whole() -> Attributes {
    Attributes {
        size_bytes: Some(1 << 40),
        owner: Some(Owner { user: 1, group: 2 }),
        mode: Some(0o100_644),
        times: Some(Times {
            accessed_s: 3,
            modified_s: 4,
        }),
    }
}

fn whole_bytes() -> Vec<u8> {
    let mut out = numbers(&[0xf]);
    out.extend(long_numbers(&[1 << 40]));
    out.extend(numbers(&[1, 2, 0o100_644, 3, 4]));
    out
}

#[test]
fn init_asks_for_version_three() {
    assert_eq!(Frame::init().as_bytes(), [0, 0, 0, 5, 1, 0, 0, 0, 3]);
}

#[rstest]
#[case(OpenFlags::READ, 0x01)]
#[case(OpenFlags::WRITE, 0x02)]
#[case(OpenFlags::APPEND, 0x06)]
#[case(OpenFlags::CREATE, 0x0a)]
#[case(OpenFlags::REPLACE, 0x1a)]
#[case(OpenFlags::NEW.and(OpenFlags::READ), 0x2b)]
fn open_has_path_flags_and_attributes(#[case] flags: OpenFlags, #[case] number: u32) {
    let name = path(b"a\xff");
    let plain = [counted(b"a\xff"), numbers(&[number, 0])].concat();
    assert_frame(
        &Request::Open(&name, flags, Attributes::default()),
        3,
        &plain,
    );
    let whole_operands = [counted(b"a\xff"), numbers(&[number]), whole_bytes()].concat();
    assert_frame(&Request::Open(&name, flags, whole()), 3, &whole_operands);
}

#[test]
fn requests_with_a_handle_are_what_the_protocol_says() {
    let h = handle(&[0, 0, 0, 128]);
    let held = counted(&[0, 0, 0, 128]);
    assert_frame(&Request::Close(&h), 4, &held);
    assert_frame(&Request::Fstat(&h), 8, &held);
    assert_frame(&Request::Readdir(&h), 12, &held);
    let read = [held.clone(), long_numbers(&[1 << 33]), numbers(&[7])].concat();
    assert_frame(&Request::Read(&h, 1 << 33, 7), 5, &read);
    let write = [held.clone(), long_numbers(&[5]), counted(b"xyz")].concat();
    assert_frame(&Request::Write(&h, 5, b"xyz"), 6, &write);
    let set = [held, whole_bytes()].concat();
    assert_frame(&Request::Fsetstat(&h, whole()), 10, &set);
}

#[test]
fn requests_with_paths_are_what_the_protocol_says() {
    let (a, b) = (path(b"a\xff"), path(b"-b"));
    let (first, second) = (counted(b"a\xff"), counted(b"-b"));
    assert_frame(&Request::Lstat(&a), 7, &first);
    assert_frame(&Request::Opendir(&a), 11, &first);
    assert_frame(&Request::Remove(&a), 13, &first);
    assert_frame(&Request::Rmdir(&a), 15, &first);
    assert_frame(&Request::Realpath(&a), 16, &first);
    assert_frame(&Request::Stat(&a), 17, &first);
    assert_frame(&Request::Readlink(&a), 19, &first);
    let set = [first.clone(), numbers(&[4, 0o755])].concat();
    let permissions = Attributes::permissions(0o755);
    assert_frame(&Request::Setstat(&a, permissions), 9, &set);
    assert_frame(&Request::Mkdir(&a, permissions), 14, &set);
    let renamed = [first.clone(), second.clone()].concat();
    assert_frame(&Request::Rename { from: &a, to: &b }, 18, &renamed);
    // The target first, as OpenSSH has it.
    let linked = [second, first].concat();
    let (link, target) = (&a, &b);
    assert_frame(&Request::Symlink { link, target }, 20, &linked);
}

#[test]
fn requests_beyond_the_protocol_carry_their_name() {
    let (a, b) = (path(b"a"), path(b"b"));
    let (h, g) = (handle(b"h"), handle(b"g"));
    let pair = [counted(b"a"), counted(b"b")].concat();
    let times = Attributes::at(Times {
        accessed_s: 8,
        modified_s: 9,
    });
    let copy = Request::CopyData {
        from: &h,
        from_offset: 1,
        length: 2,
        to: &g,
        to_offset: 3,
    };
    let copied = [
        counted(b"h"),
        long_numbers(&[1, 2]),
        counted(b"g"),
        long_numbers(&[3]),
    ];
    let table: Vec<(Request<'_>, &str, Vec<u8>)> = vec![
        (
            Request::PosixRename { from: &a, to: &b },
            "posix-rename@openssh.com",
            pair.clone(),
        ),
        (
            Request::Hardlink {
                existing: &a,
                new: &b,
            },
            "hardlink@openssh.com",
            pair,
        ),
        (Request::Statvfs(&a), "statvfs@openssh.com", counted(b"a")),
        (Request::Fsync(&h), "fsync@openssh.com", counted(b"h")),
        (
            Request::Lsetstat(&a, times),
            "lsetstat@openssh.com",
            [counted(b"a"), numbers(&[8, 8, 9])].concat(),
        ),
        (Request::Limits, "limits@openssh.com", Vec::new()),
        (
            Request::ExpandPath(&a),
            "expand-path@openssh.com",
            counted(b"a"),
        ),
        (copy, "copy-data", copied.concat()),
    ];
    assert_eq!(table.len(), Extension::ALL.len());
    for (request, name, operands) in table {
        let operands = [counted(name.as_bytes()), operands].concat();
        assert_frame(&request, 200, &operands);
    }
}

fn assert_frame(request: &Request<'_>, kind: u8, operands: &[u8]) {
    let mut frame = request.encode();
    frame.set_id(0x0102_0304);
    let expected = body(kind, 0x0102_0304, operands);
    let bytes = frame.as_bytes();
    assert_eq!(bytes[..4], (expected.len() as u32).to_be_bytes());
    assert_eq!(bytes[4..], expected, "{request:?}");
}

#[test]
fn replies_are_understood() {
    let names = [
        numbers(&[2]),
        counted(b"n\xff\n"),
        counted(b"-rw long line"),
        whole_bytes(),
        counted(b"m"),
        counted(b""),
        numbers(&[0]),
    ];
    let table: Vec<(u8, Vec<u8>, Reply<'_>)> = vec![
        (
            102,
            counted(&[200; 256]),
            Reply::Handle(handle(&[200; 256])),
        ),
        (103, counted(b"data"), Reply::Data(b"data")),
        (105, whole_bytes(), Reply::Attributes(whole())),
        (201, b"any".to_vec(), Reply::Extended(b"any")),
        (
            104,
            names.concat(),
            Reply::Names(vec![
                NamedEntry {
                    name: b"n\xff\n".to_vec(),
                    attributes: whole(),
                },
                NamedEntry {
                    name: b"m".to_vec(),
                    attributes: Attributes::default(),
                },
            ]),
        ),
    ];
    for (kind, rest, reply) in table {
        assert_eq!(parse_reply(&body(kind, 9, &rest)), Ok((9, reply)));
    }
}

#[rstest]
#[case(0, StatusCode::Ok, "ok")]
#[case(1, StatusCode::EndOfFile, "end of file")]
#[case(2, StatusCode::NoSuchFile, "no such file")]
#[case(3, StatusCode::PermissionDenied, "permission denied")]
#[case(4, StatusCode::Failure, "failure")]
#[case(5, StatusCode::BadMessage, "bad message")]
#[case(6, StatusCode::NoConnection, "no connection")]
#[case(7, StatusCode::ConnectionLost, "connection lost")]
#[case(8, StatusCode::Unsupported, "operation unsupported")]
#[case(99, StatusCode::Unknown(99), "status 99")]
fn status_has_a_code_and_words(#[case] number: u32, #[case] code: StatusCode, #[case] words: &str) {
    let read = |rest: &[u8]| {
        let Ok((_, Reply::Status(status))) = parse_reply(&body(101, 1, rest)).map(own) else {
            panic!("no status: {rest:?}");
        };
        status
    };
    let bare = read(&numbers(&[number]));
    assert_eq!((bare.code, bare.to_string()), (code, words.to_owned()));
    let same = [numbers(&[number]), counted(words.to_uppercase().as_bytes())];
    assert_eq!(read(&same.concat()).to_string(), words);
    let more = [
        numbers(&[number]),
        counted(b"\x1b[2Jno\nspace"),
        counted(b"en"),
    ];
    let shown = read(&more.concat()).to_string();
    assert!(
        shown.starts_with(words) && shown.contains("no space"),
        "{shown}"
    );
    assert!(!shown.contains('\u{1b}'));
    let long = [numbers(&[number]), counted(&[b'x'; 100_000])];
    assert!(read(&long.concat()).message.chars().count() <= 201);
}

fn own((id, reply): (u32, Reply<'_>)) -> (u32, Reply<'static>) {
    match reply {
        Reply::Status(status) => (id, Reply::Status(status)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_pairs_of_attributes_are_passed_over() {
    let bytes = [
        numbers(&[0x8000_0004, 0o644, 1]),
        counted(b"acl@example"),
        counted(b"\xff\x00"),
    ];
    let reply = body(105, 1, &bytes.concat());
    let expected = Reply::Attributes(Attributes::permissions(0o644));
    assert_eq!(parse_reply(&reply), Ok((1, expected)));
}

#[rstest]
#[case::empty(b"", PacketError::Short)]
#[case::no_number(&[101, 0, 0], PacketError::Short)]
#[case::unknown_kind(&[77, 0, 0, 0, 1], PacketError::Kind(77))]
#[case::a_request(&[3, 0, 0, 0, 1], PacketError::Kind(3))]
#[case::data_cut_off(&[103, 0, 0, 0, 1, 0, 0, 0, 9, 1], PacketError::Short)]
#[case::many_names(&[104, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff], PacketError::Short)]
#[case::many_pairs(&[105, 0, 0, 0, 1, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], PacketError::Short)]
#[case::half_status(&[101, 0, 0, 0, 1, 0, 0], PacketError::Short)]
fn broken_reply_is_an_error(#[case] bytes: &[u8], #[case] error: PacketError) {
    assert_eq!(parse_reply(bytes), Err(error));
}

#[test]
fn handle_that_is_too_long_is_an_error() {
    let reply = body(102, 1, &counted(&[7; 257]));
    assert_eq!(parse_reply(&reply), Err(PacketError::Handle(257)));
}

#[test]
fn version_tells_what_else_the_server_can() {
    let pairs = [
        counted(b"posix-rename@openssh.com"),
        counted(b"1"),
        counted(b"statvfs@openssh.com"),
        counted(b"2"),
        // Another version of it than ours.
        counted(b"fsync@openssh.com"),
        counted(b"9"),
        counted(b"unheard-of@example"),
        counted(b"\xff"),
    ];
    let packet = [vec![2], numbers(&[3]), pairs.concat()].concat();
    let expected = Extensions::default()
        .with(Extension::PosixRename)
        .with(Extension::Statvfs);
    assert_eq!(parse_version(&packet), Ok(expected));
    assert!(expected.has(Extension::Statvfs) && !expected.has(Extension::Fsync));
    for version in [0, 2, 4, 6] {
        let packet = [vec![2], numbers(&[version])].concat();
        assert_eq!(parse_version(&packet), Err(PacketError::Version(version)));
    }
    assert_eq!(
        parse_version(&[101, 0, 0, 0, 3]),
        Err(PacketError::Kind(101))
    );
    assert_eq!(parse_version(&packet[..20]), Err(PacketError::Short));
}

#[test]
fn every_extension_is_told_from_the_others() {
    for extension in Extension::ALL {
        let only = Extensions::default().with(extension);
        let has = Extension::ALL.into_iter().filter(|other| only.has(*other));
        assert_eq!(has.collect::<Vec<_>>(), [extension]);
    }
}

#[test]
fn answers_beyond_the_protocol_are_understood() {
    let limits = ServerLimits::parse(&long_numbers(&[262_144, 261_120, 261_120, 19_995])).unwrap();
    assert_eq!((limits.read_bytes, limits.open_handles), (261_120, 19_995));
    assert_eq!(ServerLimits::parse(&[0; 31]), Err(PacketError::Short));
    let answer = long_numbers(&[4096, 512, 100, 60, 50, 9, 8, 7, 1, 1, 255]);
    let space = Filesystem::parse(&answer).unwrap();
    assert_eq!(space.available_bytes(), 50 * 512);
    assert_eq!((space.files_available, space.longest_name), (7, 255));
    assert!(space.is_read_only);
    assert_eq!(Filesystem::parse(&answer[..80]), Err(PacketError::Short));
    let huge = Filesystem::parse(&[0xff; 88]).unwrap();
    assert_eq!(huge.available_bytes(), u64::MAX);
}

#[rstest]
#[case(&[0, 0, 0], Ok(None))]
#[case(&[0, 0, 0, 5], Ok(Some(5)))]
#[case(&[0, 4, 0, 0, 9], Ok(Some(LONGEST_PACKET)))]
#[case(&[0, 4, 0, 1], Err(PacketError::TooLong(LONGEST_PACKET + 1)))]
#[case(b"Welcome", Err(PacketError::TooLong(0x5765_6c63)))]
#[case(&[0, 0, 0, 4], Err(PacketError::TooShort(4)))]
#[case(&[0, 0, 0, 0], Err(PacketError::TooShort(0)))]
fn packet_length_has_bounds(
    #[case] bytes: &[u8],
    #[case] expected: Result<Option<usize>, PacketError>,
) {
    assert_eq!(packet_length(bytes), expected);
}

#[rstest]
#[case(0o100_644, Some(FileKind::File))]
#[case(0o040_755, Some(FileKind::Directory))]
#[case(0o120_777, Some(FileKind::Link))]
#[case(0o010_600, Some(FileKind::Special))]
#[case(0o020_600, Some(FileKind::Special))]
#[case(0o140_600, Some(FileKind::Special))]
#[case(0o644, None)]
fn mode_tells_the_kind_of_file(#[case] mode: u32, #[case] expected: Option<FileKind>) {
    assert_eq!(Attributes::permissions(mode).kind(), expected);
    assert_eq!(Attributes::default().kind(), None);
}

#[test]
fn path_is_refused_when_no_server_could_open_it() {
    assert_eq!(RemotePath::new(b"".as_slice()), Err(PathError::Empty));
    let nul = RemotePath::new(b"a\0b".as_slice());
    assert_eq!(nul, Err(PathError::Nul(b"a\0b".to_vec())));
    let long = RemotePath::new(vec![b'x'; LONGEST_PATH + 1]);
    assert_eq!(long, Err(PathError::TooLong(LONGEST_PATH + 1)));
    let joined = |directory: &[u8]| {
        let name = EntryName::new(b"n".as_slice()).unwrap();
        path(directory).join(&name).unwrap().as_bytes().to_vec()
    };
    assert_eq!(joined(b"/a"), b"/a/n");
    assert_eq!(joined(b"/"), b"/n");
}

#[rstest]
#[case(b".", EntryNameError::Dots)]
#[case(b"..", EntryNameError::Dots)]
#[case(b"", EntryNameError::Unsafe(b"".to_vec()))]
#[case(b"../x", EntryNameError::Unsafe(b"../x".to_vec()))]
#[case(b"/etc/x", EntryNameError::Unsafe(b"/etc/x".to_vec()))]
#[case(b"a\0", EntryNameError::Unsafe(b"a\0".to_vec()))]
fn name_is_refused_when_it_leads_out_of_its_directory(
    #[case] bytes: &[u8],
    #[case] error: EntryNameError,
) {
    assert_eq!(EntryName::new(bytes), Err(error));
}

#[rstest]
#[case(b"plain", "plain")]
#[case(b"-rf", "-rf")]
#[case("日本 é".as_bytes(), "日本 é")]
#[case(b"a\nb\tc", "a\\nb\\tc")]
#[case(b"\xff\xfe", "\\xff\\xfe")]
#[case(b"\\xff", "\\\\xff")]
#[case(b"\x1b[2J", "\\x1b[2J")]
#[case("\u{fffd}".as_bytes(), "\u{fffd}")]
fn names_that_differ_look_different(#[case] bytes: &[u8], #[case] expected: &str) {
    let name = EntryName::new(bytes).unwrap();
    assert_eq!(name.to_string(), expected);
    assert_eq!(path(bytes).to_string(), expected);
}
