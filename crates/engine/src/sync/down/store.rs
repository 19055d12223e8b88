//! Writes what has come, and keeps count of it. Blocks, so it lives in a thread for that.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::{Mtime, RelPath, Stamp};

use super::{DownDone, DownError, Planned};
use crate::beneath::{BeneathError, LastDirectory, NewFile, ParkedFile, Tree};

/// What is said of a file that was written while it was read.
const CHANGED: &str = "it was changed while it was read; sync again";

/// Bytes that are copied at once.
const CHUNK: usize = 128 * 1024;

/// How far a file has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing of it came.
    Waiting,
    /// All of it came, and it waits for the word that it did not change meanwhile.
    Parked,
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
    /// The directory in which a file was begun last.
    last: LastDirectory,
    /// Files that wait for what the host says about them.
    parked: Vec<Parked>,
    /// Files of which the host does not know whether they changed while they were read.
    doubtful: Vec<Parked>,
    done: DownDone,
}

/// A complete file without its name.
struct Parked {
    number: usize,
    file: ParkedFile,
    bytes: u64,
    said: Mtime,
    /// Whether the host said that it did not change while it was read.
    is_steady: bool,
}

impl Parked {
    /// How it came.
    fn stamp(&self) -> Stamp {
        Stamp {
            size_bytes: self.bytes,
            mtime: self.said,
        }
    }
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
            last: LastDirectory::default(),
            parked: Vec::new(),
            doubtful: Vec::new(),
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
        let (last, place) = (&mut self.last, &planned.local);
        let begun = self
            .tree
            .begin_file_in(last, place, &self.transfer, number as u64, size_bytes);
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

    /// Lets a complete file wait for its name.
    pub(super) fn park(&mut self, number: usize, said: Attributes) -> Result<(), DownError> {
        let Some((open, planned)) = self.open.remove(&number).zip(self.files.get(number)) else {
            return Ok(());
        };
        let mtime = exact_time(planned, said.mtime);
        match self.tree.park(open.file, said.mode, mtime) {
            Ok(file) => {
                self.set(number, State::Parked);
                self.parked.push(Parked {
                    number,
                    file,
                    bytes: open.bytes,
                    said: said.mtime,
                    is_steady: false,
                });
                Ok(())
            }
            Err(error) => self.went_wrong(number, error),
        }
    }

    /// The host says that nothing of what waits has changed: it gets its names; how many did.
    pub(super) fn confirm(&mut self) -> Result<u64, DownError> {
        let mut last = LastDirectory::default();
        let mut named = 0;
        for mut parked in std::mem::take(&mut self.parked) {
            if self.looks_as_scanned(&parked) {
                named += u64::from(self.name(parked, &mut last)?);
            } else {
                // Changed after the scan, or something else that came in its place: one more look tells.
                parked.is_steady = true;
                self.doubtful.push(parked);
            }
        }
        Ok(named)
    }

    fn looks_as_scanned(&self, parked: &Parked) -> bool {
        let planned = self.files.get(parked.number);
        planned.is_some_and(|planned| parked.stamp().agrees(planned.entry.stamp()))
    }

    /// The host does not know whether something of what waits has changed.
    pub(super) fn doubt(&mut self) {
        self.doubtful.append(&mut self.parked);
    }

    /// The numbers of files of which it is not known whether they changed.
    pub(super) fn doubtful(&self) -> Vec<usize> {
        self.doubtful.iter().map(|parked| parked.number).collect()
    }

    /// Gives doubtful files their names where they still look as the scan saw them; how many got one.
    pub(super) fn settle(&mut self, now: &BTreeMap<RelPath, Stamp>) -> Result<u64, DownError> {
        let mut last = LastDirectory::default();
        let mut named = 0;
        for parked in std::mem::take(&mut self.doubtful) {
            if self.is_as_seen(&parked, now) {
                named += u64::from(self.name(parked, &mut last)?);
            } else {
                self.fail(parked.number, CHANGED);
            }
        }
        Ok(named)
    }

    /// Whether a file is what the scan saw: what came of it, and what is there now. One that did not change while it was read
    /// need only be what is there now.
    fn is_as_seen(&self, parked: &Parked, now: &BTreeMap<RelPath, Stamp>) -> bool {
        let entry = self.files.get(parked.number).map(|planned| &planned.entry);
        entry.is_some_and(|entry| {
            let came = parked.stamp();
            let now = now.get(&entry.path);
            let is_scanned = parked.is_steady || came.agrees(entry.stamp());
            let expected = if parked.is_steady {
                came
            } else {
                entry.stamp()
            };
            is_scanned && now.is_some_and(|now| now.agrees(expected))
        })
    }

    fn name(&mut self, parked: Parked, last: &mut LastDirectory) -> Result<bool, DownError> {
        let planned = self.files.get(parked.number);
        let replaces = planned.and_then(|planned| planned.replaces.as_ref());
        let named = parked.file.commit(replaces, last);
        self.named(parked.number, parked.bytes, named)
    }

    fn named(
        &mut self,
        number: usize,
        bytes: u64,
        named: Result<(), BeneathError>,
    ) -> Result<bool, DownError> {
        match named {
            Ok(()) => {
                self.set(number, State::Arrived);
                self.done.files += 1;
                self.done.bytes += bytes;
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

    /// Makes a file with the content of another one that came before; it waits for its name as that one does.
    pub(super) fn copy(
        &mut self,
        number: usize,
        from: usize,
        said: Attributes,
    ) -> Result<(), DownError> {
        let Some(source) = self.place_of(from) else {
            return Ok(());
        };
        let (mut source, about) = match self.tree.open_file(&source) {
            Ok(opened) => opened,
            Err(error) => return self.went_wrong(number, error),
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
        self.park(number, said)
    }

    /// Where a file lies that came, under its own name or under that it waits with.
    fn place_of(&self, number: usize) -> Option<RelPath> {
        if self.state(number) == State::Arrived {
            return Some(self.files.get(number)?.local.clone());
        }
        let mut waiting = self.parked.iter().chain(&self.doubtful);
        waiting.find(|parked| parked.number == number)?.file.place()
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
