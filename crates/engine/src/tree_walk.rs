//! Lists a tree over the file protocol, for hosts that have no program for it.
//!
//! Many directories are under way at the same time, within what the conversation allows. What waits is kept as names, the
//! deepest first, so that little waits even in a wide tree. Directories that are excluded are never opened.

mod waiting;
mod way;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sftp::{Attributes, EntryNameError, FileKind, RemotePath, StatusCode};
use remote_sandbox_core::sync::path::{inside, shown};
use remote_sandbox_core::sync::scan::{
    Found, HostPath, RootKind, ScanDepth, ScanProblem, ScanRequest, ScanSummary, is_passed_over,
    listed_entry,
};
use remote_sandbox_core::sync::{LinkEnd, RelPath};

use crate::sandbox::conversation::{Batch, Client, ReadDir, SftpError};
use crate::sandbox::{FileConversation, Sandbox};
use waiting::{Waiting, below};
use way::Way;

/// Directories that are read at the same time, where the server allows as many to be open.
const MOST_DIRECTORIES: u64 = 64;

/// The same where it does not say what it allows.
const USUAL_DIRECTORIES: u64 = 16;

/// Entries of one directory that are looked at more closely at the same time.
const MOST_LOOKS: usize = 64;

/// Entries of one directory; a tree ends earlier.
const MOST_ENTRIES: usize = 4_000_000;

/// Bytes of names of directories that may wait.
const MOST_WAITING: usize = 24 * 1024 * 1024;

/// Why a tree could not be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    /// The conversation ended.
    #[error("the connection ended while the tree was listed")]
    Cut(#[source] SftpError),
    /// A directory, or what waits to be listed, does not fit into memory.
    #[error("the tree is too wide to be listed over the file protocol")]
    TooWide,
    /// The root is no path that the protocol can carry.
    #[error("the root cannot be listed over the file protocol")]
    Path(#[from] remote_sandbox_core::sftp::PathError),
}

impl WalkError {
    /// What it means for a caller.
    pub(crate) fn failure(&self, sandbox: &dyn Sandbox) -> Failure {
        let name = &sandbox.description().name;
        let text = format!("sandbox `{name}`: {}", Failure::chain(self));
        match self {
            WalkError::Cut(_) => Failure::new(Code::LinkLost, text)
                .hint("nothing was changed; call again")
                .retry(),
            WalkError::TooWide | WalkError::Path(_) => Failure::new(Code::Unsupported, text)
                .hint("name a directory further down, or exclude something"),
        }
    }
}

/// The conversation of a sandbox that has nothing else to list files with.
pub(crate) async fn conversation(sandbox: &dyn Sandbox) -> Result<FileConversation, Failure> {
    sandbox.files().await?.ok_or_else(|| {
        let name = &sandbox.description().name;
        let text = format!("sandbox `{name}` has nothing to list files with");
        Failure::new(Code::Unsupported, text)
    })
}

/// Lists what the request wants of a root that a script has looked at; stops when `take` says false.
pub(crate) async fn list(
    client: &Client,
    request: &ScanRequest<'_>,
    summary: &ScanSummary,
    take: impl FnMut(Found) -> bool + Send,
) -> Result<(), WalkError> {
    match summary.root {
        RootKind::Directory => {
            let walk = Walk::new(client, &summary.location, request, take)?;
            walk.run(&summary.location).await
        }
        RootKind::File => {
            let Some(request) = request.for_lone_file() else {
                return Ok(());
            };
            let whole = match summary.location.is_empty() {
                true => absolute(request.root, &summary.home),
                false => summary.location.clone(),
            };
            let slash = whole.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let (above, name) = (whole.get(..slash), whole.get(slash + 1..));
            let above = above.filter(|above| !above.is_empty()).unwrap_or(b"/");
            let walk = Walk::new(client, above, &request, take)?;
            walk.lone(name.unwrap_or_default()).await
        }
        RootKind::Missing | RootKind::Unreadable => Ok(()),
    }
}

fn absolute(root: &HostPath, home: &[u8]) -> Vec<u8> {
    match root.as_bytes().strip_prefix(b"./") {
        Some(rest) => [home, b"/", rest].concat(),
        None => root.as_bytes().to_vec(),
    }
}

struct Walk<'a, T> {
    client: &'a Client,
    root: RemotePath,
    request: &'a ScanRequest<'a>,
    take: Mutex<T>,
    has_enough: AtomicBool,
}

/// What a closer look at an entry has given.
enum Looked {
    /// Nothing more.
    Over,
    /// A directory behind a link, and how one comes into it.
    Behind(RelPath, Arc<Way>),
    /// A directory.
    Directory(RelPath),
}

impl<'a, T: FnMut(Found) -> bool + Send> Walk<'a, T> {
    fn new(
        client: &'a Client,
        root: &[u8],
        request: &'a ScanRequest<'a>,
        take: T,
    ) -> Result<Self, WalkError> {
        Ok(Walk {
            client,
            root: RemotePath::new(root)?,
            request,
            take: Mutex::new(take),
            has_enough: AtomicBool::new(false),
        })
    }

    fn give(&self, found: Found) {
        let mut take = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        if !take(found) {
            self.has_enough.store(true, Ordering::Relaxed);
        }
    }

    fn has_enough(&self) -> bool {
        self.has_enough.load(Ordering::Relaxed)
    }

    fn problem(&self, problem: ScanProblem) {
        self.give(Found::Problem(problem));
    }

    /// The path of an entry; none, and a problem, where the protocol cannot carry it.
    fn remote(&self, path: Option<&RelPath>) -> Option<RemotePath> {
        let Some(path) = path else {
            return Some(self.root.clone());
        };
        let remote = RemotePath::new(inside(self.root.as_bytes(), path.as_bytes())).ok();
        if remote.is_none() {
            self.problem(unreadable(Some(path)));
        }
        remote
    }

    /// Lists everything.
    async fn run(&self, location: &[u8]) -> Result<(), WalkError> {
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut work = FuturesUnordered::new();
        work.push(self.directory(None, Arc::new(Way::from_root(location))));
        while let Some(found) = work.next().await {
            waiting.extend(found?.into_iter().filter(|level| !level.is_empty()));
            let held: usize = waiting.iter().map(Waiting::held_bytes).sum();
            if held > MOST_WAITING {
                return Err(WalkError::TooWide);
            }
            if self.has_enough() {
                return Ok(());
            }
            while work.len() < at_once(self.client) {
                let Some(level) = waiting.last_mut() else {
                    break;
                };
                match level.pop() {
                    Some(path) => work.push(self.directory(Some(path), level.way.clone())),
                    None => drop(waiting.pop()),
                }
            }
        }
        Ok(())
    }

    /// Lists one file, as an entry of its own name.
    async fn lone(&self, name: &[u8]) -> Result<(), WalkError> {
        match RelPath::parse(name) {
            Ok(path) => {
                let way = Arc::new(Way::from_root(self.root.as_bytes()));
                self.look(path, Attributes::default(), &way).await.map(drop)
            }
            Err(error) => {
                self.problem(ScanProblem::Path(error));
                Ok(())
            }
        }
    }

    /// Lists one directory; gives those in it that are to be listed next.
    async fn directory(
        &self,
        path: Option<RelPath>,
        way: Arc<Way>,
    ) -> Result<Vec<Waiting>, WalkError> {
        let mut levels = vec![Waiting::new(path.clone(), way.clone())];
        let Some(remote) = self.remote(path.as_ref()) else {
            return Ok(levels);
        };
        let mut reading = match self.client.read_dir(&remote, MOST_ENTRIES).await {
            Ok(reading) => reading,
            Err(error) => return self.not_listed(path.as_ref(), error).map(|()| levels),
        };
        let mut is_empty = true;
        while let Some(batch) = self.next(&mut reading, path.as_ref()).await? {
            is_empty &= batch.entries.is_empty();
            self.batch(path.as_ref(), batch, &way, &mut levels).await?;
            if self.has_enough() {
                return Ok(levels);
            }
        }
        if is_empty {
            self.check_entry(path.as_ref(), &remote).await?;
        }
        Ok(levels)
    }

    async fn next(
        &self,
        reading: &mut ReadDir,
        path: Option<&RelPath>,
    ) -> Result<Option<Batch>, WalkError> {
        match reading.next_batch().await {
            Ok(batch) => Ok(batch),
            Err(SftpError::TooManyEntries { .. }) => Err(WalkError::TooWide),
            Err(error) => self.not_listed(path, error).map(|()| None),
        }
    }

    /// A directory whose entries may not be looked at seems empty; it can be told by what it says of itself.
    async fn check_entry(
        &self,
        path: Option<&RelPath>,
        remote: &RemotePath,
    ) -> Result<(), WalkError> {
        let Ok(inside) = RemotePath::new([remote.as_bytes(), b"/."].concat()) else {
            return Ok(());
        };
        match self.client.stat(&inside).await {
            Ok(_) => Ok(()),
            Err(error) => self.not_listed(path, error),
        }
    }

    /// What it means that a directory cannot be listed.
    fn not_listed(&self, path: Option<&RelPath>, error: SftpError) -> Result<(), WalkError> {
        match (&error, path) {
            (SftpError::Closed(_), _) => return Err(WalkError::Cut(error)),
            (_, Some(path)) if error.code() == Some(StatusCode::NoSuchFile) => {
                self.problem(vanished(path));
            }
            (_, path) => self.problem(unreadable(path)),
        }
        Ok(())
    }

    /// Passes on what one answer holds; links, and what the server said too little of, are looked at together.
    async fn batch(
        &self,
        above: Option<&RelPath>,
        batch: Batch,
        way: &Arc<Way>,
        levels: &mut Vec<Waiting>,
    ) -> Result<(), WalkError> {
        for refused in batch.refused {
            self.problem(refused_name(above, &refused));
        }
        let mut closer = Vec::new();
        for found in batch.entries {
            let path = match below(above, found.name.as_bytes()) {
                Ok(path) => path,
                Err(error) => {
                    self.problem(ScanProblem::Path(error));
                    continue;
                }
            };
            match listed_entry(path.clone(), &found.attributes, None) {
                Some(entry) => {
                    let is_directory = entry.kind.is_directory();
                    self.give(Found::Entry(entry));
                    if is_directory {
                        self.wait(Looked::Directory(path), levels);
                    }
                }
                None => closer.push((path, found.attributes)),
            }
        }
        let looks = futures::stream::iter(closer);
        let looks = looks.map(|(path, told)| self.look(path, told, way));
        let mut looks = looks.buffer_unordered(MOST_LOOKS);
        while let Some(looked) = looks.next().await {
            self.wait(looked?, levels);
        }
        Ok(())
    }

    /// Puts a directory among those to be listed, unless it is passed over.
    fn wait(&self, looked: Looked, levels: &mut Vec<Waiting>) {
        let (path, way) = match looked {
            Looked::Over => return,
            Looked::Directory(path) => (path, None),
            Looked::Behind(path, way) => (path, Some(way)),
        };
        if self.request.depth != ScanDepth::Tree || is_passed_over(self.request.prunes, &path) {
            return;
        }
        match (way, levels.first_mut()) {
            (None, Some(level)) => level.push(path.name()),
            (way, _) => {
                let mut level = Waiting::new(path.parent(), way.unwrap_or_default());
                level.push(path.name());
                levels.push(level);
            }
        }
    }

    /// Looks at one entry more closely.
    async fn look(
        &self,
        path: RelPath,
        told: Attributes,
        way: &Arc<Way>,
    ) -> Result<Looked, WalkError> {
        let Some(remote) = self.remote(Some(&path)) else {
            return Ok(Looked::Over);
        };
        let told = match told.kind() {
            Some(FileKind::Link) => Ok(told),
            _ => self.client.lstat(&remote).await,
        };
        let told = match told {
            Ok(told) => told,
            Err(error) => return self.gone(&path, error),
        };
        if told.kind() == Some(FileKind::Link) {
            return self.link(path, &remote, &told, way).await;
        }
        let Some(entry) = listed_entry(path.clone(), &told, None) else {
            self.problem(vanished(&path));
            return Ok(Looked::Over);
        };
        let is_directory = entry.kind.is_directory();
        self.give(Found::Entry(entry));
        Ok(match is_directory {
            true => Looked::Directory(path),
            false => Looked::Over,
        })
    }

    async fn link(
        &self,
        path: RelPath,
        remote: &RemotePath,
        told: &Attributes,
        way: &Arc<Way>,
    ) -> Result<Looked, WalkError> {
        let (target, behind) = tokio::join!(self.client.readlink(remote), self.client.stat(remote));
        let behind = match behind {
            Err(error @ SftpError::Closed(_)) => return Err(WalkError::Cut(error)),
            behind => behind.ok(),
        };
        if self.request.follow_links
            && let Some(entry) = behind.and_then(|told| listed_entry(path.clone(), &told, None))
        {
            let is_directory = entry.kind.is_directory();
            self.give(Found::Entry(entry));
            return match is_directory {
                true => self.behind(path, remote, way).await,
                false => Ok(Looked::Over),
            };
        }
        let target = match target {
            Ok(target) => target,
            Err(error) => return self.gone(&path, error),
        };
        let end = match behind.map(|told| told.kind()) {
            None => LinkEnd::Nothing,
            Some(Some(FileKind::Directory)) => LinkEnd::Directory,
            Some(_) => LinkEnd::Other,
        };
        match listed_entry(path.clone(), told, Some((target.as_bytes(), end))) {
            Some(entry) => self.give(Found::Entry(entry)),
            None => self.problem(vanished(&path)),
        }
        Ok(Looked::Over)
    }

    /// A directory behind a link; one that leads back to where one came from is not gone into.
    async fn behind(
        &self,
        path: RelPath,
        remote: &RemotePath,
        way: &Arc<Way>,
    ) -> Result<Looked, WalkError> {
        let real = match self.client.realpath(remote).await {
            Ok(real) => real,
            Err(error) => return self.gone(&path, error),
        };
        match Way::behind(way, &path, real.as_bytes()) {
            Some(way) => Ok(Looked::Behind(path, Arc::new(way))),
            None => {
                self.problem(ScanProblem::Loop {
                    shown: path.shown().text,
                });
                Ok(Looked::Over)
            }
        }
    }

    fn gone(&self, path: &RelPath, error: SftpError) -> Result<Looked, WalkError> {
        match error {
            SftpError::Closed(_) => Err(WalkError::Cut(error)),
            _ => {
                let is_denied = error.code() == Some(StatusCode::PermissionDenied);
                self.problem(match is_denied {
                    true => ScanProblem::Denied {
                        shown: path.shown().text,
                    },
                    false => vanished(path),
                });
                Ok(Looked::Over)
            }
        }
    }
}

fn unreadable(path: Option<&RelPath>) -> ScanProblem {
    ScanProblem::Unreadable {
        shown: shown(path.map_or(b".".as_slice(), RelPath::as_bytes)).text,
    }
}

/// An entry that is not taken, by the path that the host gives it.
fn refused_name(above: Option<&RelPath>, refused: &EntryNameError) -> ScanProblem {
    let shown = match refused {
        EntryNameError::Unsafe(name) => match above {
            Some(above) => shown(&inside(above.as_bytes(), name)).text,
            None => shown(name).text,
        },
        EntryNameError::Dots | EntryNameError::TooLong(_) => refused.to_string(),
    };
    ScanProblem::Garbled { shown }
}

fn vanished(path: &RelPath) -> ScanProblem {
    ScanProblem::Vanished {
        shown: path.shown().text,
    }
}

/// Some handles are left to others who speak on the same conversation.
fn at_once(client: &Client) -> usize {
    let most = match client.limits().open_handles {
        0 => USUAL_DIRECTORIES,
        handles => (handles / 2).clamp(1, MOST_DIRECTORIES),
    };
    usize::try_from(most).unwrap_or(1)
}

#[cfg(test)]
#[path = "tree_walk_tests.rs"]
mod tests;
