//! The program that builds a new file on a host out of an old one and what it is told.

use std::fmt::Write as _;

use super::rolling::Checksum;
use super::signature::OldStamp;
use super::{beginning, position};
use crate::ids::RunToken;
use crate::shell::quote;
use crate::sync::Mtime;

const PROGRAM: &str = include_str!("apply.py");

/// What is to be built.
#[derive(Debug, Clone, Copy)]
pub struct ApplyRequest<'a> {
    /// The file that parts are copied from.
    pub old: &'a [u8],
    /// The file that is built; whatever has this name goes.
    pub new: &'a [u8],
    /// The size it will have.
    pub size_bytes: u64,
    /// The permission bits it gets.
    pub mode: u16,
    /// When it was changed.
    pub mtime: Mtime,
}

/// Builds the script of a program that reads frames from its standard input; it needs `python3`. Nothing is made before
/// the first frame comes.
pub fn apply_script(request: &ApplyRequest<'_>, mark: &RunToken) -> String {
    let mut script = beginning(mark, &[("old", request.old), ("new", request.new)]);
    let nanoseconds = i128::from(request.mtime.seconds) * 1_000_000_000
        + i128::from(request.mtime.nanoseconds().unwrap_or(0));
    let _ = writeln!(
        script,
        "exec python3 -S -c {} \"$old\" \"$new\" \"$m\" {} {:o} {nanoseconds}\nexit 127\n}}",
        quote(PROGRAM),
        request.size_bytes,
        request.mode
    );
    script
}

/// The frame that copies a part of the old file.
pub fn copy_frame(offset: u64, length: u64) -> [u8; 17] {
    let mut frame = [b'C'; 17];
    let (_, operands) = frame.split_at_mut(1);
    let (front, back) = operands.split_at_mut(8);
    front.copy_from_slice(&offset.to_be_bytes());
    back.copy_from_slice(&length.to_be_bytes());
    frame
}

/// What stands before so many new bytes.
pub fn data_head(length: u32) -> [u8; 5] {
    let [a, b, c, d] = length.to_be_bytes();
    [b'D', a, b, c, d]
}

/// The frame that ends the file: the sum of all of it, and what the old file must still look like.
pub fn end_frame(whole: &Checksum, old: &OldStamp) -> Vec<u8> {
    let stamp = old.as_bytes();
    let mut frame = Vec::with_capacity(6 + stamp.len());
    frame.push(b'E');
    frame.extend_from_slice(&whole.value().to_be_bytes());
    frame.push(stamp.len() as u8);
    frame.extend_from_slice(stamp);
    frame
}

/// How the building went. Where it did not go well, nothing is left of the new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyVerdict {
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
pub fn parse_apply(mark: &RunToken, output: &[u8]) -> Option<ApplyVerdict> {
    let begin = format!("RSMCP:{mark}:apply:");
    let from = position(output, begin.as_bytes())? + begin.len();
    let line = output.get(from..)?;
    let length = line.iter().position(|byte| *byte == b'\n')?;
    Some(match line.get(..length)? {
        b"ok" => ApplyVerdict::Done,
        b"hash" | b"size" => ApplyVerdict::OtherContent,
        b"old" => ApplyVerdict::NoOld,
        b"cut" => ApplyVerdict::CutOff,
        b"space" => ApplyVerdict::NoSpace,
        words => {
            let number = words.strip_prefix(b"failed:")?;
            ApplyVerdict::Failed(std::str::from_utf8(number).ok()?.parse().ok()?)
        }
    })
}
