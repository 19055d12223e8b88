//! What is remembered of a pair of trees after a sync: one sorted file for each pair.
//!
//! A tree may be synced by itself after it was synced as a part of a larger one. So what is remembered of the pairs
//! around it counts, too, and for each path what was written down last.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufReader, Read};
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use remote_sandbox_core::sync::RelPath;
use remote_sandbox_core::sync::plan::BaseEntry;
use remote_sandbox_core::sync::remembered::{BEGIN, LONGEST_RECORD, read_record, write_record};
use sha2::{Digest, Sha256};

use crate::fsio::{self, FileError, NewPrivateFile};

/// The folder of these files in the state folder.
pub(super) const FOLDER: &str = "pairs";

/// So many directories above both sides are looked at.
const MOST_ABOVE: usize = 64;

/// So many files are read at the same time, the newest ones.
const MOST_READ: usize = 8;

/// One tree here and one in a sandbox.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    name: String,
    path: PathBuf,
    /// The name that everything is recalled by; none where it is the one that it was written down by.
    called: Option<RelPath>,
    /// The files of the pairs around it, each with where in them it lies.
    around: Vec<(PathBuf, RelPath)>,
}

impl Pair {
    /// The pair of these places; both as they really lie.
    pub(super) fn new(state: &Path, sandbox: &str, local: &Path, remote: &[u8]) -> Self {
        let of = |local: &Path, remote: &[u8]| {
            let local = local.as_os_str().as_bytes();
            Pair::named_by(state, &[sandbox.as_bytes(), local, remote])
        };
        let around = around(local, remote).into_iter();
        let around = around.map(|(local, remote, inner)| (of(&local, &remote).path, inner));
        Pair {
            around: around.collect(),
            ..of(local, remote)
        }
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
            around: Vec::new(),
        }
    }

    /// A name that no other pair has.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What is remembered, in the order of paths; nothing where nothing can be read.
    pub(super) fn recall(&self) -> Recalled {
        let own = std::iter::once((&self.path, None));
        let around = self.around.iter();
        let all = own.chain(around.map(|(path, inner)| (path, Some(inner))));
        let mut found: Vec<_> = all
            .filter_map(|(path, inner)| {
                let file = fsio::open_sealed(path).ok().flatten()?;
                let written = file.metadata().and_then(|about| about.modified()).ok();
                Some((written, Records::read(file, inner, self.called.as_ref())?))
            })
            .collect();
        found.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        let newest = found.first();
        let is_own = newest.is_none_or(|(_, records)| records.inner.is_none());
        let newest = found.into_iter().take(MOST_READ);
        Recalled {
            newest_first: newest.map(|(_, records)| records.peekable()).collect(),
            ready: VecDeque::new(),
            is_own,
        }
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

/// The pairs of directories above both sides, as long as the names below them are the same, and where in each of them the
/// pair itself lies.
fn around(local: &Path, remote: &[u8]) -> Vec<(PathBuf, Vec<u8>, RelPath)> {
    let mut found = Vec::new();
    let (mut here, mut there) = (local, Path::new(OsStr::from_bytes(remote)));
    while found.len() < MOST_ABOVE
        && let (Some(name), Some(above), Some(above_there)) =
            (here.file_name(), here.parent(), there.parent())
        && there.file_name() == Some(name)
        && let Ok(inner) = local.strip_prefix(above)
        && let Ok(inner) = RelPath::parse(inner.as_os_str().as_bytes())
    {
        let remote = above_there.as_os_str().as_bytes().to_vec();
        found.push((above.to_owned(), remote, inner));
        (here, there) = (above, above_there);
    }
    found
}

/// Remembered entries, one by one. Of a path that stands in several files, what the newest of them says.
pub(super) struct Recalled {
    newest_first: Vec<Peekable<Records>>,
    /// What is said of one path, which may be more than one thing.
    ready: VecDeque<BaseEntry>,
    /// Whether the newest file is that of the pair itself, or there is none.
    is_own: bool,
}

impl Recalled {
    /// Whether no pair around it has a newer word.
    pub(super) fn is_the_pairs_own(&self) -> bool {
        self.is_own
    }
}

impl Iterator for Recalled {
    type Item = BaseEntry;

    fn next(&mut self) -> Option<BaseEntry> {
        if let Some(entry) = self.ready.pop_front() {
            return Some(entry);
        }
        let firsts = self.newest_first.iter_mut();
        let firsts = firsts.filter_map(|records| records.peek());
        let path = firsts.map(|entry| &entry.path).min()?.clone();
        for records in &mut self.newest_first {
            let is_first = self.ready.is_empty();
            while let Some(entry) = records.next_if(|entry| entry.path == path) {
                if is_first {
                    self.ready.push_back(entry);
                }
            }
        }
        self.ready.pop_front()
    }
}

/// What one file says.
struct Records {
    source: BufReader<std::fs::File>,
    bytes: Vec<u8>,
    at: usize,
    called: Option<RelPath>,
    /// Only what lies below this counts, by its path from there.
    inner: Option<RelPath>,
}

impl Records {
    /// None when it is not such a file.
    fn read(
        file: std::fs::File,
        inner: Option<&RelPath>,
        called: Option<&RelPath>,
    ) -> Option<Self> {
        let mut source = BufReader::new(file);
        let mut begin = vec![0; BEGIN.len()];
        source.read_exact(&mut begin).ok()?;
        (begin == BEGIN).then(|| Records {
            source,
            bytes: Vec::new(),
            at: 0,
            called: called.cloned(),
            inner: inner.cloned(),
        })
    }

    fn next_record(&mut self) -> Option<BaseEntry> {
        if self.bytes.len() - self.at < LONGEST_RECORD {
            self.bytes.drain(..self.at);
            self.at = 0;
            let room = (16 * LONGEST_RECORD - self.bytes.len()) as u64;
            let _ = (&mut self.source).take(room).read_to_end(&mut self.bytes);
        }
        let (entry, length) = read_record(self.bytes.get(self.at..)?)?;
        self.at += length;
        Some(entry)
    }

    /// The record as the pair has it; none when it is about something else.
    fn seen_from(&self, mut entry: BaseEntry) -> Option<BaseEntry> {
        if let Some(inner) = &self.inner {
            let below = entry.path.is_below(inner);
            let rest = below.then(|| entry.path.as_bytes().get(inner.as_bytes().len() + 1..))??;
            entry.path = RelPath::parse(rest).ok()?;
        }
        if let Some(called) = &self.called {
            entry.path.clone_from(called);
        }
        Some(entry)
    }
}

impl Iterator for Records {
    type Item = BaseEntry;

    fn next(&mut self) -> Option<BaseEntry> {
        loop {
            let entry = self.next_record()?;
            if let Some(entry) = self.seen_from(entry) {
                return Some(entry);
            }
        }
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

    fn write(pair: &Pair, names: &[(&str, u64)]) {
        let mut writing = pair.remember().unwrap();
        for (name, number) in names {
            let path = RelPath::parse(name.as_bytes()).unwrap();
            writing
                .add(&BaseEntry {
                    path,
                    ..entry(*number)
                })
                .unwrap();
        }
        writing.finish().unwrap();
    }

    #[test]
    fn pair_recalls_what_pairs_around_it_say_of_it_and_of_each_path_the_newest_word() {
        let state = tempfile::tempdir().unwrap();
        let pair = |local: &str, remote: &str| {
            Pair::new(state.path(), "box", Path::new(local), remote.as_bytes())
        };
        let told = |pair: &Pair| -> Vec<(String, u64)> {
            let entries = pair.recall();
            entries
                .map(|entry| (entry.path.shown().text, entry.local.size_bytes))
                .collect()
        };
        let (outer, inner) = (pair("/a/p", "/h/p"), pair("/a/p/s/t", "/h/p/s/t"));
        write(
            &outer,
            &[("s/t", 9), ("s/t/f", 1), ("s/t/g", 1), ("s/tx", 9)],
        );
        let expected = [("f".to_owned(), 1), ("g".to_owned(), 1)];
        assert_eq!(told(&inner), expected);
        // Other names above are another place.
        assert_eq!(told(&pair("/a/p/s/t", "/h/p/x/t")), []);
        assert_eq!(told(&pair("/a/q/t", "/h/p/t")), []);
        write(&inner, &[("f", 2), ("h", 2)]);
        let expected = [("f", 2), ("g", 1), ("h", 2)].map(|(name, size)| (name.to_owned(), size));
        assert_eq!(told(&inner), expected);
        write(&outer, &[("s/t/f", 3)]);
        let expected = [("f", 3), ("h", 2)].map(|(name, size)| (name.to_owned(), size));
        assert_eq!(told(&inner), expected);
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
