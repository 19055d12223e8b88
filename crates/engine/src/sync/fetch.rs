//! Carries a plan out on this machine.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::plan::Action;
use remote_sandbox_core::sync::temporary::temporary_name;
use remote_sandbox_core::sync::{Entry, Kind, RelPath, Stamp};
use sha2::{Digest, Sha256};

use super::compare::Compared;
use super::decide::{Decision, Entries, out_of_order};
use super::down::{DownJob, Planned, download as bring, look_closely};
use super::gauge::Gauge;
use super::large::{LargeDown, LargeError, Trying, download_large, still_answers};
use super::local_work::{Piece, here, make_directories, make_links, remove_all, set_attributes};
use super::outcome::Outcome;
use super::pack::Source;
use super::progress::{Phase, Progress};
use super::refusals::large_failure;
use super::remember::Changes;
use super::sides::Sides;
use super::token::is_left_by_us;
use super::up::{LARGE_FILE, Uploaded, keeps_out};
use crate::beneath::{LastDirectory, NewFile, Tree};

/// A batch has at most so many files.
const MOST_FILES: usize = 10_000;

/// A batch has at most so many bytes, but one file always.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Paths that wait have at most so many bytes; each is kept up to three times.
const MOST_TEXT: usize = 2 * 1024 * 1024;

/// So many entries are removed at a time.
const MOST_REMOVED: usize = 5000;

/// What is said of a path where keys or our own files lie.
const AVOIDED: &str = "it was not written: keys or files of this program lie there";

/// Makes the tree here like the one in the sandbox.
pub(super) async fn download(
    sides: &Sides,
    decision: &Decision,
    tree: Tree,
    progress: &Progress,
) -> Result<Uploaded, Failure> {
    let source = Source {
        tree: tree.clone(),
        lone: None,
        follow: None,
    };
    let mut compared = Compared::of(sides, Some(&source), progress).await?;
    let mut fetch = Fetch {
        sides,
        tree,
        progress,
        gauge: Gauge::default(),
        large_gauge: Gauge::default(),
        transfer: sides.token()?,
        owner: sides.owner()?,
        outcome: std::mem::take(&mut compared.outcome),
        changes: Changes::default(),
        batch: Vec::new(),
        batch_bytes: 0,
        batch_text: 0,
        directories: Vec::new(),
        links: Vec::new(),
        large: Vec::new(),
        has_deletes: false,
        directory_modes: Vec::new(),
        modes: Vec::new(),
    };
    fetch.remove_leftovers().await?;
    fetch.remove(decision.giving_way(sides)).await?;
    progress.enter(Phase::Downloading);
    let mut settling = compared.settling();
    let all_kept = decision.all_kept().filter(|_| sides.avoids_nothing());
    fetch.outcome.unchanged_files = all_kept.unwrap_or(0);
    let plan = all_kept.is_none().then(|| sides.plan());
    for action in plan.into_iter().flatten() {
        let action = action.map_err(|error| out_of_order(&error))?;
        fetch.take(settling.settle(action), decision);
        if fetch.is_full() {
            fetch.bring().await?;
        }
    }
    fetch.bring().await?;
    fetch.bring_large().await?;
    fetch.changes.compared = compared.digests;
    fetch.finish(decision).await
}

struct Fetch<'a> {
    sides: &'a Sides,
    tree: Tree,
    progress: &'a Progress,
    gauge: Gauge,
    /// What large files show of the link; archives of many small ones may be slow for other reasons.
    large_gauge: Gauge,
    transfer: RunToken,
    owner: Vec<u8>,
    outcome: Outcome,
    changes: Changes,
    batch: Vec<Planned>,
    batch_bytes: u64,
    /// What the paths of all that waits take.
    batch_text: usize,
    directories: Vec<Entry>,
    links: Vec<Piece>,
    large: Vec<Piece>,
    has_deletes: bool,
    /// Permissions of directories that keep their owner out; they are set when everything is in them.
    directory_modes: Vec<(RelPath, u16)>,
    /// All others, which are set now and then.
    modes: Vec<(RelPath, u16)>,
}

impl Fetch<'_> {
    /// Removes what an earlier sync to this target left unfinished; nobody else works on it now.
    async fn remove_leftovers(&self) -> Result<(), Failure> {
        let is_own = |path: &&RelPath| is_left_by_us(path.name(), &self.transfer);
        let own = self.sides.local_leftovers.iter().filter(is_own);
        let own: Vec<RelPath> = own.cloned().collect();
        let tree = self.tree.clone();
        here(move || {
            for entry in own.iter().filter_map(|path| tree.look(path).ok().flatten()) {
                // One that cannot be removed now is met again by the next scan.
                let _ = tree.remove(&entry);
            }
        })
        .await
    }

    /// Removes entries, some at a time, for there may be many.
    async fn remove(&mut self, mut entries: Entries<'_>) -> Result<(), Failure> {
        loop {
            let some = entries.by_ref().take(MOST_REMOVED);
            let some = some.collect::<Result<Vec<Entry>, Failure>>()?;
            if some.is_empty() {
                return Ok(());
            }
            let tree = self.tree.clone();
            let removed = here(move || remove_all(&tree, some)).await?;
            self.outcome.deleted_files += removed.files;
            self.outcome.deleted_dirs += removed.directories;
            for (path, problem) in removed.problems {
                self.outcome.problem(&path, problem);
            }
        }
    }

    /// Takes note of an action.
    fn take(&mut self, action: Action, decision: &Decision) {
        if self.sides.is_avoided(action.path()) {
            self.changes.failed.insert(action.path().clone());
            self.outcome.missing(action.path(), AVOIDED);
            return;
        }
        match action {
            Action::MakeDirectory { entry, .. } => {
                self.batch_text += entry.text_bytes();
                self.directories.push(entry);
            }
            Action::SendFile {
                entry, replaces, ..
            } => self.take_file(entry, still_there(replaces)),
            Action::SendLink { entry, replaces } => {
                self.batch_text += entry.text_bytes();
                self.links.push((entry, still_there(replaces)));
            }
            Action::SetAttributes { entry, .. } => {
                self.outcome.unchanged_files += u64::from(!entry.kind.is_directory());
                self.outcome.changed_modes += 1;
                self.batch_text += entry.text_bytes();
                self.set_later(&entry);
            }
            Action::Delete { target } => {
                self.has_deletes |= !decision.is_cleared(&target.path);
            }
            Action::Keep { entry } => {
                self.outcome.unchanged_files += u64::from(!entry.kind.is_directory());
            }
            Action::Conflict { path, obstacle } => {
                self.outcome.conflicts += 1;
                self.outcome.missing(&path, obstacle);
            }
            Action::Skip { entry, reason } => self.outcome.skip(&entry.path, reason),
            Action::CompareContent { entry, .. } => {
                self.outcome.missing(&entry.path, "it was not compared");
            }
        }
    }

    fn take_file(&mut self, entry: Entry, replaces: Option<Entry>) {
        if entry.size_bytes >= LARGE_FILE && self.sides.sandbox.has_conversations() {
            self.large.push((entry, replaces));
            return;
        }
        self.add(entry, replaces);
    }

    fn add(&mut self, entry: Entry, replaces: Option<Entry>) {
        self.batch_bytes = self.batch_bytes.saturating_add(entry.size_bytes);
        self.batch_text += entry.text_bytes();
        let local = entry.path.clone();
        let mut source = entry;
        if let Some(lone) = &self.sides.lone {
            source.path = lone.there.clone();
        }
        self.batch.push(Planned {
            entry: source,
            local,
            replaces,
        });
    }

    /// Whether it is time to bring what is due.
    fn is_full(&self) -> bool {
        let made = self.directories.len() + self.links.len() + self.modes.len();
        self.batch.len() + made >= MOST_FILES
            || self.batch_bytes >= MOST_BYTES
            || self.batch_text >= MOST_TEXT
    }

    fn set_later(&mut self, entry: &Entry) {
        let modes = match keeps_out(entry) {
            true => &mut self.directory_modes,
            false => &mut self.modes,
        };
        modes.push((entry.path.clone(), entry.carried_mode()));
    }

    async fn set_modes(&mut self, modes: Vec<(RelPath, u16)>) -> Result<(), Failure> {
        let tree = self.tree.clone();
        let problems = here(move || set_attributes(&tree, modes, &[])).await?;
        for (path, problem) in problems {
            self.outcome.problem(&path, problem);
        }
        Ok(())
    }

    /// Makes the directories and links that are due, then brings the batch.
    async fn bring(&mut self) -> Result<(), Failure> {
        let directories = std::mem::take(&mut self.directories);
        let links = std::mem::take(&mut self.links);
        // What a new one may not have was taken from it when it was made.
        directories.iter().for_each(|entry| self.set_later(entry));
        let (tree, transfer) = (self.tree.clone(), self.transfer.clone());
        let made = here(move || {
            let made = make_directories(&tree, &directories);
            (made, make_links(&tree, &transfer, &links))
        });
        let (directories, links) = made.await?;
        self.outcome.made_dirs += directories.done;
        self.outcome.sent_files += links.done;
        self.progress.finished(links.done);
        for (path, problem) in directories.problems.into_iter().chain(links.problems) {
            self.changes.failed.insert(path.clone());
            self.outcome.missing(&path, problem);
        }
        let modes = std::mem::take(&mut self.modes);
        self.set_modes(modes).await?;
        let files: Arc<[Planned]> = std::mem::take(&mut self.batch).into();
        (self.batch_bytes, self.batch_text) = (0, 0);
        match files.is_empty() {
            true => Ok(()),
            false => self.bring_files(files).await,
        }
    }

    async fn bring_files(&mut self, files: Arc<[Planned]>) -> Result<(), Failure> {
        if let Some(first) = files.first() {
            self.progress.at(first.local.shown().text);
        }
        let job = DownJob {
            remote_root: self.sides.far_root.as_bytes().to_vec(),
            follow_links: self.sides.request.follow_links,
            tree: self.tree.clone(),
            transfer: self.transfer.clone(),
            progress: self.progress,
            gauge: &self.gauge,
            files: files.clone(),
        };
        let done = bring(self.sides.sandbox.as_ref(), &job).await?;
        self.outcome.sent_files += done.files;
        self.outcome.sent_bytes += done.bytes;
        let stamps = self.stamps_of(&files).await?;
        for ((planned, has_arrived), stamp) in files.iter().zip(&done.arrived).zip(stamps) {
            if !has_arrived {
                self.changes.failed.insert(planned.local.clone());
                self.outcome.is_incomplete = true;
            } else if let Some(stamp) = stamp
                && !stamp.agrees(planned.entry.stamp())
            {
                // It was changed there after the scan, and is here as it came.
                self.changes.fresh.insert(planned.local.clone(), stamp);
            } else if let Some(stamp) = stamp
                && stamp != planned.entry.stamp().as_set()
            {
                // The archive knew its time better than the scan.
                self.changes.target.insert(planned.local.clone(), stamp);
            }
        }
        self.outcome.problem_count += done.problem_count - done.problems.len() as u64;
        self.outcome.is_incomplete |= done.problem_count > 0;
        for problem in done.problems {
            let path = remote_sandbox_core::sync::path::shown(problem.path.as_bytes());
            self.outcome.named(&path, problem.problem);
        }
        Ok(())
    }

    /// How files look here that were brought.
    async fn stamps_of(&self, files: &Arc<[Planned]>) -> Result<Vec<Option<Stamp>>, Failure> {
        let (tree, files) = (self.tree.clone(), files.clone());
        let mut last = LastDirectory::default();
        let stamp = move |planned: &Planned| {
            let found = tree.look_in(&mut last, &planned.local).ok().flatten();
            found
                .filter(|entry| entry.kind.is_file())
                .map(|entry| entry.stamp())
        };
        here(move || files.iter().map(stamp).collect()).await
    }

    async fn bring_large(&mut self) -> Result<(), Failure> {
        for (entry, replaces) in std::mem::take(&mut self.large) {
            self.progress.at(entry.path.shown().text);
            let mut trying = Trying::new(self.progress);
            let brought = loop {
                let brought = self.bring_one(&entry, replaces.as_ref()).await;
                let is_cut = brought.as_ref().is_err_and(LargeError::is_cut);
                let far = self.sides.sandbox.as_ref();
                if !is_cut || !still_answers(far).await || !trying.goes_on(self.progress) {
                    break brought;
                }
            };
            match brought {
                Ok(()) => {}
                Err(LargeError::Unreachable(failure)) if failure.code == Code::Unsupported => {
                    self.add(entry, replaces);
                }
                Err(error @ (LargeError::Cut { .. } | LargeError::Unreachable(_))) => {
                    return Err(large_failure(&self.sides.far_side(), &error));
                }
                Err(error) if is_full_here(&error) => {
                    let text = Failure::chain(&error);
                    return Err(Failure::new(Code::NoSpace, text)
                        .hint("make room on this machine and sync again"));
                }
                Err(error) => {
                    self.changes.failed.insert(entry.path.clone());
                    self.outcome.missing(&entry.path, Failure::chain(&error));
                }
            }
        }
        // A host without the file protocol gives them as it gives the small ones.
        self.bring().await
    }

    async fn bring_one(
        &mut self,
        entry: &Entry,
        replaces: Option<&Entry>,
    ) -> Result<(), LargeError> {
        let there = match &self.sides.lone {
            Some(lone) => lone.there.clone(),
            None => entry.path.clone(),
        };
        let name = resumable_name(&self.sides.far_location(), entry, &self.owner);
        let local = |error: crate::beneath::BeneathError| LargeError::Local {
            path: entry.path.shown().text,
            source: std::io::Error::other(Failure::chain(&error)),
        };
        let begun = self.tree.begin_resumable(&entry.path, &name);
        let mut new: NewFile = begun.map_err(local)?;
        let file = new.file().try_clone();
        let file = file.map_err(|source| LargeError::Local {
            path: entry.path.shown().text,
            source,
        })?;
        // Until it is whole it stays for the next attempt, also when this process is ended.
        new.keep();
        let job = LargeDown {
            file,
            entry,
            remote_root: self.sides.far_root.as_bytes(),
            path: &there,
            progress: self.progress,
            gauge: &self.large_gauge,
        };
        let received = download_large(self.sides.sandbox.as_ref(), job).await;
        if let Err(error) = &received
            && is_of_no_use(error)
        {
            new.discard();
        }
        received?;
        if !self.is_as_seen(entry, &there).await? {
            new.discard();
            let path = entry.path.shown().text;
            return Err(LargeError::Changed { path });
        }
        let (mode, mtime, replaces) = (entry.carried_mode(), entry.mtime, replaces.cloned());
        let committed = here(move || new.commit(mode, mtime, replaces.as_ref())).await;
        let committed = committed.map_err(LargeError::Unreachable)?;
        committed.map_err(local)?;
        self.outcome.sent_files += 1;
        self.outcome.sent_bytes += entry.size_bytes;
        self.progress.finished(1);
        Ok(())
    }

    /// Whether a large file still is what the scan saw. The file protocol knows whole seconds only, so what was changed
    /// within one and came as a mixture is found by a closer look.
    async fn is_as_seen(&self, entry: &Entry, there: &RelPath) -> Result<bool, LargeError> {
        let (far, root) = (self.sides.sandbox.as_ref(), self.sides.far_root.as_bytes());
        let looking = look_closely(far, root, self.sides.request.follow_links, there);
        let now = looking.await.map_err(|error| {
            let failure = Failure::new(Code::LinkLost, Failure::chain(&error));
            let failure = failure.hint("sync again: it goes on where it stopped");
            LargeError::Unreachable(failure.retry())
        })?;
        Ok(match now {
            Some(now) => now.is_some_and(|now| now.agrees(entry.stamp())),
            None => true,
        })
    }

    async fn finish(mut self, decision: &Decision) -> Result<Uploaded, Failure> {
        if self.has_deletes {
            self.progress.enter(Phase::Deleting);
            let sides = self.sides;
            let is_ours = move |entry: &Result<Entry, Failure>| match entry {
                Ok(entry) => !sides.is_avoided(&entry.path),
                Err(_) => true,
            };
            let deletes = decision.deletions(sides).filter(is_ours);
            self.remove(Box::new(deletes)).await?;
        }
        let modes = std::mem::take(&mut self.directory_modes);
        self.set_modes(modes).await?;
        Ok(Uploaded {
            outcome: self.outcome,
            changes: self.changes,
            source: Source {
                tree: self.tree,
                lone: None,
                follow: None,
            },
        })
    }
}

/// Whether what has come of a file does not help the next attempt.
fn is_of_no_use(error: &LargeError) -> bool {
    let has_other_way =
        matches!(error, LargeError::Unreachable(failure) if failure.code == Code::Unsupported);
    has_other_way || matches!(error, LargeError::Changed { .. }) || is_full_here(error)
}

/// Whether this machine has no room left.
fn is_full_here(error: &LargeError) -> bool {
    let (LargeError::Write { source, .. } | LargeError::Local { source, .. }) = error else {
        return false;
    };
    matches!(
        source.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}

/// What was replaced by being removed first is not there any more.
fn still_there(replaces: Option<Entry>) -> Option<Entry> {
    replaces.filter(|target| !matches!(target.kind, Kind::Directory))
}

/// A name that the same file of the same host has each time for the same owner.
pub(super) fn resumable_name(far_location: &[u8], entry: &Entry, owner: &[u8]) -> String {
    let mut hasher = Sha256::new();
    for part in [owner, far_location, entry.path.as_bytes()] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.update(entry.size_bytes.to_be_bytes());
    hasher.update(entry.mtime.seconds.to_be_bytes());
    hasher.update(entry.mtime.nanoseconds().unwrap_or(u32::MAX).to_be_bytes());
    let mut bytes = [0; 16];
    for (byte, hashed) in bytes.iter_mut().zip(hasher.finalize()) {
        *byte = hashed;
    }
    temporary_name(&RunToken::from_uuid_bytes(bytes), 0)
}
