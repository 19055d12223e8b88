//! Brings files of a sandbox here: many small ones in one archive, or by the file protocol where there is no `tar`.
//!
//! What comes is not trusted. A member of the archive counts only when its path and its kind were asked for, up to a
//! bound on its size, and it is written beneath a directory handle under a temporary name first. What goes wrong with one
//! file is told by its path, and the others go on.

mod by_sftp;
mod by_tar;
mod error;
mod flow;
mod pieces;
mod recheck;
mod store;
mod unpack;

use std::sync::Arc;

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::{Entry, RelPath};

pub(crate) use error::DownError;
pub(crate) use recheck::look_closely;

use super::Progress;
use super::gauge::Gauge;
use super::report::Problem;
use crate::beneath::Tree;
use crate::sandbox::Sandbox;

/// A file that has grown since the scan is taken up to this much more, or twice its size.
const MOST_GROWTH: u64 = 16 * 1024 * 1024;

/// So many problems are named; the rest is counted.
const MOST_PROBLEMS: usize = 1000;

/// One file or link that is to be brought.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    /// What the scan of the sandbox saw.
    pub(crate) entry: Entry,
    /// Where it goes, in the tree.
    pub(crate) local: RelPath,
    /// What the scan of this machine saw there.
    pub(crate) replaces: Option<Entry>,
}

impl Planned {
    /// The most bytes that are taken for it.
    fn most_bytes(&self) -> u64 {
        let size = self.entry.size_bytes;
        size.saturating_mul(2).max(size.saturating_add(MOST_GROWTH))
    }
}

/// Files that are to be brought in one go: at most 10,000, of 64 MiB together.
pub(crate) struct DownJob<'a> {
    /// Where they lie: absolute, or from the home directory with `./` in front.
    pub(crate) remote_root: Vec<u8>,
    /// Whether links are brought as what they lead to.
    pub(crate) follow_links: bool,
    /// Where they go; the directories are there already.
    pub(crate) tree: Tree,
    /// Whose temporary names are used.
    pub(crate) transfer: RunToken,
    /// Where it is told how far it has come.
    pub(crate) progress: &'a Progress,
    /// What is known of the link.
    pub(crate) gauge: &'a Gauge,
    /// The files.
    pub(crate) files: Arc<[Planned]>,
}

/// What was brought.
#[derive(Debug, Default)]
pub(crate) struct DownDone {
    /// For each file of the job whether it is here, complete.
    pub(crate) arrived: Vec<bool>,
    /// How many are.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The first of what went wrong, by path in the sandbox.
    pub(crate) problems: Vec<Problem>,
    /// How much went wrong in all.
    pub(crate) problem_count: u64,
}

impl DownDone {
    fn problem(&mut self, path: &RelPath, problem: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem {
                path: path.shown().text,
                problem: problem.into(),
            });
        }
    }
}

/// Brings files, each complete or not at all. Dropped, it leaves no temporary file.
pub(crate) async fn download(far: &dyn Sandbox, job: &DownJob<'_>) -> Result<DownDone, DownError> {
    match by_tar::download(far, job).await {
        Err(DownError::NoTar) => {}
        done => return done,
    }
    match far.files().await.map_err(DownError::Sandbox)? {
        Some(files) => by_sftp::download(far, &files, job).await,
        None => Err(DownError::NoTar),
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
#[path = "down_tests.rs"]
mod down_tests;
#[cfg(test)]
#[path = "hostile_tests.rs"]
mod hostile_tests;
