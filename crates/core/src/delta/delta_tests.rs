use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::ids::RunToken;

pub(super) fn mark() -> RunToken {
    RunToken::from_uuid_bytes([3; 16])
}

/// What a host would say of a file, in our own words.
fn said(old: &[u8], block: u32) -> Vec<u8> {
    said_of(old, block, "17.1000.-5")
}

pub(super) fn said_of(old: &[u8], block: u32, stamp: &str) -> Vec<u8> {
    let mut said = format!("RSMCP:{}:signature:{}:{stamp}\n", mark(), old.len()).into_bytes();
    for block in old.chunks(block as usize) {
        said.extend(rolling::Sum::of(block).value().to_be_bytes());
        said.extend(&Sha256::digest(block)[..16]);
    }
    said.extend(format!("RSMCP:{}:end\n", mark()).bytes());
    said
}

fn signature(old: &[u8], block: u32) -> Signature {
    read(&said(old, block), BlockLength::short(block), 1000).unwrap()
}

pub(super) fn read(
    said: &[u8],
    block: BlockLength,
    piece: usize,
) -> Result<Signature, SignatureError> {
    let mut reader = SignatureReader::new(&mark(), block);
    for piece in said.chunks(piece) {
        reader.feed(piece)?;
    }
    reader.finish()?;
    let mut signature = reader.begun().ok_or(SignatureError::NotBegun)?;
    signature.learn(&reader.take());
    Ok(signature)
}

pub(super) fn delta(
    signature: &Signature,
    new: &[u8],
    piece: usize,
) -> (Vec<Instruction>, Checksum) {
    let mut instructions = Vec::new();
    let mut matcher = Matcher::new(signature.clone());
    for piece in new.chunks(piece) {
        matcher.feed(piece, &mut |instruction| instructions.push(instruction));
    }
    let copied = matcher.finish(&mut |instruction| instructions.push(instruction));
    (instructions, copied)
}

/// Carries instructions out; data comes from the new content at the place where it is due.
fn applied(old: &[u8], new: &[u8], instructions: &[Instruction]) -> Vec<u8> {
    let mut built = Vec::new();
    for instruction in instructions {
        let (source, offset, length) = match *instruction {
            Instruction::Copy { from, to, length } => {
                assert_eq!(to, built.len() as u64);
                (old, from, length)
            }
            Instruction::Data { offset, length } => {
                assert_eq!(offset, built.len() as u64);
                (new, offset, length)
            }
        };
        built.extend(&source[offset as usize..(offset + length) as usize]);
    }
    built
}

fn new_bytes(instructions: &[Instruction]) -> u64 {
    let data = |instruction: &Instruction| match instruction {
        Instruction::Data { length, .. } => *length,
        Instruction::Copy { .. } => 0,
    };
    instructions.iter().map(data).sum()
}

/// Bytes without a pattern.
pub(super) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(next).collect()
}

#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Move(usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<usize>(), prop::collection::vec(any::<u8>(), 0..90))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<usize>(), 0..120_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Edit::Move(from, to)),
    ];
    prop::collection::vec(edit, 0..6)
}

fn edited(old: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut new = old.to_vec();
    for edit in edits {
        let place = |at: usize, new: &[u8]| at % (new.len() + 1);
        match edit {
            Edit::Insert(at, bytes) => {
                let at = place(*at, &new);
                new.splice(at..at, bytes.iter().copied());
            }
            Edit::Remove(at, length) => {
                let at = place(*at, &new);
                let end = (at + length).min(new.len());
                new.drain(at..end);
            }
            Edit::Move(from, to) => {
                let from = place(*from, &new);
                let tail = new.split_off(from);
                let to = place(*to, &new);
                new.splice(to..to, tail);
            }
        }
    }
    new
}

proptest! {
    #[test]
    fn delta_applied_to_the_old_file_is_the_new_one(
        // Few letters, so that blocks repeat and sums collide.
        old in prop::collection::vec(0_u8..3, 0..900),
        edits in edits(), block in 1_u32..70, piece in 1_usize..200,
    ) {
        let new = edited(&old, &edits);
        let (instructions, copied) = delta(&signature(&old, block), &new, piece);
        prop_assert!(applied(&old, &new, &instructions) == new);
        let mut moved = Checksum::new();
        for instruction in instructions {
            if let Instruction::Copy { from, to, length } = instruction && from != to {
                moved.update(&new[to as usize..(to + length) as usize]);
            }
        }
        prop_assert_eq!(copied.value(), moved.value());
    }

    #[test]
    fn blocks_that_become_known_on_the_way_are_used_and_never_harm(
        old in prop::collection::vec(0_u8..4, 0..800),
        edits in edits(),
        pieces in prop::collection::vec((0_usize..9, 1_usize..60), 1..40),
    ) {
        let new = edited(&old, &edits);
        let whole = said(&old, 16);
        let mut reader = SignatureReader::new(&mark(), BlockLength::short(16));
        reader.feed(&whole).unwrap();
        let (mut blocks, mut content) = (reader.take().into_iter(), new.as_slice());
        let mut matcher = Matcher::new(reader.begun().unwrap());
        let mut instructions = Vec::new();
        let mut tell = |instruction| instructions.push(instruction);
        for (told, read) in pieces.into_iter().cycle().take(2000) {
            let told: Vec<_> = blocks.by_ref().take(told).collect();
            matcher.learn(&told);
            let (piece, rest) = content.split_at(read.min(content.len()));
            matcher.feed(piece, &mut tell);
            content = rest;
        }
        matcher.feed(content, &mut tell);
        matcher.learn(&blocks.collect::<Vec<_>>());
        prop_assert!(matcher.signature().is_complete());
        matcher.finish(&mut tell);
        prop_assert_eq!(applied(&old, &new, &instructions), new);
    }

    #[test]
    fn signature_reader_takes_anything_without_harm(
        noise in prop::collection::vec(any::<u8>(), 0..300), old in prop::collection::vec(any::<u8>(), 0..300),
        cut in any::<usize>(), piece in 1_usize..50,
    ) {
        let mut said = said(&old, 16);
        said.truncate(cut % (said.len() + 1));
        said.extend(noise);
        if let Ok(signature) = read(&said, BlockLength::short(16), piece) {
            prop_assert_eq!(signature.size_bytes(), old.len() as u64);
        }
        let _ = parse_rebuild(&mark(), &said);
        let _ = parse_ranges(&mark(), &said);
    }
}

#[test]
fn insertion_and_deletion_cost_no_more_than_the_blocks_they_touch() {
    let old = noise(400_000, 1);
    let mut new = old.clone();
    new.splice(100_000..100_000, noise(104, 2));
    new.drain(300_000..300_050);
    let (instructions, _) = delta(&signature(&old, 1024), &new, 10_000);
    assert!(applied(&old, &new, &instructions) == new);
    assert!(
        new_bytes(&instructions) < 104 + 3 * 1024,
        "{instructions:?}"
    );
    assert!(instructions.len() <= 5, "{instructions:?}");
}

#[test]
fn equal_files_are_one_copy_and_foreign_ones_one_piece_of_data() {
    let old = noise(50_100, 1);
    let signature = signature(&old, 4096);
    assert_eq!(
        delta(&signature, &old, 999).0,
        [Instruction::Copy {
            from: 0,
            to: 0,
            length: 50_100
        }]
    );
    let foreign = noise(60_000, 2);
    assert_eq!(
        delta(&signature, &foreign, 999).0,
        [Instruction::Data {
            offset: 0,
            length: 60_000
        }]
    );
    assert_eq!(delta(&signature, &[], 1).0, []);
}

#[test]
fn file_of_equal_blocks_is_searched_without_delay() {
    let old = vec![0; 4_000_000];
    let signature = signature(&old, 64);
    let mut new = old.clone();
    new[2_000_001] = 1;
    let (instructions, _) = delta(&signature, &new, 65_536);
    assert!(applied(&old, &new, &instructions) == new);
    assert!(new_bytes(&instructions) <= 128, "{instructions:?}");
}

#[test]
fn block_length_follows_the_size_and_ends_with_it() {
    let bytes = |size| BlockLength::for_size(size).map(BlockLength::bytes);
    assert_eq!(bytes(8 << 20), Some(4096));
    assert_eq!(bytes(256 << 20), Some(16 * 1024));
    let large = bytes(1 << 40).unwrap();
    assert!((1_u64 << 40).div_ceil(u64::from(large)) <= MOST_BLOCKS);
    assert_eq!(bytes(1 << 50), None);
}

#[test]
fn signature_is_refused_when_it_lies_or_breaks_off() {
    let block = BlockLength::short(16);
    let whole = said(&noise(100, 1), 16);
    assert!(read(&whole, block, 7).is_ok());
    let shorter = &whole[..whole.len() - 1];
    assert_eq!(
        read(shorter, block, 7).unwrap_err(),
        SignatureError::BrokenOff
    );
    let longer = [whole.as_slice(), b"x"].concat();
    assert_eq!(
        read(&longer, block, 7).unwrap_err(),
        SignatureError::BrokenOff
    );
    let lie = format!("RSMCP:{}:signature:{}:1.2.3\n", mark(), u64::MAX);
    let error = read(lie.as_bytes(), block, 7).unwrap_err();
    assert_eq!(error, SignatureError::TooLarge(u64::MAX));
    let long = format!("5:{}", "1".repeat(81));
    for words in ["none", "5", "5:", "5:a b", "x:1.2.3", &long] {
        let none = format!("RSMCP:{}:signature:{words}\n", mark());
        assert_eq!(
            read(none.as_bytes(), block, 7).unwrap_err(),
            SignatureError::NoFile,
            "{words}"
        );
    }
    let talk = vec![b'x'; MOST_NOISE + 1];
    assert_eq!(
        read(&talk, block, 9999).unwrap_err(),
        SignatureError::NotBegun
    );
}
