//! Output that waits on disk for a reader who has fallen behind, so that the host need not.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::fsio::{self, FileError};
use crate::sandbox::Stream;

/// Most bytes on disk; past that, the host is made to wait.
const LARGEST: u64 = 256 * 1024 * 1024;

/// Most changes from one stream to the other that are kept.
const MOST_STRETCHES: usize = 65_536;

/// Most bytes that are given back at once.
const LARGEST_PIECE: u64 = 256 * 1024;

/// Name of the file in a run's folder, for the moment until it has none.
const FILE_NAME: &str = "backlog";

/// Why output could not be kept or found again.
#[derive(Debug, thiserror::Error)]
enum BacklogError {
    /// The file could not be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file took nothing more, or gave nothing back.
    #[error("output that waits for its reader cannot be kept on disk")]
    Content(#[from] std::io::Error),
}

/// Both streams in the order they came, first in, first out, in a file that is written round and round.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    folder: Option<PathBuf>,
    file: Option<File>,
    stretches: VecDeque<(Stream, u64)>,
    /// How many bytes went out and in since it was last empty.
    read: u64,
    written: u64,
    broken: bool,
}

impl Backlog {
    /// Says where the file may be made; before that nothing is taken.
    pub(super) fn keep_in(&mut self, folder: PathBuf) {
        self.folder = Some(folder);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Whether there is room for one more piece of this length.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.folder.is_some()
            && !self.broken
            && self.written - self.read + length as u64 <= LARGEST
            && self.stretches.len() < MOST_STRETCHES
    }

    /// Takes a piece and says whether it did.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        if !self.has_room(bytes.len()) {
            return false;
        }
        if let Err(error) = self.write(bytes) {
            tracing::warn!(%error, "a slow reader of the output will make the command wait");
            self.broken = true;
            return false;
        }
        let length = bytes.len() as u64;
        self.written += length;
        match self.stretches.back_mut() {
            Some((last, more)) if *last == stream => *more += length,
            _ => self.stretches.push_back((stream, length)),
        }
        true
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BacklogError> {
        if self.file.is_none()
            && let Some(folder) = &self.folder
        {
            fsio::private_directory(folder)?;
            let path = folder.join(FILE_NAME);
            let file = fsio::read_write_private(&path)?;
            // It ends with this process, however that ends.
            fsio::remove_file(&path)?;
            self.file = Some(file);
        }
        if let Some(file) = &self.file {
            let at = self.written % LARGEST;
            let before_end = usize::try_from(LARGEST - at).unwrap_or(usize::MAX);
            let (first, second) = bytes.split_at(before_end.min(bytes.len()));
            file.write_all_at(first, at)?;
            file.write_all_at(second, 0)?;
        }
        Ok(())
    }

    /// The next piece, or how many bytes are lost because it cannot be read.
    pub(super) fn pop(&mut self) -> Option<Result<(Stream, Vec<u8>), u64>> {
        let (stream, length) = self.stretches.front().copied()?;
        let at = self.read % LARGEST;
        let taken = length.min(LARGEST_PIECE).min(LARGEST - at);
        let mut bytes = vec![0; usize::try_from(taken).unwrap_or(0)];
        let read = match &self.file {
            Some(file) => file.read_exact_at(&mut bytes, at),
            None => Ok(()),
        };
        if let Err(error) = read {
            let error = BacklogError::Content(error);
            tracing::warn!(%error, "output was lost");
            let lost = self.written - self.read;
            self.broken = true;
            self.clear();
            return Some(Err(lost));
        }
        self.read += taken;
        match self.stretches.front_mut() {
            Some((_, left)) if *left > taken => *left -= taken,
            _ => drop(self.stretches.pop_front()),
        }
        if self.stretches.is_empty() {
            self.clear();
        }
        Some(Ok((stream, bytes)))
    }

    /// Forgets everything and gives the room on the disk back.
    pub(super) fn clear(&mut self) {
        self.stretches.clear();
        (self.read, self.written) = (0, 0);
        if let Some(file) = &self.file
            && let Err(error) = file.set_len(0)
        {
            tracing::debug!(%error, "a file of waiting output could not be emptied");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog() -> (tempfile::TempDir, Backlog) {
        let folder = tempfile::tempdir().unwrap();
        let mut backlog = Backlog::default();
        backlog.keep_in(folder.path().join("run_x"));
        (folder, backlog)
    }

    #[test]
    fn backlog_gives_back_what_it_took_in_order_and_starts_anew() {
        let (folder, mut backlog) = backlog();
        for _ in 0..3 {
            assert!(backlog.push(Stream::Out, b"one "));
            assert!(backlog.push(Stream::Out, b"two"));
            assert!(backlog.push(Stream::Err, b"bad"));
            assert!(backlog.push(Stream::Out, &vec![b'x'; LARGEST_PIECE as usize + 5]));
            let mut next = || backlog.pop().map(Result::unwrap);
            assert_eq!(next(), Some((Stream::Out, b"one two".to_vec())));
            assert_eq!(next(), Some((Stream::Err, b"bad".to_vec())));
            assert_eq!(next().unwrap().1.len(), LARGEST_PIECE as usize);
            assert_eq!(next(), Some((Stream::Out, b"xxxxx".to_vec())));
            assert_eq!(next(), None);
            assert_eq!(backlog.file.as_ref().unwrap().metadata().unwrap().len(), 0);
        }
        let left = std::fs::read_dir(folder.path().join("run_x")).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn backlog_is_bounded_in_bytes_and_in_changes_of_the_stream() {
        let (_folder, mut backlog) = backlog();
        backlog.written = LARGEST - 1;
        assert!(!backlog.push(Stream::Out, b"xy"));
        assert!(backlog.push(Stream::Out, b"x"));
        assert!(!backlog.push(Stream::Out, b"x"));
        backlog.clear();
        for number in 0..MOST_STRETCHES {
            let stream = [Stream::Out, Stream::Err][number % 2];
            assert!(backlog.push(stream, b"x"));
        }
        assert!(!backlog.push(Stream::Out, b"x"));
    }

    #[test]
    fn backlog_goes_on_at_the_start_of_its_file_when_the_end_is_reached() {
        let (_folder, mut backlog) = backlog();
        (backlog.read, backlog.written) = (LARGEST - 3, LARGEST - 3);
        assert!(backlog.push(Stream::Out, b"abcdef"));
        assert_eq!(backlog.pop(), Some(Ok((Stream::Out, b"abc".to_vec()))));
        assert_eq!(backlog.pop(), Some(Ok((Stream::Out, b"def".to_vec()))));
        assert_eq!((backlog.pop(), backlog.read), (None, 0));
    }

    #[test]
    fn backlog_takes_nothing_where_no_file_can_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let blocker = folder.path().join("file");
        std::fs::write(&blocker, b"").unwrap();
        let mut backlog = Backlog::default();
        assert!(!backlog.push(Stream::Out, b"x"));
        backlog.keep_in(blocker.join("run_x"));
        assert!(!backlog.push(Stream::Out, b"x"));
        assert!(backlog.is_empty() && !backlog.has_room(1));
    }

    #[test]
    fn backlog_tells_how_much_was_lost_when_its_file_was_cut() {
        let (_folder, mut backlog) = backlog();
        assert!(backlog.push(Stream::Out, b"four"));
        backlog.file.as_ref().unwrap().set_len(1).unwrap();
        assert_eq!(backlog.pop(), Some(Err(4)));
        assert_eq!(backlog.pop(), None);
    }
}
