//! The scripts by which a part of one large file goes to a host or comes from it packed with gzip.
//!
//! The part is the end of the file, or what a range of it holds: it begins at a multiple of [`BLOCK`], where `dd` can
//! begin. What is written lies in the same unfinished file that the file protocol writes, so a transfer that is cut can be
//! continued either way.

use std::fmt::Write as _;

use super::scan::assignment;
use crate::ids::RunToken;

/// Where a part may begin: at a multiple of this.
pub const BLOCK: u64 = 64 * 1024;

/// What a script ends with where the host lacks what it takes.
pub const NO_GZIP: u32 = 95;

/// The script for `sh -c` that unpacks its standard input into a file that is there, from a block on.
pub fn take_script(path: &[u8], block: u64, mark: &RunToken) -> String {
    let mut script = begin(path);
    // Never through a link that somebody put there, and never into a file that is new.
    let _ = writeln!(
        script,
        "[ -f \"$f\" ] && [ ! -h \"$f\" ] || exit {NO_GZIP}\n\
         g=$({{ {{ gzip -dc; echo $? >&4; }} | dd of=\"$f\" bs={BLOCK} seek={block} conv=notrunc 4>&-; }} 4>&1)\n\
         [ $? = 0 ] && [ \"$g\" = 0 ] && printf 'RSMCP:%s:taken\\n' {mark}\n\
         exit 0"
    );
    script
}

/// Whether everything arrived and was written.
pub fn parse_taken(mark: &RunToken, output: &[u8]) -> bool {
    let word = format!("RSMCP:{mark}:taken");
    output
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

/// The script for `sh -c` that gives a file, packed, from a block on to its end.
pub fn give_script(path: &[u8], block: u64) -> String {
    let mut script = begin(path);
    // What may never answer is not opened.
    let _ = writeln!(
        script,
        "[ -f \"$f\" ] || exit {NO_GZIP}\n\
         dd if=\"$f\" bs={BLOCK} skip={block} 2>/dev/null | gzip -1 -c"
    );
    script
}

fn begin(path: &[u8]) -> String {
    let mut script = String::from("LC_ALL=C; export LC_ALL\ncd 2>/dev/null\n");
    script.push_str(&assignment("f", path));
    let _ = writeln!(
        script,
        "command -v gzip >/dev/null 2>&1 && command -v dd >/dev/null 2>&1 || exit {NO_GZIP}"
    );
    script
}

#[cfg(test)]
#[path = "squeezed_tests.rs"]
mod tests;
