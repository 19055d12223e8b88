//! Reads files of this machine into an archive.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use remote_sandbox_core::archive::{ArchiveWriter, Precision, WriteError};
use remote_sandbox_core::sync::receive::{SEAL, UNSEALED};
use remote_sandbox_core::sync::roots::LocalRoots;
use remote_sandbox_core::sync::staging::{Batch, Staged};
use remote_sandbox_core::sync::{Entry, RelPath, Stamp};
use tokio::sync::mpsc;

use super::progress::Progress;
use crate::beneath::{BeneathError, Tree};

/// Bytes that are handed on at once.
const CHUNK: usize = 256 * 1024;

/// Where files of this machine are read.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) tree: Tree,
    /// A single file that has another name in the target.
    pub(super) lone: Option<RelPath>,
    /// Where links may lead to when they are read as what they lead to; none when they are not.
    pub(super) follow: Option<Arc<LocalRoots>>,
}

impl Source {
    /// Opens the file of an entry.
    pub(super) fn open(&self, path: &RelPath) -> Result<(std::fs::File, Entry), BeneathError> {
        let path = self.lone.as_ref().unwrap_or(path);
        match &self.follow {
            Some(roots) => self
                .tree
                .open_followed(path, |real| roots.judge(real).is_ok()),
            None => self.tree.open_file(path),
        }
    }
}

/// Why an entry is not in the archive, or not rightly.
#[derive(Debug, thiserror::Error)]
pub(super) enum PackFault {
    /// It could not be opened or read.
    #[error(transparent)]
    Unreadable(#[from] BeneathError),
    /// It was written to at the same time.
    #[error("it was changed while it was read")]
    Changed,
    /// It has another size than when it was looked at.
    #[error("it cannot be put into an archive")]
    Archive(#[from] WriteError),
}

/// What was packed.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Entries from this one on were not packed.
    pub(super) count: usize,
    /// Entries that are missing from the archive.
    pub(super) left_out: Vec<(usize, PackFault)>,
    /// Entries that are in it and must not be used.
    pub(super) spoiled: Vec<usize>,
    /// How files looked when they were read, by their number.
    pub(super) stamps: Vec<(usize, Stamp)>,
    /// Bytes of files.
    pub(super) bytes: u64,
}

/// Packs a batch, in pieces; blocking. The receiver going away ends it.
pub(super) fn pack(
    source: &Source,
    batch: &Batch,
    stop: &AtomicBool,
    pieces: mpsc::Sender<Bytes>,
    progress: &Progress,
) -> Packed {
    let mut packer = Packer {
        progress,
        writer: ArchiveWriter::new(Precision::Nanoseconds),
        waiting: BytesMut::with_capacity(CHUNK),
        pieces,
        packed: Packed::default(),
    };
    for (number, staged) in batch.staged.iter().enumerate() {
        if packer.pieces.is_closed() || stop.load(Ordering::Relaxed) {
            break;
        }
        packer.packed.count = number + 1;
        if let Err(fault) = packer.add(source, number, staged) {
            packer.packed.left_out.push((number, fault));
        }
    }
    if let Some(folder) = batch.folders.first() {
        packer.seal(folder);
    }
    if let Ok(end) = packer.writer.finish() {
        packer.waiting.extend_from_slice(end);
    }
    let rest = packer.waiting.freeze();
    let _ = packer.pieces.blocking_send(rest);
    packer.packed
}

struct Packer<'a> {
    progress: &'a Progress,
    writer: ArchiveWriter,
    waiting: BytesMut,
    pieces: mpsc::Sender<Bytes>,
    packed: Packed,
}

impl Packer<'_> {
    fn give(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= CHUNK {
            let full = std::mem::replace(&mut self.waiting, BytesMut::with_capacity(CHUNK));
            let _ = self.pieces.blocking_send(full.freeze());
        }
    }

    fn add(&mut self, source: &Source, number: usize, staged: &Staged) -> Result<(), PackFault> {
        let mut entry = Entry {
            path: staged.place.clone(),
            mode: staged.source.carried_mode(),
            ..staged.source.clone()
        };
        if entry.kind.is_directory() {
            // Others may not look into it before it is complete, and we have to be able to fill and move it.
            entry.mode |= 0o700;
        }
        if !entry.kind.is_file() {
            let head = self.writer.begin(&entry)?;
            self.give(&head);
            let tail = self.writer.end_entry()?;
            self.give(tail);
            return Ok(());
        }
        let (mut file, found) = source.open(&staged.source.path)?;
        entry.size_bytes = found.size_bytes;
        entry.mtime = found.mtime;
        entry.mode = found.carried_mode();
        let head = self.writer.begin(&entry)?;
        self.give(&head);
        let is_whole = self.content(&mut file)?;
        let tail = self.writer.end_entry()?;
        self.give(tail);
        let after = crate::beneath::stamp_of(&file).ok();
        if is_whole && after == Some(found.stamp()) {
            self.packed.bytes += found.size_bytes;
            self.packed.stamps.push((number, found.stamp()));
        } else {
            self.packed.spoiled.push(number);
        }
        Ok(())
    }

    /// The content of a file, filled up where it got shorter; whether it was all there.
    fn content(&mut self, file: &mut std::fs::File) -> Result<bool, PackFault> {
        let mut is_whole = true;
        while self.writer.missing_bytes() > 0 {
            let missing = usize::try_from(self.writer.missing_bytes()).unwrap_or(usize::MAX);
            let room = CHUNK.saturating_sub(self.waiting.len()).clamp(1, CHUNK);
            let begin = self.waiting.len();
            self.waiting.resize(begin + missing.min(room), 0);
            let target = self.waiting.get_mut(begin..).unwrap_or_default();
            let read = match is_whole {
                true => file.read(target).unwrap_or(0),
                false => target.len(),
            };
            if read == 0 {
                is_whole = false;
                self.waiting.truncate(begin);
                continue;
            }
            self.waiting.truncate(begin + read);
            self.writer.content(read)?;
            self.progress.moved(read as u64);
            self.give(&[]);
            if self.pieces.is_closed() {
                // Nobody wants it; what is written from here on goes nowhere.
                is_whole = false;
            }
        }
        Ok(is_whole)
    }

    /// The last entry, which says whether all before it is right.
    fn seal(&mut self, folder: &RelPath) {
        let name = match self.packed.spoiled.is_empty() {
            true => SEAL,
            false => UNSEALED,
        };
        let Ok(path) = folder.join(name) else {
            return;
        };
        let entry = Entry {
            path,
            kind: remote_sandbox_core::sync::Kind::File,
            size_bytes: 0,
            mtime: remote_sandbox_core::sync::Mtime::whole(0),
            mode: 0o600,
            identity: None,
        };
        if let Ok(head) = self.writer.begin(&entry) {
            self.give(&head);
        }
        let _ = self.writer.end_entry();
    }
}
