//! One header of a tar archive, field by field.

use std::ops::Range;

use super::{BLOCK, number};

pub(super) const NAME: Range<usize> = 0..100;
pub(super) const MODE: Range<usize> = 100..108;
pub(super) const SIZE: Range<usize> = 124..136;
pub(super) const MTIME: Range<usize> = 136..148;
const OWNER: Range<usize> = 108..116;
const GROUP: Range<usize> = 116..124;
const CHECKSUM: Range<usize> = 148..156;
const TYPE: usize = 156;
pub(super) const LINK_TARGET: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..263;
const VERSION: Range<usize> = 263..265;
pub(super) const PREFIX: Range<usize> = 345..500;

/// The fields of a header as they stand there.
#[derive(Debug, Clone)]
pub(super) struct Header(pub(super) [u8; BLOCK]);

impl Header {
    /// An empty ustar header of a type; nobody's, because owners are not carried over.
    pub(super) fn new(letter: u8) -> Self {
        let mut header = Header([0; BLOCK]);
        header.put(MAGIC, b"ustar\0");
        header.put(VERSION, b"00");
        header.put_number(OWNER, 0);
        header.put_number(GROUP, 0);
        if let Some(field) = header.0.get_mut(TYPE) {
            *field = letter;
        }
        header
    }

    pub(super) fn put(&mut self, range: Range<usize>, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(range) {
            for (to, from) in field.iter_mut().zip(bytes) {
                *to = *from;
            }
        }
    }

    pub(super) fn put_number(&mut self, range: Range<usize>, value: u64) {
        if let Some(field) = self.0.get_mut(range) {
            number::write(field, value);
        }
    }

    /// The header with its checksum.
    pub(super) fn sealed(mut self) -> [u8; BLOCK] {
        let (sum, _) = self.sums();
        self.put(CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
        self.0
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// Whether the checksum is right; some old programs summed up signed bytes.
    pub(super) fn is_sound(&self) -> bool {
        let Some(written) = self.number(CHECKSUM) else {
            return false;
        };
        let (sum, signed) = self.sums();
        written == i64::from(sum) || written == signed
    }

    fn sums(&self) -> (u32, i64) {
        let bytes =
            self.0.iter().enumerate().map(
                |(at, byte)| {
                    if CHECKSUM.contains(&at) { b' ' } else { *byte }
                },
            );
        bytes.fold((0, 0), |(sum, signed), byte| {
            (
                sum + u32::from(byte),
                signed + i64::from(byte.cast_signed()),
            )
        })
    }

    pub(super) fn letter(&self) -> u8 {
        self.0.get(TYPE).copied().unwrap_or_default()
    }

    pub(super) fn number(&self, range: Range<usize>) -> Option<i64> {
        number::parse(self.0.get(range)?)
    }

    /// A text field up to its first NUL.
    pub(super) fn text(&self, range: Range<usize>) -> &[u8] {
        let field = self.0.get(range).unwrap_or_default();
        field.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The name; GNU tar uses the field of the prefix for other things.
    pub(super) fn name(&self) -> Vec<u8> {
        let is_ustar = self.0.get(MAGIC) == Some(b"ustar\0");
        let prefix = if is_ustar { self.text(PREFIX) } else { b"" };
        if prefix.is_empty() {
            self.text(NAME).to_vec()
        } else {
            [prefix, b"/", self.text(NAME)].concat()
        }
    }
}
