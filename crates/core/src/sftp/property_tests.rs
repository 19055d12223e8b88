use proptest::prelude::*;

use super::packet::{put_counted, put_long_number};
use super::tests::{body, counted, handle, numbers};
use super::*;

fn any_attributes() -> impl Strategy<Value = Attributes> {
    let owner = any::<Option<(u32, u32)>>();
    let times = any::<Option<(u32, u32)>>();
    (any::<Option<u64>>(), owner, any::<Option<u32>>(), times).prop_map(
        |(size_bytes, owner, mode, times)| Attributes {
            size_bytes,
            owner: owner.map(|(user, group)| Owner { user, group }),
            mode,
            times: times.map(|(accessed_s, modified_s)| Times {
                accessed_s,
                modified_s,
            }),
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = packet_length(&bytes);
        let _ = parse_version(&bytes);
        let _ = parse_reply(&bytes);
        let _ = ServerLimits::parse(&bytes);
        let _ = Filesystem::parse(&bytes);
        let _ = shown_bytes(&bytes);
    }

    #[test]
    fn no_reply_makes_the_parser_panic(
        kind in prop_oneof![101_u8..=105, Just(201_u8), Just(2_u8)],
        rest in proptest::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..200),
    ) {
        let bytes = body(kind, 1, &rest);
        let _ = parse_reply(&bytes);
        let _ = parse_version(&bytes);
    }

    #[test]
    fn cut_off_reply_is_never_read_as_a_whole_one(
        name in proptest::collection::vec(any::<u8>(), 0..60),
        attributes in any_attributes(),
        cut in 0_usize..1000,
    ) {
        let mut rest = numbers(&[1]);
        rest.extend(counted(&name));
        rest.extend(counted(b"line"));
        attributes.write(&mut rest);
        let reply = body(104, 5, &rest);
        let entry = NamedEntry { name, attributes };
        prop_assert_eq!(parse_reply(&reply), Ok((5, Reply::Names(vec![entry]))));
        let cut = cut % reply.len();
        prop_assert_eq!(parse_reply(&reply[..cut]), Err(PacketError::Short));
    }

    #[test]
    fn attributes_survive_the_way_there_and_back(attributes in any_attributes()) {
        let mut rest = Vec::new();
        attributes.write(&mut rest);
        let reply = body(105, 3, &rest);
        prop_assert_eq!(parse_reply(&reply), Ok((3, Reply::Attributes(attributes))));
    }

    #[test]
    fn handles_go_back_as_they_came(bytes in proptest::collection::vec(any::<u8>(), 0..=256)) {
        let reply = body(102, 1, &counted(&bytes));
        let (_, Reply::Handle(read)) = parse_reply(&reply).unwrap() else {
            panic!("no handle");
        };
        let frame = Request::Close(&read).encode();
        prop_assert!(frame.as_bytes().ends_with(&counted(&bytes)));
    }

    #[test]
    fn written_data_stands_at_the_end_of_its_packet(
        data in proptest::collection::vec(any::<u8>(), 0..2000),
        offset: u64,
    ) {
        let h = handle(b"h");
        let frame = Request::Write(&h, offset, &data).encode();
        let mut tail = Vec::new();
        put_long_number(&mut tail, offset);
        put_counted(&mut tail, &data);
        prop_assert!(frame.as_bytes().ends_with(&tail));
        let length = packet_length(frame.as_bytes()).unwrap().unwrap();
        prop_assert_eq!(length + 4, frame.as_bytes().len());
    }
}
