//! Any bytes as what a host says of the blocks and parts of a file: no panic, nothing larger than what came, and a
//! signature that was read finds its way through any content.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::delta::{
    BlockLength, Instruction, MOST_RANGES, Matcher, SignatureReader, parse_ranges, parse_rebuild,
};
use remote_sandbox_core::ids::RunToken;

fuzz_target!(|input: (u64, u16, &[u8], &[u8])| {
    let (size, piece, bytes, content) = input;
    let mark = RunToken::from_uuid_bytes([7; 16]);
    let _ = parse_rebuild(&mark, bytes);
    if let Some(ranges) = parse_ranges(&mark, bytes) {
        assert!(ranges.hashes.len() as u64 <= MOST_RANGES.min(bytes.len() as u64));
    }
    let Some(block) = BlockLength::for_size(size) else {
        return;
    };
    let mut reader = SignatureReader::new(&mark, block);
    let header = format!("RSMCP:{mark}:signature:{size}:1.2.3\n");
    let mut fed = reader.feed(header.as_bytes());
    for part in bytes.chunks(usize::from(piece).max(1)) {
        fed = fed.and_then(|()| reader.feed(part));
    }
    let _ = fed.and_then(|()| reader.feed(format!("RSMCP:{mark}:end\n").as_bytes()));
    let (Ok(()), Some(mut signature)) = (reader.finish(), reader.begun()) else {
        return;
    };
    signature.learn(&reader.take());
    assert!(signature.is_complete());
    let old_bytes = signature.size_bytes();
    let mut told = 0;
    let mut count = |instruction: Instruction| match instruction {
        Instruction::Copy { from, to, length } => {
            assert!(from + length <= old_bytes);
            assert_eq!(to, told);
            told += length;
        }
        Instruction::Data { offset, length } => {
            assert_eq!(offset, told);
            told += length;
        }
    };
    let mut matcher = Matcher::new(signature);
    for part in content.chunks(usize::from(piece).max(1)) {
        matcher.feed(part, &mut count);
    }
    matcher.finish(&mut count);
    assert_eq!(told, content.len() as u64);
});
