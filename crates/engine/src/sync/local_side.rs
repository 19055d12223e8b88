//! The side of a sync that is on this machine.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::scan::{RootKind, ScanProblem};
use remote_sandbox_core::sync::{Filter, RelPath};

use super::refusals::local_failure;
use super::request::{SyncRequest, Way};
use super::roots::Resolved;
use super::sides::{SPOOL, Setting};
use crate::beneath::{LocalScanOptions, Tree, scan};
use crate::clock;
use crate::listing::Listing;

/// What this machine has.
pub(super) struct LocalSide {
    pub(super) tree: Option<Tree>,
    pub(super) entries: Listing,
    pub(super) problems: Vec<ScanProblem>,
    pub(super) problem_count: u64,
    pub(super) filter: Filter,
    /// The first things of ours that were still being written when they were left.
    pub(super) temporaries: Vec<RelPath>,
}

/// Looks through a directory of this machine; one that is not there is empty.
pub(super) async fn look_here(
    setting: &Setting<'_>,
    request: &SyncRequest,
    local: &Resolved,
    mut filter: Filter,
    cancelled: Arc<AtomicBool>,
) -> Result<LocalSide, Failure> {
    if local.kind != RootKind::Directory {
        return Ok(LocalSide {
            tree: None,
            entries: Listing::default(),
            problems: Vec::new(),
            problem_count: 0,
            filter,
            temporaries: Vec::new(),
        });
    }
    let is_source = request.way == Way::Up;
    let options = LocalScanOptions {
        follow_links: request.follow_links && is_source,
        roots: Some(setting.paths.rules().clone()),
        prunes: Vec::new(),
        spool: setting.state.join(SPOOL),
        gitignore: request.use_gitignore && is_source,
        avoid: local.allowed.avoid.clone(),
        cancelled,
    };
    let (root, only_looks) = (local.path.clone(), setting.only_looks);
    let looking = tokio::task::spawn_blocking(move || {
        let tree = Tree::open(&root)?;
        let found = scan(&tree, &options, &mut filter)?;
        if !only_looks {
            tree.remove_old_temporaries(&found.temporaries, clock::wall());
        }
        Ok(LocalSide {
            tree: Some(tree),
            entries: found.entries,
            problems: found.problems,
            problem_count: found.problem_count,
            filter,
            temporaries: found.temporaries,
        })
    });
    let looked = looking
        .await
        .map_err(|error| Failure::new(Code::Internal, format!("the local scan broke: {error}")))?;
    looked.map_err(|error| local_failure(&error))
}

/// The rules with those of the `.gitignore` file at the top of a source here: what that leaves out at the top need not even be
/// listed there.
pub(super) fn rules_at_top(
    request: &SyncRequest,
    local: &Resolved,
    mut filter: Filter,
) -> Result<Filter, Failure> {
    let is_source = request.way == Way::Up && local.kind == RootKind::Directory;
    if !is_source || !request.use_gitignore {
        return Ok(filter);
    }
    let tree = Tree::open(&local.path).map_err(|error| local_failure(&error))?;
    // What is wrong with it is told by the scan.
    if let Ok(Some(rules)) = tree.ignore_file() {
        let _ = filter.add_gitignore(None, &rules);
    }
    Ok(filter)
}
