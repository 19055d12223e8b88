//! The digests of many files in little memory: some are held, the rest lies in a file without a name.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::revision::ContentDigest;

use crate::fsio;

/// So many are held before they are written away: some megabytes.
const MOST_HELD: usize = 64 * 1024;

/// A word whether there is one, and the digest.
const RECORD: usize = 1 + size_of::<ContentDigest>();

/// Digests in the order of a plan; none stands for a file without one.
#[derive(Debug, Default)]
pub(super) struct DigestList {
    /// Where the file is made.
    folder: PathBuf,
    file: Option<File>,
    /// How many lie in it.
    filed: usize,
    held: Vec<Option<ContentDigest>>,
}

impl DigestList {
    /// An empty list that may make a file in this folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        DigestList {
            folder,
            ..DigestList::default()
        }
    }

    /// Adds the next one.
    pub(super) fn push(&mut self, digest: Option<ContentDigest>) -> Result<(), Failure> {
        self.held.push(digest);
        match self.held.len() >= MOST_HELD {
            true => self.write_away(),
            false => Ok(()),
        }
    }

    fn write_away(&mut self) -> Result<(), Failure> {
        let mut bytes = Vec::with_capacity(self.held.len() * RECORD);
        for digest in &self.held {
            bytes.push(u8::from(digest.is_some()));
            bytes.extend_from_slice(&digest.unwrap_or_default());
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => fsio::nameless_file(&self.folder).map_err(|error| self.failed(&error))?,
        };
        file.write_all(&bytes)
            .map_err(|error| self.failed(&error))?;
        self.file = Some(file);
        self.filed += self.held.len();
        self.held.clear();
        Ok(())
    }

    fn failed(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let text = format!(
            "the digests of compared files cannot be kept in `{}`: {}",
            self.folder.display(),
            Failure::chain(error)
        );
        Failure::new(Code::Internal, text)
            .hint("see whether that folder can be written and has room")
    }

    /// All of them, from the first.
    pub(super) fn iter(&self) -> Digests<'_> {
        Digests {
            list: self,
            next: 0,
            read: Vec::new(),
            read_from: 0,
        }
    }
}

/// The digests of a list, one by one.
pub(super) struct Digests<'a> {
    list: &'a DigestList,
    next: usize,
    /// What was read of the file last, and the number of its first one.
    read: Vec<u8>,
    read_from: usize,
}

impl Digests<'_> {
    /// The record of one that lies in the file; none when it cannot be read.
    fn record(&mut self, number: usize) -> Option<&[u8]> {
        const TOGETHER: usize = 2000;
        let at = |from: usize| (number - from) * RECORD;
        if number < self.read_from || at(self.read_from) >= self.read.len() {
            let count = TOGETHER.min(self.list.filed - number);
            let mut bytes = vec![0; count * RECORD];
            let offset = (number * RECORD) as u64;
            let file = self.list.file.as_ref()?;
            file.read_exact_at(&mut bytes, offset).ok()?;
            (self.read, self.read_from) = (bytes, number);
        }
        let at = at(self.read_from);
        self.read.get(at..at + RECORD)
    }
}

impl Iterator for Digests<'_> {
    type Item = Option<ContentDigest>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.next;
        self.next += 1;
        if number >= self.list.filed {
            return self.list.held.get(number - self.list.filed).copied();
        }
        // One that cannot be read is none, and its file counts as different.
        let digest = self.record(number).and_then(|record| {
            let (is_there, digest) = record.split_first()?;
            (*is_there == 1).then_some(*digest.first_chunk()?)
        });
        Some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Option<ContentDigest> {
        let mut digest = ContentDigest::default();
        digest
            .iter_mut()
            .zip(number.to_be_bytes())
            .for_each(|(byte, other)| *byte = other);
        (!number.is_multiple_of(3)).then_some(digest)
    }

    #[test]
    fn digests_come_back_in_their_order_whether_they_were_held_or_filed() {
        for count in [0, 1, MOST_HELD - 1, MOST_HELD, 2 * MOST_HELD + 4001] {
            let state = tempfile::tempdir().unwrap();
            let folder = state.path().join("spool");
            let mut list = DigestList::new(folder.clone());
            for number in 0..count {
                list.push(digest(number)).unwrap();
            }
            assert!(list.held.len() < MOST_HELD);
            assert!(list.iter().eq((0..count).map(digest)), "{count}");
            let left = std::fs::read_dir(&folder).map_or(0, Iterator::count);
            assert_eq!(left, 0, "the file has a name");
        }
    }

    #[test]
    fn list_that_cannot_make_its_file_says_so() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("file");
        std::fs::write(&folder, "").unwrap();
        let mut list = DigestList::new(folder);
        let mut pushed = (0..MOST_HELD).map(|number| list.push(digest(number)));
        let failure = pushed.find_map(Result::err).unwrap();
        let place = state.path().join("file");
        let names_it = failure.message.contains(&*place.to_string_lossy());
        assert!(names_it, "{}", failure.message);
    }
}
