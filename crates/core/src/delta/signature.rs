//! The sums and hashes of the blocks of a file on a host.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::rolling::Sum;
use super::{MOST_NOISE, position};
use crate::ids::RunToken;

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

/// Reads what [`super::rebuild_script`] prints, as it comes.
#[derive(Debug)]
pub struct SignatureReader {
    header: Vec<u8>,
    end: Vec<u8>,
    block: BlockLength,
    begun: Option<(u64, OldStamp)>,
    held: Vec<u8>,
    /// Blocks that have come, and those of them that nobody has taken.
    count: usize,
    blocks: Vec<Block>,
}

/// What the host said of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
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
            count: 0,
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
        let missing = (size.div_ceil(u64::from(self.block.bytes()))) as usize - self.count;
        let whole = (self.held.len() / RECORD).min(missing);
        let records = self.held.get(..whole * RECORD).unwrap_or_default();
        let (records, _) = records.as_chunks::<RECORD>();
        self.blocks.extend(records.iter().map(block));
        self.count += whole;
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

    /// What is known when the host has begun: all but the blocks.
    pub fn begun(&self) -> Option<Signature> {
        let (size_bytes, stamp) = self.begun.as_ref()?;
        Some(Signature::new(self.block, *size_bytes, stamp.clone()))
    }

    /// The blocks that have come since the last time.
    pub fn take(&mut self) -> Vec<Block> {
        std::mem::take(&mut self.blocks)
    }

    /// Whether all has come.
    pub fn is_complete(&self) -> bool {
        self.begun.is_some() && self.held == self.end
    }

    /// Says what is missing when nothing more comes.
    pub fn finish(&self) -> Result<(), SignatureError> {
        match &self.begun {
            None => Err(SignatureError::NotBegun),
            Some(_) if self.is_complete() => Ok(()),
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

/// What is known of a file on a host; its blocks become known one after the other.
#[derive(Debug, Clone)]
pub struct Signature {
    block: BlockLength,
    size_bytes: u64,
    stamp: OldStamp,
    blocks: Vec<Block>,
    /// The first whole block with a sum.
    first: HashMap<u32, u32>,
    /// For each block, the next one with the same sum.
    alike: Vec<Option<u32>>,
    filter: Vec<u64>,
}

impl Signature {
    fn new(block: BlockLength, size_bytes: u64, stamp: OldStamp) -> Self {
        Signature {
            block,
            size_bytes,
            stamp,
            blocks: Vec::new(),
            first: HashMap::new(),
            alike: Vec::new(),
            filter: vec![0; 1 << (FILTER_BITS - 6)],
        }
    }

    /// Takes the next blocks.
    pub fn learn(&mut self, blocks: &[Block]) {
        for block in blocks {
            let number = self.blocks.len() as u32;
            self.blocks.push(*block);
            self.alike.push(None);
            if number < self.whole_blocks() {
                self.remember(number, block);
            }
        }
    }

    fn remember(&mut self, number: u32, block: &Block) {
        let (word, bit) = filter_place(block.sum);
        if let Some(word) = self.filter.get_mut(word) {
            *word |= bit;
        }
        let first = *self.first.entry(block.sum).or_insert(number);
        let last = self.with_sum_of(first).last();
        // Of blocks with the same content one is enough, and a file may be full of them.
        let is_new = |known: u32| !self.is_strong(known, &block.strong);
        let is_worth = first != number
            && self.with_sum_of(first).all(is_new)
            && self.with_sum_of(first).count() < MOST_ALIKE;
        let before = last.filter(|_| is_worth);
        if let Some(link) = before.and_then(|before| self.alike.get_mut(before as usize)) {
            *link = Some(number);
        }
    }

    /// A block and those of the same sum that came after it.
    fn with_sum_of(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(first), |number| {
            *self.alike.get(*number as usize).unwrap_or(&None)
        })
    }

    /// Whether all blocks are known.
    pub fn is_complete(&self) -> bool {
        self.blocks.len() as u64 == self.size_bytes.div_ceil(u64::from(self.block.bytes()))
    }

    /// Bytes of the file whose blocks are known.
    pub fn known_bytes(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.block.bytes())
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
        let first = *self.first.get(&sum.value())?;
        let strong = strong(window);
        self.with_sum_of(first)
            .find(|number| self.is_strong(*number, &strong))
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
