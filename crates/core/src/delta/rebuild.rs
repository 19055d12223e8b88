//! The program that tells the blocks of an old file on a host, and builds a new one out of it and what it is told.

use std::fmt::Write as _;

use super::rolling::Checksum;
use super::signature::{BlockLength, OldStamp};
use super::{beginning, position};
use crate::ids::RunToken;
use crate::shell::quote;
use crate::sync::Mtime;

const PROGRAM: &str = include_str!("rebuild.py");

/// What is to be built.
#[derive(Debug, Clone, Copy)]
pub struct RebuildRequest<'a> {
    /// The file that parts are copied from.
    pub old: &'a [u8],
    /// The file that is built; whatever has this name goes.
    pub new: &'a [u8],
    /// The length of the blocks that the old one is told in.
    pub block: BlockLength,
    /// The size it will have.
    pub size_bytes: u64,
    /// The permission bits it gets.
    pub mode: u16,
    /// When it was changed.
    pub mtime: Mtime,
}

/// Builds the script of a program that tells the sums and hashes of the old file and reads frames from its standard
/// input; it needs `python3`. Each block is in the new file, where it was in the old one, before it is told.
pub fn rebuild_script(request: &RebuildRequest<'_>, mark: &RunToken) -> String {
    let mut script = beginning(mark, &[("old", request.old), ("new", request.new)]);
    let nanoseconds = i128::from(request.mtime.seconds) * 1_000_000_000
        + i128::from(request.mtime.nanoseconds().unwrap_or(0));
    let _ = writeln!(
        script,
        "exec python3 -S -c {} \"$old\" \"$new\" \"$m\" {} {} {:o} {nanoseconds}\nexit 127\n}}",
        quote(PROGRAM),
        request.block.bytes(),
        request.size_bytes,
        request.mode
    );
    script
}

/// The frame that copies a part of the old file to another place in the new one.
pub fn copy_frame(from: u64, to: u64, length: u64) -> Vec<u8> {
    let numbers = [from, to, length].map(u64::to_be_bytes);
    [b"C".as_slice(), numbers.as_flattened()].concat()
}

/// What stands before so many bytes that are new at this place.
pub fn data_head(to: u64, length: u32) -> Vec<u8> {
    [b"D".as_slice(), &to.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// The frame that ends the file: the sum of all that was copied, and what the old file must still look like.
pub fn end_frame(copied: &Checksum, old: &OldStamp) -> Vec<u8> {
    let stamp = old.as_bytes();
    let mut frame = Vec::with_capacity(6 + stamp.len());
    frame.push(b'E');
    frame.extend_from_slice(&copied.value().to_be_bytes());
    frame.push(stamp.len() as u8);
    frame.extend_from_slice(stamp);
    frame
}

/// How the building went. Where it did not go well, nothing is left of the new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildVerdict {
    /// The new file is there, with the content that was meant.
    Done,
    /// The content is another one: the old file changed meanwhile.
    OtherContent,
    /// The old file is gone or shorter.
    NoOld,
    /// The frames ended too early or make no sense.
    CutOff,
    /// There is no space for it.
    NoSpace,
    /// The system of the host refused with this number.
    Failed(u32),
}

/// Reads the verdict; none when there is none.
pub fn parse_rebuild(mark: &RunToken, output: &[u8]) -> Option<RebuildVerdict> {
    let begin = format!("RSMCP:{mark}:rebuild:");
    let from = position(output, begin.as_bytes())? + begin.len();
    let line = output.get(from..)?;
    let length = line.iter().position(|byte| *byte == b'\n')?;
    Some(match line.get(..length)? {
        b"ok" => RebuildVerdict::Done,
        b"hash" | b"size" => RebuildVerdict::OtherContent,
        b"old" => RebuildVerdict::NoOld,
        b"cut" => RebuildVerdict::CutOff,
        b"space" => RebuildVerdict::NoSpace,
        words => {
            let number = words.strip_prefix(b"failed:")?;
            RebuildVerdict::Failed(std::str::from_utf8(number).ok()?.parse().ok()?)
        }
    })
}
