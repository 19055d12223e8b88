//! Takes away, on the other side, what has to go; only what the scan saw, looked at once more just before.

use std::collections::BTreeMap;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::chores::Removal;
use remote_sandbox_core::sync::receive::discard_script;
use remote_sandbox_core::sync::scan::{ScanDepth, ScanRequest, SortedBy};
use remote_sandbox_core::sync::{Entry, Kind, RelPath};

use super::decide::Decision;
use super::far::{QUESTION_LIMIT, new_mark};
use super::far_scan::scan;
use super::outcome::Outcome;
use super::sides::Sides;
use super::token::is_left_by_us;
use crate::clock;
use crate::sandbox::Sandbox;

/// How long it may take to find out whether a program is there.
const LOOK_LIMIT: Duration = Duration::from_secs(15);

/// What is older than this is nobody's any more.
const LEFT_FOR_S: i64 = 24 * 3600;

/// Whether the host has `python3`.
pub(super) async fn has_python(sandbox: &dyn Sandbox) -> bool {
    let script = "[ \"$(python3 -S -c 'print(3)' 2>/dev/null)\" = 3 ] && echo RSMCP:python3\n";
    let answer = sandbox.ask(script.to_owned(), LOOK_LIMIT).await;
    answer.is_ok_and(|answer| String::from_utf8_lossy(&answer).contains("RSMCP:python3"))
}

/// Removes what earlier syncs left unfinished there: what bears the mark of this target, which nobody else works on now,
/// and what is a day old or older; whoever still works on it is given that time.
pub(super) async fn remove_leftovers(sides: &Sides, own: &RunToken) {
    let now = i64::try_from(clock::wall().as_secs()).unwrap_or(i64::MAX);
    let old = sides.far_leftovers.iter();
    let is_own = |entry: &Entry| is_left_by_us(entry.path.name(), own);
    let is_old = |entry: &Entry| entry.mtime.seconds.saturating_add(LEFT_FOR_S) < now;
    let old = old.filter(|entry| is_own(entry) || is_old(entry));
    let old: Vec<RelPath> = old.map(|entry| entry.path.clone()).collect();
    if !old.is_empty() {
        let far = sides.far_side();
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
    let giving_way = decision.giving_way(sides)?;
    match giving_way.is_empty() {
        true => Ok(()),
        false => delete_there(sides, giving_way, outcome).await,
    }
}

/// Deletes entries of the other side that are still what the scan saw.
pub(super) async fn delete_there(
    sides: &Sides,
    wanted: Vec<Entry>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let far = sides.far_side();
    let now = entries_now(sides, &wanted).await?;
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in wanted {
        match now.get(&entry.path) {
            Some(found) if !is_same(&entry, found) => {
                outcome.problem(&entry.path, "not deleted: it was changed meanwhile");
            }
            // Somebody else was faster.
            None => {}
            Some(_) if entry.kind.is_directory() => directories.push(entry.path),
            Some(_) => files.push(entry.path),
        }
    }
    // A plan has directories after their content, so they can go as they come.
    let left = far.remove(Removal::Files, &files).await?;
    outcome.deleted_files += (files.len() - left.len().min(files.len())) as u64;
    for path in &left {
        outcome.problem(path, "it could not be deleted");
    }
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

/// What is there now of what is wanted.
async fn entries_now(sides: &Sides, wanted: &[Entry]) -> Result<BTreeMap<RelPath, Entry>, Failure> {
    let far = sides.far_side();
    let prunes = sides.filter.prunes();
    let request = ScanRequest {
        root: &far.root,
        scanner: sides.scanner,
        prunes: &prunes,
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: ScanDepth::Tree,
        lists_lone_file: false,
    };
    let found = scan(far.sandbox, &request, &far.spool).await?;
    if found.problem_count > sides.problem_count {
        let text = "not everything could be looked at once more, so nothing was deleted";
        return Err(far.failure(Code::DeleteRefused, text).hint("sync again"));
    }
    let mut wanted: Vec<&RelPath> = wanted.iter().map(|entry| &entry.path).collect();
    wanted.sort();
    let is_wanted = |entry: &Entry| wanted.binary_search(&&entry.path).is_ok();
    let found = found.entries.iter().filter(is_wanted);
    Ok(found.map(|entry| (entry.path.clone(), entry)).collect())
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
