//! Paths and names on a host: bytes, of which most are text.

use std::fmt;

use crate::output::clean_text;

/// No path is longer; systems that people use end at a fraction of it.
pub const LONGEST_PATH: usize = 32 * 1024;

/// Characters of a path that are shown.
const LONGEST_SHOWN: usize = 300;

/// Why bytes are no path.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum PathError {
    /// There are none.
    #[error("a path is empty")]
    Empty,
    /// A byte that no path can have.
    #[error("the path `{}` has a NUL byte", shown_bytes(.0))]
    Nul(Vec<u8>),
    /// There are too many.
    #[error("a path has {0} bytes, more than {LONGEST_PATH}")]
    TooLong(usize),
}

/// A path on a host: not empty, without NUL, not too long.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemotePath(Vec<u8>);

impl RemotePath {
    /// Takes bytes for a path; a relative one begins where the server does, mostly the home.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(PathError::Empty),
            1..=LONGEST_PATH if bytes.contains(&0) => Err(PathError::Nul(bytes)),
            1..=LONGEST_PATH => Ok(RemotePath(bytes)),
            length => Err(PathError::TooLong(length)),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path of an entry of this directory.
    pub fn join(&self, name: &EntryName) -> Result<Self, PathError> {
        let mut bytes = self.0.clone();
        if bytes.last() != Some(&b'/') {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name.as_bytes());
        RemotePath::new(bytes)
    }
}

impl fmt::Display for RemotePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&shown_bytes(&self.0))
    }
}

impl fmt::Debug for RemotePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{self}`")
    }
}

/// Why a name in a listing is none.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum EntryNameError {
    /// It names the directory itself or the one above.
    #[error("a name is `.` or `..`")]
    Dots,
    /// It would lead out of the directory, or nowhere.
    #[error("the name `{}` is empty, or has a slash or a NUL byte", shown_bytes(.0))]
    Unsafe(Vec<u8>),
    /// No system has such long ones.
    #[error("a name has {0} bytes")]
    TooLong(usize),
}

/// The name of an entry of a directory: one step down, never out of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName(Vec<u8>);

impl EntryName {
    /// Takes bytes that a server listed for a name.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, EntryNameError> {
        let bytes = bytes.into();
        match bytes.as_slice() {
            b"." | b".." => Err(EntryNameError::Dots),
            long if long.len() > LONGEST_PATH => Err(EntryNameError::TooLong(long.len())),
            name if name.is_empty() || name.contains(&b'/') || name.contains(&0) => {
                Err(EntryNameError::Unsafe(bytes))
            }
            _ => Ok(EntryName(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&shown_bytes(&self.0))
    }
}

impl fmt::Debug for EntryName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{self}`")
    }
}

/// Bytes as one line to look at: two that differ look different unless they are very long.
pub fn shown_bytes(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let clean = clean_text(chunk.valid().replace('\\', "\\\\").as_bytes());
        for character in clean.chars() {
            match character {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                plain => text.push(plain),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if let Some((cut, _)) = text.char_indices().nth(LONGEST_SHOWN) {
        text.truncate(cut);
        text.push('…');
    }
    text
}
