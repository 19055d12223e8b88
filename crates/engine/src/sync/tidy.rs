//! Takes away, on the other side, what has to go; only what the scan saw, looked at once more just before.

use std::iter::Peekable;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::chores::Removal;
use remote_sandbox_core::sync::receive::discard_script;
use remote_sandbox_core::sync::scan::{LoneFile, ScanDepth, ScanRequest, SortedBy};
use remote_sandbox_core::sync::{Entry, Kind, RelPath};

use super::decide::{Decision, Entries};
use super::dirlinks::{joined, scan_behind};
use super::far::{Far, QUESTION_LIMIT};
use super::far_scan::scan;
use super::outcome::Outcome;
use super::sides::Sides;
use super::token::is_left_by_us;
use crate::listing::Listing;
use crate::mark::new_mark;

/// So many entries are deleted at a time, which bounds what is held in memory.
const MOST_AT_ONCE: usize = 5000;

/// What is older than this is nobody's any more.
const LEFT_FOR_S: i64 = 24 * 3600;

/// Removes what earlier syncs left unfinished there: what bears the mark of this target, which nobody else works on now,
/// and what is a day old or older by the clock there; whoever still works on it is given that time.
pub(super) async fn remove_leftovers(sides: &Sides, own: &RunToken) {
    let far = sides.far_side();
    let is_own = |entry: &Entry| is_left_by_us(entry.path.name(), own);
    let now = match sides.far_leftovers.iter().all(is_own) {
        true => None,
        false => far.clock().await,
    };
    let is_old =
        |entry: &Entry| now.is_some_and(|now| entry.mtime.seconds.saturating_add(LEFT_FOR_S) < now);
    let old = sides.far_leftovers.iter();
    let old = old.filter(|entry| is_own(entry) || is_old(entry));
    let old: Vec<RelPath> = old.map(|entry| entry.path.clone()).collect();
    if !old.is_empty() {
        let script = discard_script(&far.root, &old, &new_mark());
        let _ = far.sandbox.ask(script, QUESTION_LIMIT).await;
    }
}

/// Removes what stands where something of another kind comes.
pub(super) async fn clear_there(
    sides: &Sides,
    decision: &Decision,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    delete_there(sides, decision.giving_way(sides), outcome).await
}

/// Deletes entries of the other side that are still what the scan saw; they come in the order of a plan.
pub(super) async fn delete_there(
    sides: &Sides,
    wanted: Entries<'_>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let mut wanted = wanted.peekable();
    if wanted.peek().is_none() {
        return Ok(());
    }
    let now = listing_now(sides).await?;
    let mut now = Passing {
        rest: now.iter().peekable(),
        above: Vec::new(),
    };
    let mut going = Going::default();
    for entry in wanted {
        let entry = entry?;
        match now.find(&entry.path) {
            Some(found) if !is_same(&entry, found) => {
                outcome.problem(&entry.path, "not deleted: it was changed meanwhile");
            }
            // Somebody else was faster.
            None => {}
            Some(_) if entry.kind.is_directory() => going.directories.push(entry.path),
            Some(_) => going.files.push(entry.path),
        }
        if going.files.len() + going.directories.len() >= MOST_AT_ONCE {
            going.remove(&sides.far_side(), outcome).await?;
        }
    }
    going.remove(&sides.far_side(), outcome).await
}

/// What is deleted with one question.
#[derive(Default)]
struct Going {
    files: Vec<RelPath>,
    directories: Vec<RelPath>,
}

impl Going {
    async fn remove(&mut self, far: &Far<'_>, outcome: &mut Outcome) -> Result<(), Failure> {
        let files = std::mem::take(&mut self.files);
        let left = far.remove(Removal::Files, &files).await?;
        outcome.deleted_files += (files.len() - left.len().min(files.len())) as u64;
        for path in &left {
            outcome.problem(path, "it could not be deleted");
        }
        // A plan has directories after their content, so they can go as they come.
        let directories = std::mem::take(&mut self.directories);
        let left = far.remove(Removal::Directories, &directories).await?;
        outcome.deleted_dirs += (directories.len() - left.len().min(directories.len())) as u64;
        for path in &left {
            outcome.problem(
                path,
                "the directory could not be deleted; it may not be empty",
            );
        }
        Ok(())
    }
}

/// A sorted list that is passed once, by somebody who asks for directories after their content.
struct Passing<I: Iterator<Item = Entry>> {
    rest: Peekable<I>,
    /// The entry that was passed last, after the directories above it.
    above: Vec<Entry>,
}

impl<I: Iterator<Item = Entry>> Passing<I> {
    fn find(&mut self, path: &RelPath) -> Option<&Entry> {
        while let Some(entry) = self.rest.next_if(|entry| entry.path <= *path) {
            while self
                .above
                .pop_if(|above| !entry.path.is_below(&above.path))
                .is_some()
            {}
            self.above.push(entry);
        }
        self.above.iter().rfind(|entry| entry.path == *path)
    }
}

/// What is there now.
async fn listing_now(sides: &Sides) -> Result<Listing, Failure> {
    let far = sides.far_side();
    let prunes = sides.filter.prunes();
    let request = ScanRequest {
        root: &far.root,
        scanner: sides.scanner,
        prunes: &prunes,
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: ScanDepth::Tree,
        lone_file: LoneFile::Unlisted,
    };
    let found = scan(far.sandbox, &request, &far.spool).await?;
    if found.problem_count > sides.problem_count {
        let text = "not everything could be looked at once more, so nothing was deleted";
        return Err(far.failure(Code::DeleteRefused, text).hint("sync again"));
    }
    if sides.far_links.is_empty() {
        return Ok(found.entries);
    }
    let behind = scan_behind(sides, &sides.far_links).await?;
    joined(&far, &found.entries, &behind)
}

/// Whether both are the same thing. A directory changes with its content.
fn is_same(seen: &Entry, now: &Entry) -> bool {
    let object = |entry: &Entry| {
        let identity = entry.identity?;
        Some((identity.device, identity.inode))
    };
    let same_object = match (object(seen), object(now)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    same_object
        && match (&seen.kind, &now.kind) {
            (Kind::File, Kind::File) => seen.stamp().agrees(now.stamp()),
            (Kind::Link { target: one, .. }, Kind::Link { target: other, .. }) => one == other,
            (one, other) => one == other,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remote_sandbox_core::sync::Mtime;

    fn entry(text: &str) -> Entry {
        Entry {
            path: RelPath::parse(text.as_bytes()).unwrap(),
            kind: match text.ends_with('d') {
                true => Kind::Directory,
                false => Kind::File,
            },
            size_bytes: 0,
            mtime: Mtime::whole(0),
            mode: 0o644,
            identity: None,
        }
    }

    #[test]
    fn entries_are_found_in_the_order_of_a_plan_and_missing_ones_are_not() {
        let now = ["a", "d", "d/d", "d/d/x", "d/new", "e", "z"].map(entry);
        let mut now = Passing {
            rest: now.into_iter().peekable(),
            above: Vec::new(),
        };
        let mut is_found = |text: &str| now.find(&entry(text).path).is_some();
        assert!(!is_found("0"));
        assert!(is_found("d/d/x"));
        assert!(!is_found("d/d/y"));
        assert!(is_found("d/d"));
        assert!(!is_found("d/gone"));
        assert!(is_found("d"));
        assert!(is_found("e"));
        assert!(!is_found("f"));
        assert!(is_found("z"));
    }
}
