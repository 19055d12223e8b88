//! What changed inside a large file, found without sending it, and the hashes by which unfinished ones are continued.
//!
//! One program on the host does its part ([`rebuild_script`]). It says a sum and a hash for each block of the file it has,
//! and puts each block into a second file, where it stood in the first. The new content is gone
//! through here, byte by byte, for places where such a block stands ([`Matcher`]), so that insertions and deletions do
//! not move everything behind them out of reach. What comes of it are instructions: this part stays, copy that part of the
//! old file to another place, take these new bytes here. What stays needs no second look, for it is what was hashed; of
//! what was copied the program checks the sum, and that the old file is still what it was. All of it goes on at the same
//! time: the search begins while the host still tells its blocks, and the host builds while it goes on. Memory here is
//! bounded by the number of blocks, not by the size of the file.

mod matcher;
mod ranges;
mod rebuild;
mod rolling;
mod signature;

pub use matcher::{Instruction, Matcher};
pub use ranges::{
    MOST_RANGES, RANGE_BYTES, RangeDigest, RangeHashes, parse_ranges, range_hashes_script,
};
pub use rebuild::{
    RebuildRequest, RebuildVerdict, copy_frame, data_head, end_frame, parse_rebuild, rebuild_script,
};
pub use rolling::Checksum;
pub use signature::{
    Block, BlockLength, MOST_BLOCKS, OldStamp, Signature, SignatureError, SignatureReader,
};

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "host_tests.rs"]
mod host_tests;

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
