//! Entries for tests, written shortly.

use super::entry::{Entry, Kind, LinkEnd, Mtime, Special};
use super::path::RelPath;

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn entry(text: &str, kind: Kind) -> Entry {
    let is_directory = kind.is_directory();
    Entry {
        path: path(text),
        kind,
        size_bytes: 0,
        mtime: Mtime::exact(1_700_000_000, 5).unwrap(),
        mode: if is_directory { 0o755 } else { 0o644 },
        identity: None,
    }
}

/// A file of that size, changed so many seconds after a fixed time.
pub(crate) fn file(text: &str, size_bytes: u64, seconds: i64) -> Entry {
    Entry {
        size_bytes,
        mtime: Mtime::exact(1_700_000_000 + seconds, 5).unwrap(),
        ..entry(text, Kind::File)
    }
}

pub(crate) fn directory(text: &str) -> Entry {
    entry(text, Kind::Directory)
}

pub(crate) fn link(text: &str, target: &str, end: LinkEnd) -> Entry {
    let target = target.as_bytes().into();
    entry(text, Kind::Link { target, end })
}

pub(crate) fn fifo(text: &str) -> Entry {
    entry(text, Kind::Special(Special::Fifo))
}
