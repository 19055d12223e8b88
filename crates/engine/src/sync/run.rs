//! One sync from its first look to its last word.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::path::{inside, shown};
use remote_sandbox_core::sync::plan::{Summary, Word};
use remote_sandbox_core::sync::receive::new_root_mode;
use remote_sandbox_core::sync::scan::Scanner;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::decide::Decision;
use super::digests::contents;
use super::fetch::download;
use super::forget::forget_old;
use super::local_work::here;
use super::lock::{SyncLock, lock_pair};
use super::outcome::Outcome;
use super::progress::{Phase, Progress};
use super::refusals::local_failure;
use super::remember::{intend, remember};
use super::report::{PlanReport, PlannedActions, Problem, SyncReport};
use super::request::{SyncRequest, Way};
use super::room::{check_room_here, check_room_there};
use super::roots::LocalPaths;
use super::sides::{Setting, Sides};
use super::up::upload;
use crate::beneath::Tree;
use crate::clock;
use crate::sandbox::Sandbox;

/// What somebody looks at both sides for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To know what would be done.
    Plan,
    /// To do it.
    Work,
}

/// A sync that is ready to be done.
pub(crate) struct Prepared {
    sides: Sides,
    decision: Decision,
    began: Instant,
    /// Keeps others away who sync the same two folders in either direction, as they were written and as they lie.
    _locks: Option<[SyncLock; 2]>,
}

impl Prepared {
    /// Looks at both sides and decides.
    pub(crate) async fn look(
        sandbox: Arc<dyn Sandbox>,
        scanner: Scanner,
        paths: &LocalPaths,
        state: &Path,
        request: &SyncRequest,
        purpose: Purpose,
        progress: &Progress,
    ) -> Result<Prepared, Failure> {
        let began = clock::instant();
        progress.enter(Phase::Scanning);
        let setting = Setting {
            sandbox,
            scanner,
            paths,
            state,
            only_looks: purpose == Purpose::Plan,
        };
        let written = match purpose {
            Purpose::Plan => None,
            Purpose::Work => Some(lock_pair(&setting, request)?),
        };
        let sides = Sides::look(&setting, request).await?;
        let locks = match written {
            None => None,
            Some(written) => Some([written, sides.lock_pair()?]),
        };
        let decision = Decision::of(&sides)?;
        progress.expect(decision.files(), decision.bytes());
        Ok(Prepared {
            sides,
            decision,
            began,
            _locks: locks,
        })
    }

    /// Files and links to be sent, and their bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.decision.files(), self.decision.bytes())
    }

    /// Whether the deletions in it may be done.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.decision.allow_deletes(&self.sides)
    }

    /// What would be done.
    pub(crate) fn plan(&self) -> PlanReport {
        let refusal = self.check().err();
        PlanReport {
            local_path: self.local_path(),
            remote_path: self.remote_path(),
            actions: actions(&self.decision.summary),
            deletes: self.decision.summary.deleted(),
            delete_refused: refusal.map(|failure| failure.message),
            scan_problems: self.sides.problem_count,
            problems: self.scan_problems(),
        }
    }

    /// Does it.
    pub(crate) async fn carry_out(
        &self,
        progress: &Arc<Progress>,
        cancel: &CancellationToken,
    ) -> Result<SyncReport, Failure> {
        self.check()?;
        let _lock = self.sides.lock_target()?;
        let done = match self.sides.request.way {
            Way::Up => {
                check_room_there(&self.sides, &self.decision).await?;
                upload(&self.sides, &self.decision, progress, cancel).await?
            }
            Way::Down => {
                check_room_here(&self.sides, &self.decision)?;
                let tree = self.target_here()?;
                if self.decision.files() > 0 {
                    intend(&self.sides)?;
                }
                // What is being written goes with whoever writes it.
                tokio::select! {
                    done = download(&self.sides, &self.decision, tree, progress) => done?,
                    () = cancel.cancelled() => {
                        return Err(Failure::new(Code::Cancelled, "the sync was cancelled"));
                    }
                }
            }
        };
        let mut outcome = done.outcome;
        let contents = tokio::select! {
            contents = contents(&self.sides, &done.source, &done.changes, progress) => contents?,
            () = cancel.cancelled() => {
                return Err(Failure::new(Code::Cancelled, "the sync was cancelled"));
            }
        };
        let revision = match self.decision.standing() {
            Some(revision) => {
                self.sides.pair().touch();
                revision.clone()
            }
            None => {
                let remembered = remember(&self.sides, &done.changes, &contents)?;
                outcome.not_written_down(remembered.fault.as_ref());
                remembered.revision
            }
        };
        let state = self.sides.state.clone();
        here(move || forget_old(&state)).await?;
        let revision = revision.filter(|_| !outcome.is_incomplete && self.sides.problem_count == 0);
        for (path, problem) in &self.sides.problems {
            outcome.named(&shown(path.as_bytes()), problem);
        }
        outcome.problem_count += self.sides.problem_count - self.sides.problems.len() as u64;
        progress.enter(Phase::Complete);
        Ok(self.report(outcome, revision))
    }

    fn target_here(&self) -> Result<Tree, Failure> {
        match &self.sides.tree {
            Some(tree) => Ok(tree.clone()),
            None => {
                let mode = self.sides.far_mode.filter(|_| self.sides.lone.is_none());
                let made = Tree::open_or_make(&self.sides.local_root, mode.map(new_root_mode));
                made.map_err(|error| local_failure(&error))
            }
        }
    }

    fn local_path(&self) -> String {
        let root = self.sides.local_root.as_path();
        let path = match &self.sides.lone {
            Some(lone) => root.join(OsStr::from_bytes(lone.here.as_bytes())),
            None => root.to_owned(),
        };
        shown(path.as_os_str().as_encoded_bytes()).text
    }

    fn remote_path(&self) -> String {
        let root = self.sides.far_location();
        let path = match &self.sides.lone {
            Some(lone) => inside(&root, lone.there.as_bytes()),
            None => root,
        };
        shown(&path).text
    }

    fn scan_problems(&self) -> Vec<Problem> {
        let named = self.sides.problems.iter().take(50);
        named
            .map(|(path, problem)| Problem {
                path: path.clone(),
                problem: problem.clone(),
            })
            .collect()
    }

    fn report(&self, outcome: Outcome, revision: Option<String>) -> SyncReport {
        let seconds = self.began.elapsed().as_secs_f64();
        SyncReport {
            local_path: self.local_path(),
            remote_path: self.remote_path(),
            synced_type: match self.sides.lone {
                Some(_) => "file".to_owned(),
                None => "directory".to_owned(),
            },
            made_dirs: outcome.made_dirs,
            sent_files: outcome.sent_files,
            sent_bytes: outcome.sent_bytes,
            unchanged_files: outcome.unchanged_files,
            changed_modes: outcome.changed_modes,
            deleted_files: outcome.deleted_files,
            deleted_dirs: outcome.deleted_dirs,
            delete_extras: self.sides.request.delete_extras,
            skipped: outcome.skipped,
            conflicts: outcome.conflicts,
            problems: outcome.problems,
            problem_count: outcome.problem_count,
            revision,
            duration_s: (seconds * 1000.0).round() / 1000.0,
            rate_bytes_s: match seconds > 0.0 {
                true => (outcome.sent_bytes as f64 / seconds) as u64,
                false => 0,
            },
        }
    }
}

fn actions(summary: &Summary) -> Vec<PlannedActions> {
    let all = Word::ALL.iter().map(|word| {
        let count = summary.of(*word);
        PlannedActions {
            action: word.name().to_owned(),
            count: count.count,
            bytes: count.bytes,
            first: count.first.iter().map(|path| path.text.clone()).collect(),
        }
    });
    all.filter(|actions| actions.count > 0).collect()
}
