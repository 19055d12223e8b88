//! The whole output of a run, both streams in the order they came, within bounds.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fsio::{self, FileError};

/// Output up to this size stays in memory and never touches the disk.
const IN_MEMORY: usize = 64 * 1024;

/// Output up to this size is kept whole.
const KEPT_WHOLE: u64 = 64 * 1024 * 1024;

/// Past that, this much of the end is kept.
const KEPT_TAIL: usize = 256 * 1024;

/// Name of the file in a run's folder.
const FILE_NAME: &str = "output";

/// A piece of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts.
    pub from: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Bytes before it that were asked for but are not kept.
    pub missing: u64,
}

/// Keeps the output of one run.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    head: Vec<u8>,
    file: Option<File>,
    kept: u64,
    tail: VecDeque<u8>,
    total: u64,
    fault: Option<String>,
}

impl Spool {
    /// A spool that writes into `folder` once memory does not suffice.
    pub fn new(folder: PathBuf) -> Self {
        Spool {
            folder,
            head: Vec::new(),
            file: None,
            kept: 0,
            tail: VecDeque::new(),
            total: 0,
            fault: None,
        }
    }

    /// Opens what an earlier process kept.
    pub fn reopen(folder: &Path, kept: u64, total: u64) -> Result<Self, FileError> {
        let path = folder.join(FILE_NAME);
        let mut spool = Spool::new(folder.to_owned());
        let (file_length, mut tail) = (kept, Vec::new());
        if path.exists() {
            let file = fsio::read_write_private(&path)?;
            let after = file
                .metadata()
                .map_or(0, |found| found.len())
                .saturating_sub(file_length);
            let after = after.min(KEPT_TAIL as u64).min(total.saturating_sub(kept));
            tail.resize(usize::try_from(after).unwrap_or(0), 0);
            if file.read_exact_at(&mut tail, file_length).is_err() {
                tail.clear();
            }
            spool.file = Some(file);
        }
        spool.kept = kept;
        spool.tail = tail.into();
        spool.total = total;
        Ok(spool)
    }

    /// Opens what another process keeps or kept until it broke off: whatever is there.
    pub fn reopen_unfinished(folder: &Path) -> Result<Self, FileError> {
        let length = fsio::bytes_of(&folder.join(FILE_NAME)).min(KEPT_WHOLE);
        Spool::reopen(folder, length, length)
    }

    /// Adds bytes at the end. A full disk costs the rest of the output, never the run.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = usize::try_from(KEPT_WHOLE - self.kept).unwrap_or(0);
        let room = if self.fault.is_some() {
            0
        } else {
            room.min(bytes.len())
        };
        let (whole, rest) = bytes.split_at(room);
        if let Err(error) = self.keep(whole) {
            tracing::warn!(%error, "output of a run could not be kept");
            self.fault = Some(error.to_string());
            self.push_tail(whole);
        } else {
            self.kept += whole.len() as u64;
        }
        self.push_tail(rest);
    }

    fn keep(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.file.is_none() && self.head.len() + bytes.len() <= IN_MEMORY {
            self.head.extend_from_slice(bytes);
            return Ok(());
        }
        self.spill()?;
        // At its place, not at the end: what a full disk took only half of is written over.
        match &self.file {
            Some(file) => file.write_all_at(bytes, self.kept),
            None => Ok(()),
        }
    }

    /// Moves what is in memory to the disk, where it outlives this process.
    pub fn spill(&mut self) -> std::io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let other = |error: FileError| std::io::Error::other(error.to_string());
        fsio::private_directory(&self.folder).map_err(other)?;
        let file = fsio::read_write_private(&self.folder.join(FILE_NAME)).map_err(other)?;
        file.write_all_at(&self.head, 0)?;
        self.file = Some(file);
        self.head = Vec::new();
        Ok(())
    }

    fn push_tail(&mut self, bytes: &[u8]) {
        let newest = bytes.len().saturating_sub(KEPT_TAIL);
        let bytes = bytes.get(newest..).unwrap_or_default();
        let excess = (self.tail.len() + bytes.len()).saturating_sub(KEPT_TAIL);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend(bytes);
    }

    /// Writes the tail behind the rest, for a process that comes later.
    pub fn finish(&mut self) {
        let (front, back) = self.tail.as_slices();
        let after_front = self.kept + front.len() as u64;
        if let Some(file) = &self.file
            && let Err(error) = file
                .write_all_at(front, self.kept)
                .and_then(|()| file.write_all_at(back, after_front))
        {
            tracing::warn!(%error, "the end of a run's output could not be kept");
        }
    }

    /// Whether some of it is on disk.
    pub fn is_on_disk(&self) -> bool {
        self.file.is_some()
    }

    /// How many bytes came in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many bytes from the start are kept without a gap.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Reads at most `limit` bytes from a position on.
    pub fn read(&self, since: u64, limit: usize) -> std::io::Result<Piece> {
        let since = since.min(self.total);
        let tail_start = self.total - self.tail.len() as u64;
        if since < self.kept {
            let length = usize::try_from(self.kept - since)
                .unwrap_or(usize::MAX)
                .min(limit);
            let mut bytes = vec![0; length];
            match &self.file {
                Some(file) => file.read_exact_at(&mut bytes, since)?,
                None => {
                    let from = usize::try_from(since).unwrap_or(usize::MAX);
                    let kept = self.head.get(from..from + length).unwrap_or_default();
                    bytes = kept.to_vec();
                }
            }
            return Ok(Piece {
                from: since,
                bytes,
                missing: 0,
            });
        }
        let from = since.max(tail_start);
        let skip = usize::try_from(from - tail_start).unwrap_or(usize::MAX);
        let bytes = self.tail.iter().skip(skip).take(limit).copied().collect();
        Ok(Piece {
            from,
            bytes,
            missing: from - since,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool() -> (tempfile::TempDir, Spool) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path().join("run_x"));
        (folder, spool)
    }

    #[test]
    fn short_output_never_touches_the_disk() {
        let (folder, mut spool) = spool();
        spool.push(b"hello ");
        spool.push(b"world");
        assert_eq!(spool.read(6, 100).unwrap().bytes, b"world");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn long_output_reads_the_same_from_every_position() {
        let (_folder, mut spool) = spool();
        let whole: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        for chunk in whole.chunks(7777) {
            spool.push(chunk);
        }
        for since in [0, 1, 65_535, 65_536, 65_537, 299_999, 300_000] {
            let piece = spool.read(since, 1000).unwrap();
            let from = since as usize;
            let expected = &whole[from..(from + 1000).min(whole.len())];
            assert_eq!((piece.from, piece.missing), (since, 0));
            assert_eq!(piece.bytes, expected, "since {since}");
        }
    }

    #[test]
    fn output_past_the_limit_keeps_its_end_and_tells_the_gap() {
        let (_folder, mut spool) = spool();
        let block = vec![b'x'; 1 << 20];
        for _ in 0..65 {
            spool.push(&block);
        }
        spool.push(b"the end");
        let total = spool.total();
        let piece = spool.read(KEPT_WHOLE, usize::MAX).unwrap();
        assert_eq!(piece.bytes.len(), KEPT_TAIL);
        assert!(piece.bytes.ends_with(b"the end"));
        assert_eq!(piece.missing, total - KEPT_WHOLE - KEPT_TAIL as u64);
    }

    #[test]
    fn kept_output_can_be_read_by_a_later_process() {
        let (_folder, mut spool) = spool();
        let block = vec![b'x'; 1 << 20];
        for _ in 0..65 {
            spool.push(&block);
        }
        spool.push(b"the end");
        spool.finish();
        let again = Spool::reopen(&spool.folder, spool.kept(), spool.total()).unwrap();
        assert_eq!(again.read(0, 3).unwrap().bytes, b"xxx");
        let end = again.read(again.total() - 7, 100).unwrap();
        assert_eq!(end.bytes, b"the end");
    }

    #[test]
    fn output_goes_on_when_the_folder_cannot_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let blocker = folder.path().join("file");
        std::fs::write(&blocker, b"").unwrap();
        let mut spool = Spool::new(blocker.join("run_x"));
        spool.push(&vec![b'a'; IN_MEMORY]);
        spool.push(b"the end");
        assert_eq!(spool.total(), IN_MEMORY as u64 + 7);
        assert!(
            spool
                .read(spool.total() - 7, 10)
                .unwrap()
                .bytes
                .ends_with(b"the end")
        );
    }
}
