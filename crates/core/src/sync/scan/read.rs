//! Reads a scan as its bytes arrive.

use super::record::{self, RecordFault};
use super::script::Scanner;
use crate::ids::RunToken;
use crate::sync::entry::Entry;
use crate::sync::path::{LONGEST_PATH, PathError, RelPath, shown};
use crate::sync::temporary::is_temporary;

/// Login files may say this much before the scan begins.
const MOST_NOISE: usize = 64 * 1024;

/// So many mounts below a root are remembered.
const MOST_MOUNTS: usize = 1000;

/// So many things of ours that were left are remembered.
const MOST_TEMPORARIES: usize = 100;

/// A path, a link target and the fields.
const LONGEST_RECORD: usize = 2 * LONGEST_PATH + 512;

/// Why a scan cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The script never began.
    #[error("the host's shell did not begin the scan")]
    NotBegun,
    /// A record has no end.
    #[error("the host sent a record of more than {LONGEST_RECORD} bytes")]
    RecordTooLong,
    /// The output stopped before the script said that it was at its end.
    #[error("the scan broke off after {entries} entries")]
    BrokenOff {
        /// How many had come.
        entries: u64,
    },
}

/// What could not be listed; with any of these the scan is not the whole truth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanProblem {
    /// A directory could not be read.
    #[error("the directory `{shown}` cannot be read")]
    Unreadable {
        /// Its path, escaped.
        shown: String,
    },
    /// An entry was gone before it could be looked at.
    #[error("`{shown}` could not be looked at; it may be gone")]
    Vanished {
        /// Its path, escaped.
        shown: String,
    },
    /// An entry may not be looked at.
    #[error("`{shown}` could not be looked at: permission denied")]
    Denied {
        /// Its path, escaped.
        shown: String,
    },
    /// A link leads to a directory that it lies in.
    #[error("the link `{shown}` leads back to a directory above it")]
    Loop {
        /// Its path, escaped.
        shown: String,
    },
    /// A link that was to be followed leads to a place that may not be used.
    #[error("the link `{shown}` leads to a place that a sync may not use")]
    Outside {
        /// Its path, escaped.
        shown: String,
    },
    /// A path was refused.
    #[error("an entry was refused")]
    Path(#[from] PathError),
    /// A record made no sense.
    #[error("a record of the host could not be understood: `{shown}`")]
    Garbled {
        /// Its beginning, escaped.
        shown: String,
    },
    /// The listing program itself says that it was not complete.
    #[error("the host's listing program ended with status {status}")]
    Status {
        /// Its exit status.
        status: u32,
    },
}

impl ScanProblem {
    /// The path it is about, escaped; empty where it is about the whole.
    pub fn path(&self) -> String {
        match self {
            ScanProblem::Unreadable { shown }
            | ScanProblem::Vanished { shown }
            | ScanProblem::Denied { shown }
            | ScanProblem::Loop { shown }
            | ScanProblem::Outside { shown }
            | ScanProblem::Garbled { shown } => shown.clone(),
            ScanProblem::Path(error) => error.shown.clone(),
            ScanProblem::Status { .. } => String::new(),
        }
    }
}

/// One thing a scan has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// An entry.
    Entry(Entry),
    /// Something that could not be listed.
    Problem(ScanProblem),
}

/// What the root of a scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootKind {
    /// A directory.
    Directory,
    /// A directory that cannot be entered or read.
    Unreadable,
    /// Something that is no directory.
    File,
    /// Nothing is there.
    Missing,
}

/// What is known when a scan is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanSummary {
    /// What the root is.
    pub root: RootKind,
    /// Where the root lies, or would lie, links above it resolved and without dots; empty when that could not be told.
    pub location: Vec<u8>,
    /// Whether the path leads back out of a directory that does not exist. Then nobody has looked at the location.
    pub is_detour: bool,
    /// The home directory of the login, links resolved.
    pub home: Vec<u8>,
    /// Directories below the root on which something else is mounted.
    pub mounts: Vec<RelPath>,
    /// The device that the root lies on, where the host could tell.
    pub device: Option<u64>,
    /// The permissions of the root, where the host could tell.
    pub mode: Option<u32>,
    /// How many entries were listed.
    pub entries: u64,
    /// How many problems there were.
    pub problems: u64,
    /// The first things of ours that were still being written when they were left.
    pub temporaries: Vec<Entry>,
}

impl ScanSummary {
    /// Counts what was listed over the file protocol; gives back what is not ours.
    pub fn count(&mut self, found: Found) -> Option<Found> {
        let found = match found {
            Found::Entry(entry) => unless_temporary(entry, &mut self.temporaries)?,
            problem @ Found::Problem(_) => problem,
        };
        match found {
            Found::Entry(_) => self.entries += 1,
            Found::Problem(_) => self.problems += 1,
        }
        Some(found)
    }
}

/// Reads the output of [`scan_script`](super::scan_script), in pieces of any size.
#[derive(Debug)]
pub struct ScanReader {
    begin: Vec<u8>,
    /// What every record ends in.
    end: Vec<u8>,
    has_begun: bool,
    is_complete: bool,
    pending: Vec<u8>,
    root: Option<RootKind>,
    location: Vec<u8>,
    is_detour: bool,
    home: Vec<u8>,
    device: Option<u64>,
    mode: Option<u32>,
    mounts: Vec<RelPath>,
    entries: u64,
    problems: u64,
    temporaries: Vec<Entry>,
}

impl ScanReader {
    /// One for the scan with this mark.
    pub fn new(mark: &RunToken, scanner: Scanner) -> Self {
        ScanReader {
            begin: format!("RSMCP:{mark}:scan\n").into_bytes(),
            end: match scanner {
                Scanner::FindStat => format!("//{mark}\n").into_bytes(),
                Scanner::Find | Scanner::Python | Scanner::Perl | Scanner::Files => vec![0],
            },
            has_begun: false,
            is_complete: false,
            pending: Vec::new(),
            root: None,
            location: Vec::new(),
            is_detour: false,
            home: Vec::new(),
            device: None,
            mode: None,
            mounts: Vec::new(),
            entries: 0,
            problems: 0,
            temporaries: Vec::new(),
        }
    }

    /// Takes the next bytes and hands over what they complete.
    pub fn feed(&mut self, bytes: &[u8], take: &mut impl FnMut(Found)) -> Result<(), ScanError> {
        if self.is_complete {
            return Ok(());
        }
        self.pending.extend_from_slice(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let read = self.read(&pending, take);
        pending.drain(..read.min(pending.len()));
        let limit = if self.has_begun {
            LONGEST_RECORD
        } else {
            MOST_NOISE
        };
        self.pending = pending;
        match (
            self.pending.len() > limit && !self.is_complete,
            self.has_begun,
        ) {
            (false, _) => Ok(()),
            (true, true) => Err(ScanError::RecordTooLong),
            (true, false) => Err(ScanError::NotBegun),
        }
    }

    /// Says what is known once the output is at its end.
    pub fn finish(self) -> Result<ScanSummary, ScanError> {
        let Some(root) = self.root.filter(|_| self.has_begun) else {
            return Err(ScanError::NotBegun);
        };
        if !self.is_complete {
            return Err(ScanError::BrokenOff {
                entries: self.entries,
            });
        }
        Ok(ScanSummary {
            root,
            location: self.location,
            is_detour: self.is_detour,
            home: self.home,
            mounts: self.mounts,
            device: self.device,
            mode: self.mode,
            entries: self.entries,
            problems: self.problems,
            temporaries: self.temporaries,
        })
    }

    /// Reads whole records; the number of bytes they take.
    fn read(&mut self, bytes: &[u8], take: &mut impl FnMut(Found)) -> usize {
        let mut at = 0;
        if !self.has_begun {
            let Some(begin) = position(bytes, &self.begin) else {
                return 0;
            };
            self.has_begun = true;
            at = begin + self.begin.len();
        }
        while let Some(rest) = bytes.get(at..).filter(|_| !self.is_complete) {
            let Some(length) = position(rest, &self.end) else {
                break;
            };
            if let Some(found) = self.record(rest.get(..length).unwrap_or_default()) {
                match found {
                    Found::Entry(_) => self.entries += 1,
                    Found::Problem(_) => self.problems += 1,
                }
                take(found);
            }
            at += length + self.end.len();
        }
        at
    }

    fn record(&mut self, record: &[u8]) -> Option<Found> {
        if let Some(word) = record.strip_prefix(b"//") {
            return self.word(word).map(Found::Problem);
        }
        match record::parse(record) {
            Ok(entry) => unless_temporary(entry, &mut self.temporaries),
            Err(RecordFault::Path(error)) => Some(Found::Problem(ScanProblem::Path(error))),
            Err(RecordFault::Garbled) => Some(Found::Problem(garbled(record))),
        }
    }

    /// A word of the script about itself.
    fn word(&mut self, word: &[u8]) -> Option<ScanProblem> {
        let split = word.iter().position(|byte| *byte == b' ');
        let Some((key, value)) = split.and_then(|at| Some((word.get(..at)?, word.get(at + 1..)?)))
        else {
            return Some(garbled(word));
        };
        let shown_path = || shown(value.strip_prefix(b"./").unwrap_or(value)).text;
        match key {
            b"root" => self.root = Some(root_kind(value)),
            b"where" => {
                self.location = without_dots(value);
                self.is_detour = names(value).any(|name| name == b"..");
            }
            b"home" => self.home = value.to_vec(),
            b"device" => self.device = number(value),
            b"mode" => self.mode = permissions(value),
            b"mount" => {
                let room = self.mounts.len() < MOST_MOUNTS;
                let path = RelPath::parse(&plain_mount(value)).ok();
                self.mounts.extend(path.filter(|_| room));
            }
            b"end" => self.is_complete = true,
            b"status" => {
                return match number(value) {
                    Some(0) => None,
                    Some(status) => Some(ScanProblem::Status { status }),
                    None => Some(garbled(word)),
                };
            }
            b"unreadable" => {
                return Some(ScanProblem::Unreadable {
                    shown: shown_path(),
                });
            }
            b"vanished" => {
                return Some(ScanProblem::Vanished {
                    shown: shown_path(),
                });
            }
            b"loop" => {
                return Some(ScanProblem::Loop {
                    shown: shown_path(),
                });
            }
            _ => return Some(garbled(word)),
        }
        None
    }
}

/// Keeps apart what is ours and still being written, or lies in such a directory.
fn unless_temporary(entry: Entry, temporaries: &mut Vec<Entry>) -> Option<Found> {
    if !entry.path.components().any(is_temporary) {
        return Some(Found::Entry(entry));
    }
    if is_temporary(entry.path.name()) && temporaries.len() < MOST_TEMPORARIES {
        temporaries.push(entry);
    }
    None
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

/// An absolute path without `.`, `..` and double slashes; empty when it is none.
///
/// Only the part that does not exist has any of them, so no link is passed over.
fn without_dots(path: &[u8]) -> Vec<u8> {
    if !path.starts_with(b"/") {
        return Vec::new();
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for name in names(path) {
        match name {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    [b"/", kept.join(b"/".as_slice()).as_slice()].concat()
}

fn root_kind(value: &[u8]) -> RootKind {
    match value {
        b"d" => RootKind::Directory,
        b"f" => RootKind::File,
        b"m" => RootKind::Missing,
        _ => RootKind::Unreadable,
    }
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn permissions(value: &[u8]) -> Option<u32> {
    let mode = u32::from_str_radix(std::str::from_utf8(value).ok()?, 8).ok()?;
    Some(mode & 0o777)
}

/// The kernel writes blanks and backslashes of a mount point in octal.
fn plain_mount(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

fn garbled(record: &[u8]) -> ScanProblem {
    ScanProblem::Garbled {
        shown: shown(record.get(..200).unwrap_or(record)).text,
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    match wanted {
        [byte] => bytes.iter().position(|other| other == byte),
        _ => bytes
            .windows(wanted.len())
            .position(|window| window == wanted),
    }
}
