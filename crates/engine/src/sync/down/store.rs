//! Writes what has come, and keeps count of it. Blocks, so it lives in a thread for that.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::{Mtime, RelPath};

use super::{DownDone, DownError, Planned};
use crate::beneath::{BeneathError, NewFile, Tree};
use crate::clock;

/// What was changed within this time may still be changing.
const LATELY_S: i64 = 600;

/// So many files may wait for the end of an archive; each keeps a descriptor.
const MOST_DEFERRED: usize = 200;

/// Bytes that are copied at once.
const CHUNK: usize = 128 * 1024;

/// How far a file has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing of it came.
    Waiting,
    /// It is here.
    Arrived,
    /// It went wrong, which was told.
    Failed,
}

/// What the other side says of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub(super) mode: u16,
    pub(super) mtime: Mtime,
}

/// The files of a job, and what became of them.
pub(super) struct Store {
    tree: Tree,
    transfer: RunToken,
    files: Arc<[Planned]>,
    /// Numbers of files, in the order of their paths in the sandbox.
    by_path: Vec<u32>,
    states: Vec<State>,
    open: BTreeMap<usize, Open>,
    /// Files that may be changing, whole as far as one can tell; they get their names when the host has not complained.
    deferred: Vec<(usize, Open, Attributes)>,
    done: DownDone,
}

struct Open {
    file: NewFile,
    bytes: u64,
}

impl Store {
    pub(super) fn new(tree: Tree, transfer: RunToken, files: Arc<[Planned]>) -> Self {
        let mut by_path: Vec<u32> = (0..u32::try_from(files.len()).unwrap_or(u32::MAX)).collect();
        by_path.sort_by(|one, other| path_of(&files, *one).cmp(&path_of(&files, *other)));
        Store {
            tree,
            transfer,
            states: vec![State::Waiting; files.len()],
            files,
            by_path,
            open: BTreeMap::new(),
            deferred: Vec::new(),
            done: DownDone::default(),
        }
    }

    pub(super) fn planned(&self, number: usize) -> Option<&Planned> {
        self.files.get(number)
    }

    /// The number of the file with this path in the sandbox.
    pub(super) fn find(&self, path: &RelPath) -> Option<usize> {
        let compare = |number: &u32| path_of(&self.files, *number).cmp(&Some(path));
        let at = self.by_path.binary_search_by(compare).ok()?;
        self.by_path.get(at).map(|number| *number as usize)
    }

    pub(super) fn state(&self, number: usize) -> State {
        self.states.get(number).copied().unwrap_or(State::Failed)
    }

    /// The numbers of files of which nothing came yet.
    pub(super) fn waiting(&self) -> Vec<usize> {
        let numbered = self.states.iter().enumerate();
        numbered
            .filter(|(_, state)| **state == State::Waiting)
            .map(|(number, _)| number)
            .collect()
    }

    /// Says what went wrong with a file, and lets go of what is there of it.
    pub(super) fn fail(&mut self, number: usize, problem: impl Into<String>) {
        self.open.remove(&number);
        self.set(number, State::Failed);
        if let Some(planned) = self.files.get(number) {
            self.done.problem(&planned.entry.path, problem);
        }
    }

    /// Says what went wrong with something that was not asked for.
    pub(super) fn refuse(&mut self, path: &RelPath, problem: &str) {
        self.done.problem(path, problem);
    }

    fn set(&mut self, number: usize, state: State) {
        if let Some(place) = self.states.get_mut(number) {
            *place = state;
        }
    }

    /// Whether a file is being written.
    pub(super) fn is_open(&self, number: usize) -> bool {
        self.open.contains_key(&number)
    }

    /// Begins a file; what is wrong with it alone is told, and only what concerns all is an error.
    pub(super) fn begin(&mut self, number: usize, size_bytes: u64) -> Result<(), DownError> {
        let Some(planned) = self.files.get(number) else {
            return Ok(());
        };
        let begun = self
            .tree
            .begin_file(&planned.local, &self.transfer, number as u64, size_bytes);
        match begun {
            Ok(file) => {
                self.open.insert(number, Open { file, bytes: 0 });
                Ok(())
            }
            Err(error) => self.went_wrong(number, error),
        }
    }

    /// Takes the next bytes of a file, in order.
    pub(super) fn content(&mut self, number: usize, bytes: &[u8]) -> Result<(), DownError> {
        let most = self.files.get(number).map_or(0, Planned::most_bytes);
        let Some(open) = self.open.get_mut(&number) else {
            return Ok(());
        };
        open.bytes += bytes.len() as u64;
        if open.bytes > most {
            self.fail(number, too_large());
            return Ok(());
        }
        match open.file.append(bytes) {
            Ok(()) => Ok(()),
            Err(error) => self.went_wrong(number, error),
        }
    }

    /// Gives a complete file its name, or lets it wait for the end of the archive when it was changed lately.
    pub(super) fn finish(&mut self, number: usize, said: Attributes) -> Result<bool, DownError> {
        let Some(open) = self.open.remove(&number) else {
            return Ok(false);
        };
        if self.deferred.len() < MOST_DEFERRED && self.files.get(number).is_some_and(may_change) {
            self.deferred.push((number, open, said));
            return Ok(false);
        }
        self.commit(number, open, said)
    }

    /// Gives the files that waited their names, but not those that the host complained of; how many got one.
    pub(super) fn settle(&mut self, complaints: &str) -> Result<u64, DownError> {
        let mut named = 0;
        for (number, open, said) in std::mem::take(&mut self.deferred) {
            match self.is_named(number, complaints) {
                true => self.fail(number, "it was changed while it was read"),
                false => named += u64::from(self.commit(number, open, said)?),
            }
        }
        if !complaints.is_empty() {
            for number in 0..self.states.len() {
                if self.state(number) == State::Arrived && self.is_named(number, complaints) {
                    self.fail(number, "it was changed while it was read; sync again");
                }
            }
        }
        Ok(named)
    }

    fn is_named(&self, number: usize, complaints: &str) -> bool {
        let Some(planned) = self.files.get(number).filter(|_| !complaints.is_empty()) else {
            return false;
        };
        let name = planned.entry.path.shown().text;
        [": file changed", ": File shrank", ": file shrank"]
            .iter()
            .any(|words| complaints.contains(&format!("{name}{words}")))
    }

    fn commit(&mut self, number: usize, open: Open, said: Attributes) -> Result<bool, DownError> {
        let Some(planned) = self.files.get(number) else {
            return Ok(false);
        };
        let mtime = exact_time(planned, said.mtime);
        match open
            .file
            .commit(said.mode, mtime, planned.replaces.as_ref())
        {
            Ok(()) => {
                self.set(number, State::Arrived);
                self.done.files += 1;
                self.done.bytes += open.bytes;
                Ok(true)
            }
            Err(error) => self.went_wrong(number, error).map(|()| false),
        }
    }

    /// Makes a link.
    pub(super) fn link(&mut self, number: usize, target: &[u8]) -> Result<bool, DownError> {
        let Some(planned) = self.files.get(number) else {
            return Ok(false);
        };
        let (path, replaces) = (&planned.local, planned.replaces.as_ref());
        let made = self
            .tree
            .make_link(path, target, &self.transfer, number as u64, replaces);
        match made {
            Ok(()) => {
                self.set(number, State::Arrived);
                self.done.files += 1;
                Ok(true)
            }
            Err(error) => self.went_wrong(number, error).map(|()| false),
        }
    }

    /// Makes a file with the content of another one that is here already.
    pub(super) fn copy(
        &mut self,
        number: usize,
        from: usize,
        said: Attributes,
    ) -> Result<bool, DownError> {
        let Some(source) = self.files.get(from) else {
            return Ok(false);
        };
        let (mut source, about) = match self.tree.open_file(&source.local) {
            Ok(opened) => opened,
            Err(error) => return self.went_wrong(number, error).map(|()| false),
        };
        self.begin(number, about.size_bytes)?;
        let mut chunk = vec![0; CHUNK];
        while self.is_open(number) {
            match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => self.content(number, chunk.get(..length).unwrap_or_default())?,
                Err(error) => self.fail(number, format!("cannot be copied: {error}")),
            }
        }
        self.finish(number, said)
    }

    fn went_wrong(&mut self, number: usize, error: BeneathError) -> Result<(), DownError> {
        if error.is_disk_full() {
            return Err(DownError::NoSpace(error));
        }
        self.fail(number, Failure::chain(&error));
        Ok(())
    }

    /// What became of everything; what is still waiting did not come.
    pub(super) fn done(mut self, missing: &str) -> DownDone {
        for number in self.waiting() {
            self.fail(number, missing);
        }
        let arrived = self.states.iter().map(|state| *state == State::Arrived);
        self.done.arrived = arrived.collect();
        self.done
    }
}

/// Whether a file was changed so lately that it may be again while it is read. One with several names is copied from
/// where it lies, and cannot wait.
fn may_change(planned: &Planned) -> bool {
    let now = i64::try_from(clock::wall().as_secs()).unwrap_or(i64::MAX);
    let has_one_name = planned
        .entry
        .identity
        .is_none_or(|identity| identity.links <= 1);
    has_one_name && planned.entry.mtime.seconds.saturating_add(LATELY_S) > now
}

fn path_of(files: &[Planned], number: u32) -> Option<&RelPath> {
    files
        .get(number as usize)
        .map(|planned| &planned.entry.path)
}

pub(super) fn too_large() -> &'static str {
    "has become far larger than it was; it is left for the next sync"
}

/// The time of the scan, which is finer, where what came is not of another time.
fn exact_time(planned: &Planned, said: Mtime) -> Mtime {
    let seen = planned.entry.mtime;
    if seen.agrees(said) { seen } else { said }
}
