//! Writes archives.

use super::header::{self, Header};
use super::{BLOCK, padding, pax};
use crate::sync::entry::{Entry, Kind, Mtime};

const ZEROS: [u8; BLOCK] = [0; BLOCK];
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// How exactly times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// To the nanosecond; costs 1 KiB for each entry with a fraction.
    #[default]
    Nanoseconds,
    /// To the second, for programs that pass over pax records anyway.
    Seconds,
}

/// Why an archive cannot be written on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Special files are never put into an archive.
    #[error("`{shown}` is a special file")]
    Special {
        /// Its path, escaped.
        shown: String,
    },
    /// Another entry was begun before.
    #[error("the entry before is not complete: {missing_bytes} bytes are missing")]
    Incomplete {
        /// How much is missing.
        missing_bytes: u64,
    },
    /// There is more content than was announced.
    #[error("the entry has {extra_bytes} bytes more than were announced")]
    TooMuch {
        /// How much too much it is.
        extra_bytes: u64,
    },
}

/// Makes the bytes of an archive that are not content, and watches that the content fits.
#[derive(Debug, Default)]
pub struct ArchiveWriter {
    precision: Precision,
    missing_bytes: u64,
    padding: usize,
}

impl ArchiveWriter {
    /// One that writes times so exactly.
    pub fn new(precision: Precision) -> Self {
        ArchiveWriter {
            precision,
            ..ArchiveWriter::default()
        }
    }

    /// The bytes before the content of an entry; that of a file has to follow, as many bytes as its size says.
    pub fn begin(&mut self, entry: &Entry) -> Result<Vec<u8>, WriteError> {
        self.check_complete()?;
        let (letter, target): (u8, &[u8]) = match &entry.kind {
            Kind::File => (b'0', &[]),
            Kind::Directory => (b'5', &[]),
            Kind::Link { target, .. } => (b'2', target),
            Kind::Special(_) => {
                return Err(WriteError::Special {
                    shown: entry.path.shown().text,
                });
            }
        };
        let mut name = entry.path.as_bytes().to_vec();
        if letter == b'5' {
            name.push(b'/');
        }
        let mut header = Header::new(letter);
        let mut bytes = Vec::with_capacity(BLOCK);
        self.put_time(&mut header, &mut bytes, entry.mtime);
        if target.len() > header::LINK_TARGET.len() {
            extension(&mut bytes, b'K', "././@LongLink", &[target, b"\0"].concat());
        }
        header.put(header::LINK_TARGET, target);
        put_name(&mut header, &mut bytes, &name);
        header.put_number(header::MODE, u64::from(entry.mode & 0o7777));
        let size_bytes = if letter == b'0' { entry.size_bytes } else { 0 };
        header.put_number(header::SIZE, size_bytes);
        bytes.extend_from_slice(&header.sealed());
        self.missing_bytes = size_bytes;
        self.padding = padding(size_bytes);
        Ok(bytes)
    }

    /// Counts content that is written; more than announced is an error, and none of it may be written then.
    pub fn content(&mut self, length: usize) -> Result<(), WriteError> {
        let length = length as u64;
        match self.missing_bytes.checked_sub(length) {
            Some(left) => {
                self.missing_bytes = left;
                Ok(())
            }
            None => Err(WriteError::TooMuch {
                extra_bytes: length - self.missing_bytes,
            }),
        }
    }

    /// How many bytes of content are still missing; a file that got shorter meanwhile is filled up and sent again later.
    pub fn missing_bytes(&self) -> u64 {
        self.missing_bytes
    }

    /// The bytes after the content of an entry.
    pub fn end_entry(&mut self) -> Result<&'static [u8], WriteError> {
        self.check_complete()?;
        let length = std::mem::take(&mut self.padding);
        Ok(ZEROS.get(..length).unwrap_or_default())
    }

    /// The bytes at the end of an archive.
    pub fn finish(self) -> Result<&'static [u8], WriteError> {
        self.check_complete()?;
        Ok(&END)
    }

    fn check_complete(&self) -> Result<(), WriteError> {
        match self.missing_bytes {
            0 => Ok(()),
            missing_bytes => Err(WriteError::Incomplete { missing_bytes }),
        }
    }

    fn put_time(&self, header: &mut Header, bytes: &mut Vec<u8>, mtime: Mtime) {
        let whole = u64::try_from(mtime.seconds);
        header.put_number(header::MTIME, whole.unwrap_or_default());
        let has_fraction = mtime
            .nanoseconds()
            .is_some_and(|nanoseconds| nanoseconds > 0);
        let is_exact = self.precision == Precision::Nanoseconds;
        if is_exact && (has_fraction || whole.is_err()) {
            let record = pax::record("mtime", pax::time_text(mtime).as_bytes());
            extension(bytes, b'x', "@PaxHeader", &record);
        }
    }
}

/// The name, split into prefix and name where that helps, else as an entry of its own before this one.
fn put_name(header: &mut Header, bytes: &mut Vec<u8>, name: &[u8]) {
    if name.len() <= header::NAME.len() {
        header.put(header::NAME, name);
        return;
    }
    let split = (name.len().saturating_sub(header::NAME.len() + 1)
        ..=header::PREFIX.len().min(name.len() - 2))
        .find(|at| name.get(*at) == Some(&b'/') && *at > 0);
    match split.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?))) {
        Some((prefix, rest)) if !rest.is_empty() => {
            header.put(header::PREFIX, prefix);
            header.put(header::NAME, rest);
        }
        _ => {
            extension(bytes, b'L', "././@LongLink", &[name, b"\0"].concat());
            header.put(header::NAME, name);
        }
    }
}

fn extension(bytes: &mut Vec<u8>, letter: u8, name: &str, content: &[u8]) {
    let mut header = Header::new(letter);
    header.put(header::NAME, name.as_bytes());
    header.put_number(header::MODE, 0o644);
    header.put_number(header::MTIME, 0);
    header.put_number(header::SIZE, content.len() as u64);
    bytes.extend_from_slice(&header.sealed());
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + padding(content.len() as u64), 0);
}
