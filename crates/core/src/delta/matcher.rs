//! Finds the blocks of an old file in new content.

use super::rolling::{Checksum, Roller, Sum};
use super::signature::{Block, Signature};

/// How the next part of the new file comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// It is a part of the old file.
    Copy {
        /// Where that part begins in the old file.
        from: u64,
        /// Where it begins in the new one; mostly the same place.
        to: u64,
        /// Its length.
        length: u64,
    },
    /// It is new.
    Data {
        /// Where it begins in the new file.
        offset: u64,
        /// Its length.
        length: u64,
    },
}

/// Goes through new content piece by piece; what it holds is bounded by a block and a piece.
#[derive(Debug)]
pub struct Matcher {
    signature: Signature,
    block: usize,
    roller: Roller,
    /// Content from the window on, and what of the last piece lies before it.
    held: Vec<u8>,
    /// Where the window begins in it.
    at: usize,
    /// Where it begins in the new file.
    place: u64,
    sum: Option<Sum>,
    /// Up to where the new file is told.
    told: u64,
    /// Up to where the last block went that was found.
    found_to: u64,
    /// The block that may come next, since the one before it just did.
    expected: Option<u32>,
    /// What may still grow.
    pending: Option<Instruction>,
    /// The sum of all that is a part of the old file and stands at another place there.
    moved: Checksum,
}

impl Matcher {
    /// A matcher for the blocks of an old file.
    pub fn new(signature: Signature) -> Self {
        Matcher {
            block: signature.block().bytes() as usize,
            roller: Roller::new(signature.block().bytes()),
            signature,
            held: Vec::new(),
            at: 0,
            place: 0,
            sum: None,
            told: 0,
            found_to: 0,
            expected: None,
            pending: None,
            moved: Checksum::new(),
        }
    }

    /// Takes further blocks of the old file.
    pub fn learn(&mut self, blocks: &[Block]) {
        self.signature.learn(blocks);
    }

    /// What is known of the old file.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Bytes that were gone through since the last block that was found.
    pub fn bytes_without_a_block(&self) -> u64 {
        self.place - self.found_to
    }

    /// Takes the next content; tells what is certain by now.
    pub fn feed(&mut self, content: &[u8], tell: &mut impl FnMut(Instruction)) {
        let content = self.pass_over(content, tell);
        self.held.extend_from_slice(content);
        // Taken out for as long as its windows are looked at.
        let held = std::mem::take(&mut self.held);
        while let Some(window) = held.get(self.at..self.at + self.block) {
            if let Some(number) = look(&self.signature, &mut self.sum, self.expected, window) {
                self.found(number, window, tell);
                self.at += self.block;
                continue;
            }
            self.expected = None;
            if !self.roll(&held) {
                break;
            }
        }
        self.held = held;
        // Nothing before the window is needed any more.
        self.tell_data(tell);
        self.held.drain(..self.at);
        self.at = 0;
    }

    /// Goes over blocks that follow each other as they did, which is most of an edited file, without taking them in; gives
    /// what is left.
    fn pass_over<'a>(
        &mut self,
        mut content: &'a [u8],
        tell: &mut impl FnMut(Instruction),
    ) -> &'a [u8] {
        while self.held.is_empty()
            && let Some(number) = self.expected
            && let Some((window, rest)) = content.split_at_checked(self.block)
            && self.signature.is_block(number, window)
        {
            self.found(number, window, tell);
            content = rest;
        }
        content
    }

    /// A block stands at the window.
    fn found(&mut self, number: u32, window: &[u8], tell: &mut impl FnMut(Instruction)) {
        if u64::from(number) * self.block as u64 != self.place {
            self.moved.update(window);
        }
        self.tell_data(tell);
        self.tell_copy(number, self.block as u64, tell);
        self.place += self.block as u64;
        self.sum = None;
        let next = number + 1;
        self.expected = (next < self.signature.whole_blocks()).then_some(next);
    }

    /// Moves the window to where its sum may be one of a block; false when the content ends before.
    fn roll(&mut self, held: &[u8]) -> bool {
        let Some(mut sum) = self.sum else {
            return false;
        };
        let behind = held.get(self.at..).unwrap_or_default();
        let ahead = behind.get(self.block..).unwrap_or_default();
        let mut moved = 0;
        let mut found = false;
        for (out, into) in behind.iter().zip(ahead) {
            sum = self.roller.roll(sum, *out, *into);
            moved += 1;
            if self.signature.may_have(sum) {
                found = true;
                break;
            }
        }
        self.sum = Some(sum);
        self.step(moved);
        found
    }

    /// Ends the content: the short block at the end of the old file may stand at the end of the new one. Gives the sum of
    /// all that is copied to another place.
    pub fn finish(mut self, tell: &mut impl FnMut(Instruction)) -> Checksum {
        let left = self.held.len() - self.at;
        let rest = self.signature.rest();
        let last = self.signature.whole_blocks();
        let tail = self.held.len().checked_sub(rest);
        let tail = tail.filter(|from| rest > 0 && *from >= self.at);
        let is_last = tail
            .and_then(|from| self.held.get(from..))
            .is_some_and(|tail| self.signature.is_block(last, tail));
        if is_last {
            self.step(left - rest);
            self.tell_data(tell);
            if u64::from(last) * self.block as u64 != self.place {
                self.moved
                    .update(self.held.get(self.at..).unwrap_or_default());
            }
            self.tell_copy(last, rest as u64, tell);
        } else {
            self.step(left);
            self.tell_data(tell);
        }
        if let Some(instruction) = self.pending {
            tell(instruction);
        }
        self.moved
    }

    fn step(&mut self, bytes: usize) {
        self.at += bytes;
        self.place += bytes as u64;
    }

    /// What lies before the window and is not told yet is new.
    fn tell_data(&mut self, tell: &mut impl FnMut(Instruction)) {
        let length = self.place - self.told;
        if length == 0 {
            return;
        }
        let offset = self.told;
        self.told = self.place;
        self.pending = match self.pending {
            Some(Instruction::Data {
                offset,
                length: before,
            }) => Some(Instruction::Data {
                offset,
                length: before + length,
            }),
            earlier => {
                earlier.into_iter().for_each(&mut *tell);
                Some(Instruction::Data { offset, length })
            }
        };
    }

    fn tell_copy(&mut self, number: u32, length: u64, tell: &mut impl FnMut(Instruction)) {
        let start = u64::from(number) * self.block as u64;
        let place = self.told;
        self.told += length;
        self.found_to = self.told;
        self.pending = match self.pending {
            Some(Instruction::Copy {
                from,
                to,
                length: before,
            }) if from + before == start => Some(Instruction::Copy {
                from,
                to,
                length: before + length,
            }),
            earlier => {
                earlier.into_iter().for_each(&mut *tell);
                Some(Instruction::Copy {
                    from: start,
                    to: place,
                    length,
                })
            }
        };
    }
}

/// The block that a window is. After one block mostly the next one follows, which is found without a sum.
fn look(
    signature: &Signature,
    sum: &mut Option<Sum>,
    expected: Option<u32>,
    window: &[u8],
) -> Option<u32> {
    if let Some(number) = expected.filter(|number| signature.is_block(*number, window)) {
        return Some(number);
    }
    let sum = *sum.get_or_insert_with(|| Sum::of(window));
    signature.find(sum, window)
}
