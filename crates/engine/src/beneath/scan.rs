//! Looks through a whole local tree.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use remote_sandbox_core::sync::roots::{CleanPath, LocalRoots};
use remote_sandbox_core::sync::scan::ScanProblem;
use remote_sandbox_core::sync::{Filter, Prune, RelPath};

use super::BeneathError;
use super::prefetch::{Ahead, Closing};
use super::tree::Tree;
use super::walk::Walk;
use crate::listing::Listing;

/// How a local tree is looked through.
#[derive(Debug, Clone, Default)]
pub struct LocalScanOptions {
    /// Whether links are listed as what they lead to.
    pub follow_links: bool,
    /// Where links may lead to when they are followed; none is everywhere that is not avoided.
    pub roots: Option<LocalRoots>,
    /// Directories that are listed but not entered, beyond those that the filter leaves out.
    pub prunes: Vec<Prune>,
    /// Whether the `.gitignore` files of the tree are read into the filter.
    pub gitignore: bool,
    /// Places that are neither listed nor entered, as they really lie.
    pub avoid: Vec<CleanPath>,
    /// Where entries go that do not fit into memory; the folder for temporary files when it is empty.
    pub spool: PathBuf,
    /// Becomes true when somebody wants the scan to end.
    pub cancelled: Arc<AtomicBool>,
}

impl LocalScanOptions {
    /// Whether a link may lead to this place, as it really lies.
    pub(super) fn allows(&self, real: &CleanPath) -> bool {
        let is_avoided = self
            .avoid
            .iter()
            .any(|avoided| real.as_path().starts_with(avoided.as_path()));
        let roots = self.roots.as_ref();
        !is_avoided && roots.is_none_or(|roots| roots.judge(real).is_ok())
    }
}

/// What a local tree holds.
#[derive(Debug)]
pub struct LocalScan {
    /// The entries, in the order of their paths.
    pub entries: Listing,
    /// The first of what could not be listed.
    pub problems: Vec<ScanProblem>,
    /// How much could not be listed in all.
    pub problem_count: u64,
    /// The first temporary files of ours that were met.
    pub temporaries: Vec<RelPath>,
}

/// Looks through a tree, with a few threads and in bounded memory. Blocks until it is done.
pub fn scan(
    tree: &Tree,
    options: &LocalScanOptions,
    filter: &mut Filter,
) -> Result<LocalScan, BeneathError> {
    let ahead = Ahead::default();
    std::thread::scope(|scope| {
        let _closing = Closing(&ahead);
        for _ in 0..readers() {
            let reader = std::thread::Builder::new().name("sync-scan".to_owned());
            // Where no thread can be had, the walk reads everything itself.
            let _ = reader.spawn_scoped(scope, || ahead.serve(options));
        }
        Walk::new(options, filter, &ahead).run(tree)
    })
}

/// Threads beside the walk itself.
fn readers() -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    processors.clamp(2, 4) - 1
}
