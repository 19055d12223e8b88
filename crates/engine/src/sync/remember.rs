//! What is written down of a sync: how every file and link looked on both sides, and the name of the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sync::plan::{Action, BaseEntry, SkipReason};
use remote_sandbox_core::sync::revision::RevisionBuilder;
use remote_sandbox_core::sync::{Entry, RelPath, Stamp};

use super::decide::out_of_order;
use super::digest_list::DigestList;
use super::pairs::{Recalled, Remembering};
use super::request::Way;
use super::sides::Sides;
use crate::fsio::FileError;

/// What differs from the scans by now.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Files of the source that looked otherwise when they were read.
    pub(super) fresh: BTreeMap<RelPath, Stamp>,
    /// Whether the target keeps whole seconds of what was sent.
    pub(super) has_whole_seconds: Option<bool>,
    /// How files look in the target where that is neither so nor as in the source.
    pub(super) target: BTreeMap<RelPath, Stamp>,
    /// What has not arrived.
    pub(super) failed: BTreeSet<RelPath>,
    /// Digests of the files that were compared, in the order of the plan.
    pub(super) compared: DigestList,
}

impl Changes {
    /// How an entry of the source looks by now.
    pub(super) fn patched(&self, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        if let Some(stamp) = self.fresh.get(&entry.path) {
            entry.size_bytes = stamp.size_bytes;
            entry.mtime = stamp.mtime;
        }
        entry
    }
}

/// The entry of the source that an action leaves in the target; none where it leaves nothing, or nothing of the source.
pub(super) fn left_by(action: &Action) -> Option<&Entry> {
    match action {
        Action::Conflict { .. } | Action::Skip { .. } | Action::Delete { .. } => None,
        Action::MakeDirectory { entry, .. }
        | Action::SendFile { entry, .. }
        | Action::SendLink { entry, .. }
        | Action::Keep { entry }
        | Action::CompareContent { entry, .. }
        | Action::SetAttributes { entry, .. } => Some(entry),
    }
}

/// What became of a sync that was to be written down.
pub(super) struct Remembered {
    /// The name of the set, when all of it is there.
    pub(super) revision: Option<String>,
    /// Why it could not be written down.
    pub(super) fault: Option<FileError>,
}

/// Writes down what both sides hold now, and names the set.
///
/// What was not part of this sync, or did not arrive, stays remembered as it was: an edit that was kept once must still
/// be known as one the next time. `contents` are the digests of all files of the set in the order of the plan, where
/// they were made.
pub(super) fn remember(
    sides: &Sides,
    changes: &Changes,
    contents: &DigestList,
) -> Result<Remembered, Failure> {
    let mut contents = contents.iter();
    let mut revision = Some(RevisionBuilder::default());
    let mut writing = Writing::of(sides);
    for action in sides.plan() {
        let action = action.map_err(|error| out_of_order(&error))?;
        writing.pass_on_before(action.path());
        match &action {
            Action::Skip {
                reason: SkipReason::SpecialStays,
                ..
            } => {}
            // What is passed over is part of the source, too.
            Action::Conflict { .. } | Action::Skip { .. } => revision = None,
            Action::Delete { target } => writing.forget(&target.path).clear(),
            _ => {}
        }
        let Some(entry) = left_by(&action) else {
            continue;
        };
        let digest = match entry.kind.is_file() {
            true => contents.next().flatten(),
            false => None,
        };
        if changes.failed.contains(&entry.path) {
            revision = None;
            continue;
        }
        let entry = changes.patched(entry);
        let added = revision
            .as_mut()
            .map(|builder| builder.add(&entry, digest.as_ref()));
        if added.is_some_and(|added| added.is_err()) {
            revision = None;
        }
        if entry.kind.is_content() {
            let is_kept = matches!(action, Action::Keep { .. } | Action::SetAttributes { .. });
            let mut old = writing.forget(&entry.path).into_iter();
            let source = entry.remembered();
            let agrees = |old: &BaseEntry| source_of(sides, old).agrees(source);
            // A target that keeps coarser times is known by its record alone.
            let kept = old.find(|old| is_kept && !old.is_intended && agrees(old));
            writing.add(&kept.unwrap_or_else(|| record(sides, &action, &entry, changes)));
        }
    }
    Ok(Remembered {
        revision: revision.map(|builder| builder.finish().to_string()),
        fault: writing.finish().err(),
    })
}

/// Writes down what a download is about to put here, beside what is remembered: so what has come is known for what it is
/// also when the download breaks off, even by force, and is not taken for an edit.
pub(super) fn intend(sides: &Sides) -> Result<(), Failure> {
    let mut writing = Writing::of(sides);
    for action in sides.plan() {
        let action = action.map_err(|error| out_of_order(&error))?;
        writing.pass_on_before(action.path());
        let (entry, here) = match &action {
            Action::SendFile {
                entry, replaces, ..
            }
            | Action::SendLink { entry, replaces } => (entry, replaces.as_ref()),
            Action::CompareContent { entry, target, .. } => (entry, Some(target)),
            _ => continue,
        };
        let old = writing.forget(&entry.path);
        if let Some(record) = BaseEntry::fitting(old, here) {
            writing.add(&record);
        }
        writing.add(&BaseEntry {
            path: entry.path.clone(),
            local: entry.remembered().as_set(),
            remote: entry.remembered(),
            is_intended: true,
        });
    }
    // Without it, what has come before a cut is kept as an edit, which loses nothing.
    let _ = writing.finish();
    Ok(())
}

/// The new file, and the old one beside it.
struct Writing {
    /// Where it could not be written, the old one stays; then nothing is.
    file: Result<Remembering, FileError>,
    old: Peekable<Recalled>,
}

impl Writing {
    fn of(sides: &Sides) -> Self {
        let pair = sides.pair();
        Writing {
            file: pair.remember(),
            old: pair.recall().peekable(),
        }
    }

    fn add(&mut self, record: &BaseEntry) {
        let added = self.file.as_mut().map(|file| file.add(record));
        if let Ok(Err(error)) = added {
            self.file = Err(error);
        }
    }

    /// Copies what the plan has passed by.
    fn pass_on_before(&mut self, path: &RelPath) {
        while let Some(old) = self.old.next_if(|record| record.path < *path) {
            self.add(&old);
        }
    }

    /// The old records of a path, which are not copied then.
    fn forget(&mut self, path: &RelPath) -> Vec<BaseEntry> {
        let next = || self.old.next_if(|record| record.path == *path);
        std::iter::from_fn(next).collect()
    }

    fn finish(mut self) -> Result<(), FileError> {
        while let Some(old) = self.old.next() {
            self.add(&old);
        }
        self.file?.finish()
    }
}

/// How the source looked when a record was made.
pub(super) fn source_of(sides: &Sides, record: &BaseEntry) -> Stamp {
    match sides.request.way {
        Way::Up => record.local,
        Way::Down => record.remote,
    }
}

fn record(sides: &Sides, action: &Action, entry: &Entry, changes: &Changes) -> BaseEntry {
    let source = entry.remembered();
    let is_whole = changes.has_whole_seconds == Some(true);
    let target = match (changes.target.get(&entry.path), action) {
        (Some(target), _) => *target,
        (None, Action::SendFile { .. }) if is_whole => source.in_whole_seconds(),
        (None, _) => source,
    };
    let (local, remote) = match (sides.request.way, action) {
        (Way::Up, _) => (source, target),
        // What came from a host that keeps whole seconds stands here with nothing on top of them, and an edit within
        // that second is known by it.
        (Way::Down, Action::SendFile { .. }) => (target.as_set(), source),
        (Way::Down, _) => (target, source),
    };
    BaseEntry {
        path: entry.path.clone(),
        local,
        remote,
        is_intended: false,
    }
}
