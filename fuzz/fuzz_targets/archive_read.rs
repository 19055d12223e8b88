#![no_main]
//! Any bytes as a tar stream: what is read does not depend on how the bytes were cut, and no name leads out.

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::archive::{ArchiveError, ArchiveReader, Event, Member, Place};

fn read(bytes: &[u8], piece: usize) -> (Vec<(Member, u64)>, Option<ArchiveError>) {
    let mut reader = ArchiveReader::default();
    let mut members: Vec<(Member, u64)> = Vec::new();
    for mut rest in bytes.chunks(piece) {
        loop {
            let (used, event) = match reader.read(rest) {
                Ok(read) => read,
                Err(error) => return (members, Some(error)),
            };
            rest = &rest[used..];
            match event {
                Event::More | Event::End => break,
                Event::Remark(_) => {}
                Event::Member(member) => members.push((member, 0)),
                Event::Content(content) => {
                    members.last_mut().expect("content follows a member").1 += content.len() as u64;
                }
                Event::MemberEnd => {
                    let (member, length) = members.last().expect("an end follows a member");
                    assert_eq!(member.size_bytes, *length);
                }
            }
        }
    }
    (members, reader.finish().err())
}

fuzz_target!(|input: (u16, &[u8])| {
    let (piece, bytes) = input;
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(piece).max(1)));
    for (member, _) in &whole.0 {
        if let Place::Below(path) = &member.place {
            assert!(
                path.components()
                    .all(|name| !matches!(name, b"" | b"." | b".."))
            );
        }
    }
});
