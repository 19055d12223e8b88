//! The sums and hashes of the blocks of a file on a host.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::rolling::Sum;
use super::{MOST_NOISE, beginning, position};
use crate::ids::RunToken;
use crate::shell::quote;

const PROGRAM: &str = include_str!("signature.py");

/// Most blocks that a file is cut into.
pub const MOST_BLOCKS: u64 = 131_072;

/// The shortest block; shorter ones cost more to tell than they save.
const SHORTEST_BLOCK: u64 = 4 * 1024;

/// The longest block.
const LONGEST_BLOCK: u64 = 16 * 1024 * 1024;

/// Bytes that are said of each block: its sum, and the beginning of its hash.
const RECORD: usize = 4 + STRONG;

/// So many bytes of a hash are enough that no two blocks are taken for each other; the old file must not have changed since.
pub(super) const STRONG: usize = 16;

/// Blocks of the same sum that are told apart; more have no chance in honest files.
const MOST_ALIKE: usize = 8;

/// Bits of the filter that most places of the new content do not pass.
const FILTER_BITS: u32 = 22;

/// The length of the blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLength(u32);

impl BlockLength {
    /// The length at which what is said of the blocks and what a small change costs are about equal; none where the
    /// file is too large for that.
    pub fn for_size(size_bytes: u64) -> Option<Self> {
        let fewest = size_bytes.div_ceil(MOST_BLOCKS);
        let length = size_bytes.isqrt().max(fewest).max(SHORTEST_BLOCK);
        // Whole pages are read faster.
        let length = length.next_multiple_of(SHORTEST_BLOCK);
        (length <= LONGEST_BLOCK).then_some(BlockLength(length as u32))
    }

    /// The bytes of a block.
    pub fn bytes(self) -> u32 {
        self.0
    }

    #[cfg(test)]
    pub(super) fn short(bytes: u32) -> Self {
        BlockLength(bytes)
    }
}

/// What the host said of a file when it began to read it, in its own words: another one means that it was changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldStamp(String);

impl OldStamp {
    const LONGEST: usize = 80;

    fn parse(words: &str) -> Option<Self> {
        let is_plain = words
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
        let is_sized = (1..=Self::LONGEST).contains(&words.len());
        (is_plain && is_sized).then(|| OldStamp(words.to_owned()))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Builds the script that tells the sums and hashes of a file; it needs `python3`.
pub fn signature_script(path: &[u8], block: BlockLength, mark: &RunToken) -> String {
    let mut script = beginning(mark, &[("file", path)]);
    let _ = writeln!(
        script,
        "exec python3 -S -c {} \"$file\" {} \"$m\"\nexit 127\n}}",
        quote(PROGRAM),
        block.bytes()
    );
    script
}

/// Why there is no signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The script never began.
    #[error("the host did not begin to tell the blocks of the file")]
    NotBegun,
    /// The file is gone, or is none any more.
    #[error("the host has no such file to tell the blocks of")]
    NoFile,
    /// The host speaks of more than was asked for.
    #[error("the host tells of a file of {0} bytes, which is more than was asked for")]
    TooLarge(u64),
    /// It stopped before its end.
    #[error("the host stopped in the middle of the blocks of the file")]
    BrokenOff,
}

/// Reads what [`signature_script`] prints, as it comes.
#[derive(Debug)]
pub struct SignatureReader {
    header: Vec<u8>,
    end: Vec<u8>,
    block: BlockLength,
    begun: Option<(u64, OldStamp)>,
    held: Vec<u8>,
    blocks: Vec<Block>,
}

/// What the host said of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    sum: u32,
    strong: [u8; STRONG],
}

impl SignatureReader {
    /// A reader for the answer to a script with this mark and block length.
    pub fn new(mark: &RunToken, block: BlockLength) -> Self {
        SignatureReader {
            header: format!("RSMCP:{mark}:signature:").into_bytes(),
            end: format!("RSMCP:{mark}:end\n").into_bytes(),
            block,
            begun: None,
            held: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), SignatureError> {
        self.held.extend_from_slice(bytes);
        let size = match &self.begun {
            Some((size, _)) => *size,
            None => match self.read_header()? {
                Some(size) => size,
                None => return Ok(()),
            },
        };
        let missing = (size.div_ceil(u64::from(self.block.bytes()))) as usize - self.blocks.len();
        let whole = (self.held.len() / RECORD).min(missing);
        let records = self.held.get(..whole * RECORD).unwrap_or_default();
        let (records, _) = records.as_chunks::<RECORD>();
        self.blocks.extend(records.iter().map(block));
        self.held.drain(..whole * RECORD);
        // After the last block there is one short line.
        if whole == missing && self.held.len() > self.end.len() {
            return Err(SignatureError::BrokenOff);
        }
        Ok(())
    }

    fn read_header(&mut self) -> Result<Option<u64>, SignatureError> {
        let line = position(&self.held, &self.header).and_then(|at| {
            let from = at + self.header.len();
            let line = self.held.get(from..)?;
            let length = line.iter().position(|byte| *byte == b'\n')?;
            Some((from, from + length))
        });
        let Some((from, to)) = line else {
            return match self.held.len() > MOST_NOISE {
                true => Err(SignatureError::NotBegun),
                false => Ok(None),
            };
        };
        let words = self.held.get(from..to).unwrap_or_default();
        let words = std::str::from_utf8(words).unwrap_or_default();
        let (size, stamp) = words.split_once(':').ok_or(SignatureError::NoFile)?;
        let size: u64 = size.parse().map_err(|_| SignatureError::NoFile)?;
        let stamp = OldStamp::parse(stamp).ok_or(SignatureError::NoFile)?;
        if size > u64::from(self.block.bytes()) * MOST_BLOCKS {
            return Err(SignatureError::TooLarge(size));
        }
        self.held.drain(..=to);
        self.begun = Some((size, stamp));
        Ok(Some(size))
    }

    /// Whether all has come.
    pub fn is_complete(&self) -> bool {
        self.begun.is_some() && self.held == self.end
    }

    /// The signature, when all has come.
    pub fn finish(self) -> Result<Signature, SignatureError> {
        let is_complete = self.is_complete();
        match self.begun {
            None => Err(SignatureError::NotBegun),
            Some((size, stamp)) if is_complete => {
                Ok(Signature::new(self.block, size, stamp, self.blocks))
            }
            Some(_) => Err(SignatureError::BrokenOff),
        }
    }
}

fn block(record: &[u8; RECORD]) -> Block {
    let (mut sum, mut strong) = ([0; 4], [0; STRONG]);
    let (front, back) = record.split_at(sum.len());
    sum.copy_from_slice(front);
    strong.copy_from_slice(back);
    Block {
        sum: u32::from_be_bytes(sum),
        strong,
    }
}

/// What is known of a file on a host, ready to be searched.
#[derive(Debug)]
pub struct Signature {
    block: BlockLength,
    size_bytes: u64,
    stamp: OldStamp,
    blocks: Vec<Block>,
    /// Sum and number of the whole blocks, in the order of the sums.
    sorted: Vec<(u32, u32)>,
    filter: Vec<u64>,
}

impl Signature {
    fn new(block: BlockLength, size_bytes: u64, stamp: OldStamp, blocks: Vec<Block>) -> Self {
        let whole = (size_bytes / u64::from(block.bytes())) as usize;
        let mut sorted: Vec<(u32, u32)> = blocks
            .iter()
            .take(whole)
            .zip(0_u32..)
            .map(|(block, number)| (block.sum, number))
            .collect();
        sorted.sort_unstable();
        // Of blocks with the same content one is enough, and a file may be full of them.
        let strong = |number: u32| blocks.get(number as usize).map(|block| block.strong);
        sorted.dedup_by(|later, kept| later.0 == kept.0 && strong(later.1) == strong(kept.1));
        let mut filter = vec![0; 1 << (FILTER_BITS - 6)];
        for (sum, _) in &sorted {
            let (word, bit) = filter_place(*sum);
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
        Signature {
            block,
            size_bytes,
            stamp,
            blocks,
            sorted,
            filter,
        }
    }

    /// The size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// What the file looked like when it was read.
    pub fn stamp(&self) -> &OldStamp {
        &self.stamp
    }

    /// The length of its blocks.
    pub fn block(&self) -> BlockLength {
        self.block
    }

    /// Whether a block may have this sum; mostly wrong is only "yes".
    #[inline]
    pub(super) fn may_have(&self, sum: Sum) -> bool {
        let (word, bit) = filter_place(sum.value());
        self.filter.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The number of the whole block that these bytes are.
    pub(super) fn find(&self, sum: Sum, window: &[u8]) -> Option<u32> {
        if !self.may_have(sum) {
            return None;
        }
        let first = self
            .sorted
            .partition_point(|(value, _)| *value < sum.value());
        let mut alike = self
            .sorted
            .get(first..)?
            .iter()
            .take(MOST_ALIKE)
            .take_while(|(value, _)| *value == sum.value())
            .peekable();
        alike.peek()?;
        let strong = strong(window);
        alike
            .find(|(_, number)| self.is_strong(*number, &strong))
            .map(|(_, number)| *number)
    }

    /// Whether these bytes are this block.
    pub(super) fn is_block(&self, number: u32, bytes: &[u8]) -> bool {
        self.is_strong(number, &strong(bytes))
    }

    fn is_strong(&self, number: u32, strong: &[u8; STRONG]) -> bool {
        self.blocks
            .get(number as usize)
            .is_some_and(|block| block.strong == *strong)
    }

    /// How many blocks are whole.
    pub(super) fn whole_blocks(&self) -> u32 {
        (self.size_bytes / u64::from(self.block.bytes())) as u32
    }

    /// The length of the last block, where it is not whole.
    pub(super) fn rest(&self) -> usize {
        (self.size_bytes % u64::from(self.block.bytes())) as usize
    }
}

fn filter_place(sum: u32) -> (usize, u64) {
    let hash = sum.wrapping_mul(0x9e37_79b1) >> (32 - FILTER_BITS);
    ((hash >> 6) as usize, 1 << (hash & 63))
}

fn strong(bytes: &[u8]) -> [u8; STRONG] {
    let hash = Sha256::digest(bytes);
    let mut strong = [0; STRONG];
    strong.copy_from_slice(&hash[..STRONG]);
    strong
}
