//! Paths below the root of a sync: bytes, never outside, in the order both sides are walked in.

use std::cmp::Ordering;
use std::fmt;

use crate::output::is_harmless;

/// A path may be this long in bytes; no system opens a longer one in one piece.
pub const LONGEST_PATH: usize = 4096;

/// One name in a path may be this long in bytes.
pub const LONGEST_NAME: usize = 255;

/// How much of a refused path an error shows, in bytes.
const LONGEST_SHOWN: usize = 200;

/// A path relative to the root of a sync: at least one name, none of them empty, `.` or `..`, no NUL.
///
/// The order is by components, so that a directory comes before its content and the content is not torn apart
/// (`a`, `a/b`, `a-b`). It is the order of the bytes when `/` and `0x01` change places, which a host can sort by
/// with `tr` and `sort` in the C locale; no name holds a `/`, so nothing is lost by the exchange.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RelPath(Box<[u8]>);

/// What is wrong with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// There is nothing.
    #[error("is empty")]
    Empty,
    /// It begins with a slash.
    #[error("is absolute")]
    Absolute,
    /// Two slashes follow each other, or one stands at the end.
    #[error("has an empty name in it")]
    EmptyName,
    /// It has a name that means another directory.
    #[error("has `.` or `..` in it")]
    Dots,
    /// It holds a NUL byte.
    #[error("has a NUL byte in it")]
    Nul,
    /// It is too long as a whole.
    #[error("is longer than {LONGEST_PATH} bytes")]
    TooLong,
    /// One of its names is too long.
    #[error("has a name longer than {LONGEST_NAME} bytes")]
    NameTooLong,
}

/// A path that was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path `{shown}` {fault}")]
pub struct PathError {
    /// The beginning of the path, escaped.
    pub shown: String,
    /// What is wrong with it.
    pub fault: PathFault,
}

impl RelPath {
    /// Checks the bytes of a path.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        match fault_of(bytes) {
            None => Ok(RelPath(bytes.into())),
            Some(fault) => Err(PathError {
                shown: shown(bytes.get(..LONGEST_SHOWN).unwrap_or(bytes)).text,
                fault,
            }),
        }
    }

    /// A path of names that were parts of paths before, which has been checked with them.
    pub(super) fn of_checked_names(bytes: &[u8]) -> Self {
        debug_assert_eq!(fault_of(bytes), None);
        RelPath(bytes.into())
    }

    /// A path of one name that is made of letters only, which is always one.
    pub fn named<const N: usize>(name: [u8; N]) -> Self {
        let name = name.map(|byte| {
            if byte.is_ascii_alphabetic() {
                byte
            } else {
                b'x'
            }
        });
        RelPath(Box::new(name))
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The names of the path, from the root down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        self.0.split(|byte| *byte == b'/')
    }

    /// The last name.
    pub fn name(&self) -> &[u8] {
        self.components().next_back().unwrap_or_default()
    }

    /// The directory the entry lies in; none when that is the root.
    pub fn parent(&self) -> Option<RelPath> {
        self.parent_bytes().map(|bytes| RelPath(bytes.into()))
    }

    /// The bytes of the directory the entry lies in; none when that is the root.
    pub fn parent_bytes(&self) -> Option<&[u8]> {
        let slash = self.0.iter().rposition(|byte| *byte == b'/')?;
        self.0.get(..slash)
    }

    /// The path of an entry in this directory.
    pub fn join(&self, name: &[u8]) -> Result<RelPath, PathError> {
        RelPath::parse(&[&self.0, b"/".as_slice(), name].concat())
    }

    /// Whether the path lies in the directory, at any depth.
    pub fn is_below(&self, directory: &RelPath) -> bool {
        self.0
            .strip_prefix(&*directory.0)
            .is_some_and(|rest| rest.first() == Some(&b'/'))
    }

    /// The path as text for a reader.
    pub fn shown(&self) -> Shown {
        shown(&self.0)
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        path_order(&self.0, &other.0)
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RelPath({})", self.shown())
    }
}

/// The order of paths, on their bytes.
pub(super) fn path_order(left: &[u8], right: &[u8]) -> Ordering {
    let difference = left.iter().zip(right).find(|(one, other)| one != other);
    match difference {
        Some((one, other)) => exchanged(*one).cmp(&exchanged(*other)),
        None => left.len().cmp(&right.len()),
    }
}

/// A byte with `/` and `0x01` in each other's place.
pub(super) fn exchanged(byte: u8) -> u8 {
    match byte {
        b'/' => 1,
        1 => b'/',
        other => other,
    }
}

fn fault_of(bytes: &[u8]) -> Option<PathFault> {
    match bytes {
        [] => return Some(PathFault::Empty),
        [b'/', ..] => return Some(PathFault::Absolute),
        _ if bytes.len() > LONGEST_PATH => return Some(PathFault::TooLong),
        _ if bytes.contains(&0) => return Some(PathFault::Nul),
        _ => {}
    }
    bytes
        .split(|byte| *byte == b'/')
        .find_map(|name| match name {
            b"" => Some(PathFault::EmptyName),
            b"." | b".." => Some(PathFault::Dots),
            name if name.len() > LONGEST_NAME => Some(PathFault::NameTooLong),
            _ => None,
        })
}

/// A path in a directory, with one slash between the two.
pub fn inside(directory: &[u8], path: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, path].concat()
}

/// Bytes as text for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The text; one line, harmless to look at.
    pub text: String,
    /// Whether bytes were escaped: then `\xNN` is a byte, `\u{N}` a character and `\\` a backslash.
    pub escaped: bool,
}

impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

/// Shows the bytes of a name: as they are when they are plain text, else escaped without loss.
pub fn shown(bytes: &[u8]) -> Shown {
    let is_plain =
        |character: char| is_harmless(character) && !matches!(character, '\n' | '\r' | '\t');
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.chars().all(is_plain)
    {
        return Shown {
            text: text.to_owned(),
            escaped: false,
        };
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str(r"\\"),
                plain if is_plain(plain) => text.push(plain),
                ascii if ascii.is_ascii() => text.push_str(&format!("\\x{:02x}", u32::from(ascii))),
                other => text.push_str(&format!("\\u{{{:x}}}", u32::from(other))),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Shown {
        text,
        escaped: true,
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
