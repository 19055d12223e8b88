//! The scripts that read a file, and the reader of what they say.

use std::fmt::Write as _;

use super::piece::BEYOND;
use super::{Part, Piece};
use crate::ids::RunToken;
use crate::sync::Special;
use crate::sync::scan::{HostPath, assignment};

/// Login files may say this much before the script begins, and a header is no longer.
const MOST_NOISE: usize = 64 * 1024;

/// What a path leads to, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// A file that can be read.
    File,
    /// A file that cannot be read, or something behind a directory that cannot be entered.
    Unreadable,
    /// A directory.
    Directory,
    /// A link that leads nowhere.
    Dangling,
    /// Nothing is there.
    Missing,
    /// Something that must not be opened, for it may never answer.
    Special(Special),
}

/// What is said before the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the path leads to.
    pub state: FileState,
    /// The size that the file system tells.
    pub size_bytes: u64,
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The script never began.
    #[error("the host's shell did not begin to read")]
    NotBegun,
    /// The answer stopped before its end.
    #[error("the answer of the host broke off")]
    BrokenOff,
}

/// What was read of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAnswer {
    /// What was said first.
    pub header: Header,
    /// The size when the reading was over.
    pub size_after: u64,
    /// Whether the file was opened and read without an error.
    pub is_read: bool,
    /// What there is to see.
    pub piece: Piece,
}

/// Says what a path is without opening it. A FIFO would never answer.
const LOOK: &str = r#"cd 2>/dev/null
kind=m
if [ -d "$file" ]; then kind=d
elif [ -f "$file" ]; then kind=f; [ -r "$file" ] || kind=u
elif [ -p "$file" ]; then kind=p
elif [ -S "$file" ]; then kind=s
elif [ -b "$file" ]; then kind=b
elif [ -c "$file" ]; then kind=c
elif [ -e "$file" ]; then kind=o
elif [ -h "$file" ]; then kind=l
else
way=$file
until [ -d "$way" ] || [ "$way" = . ]; do way=${way%/*}; [ -n "$way" ] || way=/; done
[ -x "$way" ] || kind=u
fi
size() { set -- $(ls -lnLd "$file" 2>/dev/null); printf %s "${5:-0}"; }
before=0
[ "$kind" != f ] || before=$(size)
printf 'RSMCP:%s:file:%s:%s\n' "$m" "$kind" "$before"
[ "$kind" = f ] || exit 3
"#;

fn beginning(path: &HostPath, mark: &RunToken) -> String {
    let mut script = String::from("{\nLC_ALL=C; export LC_ALL; unset CDPATH; set -f\n");
    let _ = writeln!(script, "m={mark}");
    script.push_str(&assignment("file", path.as_bytes()));
    script.push_str(LOOK);
    script
}

/// Builds the script that reads a part of a file; `mark` tells its words from other text.
pub fn read_script(path: &HostPath, part: Part, budget: usize, mark: &RunToken) -> String {
    let mut script = beginning(path, mark);
    let most = (budget as u64).saturating_add(BEYOND as u64);
    let _ = writeln!(script, "part() {{ {}; }}", part.commands(most));
    // Files of the kernel say that they are empty, so nothing may seek in them; and a failed `exec` ends
    // some shells by itself.
    script.push_str(
        "( exec <\"$file\" || exit 1; if [ \"$before\" = 0 ]; then cat | part; else part; fi ) 2>/dev/null\n",
    );
    script.push_str("printf 'RSMCP:%s:end:%s:%s\\n' \"$m\" $? \"$(size)\"\nexit 0\n}\n");
    script
}

/// Builds the script that sends a whole file after its header, of whatever size.
pub fn whole_script(path: &HostPath, mark: &RunToken) -> String {
    let mut script = beginning(path, mark);
    script.push_str("exec cat <\"$file\"\nexit 1\n}\n");
    script
}

/// Reads the header and says where the content begins; none while it has not come whole.
pub fn parse_header(mark: &RunToken, bytes: &[u8]) -> Result<Option<(Header, usize)>, ReadError> {
    let begin = format!("RSMCP:{mark}:file:");
    let found = position(bytes, begin.as_bytes()).and_then(|at| {
        let from = at + begin.len();
        let line = bytes.get(from..)?;
        let length = line.iter().position(|byte| *byte == b'\n')?;
        Some((line.get(..length)?, from + length + 1))
    });
    let Some((line, end)) = found else {
        return if bytes.len() > MOST_NOISE {
            Err(ReadError::NotBegun)
        } else {
            Ok(None)
        };
    };
    let header = std::str::from_utf8(line).ok().and_then(header);
    header
        .map(|header| Some((header, end)))
        .ok_or(ReadError::NotBegun)
}

fn header(line: &str) -> Option<Header> {
    let (kind, size) = line.split_once(':')?;
    let state = match kind {
        "f" => FileState::File,
        "u" => FileState::Unreadable,
        "d" => FileState::Directory,
        "l" => FileState::Dangling,
        "m" => FileState::Missing,
        "p" => FileState::Special(Special::Fifo),
        "s" => FileState::Special(Special::Socket),
        "b" => FileState::Special(Special::BlockDevice),
        "c" => FileState::Special(Special::CharacterDevice),
        _ => FileState::Special(Special::Unknown),
    };
    Some(Header {
        state,
        size_bytes: size.parse().ok()?,
    })
}

/// Reads the answer to [`read_script`].
pub fn parse_read(
    mark: &RunToken,
    answer: &[u8],
    part: Part,
    budget: usize,
) -> Result<ReadAnswer, ReadError> {
    let (header, from) = parse_header(mark, answer)?.ok_or(ReadError::NotBegun)?;
    let rest = answer.get(from..).unwrap_or_default();
    if header.state != FileState::File {
        return Ok(ReadAnswer {
            header,
            size_after: 0,
            is_read: false,
            piece: Piece::new(&[], part, budget),
        });
    }
    let (content, status, size_after) = trailer(mark, rest).ok_or(ReadError::BrokenOff)?;
    Ok(ReadAnswer {
        header,
        size_after,
        is_read: status == 0,
        piece: Piece::new(content, part, budget),
    })
}

/// The content, the status of the reading and the size after it.
fn trailer<'a>(mark: &RunToken, bytes: &'a [u8]) -> Option<(&'a [u8], u32, u64)> {
    let begin = format!("RSMCP:{mark}:end:");
    // It is short, so only the end of a long answer is looked at.
    let tail = bytes.len().saturating_sub(begin.len() + 64);
    let at = tail + position(bytes.get(tail..)?, begin.as_bytes())?;
    let words = std::str::from_utf8(bytes.get(at + begin.len()..)?).ok()?;
    let (status, size) = words.strip_suffix('\n')?.split_once(':')?;
    Some((bytes.get(..at)?, status.parse().ok()?, size.parse().ok()?))
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
