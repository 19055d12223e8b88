//! Counts what happened while it happens.

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sync::path::shown;
use remote_sandbox_core::sync::plan::SkipReason;
use remote_sandbox_core::sync::{RelPath, Shown};

use super::report::Problem;
use crate::fsio::FileError;

/// Most problems that a report names.
const MOST_NAMED: usize = 50;

/// What has happened so far.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) made_dirs: u64,
    pub(super) sent_files: u64,
    pub(super) sent_bytes: u64,
    pub(super) unchanged_files: u64,
    pub(super) changed_modes: u64,
    pub(super) deleted_files: u64,
    pub(super) deleted_dirs: u64,
    pub(super) skipped: u64,
    pub(super) conflicts: u64,
    pub(super) problems: Vec<Problem>,
    pub(super) problem_count: u64,
    /// Whether something of the source is not in the target now.
    pub(super) is_incomplete: bool,
}

impl Outcome {
    /// Notes something that did not go as wanted.
    pub(super) fn problem(&mut self, path: &RelPath, problem: impl ToString) {
        self.named(&path.shown(), problem);
    }

    /// Notes it by a path that is text already.
    pub(super) fn named(&mut self, path: &Shown, problem: impl ToString) {
        self.problem_count += 1;
        if self.problems.len() < MOST_NAMED {
            self.problems.push(Problem {
                path: path.text.clone(),
                problem: problem.to_string(),
            });
        }
    }

    /// Notes an entry that is passed over; special files are never part of a set.
    pub(super) fn skip(&mut self, path: &RelPath, reason: SkipReason) {
        self.skipped += 1;
        self.is_incomplete |= !matches!(reason, SkipReason::Special | SkipReason::SpecialStays);
        self.problem(path, reason);
    }

    /// Notes an entry that is passed over and was told before.
    pub(super) fn skip_told(&mut self) {
        self.skipped += 1;
        self.is_incomplete = true;
    }

    /// Notes that nobody will know what was synced; it is all there nevertheless.
    pub(super) fn not_written_down(&mut self, fault: Option<&FileError>) {
        let Some(fault) = fault else {
            return;
        };
        let words = format!(
            "what was synced could not be written down on this machine, so the next download cannot tell edits made here: {}",
            Failure::chain(fault)
        );
        self.named(&shown(b""), words);
    }

    /// Notes something without which the target is not like the source.
    pub(super) fn missing(&mut self, path: &RelPath, problem: impl ToString) {
        self.is_incomplete = true;
        self.problem(path, problem);
    }
}
