//! What changed inside a large file, found without sending it, and the hashes by which unfinished ones are continued.
//!
//! The host says a sum and a hash for each block of the file it has ([`signature_script`]). The new content is gone
//! through here, byte by byte, for places where such a block stands ([`Matcher`]), so that insertions and deletions do
//! not move everything behind them out of reach. What comes of it are instructions: copy this part of the old file, then
//! take these new bytes. A program on the host carries them out into a second file and checks that the
//! old one is still what it was and that the sum of the whole is right ([`apply_script`]). All three work at the same time:
//! the search begins while the host still tells its blocks, and the host builds while it goes on. Memory here is bounded by
//! the number of blocks, not by the size of the file.

mod apply;
mod matcher;
mod ranges;
mod rolling;
mod signature;

pub use apply::{
    ApplyRequest, ApplyVerdict, apply_script, copy_frame, data_head, end_frame, parse_apply,
};
pub use matcher::{Instruction, Matcher};
pub use ranges::{
    MOST_RANGES, RANGE_BYTES, RangeDigest, RangeHashes, parse_ranges, range_hashes_script,
};
pub use rolling::Checksum;
pub use signature::{
    Block, BlockLength, MOST_BLOCKS, OldStamp, Signature, SignatureError, SignatureReader,
    signature_script,
};

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;

use crate::ids::RunToken;
use crate::sync::scan::assignment;

/// Text of login files that may come before our words.
const MOST_NOISE: usize = 64 * 1024;

/// How every script of this room begins; relative paths count from the home.
fn beginning(mark: &RunToken, paths: &[(&str, &[u8])]) -> String {
    let mut script =
        format!("{{\nLC_ALL=C; export LC_ALL; unset CDPATH; set -f\nm={mark}\ncd 2>/dev/null\n");
    for (variable, path) in paths {
        script.push_str(&assignment(variable, path));
    }
    script
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
