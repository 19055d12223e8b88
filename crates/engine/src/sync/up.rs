//! Carries a plan out on the other side.

use std::collections::BTreeMap;
use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::plan::{Action, SkipReason};
use remote_sandbox_core::sync::staging::{Batch, Regions, Staged, Stager};
use remote_sandbox_core::sync::{Entry, Mtime, RelPath, Stamp};
use tokio_util::sync::CancellationToken;

use super::compare::Compared;
use super::decide::{Decision, out_of_order};
use super::far_ways::ASTRAY;
use super::gauge::Gauge;
use super::large::{LargeError, LargeUp, Trying, upload_large};
use super::outcome::Outcome;
use super::pack::{PackFault, Source};
use super::progress::{Phase, Progress};
use super::refusals::{is_final, large_failure};
use super::remember::Changes;
use super::send::{SendError, Sender, Sent, action_of, file_action, is_left};
use super::send_files::send_by_files;
use super::sides::Sides;
use super::tidy;

/// A file of this size goes by itself, where the sandbox speaks the file protocol.
pub(super) const LARGE_FILE: u64 = 8 * 1024 * 1024;

/// So many permissions wait to be set together, of paths with at most so many bytes.
const MOST_WAITING_MODES: usize = 10_000;
const MOST_WAITING_TEXT: usize = 2 * 1024 * 1024;

/// What an upload has done and what it has seen.
pub(super) struct Uploaded {
    pub(super) outcome: Outcome,
    pub(super) changes: Changes,
    /// Where the files of this machine are read.
    pub(super) source: Source,
}

/// Makes the tree in the sandbox like the one here.
pub(super) async fn upload(
    sides: &Sides,
    decision: &Decision,
    progress: &Arc<Progress>,
    cancel: &CancellationToken,
) -> Result<Uploaded, Failure> {
    let Some(tree) = sides.tree.clone() else {
        let text = "there is nothing to be sent on this machine";
        return Err(Failure::new(Code::NotFound, text).hint("check local_path"));
    };
    let roots = Arc::new(sides.rules.clone());
    let source = Source {
        tree,
        lone: sides.lone.as_ref().map(|lone| lone.here.clone()),
        follow: sides.request.follow_links.then_some(roots),
    };
    let mut compared = Compared::of(sides, Some(&source), progress).await?;
    let gauge = Gauge::default();
    let mut upload = Upload {
        sides,
        sender: Sender {
            far: sides.far_side(),
            source,
            progress,
            gauge: &gauge,
        },
        progress,
        large_gauge: Gauge::default(),
        cancel,
        token: sides.token()?,
        owner: sides.owner()?,
        outcome: std::mem::take(&mut compared.outcome),
        changes: Changes::default(),
        large: Vec::new(),
        has_deletes: false,
        directory_modes: BTreeMap::new(),
        modes: BTreeMap::new(),
        waiting_modes: 0,
        waiting_text: 0,
        times: Vec::new(),
        again: Vec::new(),
    };
    tidy::clear_there(sides, decision, &mut upload.outcome).await?;
    progress.enter(Phase::Uploading);
    let keep_dirlinks = sides.request.keep_dirlinks;
    let far = decision.all_kept().is_none().then(|| sides.far.iter());
    let regions = Regions::of(
        far.into_iter().flatten(),
        sides.far_device,
        &sides.far_mounts,
        keep_dirlinks,
    );
    upload.sender.far.links = regions.links().cloned().collect();
    upload.send_all(&compared, decision, &regions).await?;
    upload.send_large(&regions).await?;
    let is_bare = upload.outcome.sent_files == 0 && upload.outcome.made_dirs == 0;
    if !sides.far_exists && sides.lone.is_none() && is_bare {
        // An empty tree is one too.
        upload.sender.far.make_root().await?;
    }
    upload.changes.compared = compared.digests;
    upload.finish(decision).await
}

struct Upload<'a> {
    sides: &'a Sides,
    sender: Sender<'a>,
    progress: &'a Progress,
    /// What large files show of the link; archives of many small ones may be slow for other reasons.
    large_gauge: Gauge,
    cancel: &'a CancellationToken,
    token: RunToken,
    owner: Vec<u8>,
    outcome: Outcome,
    changes: Changes,
    large: Vec<(Entry, Option<Entry>)>,
    has_deletes: bool,
    /// Permissions of directories that keep their owner out, by depth and mode; they are set when everything is in them.
    directory_modes: BTreeMap<(usize, u16), Vec<RelPath>>,
    /// All others, how many of them wait, and what their paths take.
    modes: BTreeMap<u16, Vec<RelPath>>,
    waiting_modes: usize,
    waiting_text: usize,
    times: Vec<(RelPath, Mtime)>,
    /// What was changed while it was read.
    again: Vec<Action>,
}

impl Upload<'_> {
    async fn send_all(
        &mut self,
        compared: &Compared,
        decision: &Decision,
        regions: &Regions,
    ) -> Result<(), Failure> {
        if let Some(files) = decision.all_kept() {
            self.outcome.unchanged_files = files;
            return Ok(());
        }
        let mut stager = Stager::new(self.token.clone(), regions);
        let mut settling = compared.settling();
        for action in self.sides.plan() {
            let action = action.map_err(|error| out_of_order(&error))?;
            if self.waiting_modes >= MOST_WAITING_MODES || self.waiting_text >= MOST_WAITING_TEXT {
                self.set_modes().await?;
            }
            let Some(action) = self.sort(settling.settle(action), decision) else {
                continue;
            };
            self.stage(&mut stager, action);
            if stager.is_full() {
                self.send_batch(stager.take(), regions).await?;
            }
        }
        self.send_batch(stager.take(), regions).await?;
        for action in std::mem::take(&mut self.again) {
            self.stage(&mut stager, action);
        }
        self.send_batch(stager.take(), regions).await?;
        for action in std::mem::take(&mut self.again) {
            self.fail(action.path(), &PackFault::Changed);
        }
        Ok(())
    }

    /// Takes note of an action; gives back what goes with the archive.
    fn sort(&mut self, action: Action, decision: &Decision) -> Option<Action> {
        match action {
            Action::SendFile {
                entry, replaces, ..
            } if entry.size_bytes >= LARGE_FILE && self.sides.sandbox.has_conversations() => {
                self.large.push((entry, replaces));
            }
            action @ (Action::MakeDirectory { .. }
            | Action::SendFile { .. }
            | Action::SendLink { .. }) => return Some(action),
            Action::SetAttributes { entry, .. } => {
                self.outcome.unchanged_files += u64::from(!entry.kind.is_directory());
                self.outcome.changed_modes += 1;
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
            Action::Skip { entry, reason } => {
                match reason == SkipReason::DanglingLink && self.sides.is_told(&entry.path) {
                    // The scan knew better why it is not followed.
                    true => self.outcome.skip_told(),
                    false => self.outcome.skip(&entry.path, reason),
                }
            }
            Action::CompareContent { entry, .. } => {
                self.outcome.missing(&entry.path, "it was not compared");
            }
        }
        None
    }

    fn set_later(&mut self, entry: &Entry) {
        let mode = entry.carried_mode();
        let paths = if keeps_out(entry) {
            let depth = entry.path.components().count();
            self.directory_modes.entry((depth, mode)).or_default()
        } else {
            self.waiting_modes += 1;
            self.waiting_text += entry.path.as_bytes().len();
            self.modes.entry(mode).or_default()
        };
        paths.push(entry.path.clone());
    }

    /// Sets permissions, some at a time, for there may be many.
    async fn set_modes(&mut self) -> Result<(), Failure> {
        (self.waiting_modes, self.waiting_text) = (0, 0);
        for (mode, paths) in std::mem::take(&mut self.modes) {
            self.set_mode(mode, &paths).await?;
        }
        Ok(())
    }

    async fn set_mode(&mut self, mode: u16, paths: &[RelPath]) -> Result<(), Failure> {
        for (path, problem) in self.sender.far.set_mode(mode, paths).await? {
            self.outcome.problem(&path, problem);
        }
        Ok(())
    }

    fn fail(&mut self, path: &RelPath, fault: &(dyn std::error::Error + 'static)) {
        self.changes.failed.insert(path.clone());
        self.outcome.missing(path, Failure::chain(fault));
    }

    /// Takes an action up, or tells why it cannot be carried out.
    fn stage(&mut self, stager: &mut Stager<'_>, action: Action) {
        if let Err(fault) = stager.add(action) {
            self.fail(&fault.path, &fault);
        }
    }

    /// Sends a batch; what a slow link has stopped goes in a further one.
    async fn send_batch(&mut self, batch: Option<Batch>, regions: &Regions) -> Result<(), Failure> {
        let mut next = batch;
        while let Some(batch) = next {
            let batch = Arc::new(batch);
            if let Some(first) = batch.staged.first() {
                self.progress.at(first.source.path.shown().text);
            }
            let sent = tokio::select! {
                sent = self.sender.send(&batch) => sent,
                () = self.cancel.cancelled() => {
                    self.sender.discard(&batch.folders).await;
                    return Err(cancelled());
                }
            };
            let sent = match sent {
                Ok(sent) => sent,
                Err(SendError::NoTar | SendError::NoGzip) => {
                    send_by_files(&self.sender, &batch).await?
                }
                Err(SendError::Failed(failure)) => return Err(failure),
            };
            for directory in &batch.directories {
                self.outcome.made_dirs += 1;
                self.set_later(directory);
            }
            let count = sent.packed.count;
            self.account(&batch, sent);
            let mut stager = Stager::new(self.token.clone(), regions);
            let rest = batch.staged.get(count..).unwrap_or_default();
            for staged in rest {
                self.stage(&mut stager, action_of(staged));
            }
            next = stager.take();
        }
        Ok(())
    }

    /// Counts what of a batch has arrived and what has not.
    fn account(&mut self, batch: &Batch, sent: Sent) {
        let stamps: BTreeMap<usize, _> = sent.packed.stamps.into_iter().collect();
        let mut left_out: BTreeMap<usize, PackFault> = sent.packed.left_out.into_iter().collect();
        let spoiled = sent.packed.spoiled;
        let staged = batch.staged.iter().take(sent.packed.count).enumerate();
        for (number, staged) in staged {
            let path = &staged.source.path;
            if let Some(fault) = left_out.remove(&number) {
                self.fail(path, &fault);
            } else if spoiled.binary_search(&number).is_ok() {
                self.progress.moved_in_vain(staged.source.size_bytes);
                self.again.push(action_of(staged));
            } else if is_left(&staged.place, &sent.left) {
                let words = match sent.words.is_empty() {
                    true => "it could not be put in its place there".to_owned(),
                    false => format!("it could not be put in its place there: {}", sent.words),
                };
                self.changes.failed.insert(path.clone());
                self.outcome.missing(path, words);
            } else {
                let stamp = stamps.get(&number).copied();
                if let Some(stamp) = stamp {
                    self.note_time(path, stamp, sent.keeps_fractions);
                }
                self.arrived(staged, stamp);
            }
        }
    }

    /// Notes how exactly the target keeps the time of a file; a host mostly has one way, so one word does for all files.
    fn note_time(&mut self, path: &RelPath, stamp: Stamp, keeps_fractions: bool) {
        let is_whole = !keeps_fractions;
        let is_usual = match self.sides.request.checksum {
            // Then a plan does not say what was sent.
            true => keeps_fractions,
            false => is_whole == *self.changes.has_whole_seconds.get_or_insert(is_whole),
        };
        if !is_usual {
            let there = match is_whole {
                true => stamp.in_whole_seconds(),
                false => stamp,
            };
            self.changes.target.insert(path.clone(), there);
        }
    }

    fn arrived(&mut self, staged: &Staged, stamp: Option<Stamp>) {
        let source = &staged.source;
        if source.kind.is_directory() {
            self.outcome.made_dirs += 1;
            if keeps_out(source) {
                self.set_later(source);
            }
            return;
        }
        self.outcome.sent_files += 1;
        self.progress.finished(1);
        if let Some(stamp) = stamp {
            self.outcome.sent_bytes += stamp.size_bytes;
            if stamp != source.stamp() {
                self.changes.fresh.insert(source.path.clone(), stamp);
            }
        }
    }

    async fn send_large(&mut self, regions: &Regions) -> Result<(), Failure> {
        if self.large.is_empty() {
            return Ok(());
        }
        let large = std::mem::take(&mut self.large);
        if !self.sides.far_exists {
            self.sender.far.make_root().await?;
        }
        let mut stager = Stager::new(self.token.clone(), regions);
        for (entry, old) in large {
            self.progress.at(entry.path.shown().text);
            if self.is_astray(&entry.path).await? {
                self.changes.failed.insert(entry.path.clone());
                self.outcome.missing(&entry.path, ASTRAY);
                continue;
            }
            let mut trying = Trying::new(self.progress);
            loop {
                let cancel = self.cancel.clone();
                let sent = tokio::select! {
                    sent = self.send_one(&entry, old.as_ref()) => sent,
                    () = cancel.cancelled() => return Err(cancelled()),
                };
                match sent {
                    Err(LargeError::Changed { .. } | LargeError::Dropped { .. })
                        if trying.goes_on(self.progress) => {}
                    Err(LargeError::Unreachable(failure)) if failure.code == Code::Unsupported => {
                        self.stage(&mut stager, file_action(entry.clone(), old.clone()));
                        break;
                    }
                    Err(error) if is_final(&error) => {
                        return Err(large_failure(&self.sender.far, &error));
                    }
                    Err(error) => {
                        self.fail(&entry.path, &error);
                        break;
                    }
                    Ok(()) => break,
                }
            }
        }
        // A host without the file protocol gets them as it gets the small ones.
        self.send_batch(stager.take(), regions).await?;
        for action in std::mem::take(&mut self.again) {
            self.fail(action.path(), &PackFault::Changed);
        }
        Ok(())
    }

    /// Whether a large file would go through a link by now. It is written beside its place, so that what becomes of its
    /// directory later keeps it from its name, too.
    async fn is_astray(&self, path: &RelPath) -> Result<bool, Failure> {
        let files = match self.sides.sandbox.files().await {
            Ok(files) => files,
            Err(failure) if failure.code == Code::Unsupported => None,
            Err(failure) => return Err(failure),
        };
        let Some(files) = files else {
            return Ok(false);
        };
        let strayed = self.sender.far.strayed(&files, std::iter::once(path));
        Ok(strayed.await.holds(path))
    }

    async fn send_one(&mut self, entry: &Entry, old: Option<&Entry>) -> Result<(), LargeError> {
        let source = self.sender.source.clone();
        let path = entry.path.clone();
        let opening = tokio::task::spawn_blocking(move || source.open(&path));
        let shown = || entry.path.shown().text;
        let opened = opening
            .await
            .map_err(|_| LargeError::Broken { path: shown() })?;
        let (file, found) = opened.map_err(|error| LargeError::Local {
            path: shown(),
            source: std::io::Error::other(Failure::chain(&error)),
        })?;
        let fresh = Entry {
            path: entry.path.clone(),
            mode: found.carried_mode(),
            ..found
        };
        let job = LargeUp {
            file,
            entry: &fresh,
            remote_root: self.sender.far.root.as_bytes(),
            path: &entry.path,
            owner: &self.owner,
            old: old.filter(|old| old.kind.is_file()),
            progress: self.progress,
            gauge: &self.large_gauge,
        };
        let done = upload_large(self.sides.sandbox.as_ref(), job).await?;
        self.outcome.sent_files += 1;
        self.outcome.sent_bytes += fresh.size_bytes;
        self.progress.finished(1);
        if let Some(mtime) = done.pending_mtime {
            self.times.push((entry.path.clone(), mtime));
        }
        // It did not go the way on which times may be cut to seconds.
        self.changes
            .target
            .insert(entry.path.clone(), fresh.stamp());
        if fresh.stamp() != entry.stamp() {
            self.changes.fresh.insert(entry.path.clone(), fresh.stamp());
        }
        Ok(())
    }

    async fn finish(mut self, decision: &Decision) -> Result<Uploaded, Failure> {
        if self.has_deletes {
            self.progress.enter(Phase::Deleting);
            let deletes = decision.deletions(self.sides);
            tidy::delete_there(self.sides, deletes, &mut self.outcome).await?;
        }
        self.sender.far.set_times(&self.times).await?;
        self.set_modes().await?;
        // The deepest first: one that is closed keeps us from what is in it.
        let modes = std::mem::take(&mut self.directory_modes);
        for ((_, mode), paths) in modes.iter().rev() {
            self.set_mode(*mode, paths).await?;
        }
        tidy::remove_leftovers(self.sides, &self.token).await;
        Ok(Uploaded {
            outcome: self.outcome,
            changes: self.changes,
            source: self.sender.source,
        })
    }
}

/// Whether it is a directory into which nothing can be put once it has its permissions.
pub(super) fn keeps_out(entry: &Entry) -> bool {
    entry.kind.is_directory() && entry.carried_mode() & 0o700 != 0o700
}

fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "the sync was cancelled")
}
