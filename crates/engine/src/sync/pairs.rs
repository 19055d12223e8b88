//! What is remembered of a pair of trees after a sync: one sorted file for each pair.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use remote_sandbox_core::sync::RelPath;
use remote_sandbox_core::sync::plan::BaseEntry;
use remote_sandbox_core::sync::remembered::{BEGIN, LONGEST_RECORD, read_record, write_record};
use sha2::{Digest, Sha256};

use crate::fsio::{self, FileError, NewPrivateFile};

/// The folder of these files in the state folder.
pub(super) const FOLDER: &str = "pairs";

/// One tree here and one in a sandbox.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    name: String,
    path: PathBuf,
    /// The name that everything is recalled by; none where it is the one that it was written down by.
    called: Option<RelPath>,
}

impl Pair {
    /// The pair of these places; both as they really lie.
    pub(super) fn new(state: &Path, sandbox: &str, local: &Path, remote: &[u8]) -> Self {
        let local = local.as_os_str().as_encoded_bytes();
        Pair::named_by(state, &[sandbox.as_bytes(), local, remote])
    }

    /// The pair of a single file that has another name there than here; `called` is its name in the plan.
    pub(super) fn of_file(
        state: &Path,
        sandbox: &str,
        local: &Path,
        remote: &[u8],
        called: RelPath,
    ) -> Self {
        let local = local.as_os_str().as_encoded_bytes();
        // Once there may have been directories of these names.
        let parts = [b"one file".as_slice(), sandbox.as_bytes(), local, remote];
        Pair {
            called: Some(called),
            ..Pair::named_by(state, &parts)
        }
    }

    fn named_by(state: &Path, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let name: String = hasher
            .finalize()
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Pair {
            path: state.join(FOLDER).join(&name),
            name,
            called: None,
        }
    }

    /// A name that no other pair has.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What is remembered, in the order of paths; nothing where nothing can be read.
    pub(super) fn recall(&self) -> Recalled {
        let file = fsio::open_sealed(&self.path).ok().flatten();
        let mut recalled = Recalled {
            source: file.map(BufReader::new),
            bytes: Vec::new(),
            at: 0,
            called: self.called.clone(),
        };
        let mut begin = vec![0; BEGIN.len()];
        let is_ours = match &mut recalled.source {
            Some(source) => source.read_exact(&mut begin).is_ok() && begin == BEGIN,
            None => false,
        };
        if !is_ours {
            recalled.source = None;
        }
        recalled
    }

    /// Says that what is remembered is still of use; without that it would be forgotten sooner.
    pub(super) fn touch(&self) {
        let _ = fsio::touch(&self.path);
    }

    /// Begins to write down what is remembered from now on.
    pub(super) fn remember(&self) -> Result<Remembering, FileError> {
        if let Some(folder) = self.path.parent() {
            fsio::sealed_directory(folder)?;
        }
        let mut file = NewPrivateFile::create(&self.path)?;
        file.write(BEGIN)?;
        Ok(Remembering {
            file,
            waiting: Vec::new(),
        })
    }
}

/// Remembered entries, one by one.
pub(super) struct Recalled {
    source: Option<BufReader<std::fs::File>>,
    bytes: Vec<u8>,
    at: usize,
    called: Option<RelPath>,
}

impl Iterator for Recalled {
    type Item = BaseEntry;

    fn next(&mut self) -> Option<BaseEntry> {
        let source = self.source.as_mut()?;
        if self.bytes.len() - self.at < LONGEST_RECORD {
            self.bytes.drain(..self.at);
            self.at = 0;
            let room = (16 * LONGEST_RECORD - self.bytes.len()) as u64;
            let _ = source.take(room).read_to_end(&mut self.bytes);
        }
        let (mut entry, length) = read_record(self.bytes.get(self.at..)?)?;
        self.at += length;
        if let Some(called) = &self.called {
            entry.path.clone_from(called);
        }
        Some(entry)
    }
}

/// A file of remembered entries that is being written.
pub(super) struct Remembering {
    file: NewPrivateFile,
    waiting: Vec<u8>,
}

impl Remembering {
    /// Adds an entry; they come in the order of their paths.
    pub(super) fn add(&mut self, entry: &BaseEntry) -> Result<(), FileError> {
        write_record(entry, &mut self.waiting);
        if self.waiting.len() >= 256 * 1024 {
            self.file.write(&self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }

    /// Puts it in the place of what was remembered before.
    pub(super) fn finish(mut self) -> Result<(), FileError> {
        self.file.write(&self.waiting)?;
        self.file.finish()
    }
}

#[cfg(test)]
mod tests {
    use remote_sandbox_core::sync::{Mtime, RelPath, Stamp};

    use super::*;

    fn entry(number: u64) -> BaseEntry {
        let stamp = Stamp {
            size_bytes: number,
            mtime: Mtime::whole(5),
        };
        BaseEntry {
            path: RelPath::parse(format!("{number:06}").as_bytes()).unwrap(),
            local: stamp,
            remote: stamp,
            is_intended: false,
        }
    }

    #[test]
    fn pair_recalls_what_was_remembered_last() {
        let state = tempfile::tempdir().unwrap();
        let pair = Pair::new(state.path(), "box", Path::new("/a"), b"/b");
        assert_eq!(pair.recall().count(), 0);
        for count in [20_000, 3] {
            let mut writing = pair.remember().unwrap();
            for number in 0..count {
                writing.add(&entry(number)).unwrap();
            }
            writing.finish().unwrap();
            let expected: Vec<BaseEntry> = (0..count).map(entry).collect();
            assert_eq!(pair.recall().collect::<Vec<_>>(), expected);
        }
        // One that is not finished changes nothing.
        drop(pair.remember().unwrap());
        assert_eq!(pair.recall().count(), 3);
        let other = Pair::new(state.path(), "box", Path::new("/a"), b"/c");
        assert_eq!(other.recall().count(), 0);
        assert_eq!(
            std::fs::read_dir(state.path().join(FOLDER))
                .unwrap()
                .count(),
            1
        );
    }

    #[test]
    fn damaged_file_is_as_good_as_none() {
        let state = tempfile::tempdir().unwrap();
        let pair = Pair::new(state.path(), "box", Path::new("/a"), b"/b");
        let mut writing = pair.remember().unwrap();
        writing.add(&entry(1)).unwrap();
        writing.add(&entry(2)).unwrap();
        writing.finish().unwrap();
        let bytes = std::fs::read(&pair.path).unwrap();
        std::fs::write(&pair.path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(pair.recall().count(), 1);
        std::fs::write(&pair.path, b"something else").unwrap();
        assert_eq!(pair.recall().count(), 0);
    }
}
