//! What is written down after a sync: how every file looked on both sides, and the name of the whole.

use std::collections::{BTreeMap, BTreeSet};

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sync::plan::{Action, BaseEntry};
use remote_sandbox_core::sync::revision::RevisionBuilder;
use remote_sandbox_core::sync::{Entry, RelPath, Stamp};

use super::decide::out_of_order;
use super::request::Way;
use super::sides::Sides;

/// What differs from the scans by now.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Files of the source that looked otherwise when they were read.
    pub(super) fresh: BTreeMap<RelPath, Stamp>,
    /// How files look in the target where that is not as in the source.
    pub(super) target: BTreeMap<RelPath, Stamp>,
    /// What has not arrived.
    pub(super) failed: BTreeSet<RelPath>,
    /// Whether anything was sent at all.
    pub(super) any: bool,
}

/// Writes down what both sides hold now; the name of the set, when all of it is there.
pub(super) fn remember(sides: &Sides, changes: &Changes) -> Result<Option<String>, Failure> {
    let pair = sides.pair();
    let mut revision = Some(RevisionBuilder::default());
    let mut remembered = 0_u64;
    let mut old = pair.recall().peekable();
    let mut writing = match changes.any || pair.recall().next().is_none() {
        true => pair.remember().ok(),
        false => None,
    };
    for action in sides.plan() {
        let action = action.map_err(|error| out_of_order(&error))?;
        let entry = match &action {
            Action::Conflict { .. } => {
                revision = None;
                continue;
            }
            Action::Skip { .. } | Action::Delete { .. } => continue,
            Action::MakeDirectory { entry, .. }
            | Action::SendFile { entry, .. }
            | Action::SendLink { entry, .. }
            | Action::Keep { entry }
            | Action::CompareContent { entry, .. }
            | Action::SetAttributes { entry, .. } => entry,
        };
        while old.next_if(|record| record.path < entry.path).is_some() {}
        let kept = match &action {
            Action::Keep { .. } | Action::SetAttributes { .. } => {
                old.next_if(|record| record.path == entry.path)
            }
            _ => None,
        };
        if changes.failed.contains(&entry.path) {
            revision = None;
            continue;
        }
        let entry = patched(entry, changes);
        let added = revision.as_mut().map(|builder| builder.add(&entry, None));
        if added.is_some_and(|added| added.is_err()) {
            revision = None;
        }
        if let (true, Some(file)) = (entry.kind.is_file(), &mut writing) {
            remembered += 1;
            let record = kept.unwrap_or_else(|| record(sides, &entry, changes));
            // A record that cannot be written is one that the next sync does without.
            if file.add(&record).is_err() {
                writing = None;
            }
        }
    }
    tracing::debug!(remembered, "pair written down");
    if let Some(file) = writing {
        let _ = file.finish();
    }
    Ok(revision.map(|builder| builder.finish().to_string()))
}

fn patched(entry: &Entry, changes: &Changes) -> Entry {
    let mut entry = entry.clone();
    if let Some(stamp) = changes.fresh.get(&entry.path) {
        entry.size_bytes = stamp.size_bytes;
        entry.mtime = stamp.mtime;
    }
    entry
}

fn record(sides: &Sides, entry: &Entry, changes: &Changes) -> BaseEntry {
    let source = entry.stamp();
    let target = changes.target.get(&entry.path).copied().unwrap_or(source);
    let (local, remote) = match sides.request.way {
        Way::Up => (source, target),
        Way::Down => (target, source),
    };
    BaseEntry {
        path: entry.path.clone(),
        local,
        remote,
    }
}
