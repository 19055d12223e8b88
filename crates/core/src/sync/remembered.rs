//! What is remembered of a pair of trees, as bytes.
//!
//! One record for each file and link, in the order of their paths, so that a plan can read it as a stream; two for what a
//! download was about to replace when it broke off. A file with another
//! beginning, or one that breaks off, is as good as none: then nothing is known, and edits are found by their times.

use super::entry::{Mtime, Stamp};
use super::path::RelPath;
use super::plan::BaseEntry;

/// How such a file begins.
pub const BEGIN: &[u8] = b"remote-sandbox-mcp pair 1\n";

/// No record is longer.
pub const LONGEST_RECORD: usize = 2 + super::path::LONGEST_PATH + 2 * STAMP;

const STAMP: usize = 8 + 8 + 4;
const UNKNOWN: u32 = u32::MAX;

/// Added to the length of the path where a download was only about to put it here.
const INTENDED: u16 = 1 << 15;

/// Appends the record of a file.
pub fn write_record(entry: &BaseEntry, bytes: &mut Vec<u8>) {
    let path = entry.path.as_bytes();
    let length = u16::try_from(path.len()).unwrap_or(INTENDED - 1);
    let mark = if entry.is_intended { INTENDED } else { 0 };
    bytes.extend_from_slice(&(length | mark).to_be_bytes());
    bytes.extend_from_slice(path);
    for stamp in [entry.local, entry.remote] {
        bytes.extend_from_slice(&stamp.size_bytes.to_be_bytes());
        bytes.extend_from_slice(&stamp.mtime.seconds.to_be_bytes());
        let nanoseconds = stamp.mtime.nanoseconds().unwrap_or(UNKNOWN);
        bytes.extend_from_slice(&nanoseconds.to_be_bytes());
    }
}

/// The next record and how many bytes it takes; none when it is not whole, or none of ours.
pub fn read_record(bytes: &[u8]) -> Option<(BaseEntry, usize)> {
    let first = u16::from_be_bytes(*bytes.first_chunk()?);
    let length = usize::from(first & !INTENDED);
    let path = RelPath::parse(bytes.get(2..2 + length)?).ok()?;
    let rest = bytes.get(2 + length..)?;
    let record = BaseEntry {
        path,
        local: read_stamp(rest)?,
        remote: read_stamp(rest.get(STAMP..)?)?,
        is_intended: first & INTENDED != 0,
    };
    Some((record, 2 + length + 2 * STAMP))
}

fn read_stamp(bytes: &[u8]) -> Option<Stamp> {
    let size_bytes = u64::from_be_bytes(*bytes.first_chunk()?);
    let seconds = i64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
    let nanoseconds = u32::from_be_bytes(*bytes.get(16..)?.first_chunk()?);
    let mtime = match nanoseconds {
        UNKNOWN => Mtime::whole(seconds),
        known => Mtime::exact(seconds, known)?,
    };
    Some(Stamp { size_bytes, mtime })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::samples::path;

    #[test]
    fn record_comes_back_as_it_was_and_a_part_of_it_is_none() {
        let entry = BaseEntry {
            path: path("a/b"),
            local: Stamp {
                size_bytes: 7,
                mtime: Mtime::exact(-3, 999_999_999).unwrap(),
            },
            remote: Stamp {
                size_bytes: u64::MAX,
                mtime: Mtime::whole(1 << 40),
            },
            is_intended: false,
        };
        let intended = BaseEntry {
            is_intended: true,
            ..entry.clone()
        };
        let mut bytes = Vec::new();
        write_record(&entry, &mut bytes);
        write_record(&intended, &mut bytes);
        let (read, used) = read_record(&bytes).unwrap();
        assert_eq!((&read, used * 2), (&entry, bytes.len()));
        assert_eq!(read_record(&bytes[used..]), Some((intended, used)));
        for length in 0..used {
            assert_eq!(read_record(&bytes[..length]), None, "{length}");
        }
        bytes[2] = b'/';
        assert_eq!(read_record(&bytes), None);
    }
}
