//! The script that looks at many jobs of one host at once.

use std::fmt::Write as _;

use super::alarm::alarm_pattern;
use super::hole::Side;
use super::script::{COMMON, TMUX, bare};
use super::spec::{JobSpecError, check_path};
use super::{AttemptNumber, JobId, SessionName};
use crate::ids::RunToken;
use crate::shell::quote;

const CHECK: &str = include_str!("check.sh");
const CLAIM: &str = include_str!("claim.sh");

/// Most bytes of a log that one look brings.
pub const MOST_LOG_BYTES: u64 = 4 << 20;

/// The last byte that a shell can count to, with room for what it adds.
const LARGEST_BYTE: u64 = i64::MAX as u64 - MOST_LOG_BYTES - 1;

/// Most bytes of a checkpoint that one look brings.
pub const MOST_CHECKPOINT_BYTES: u64 = 1 << 20;

/// Most bytes of a log that one look searches without bringing them.
pub const MOST_SEARCHED_BYTES: u64 = 64 << 20;

/// Which part of the log is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPart {
    /// Nothing but its size.
    Nothing,
    /// So many bytes at its end, or as many as are kept behind what it gave back to the disk.
    Last(u64),
    /// From this byte on, so many at most. What the log gave back to the disk is passed over: what is brought ends
    /// before that, or begins behind it.
    Since {
        /// The first byte.
        byte: u64,
        /// How many at most.
        most: u64,
    },
}

/// Where a task tells how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// In a file: absolute, below the home as `~/x`, or relative to the directory of the task.
    Path(String),
    /// In what a command prints.
    Command(String),
    /// In what a command prints as JSON, of which its complaints are no part.
    JsonCommand(String),
}

/// Which task is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// One of our own.
    Job {
        /// The job.
        job: JobId,
        /// The attempt.
        attempt: AttemptNumber,
    },
    /// One that somebody else started, of which only session and log are known.
    Foreign,
}

/// One task to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub(super) subject: Subject,
    pub(super) session: String,
    log_file: String,
    log: LogPart,
    cwd: String,
    checkpoint: Option<(Checkpoint, u64)>,
    /// The part of the log that is only searched: its first byte, and how many.
    gap: Option<(u64, u64)>,
}

impl Look {
    /// Looks at one of our own jobs.
    pub fn job(
        job: JobId,
        attempt: AttemptNumber,
        session: &SessionName,
        log_file: &str,
        log: LogPart,
    ) -> Result<Self, JobSpecError> {
        Self::new(
            Subject::Job { job, attempt },
            session.as_str(),
            log_file,
            log,
        )
    }

    /// Looks at a task that somebody else started, whatever its session is called; the name may be empty.
    pub fn foreign(session: &str, log_file: &str, log: LogPart) -> Result<Self, JobSpecError> {
        Self::new(Subject::Foreign, session, log_file, log)
    }

    fn new(
        subject: Subject,
        session: &str,
        log_file: &str,
        log: LogPart,
    ) -> Result<Self, JobSpecError> {
        check_path("log_file", log_file)?;
        Ok(Look {
            subject,
            // What tmux itself makes of a name that it is given.
            session: session.replace(['.', ':'], "_"),
            log_file: log_file.to_owned(),
            log,
            cwd: String::new(),
            checkpoint: None,
            gap: None,
        })
    }

    /// The first byte of a log of this size that is asked for, and which part of it is wanted where it has a hole.
    pub(super) fn first_byte(&self, size: u64) -> (u64, Side) {
        match self.log {
            LogPart::Nothing => (size, Side::Behind),
            LogPart::Last(bytes) => {
                let most = bytes.min(MOST_LOG_BYTES);
                (size.saturating_sub(most), Side::Behind)
            }
            LogPart::Since { byte, .. } => (byte.min(LARGEST_BYTE), Side::Before),
        }
    }

    /// Has the host search a part of the log for alarms, without bringing it.
    #[must_use]
    pub fn searching(mut self, byte: u64, bytes: u64) -> Self {
        self.gap = Some((byte, bytes.min(MOST_SEARCHED_BYTES)));
        self
    }

    /// The session by which a job that somebody else started may be found, as a word of the script.
    fn claimed_session(&self) -> String {
        let is_name = self.subject == Subject::Foreign && SessionName::parse(&self.session).is_ok();
        quote(if is_name { &self.session } else { "" })
    }

    /// Looks at its checkpoint too, which is found from the directory of the task.
    pub fn with_checkpoint(
        mut self,
        checkpoint: Checkpoint,
        cwd: &str,
        most_bytes: u64,
    ) -> Result<Self, JobSpecError> {
        check_path("cwd", cwd)?;
        match &checkpoint {
            Checkpoint::Path(path) => check_path("checkpoint_path", path)?,
            Checkpoint::Command(text) | Checkpoint::JsonCommand(text) => {
                if text.contains('\0') {
                    return Err(JobSpecError::ControlInPath {
                        field: "checkpoint_command",
                    });
                }
            }
        }
        self.cwd = cwd.to_owned();
        self.checkpoint = Some((checkpoint, most_bytes.clamp(1, MOST_CHECKPOINT_BYTES)));
        Ok(self)
    }
}

/// Builds the one script for all these tasks; their numbers in the answer are their places here.
pub fn check_script(looks: &[Look], mark: &RunToken) -> String {
    let mut script = String::with_capacity(8 * 1024 + looks.len() * 256);
    let is_foreign = looks.iter().any(|look| look.subject == Subject::Foreign);
    let foreign = if is_foreign { "yes" } else { "" };
    let _ = writeln!(script, "{{\n_rm={mark} _rforeign={foreign}");
    script.push_str(&bare(COMMON));
    if is_foreign {
        script.push_str(&bare(TMUX));
        script.push_str(&bare(CLAIM));
    }
    if looks.iter().any(|look| look.gap.is_some()) {
        let _ = writeln!(script, "_rwords={}", quote(&alarm_pattern()));
    }
    script.push_str(&bare(CHECK));
    for (number, look) in looks.iter().enumerate() {
        let (job, attempt) = match &look.subject {
            Subject::Job { job, attempt } => (job.as_str(), attempt.to_string()),
            Subject::Foreign => ("''", "''".to_owned()),
        };
        let (from, most) = match look.log {
            LogPart::Nothing => ("last".to_owned(), 0),
            LogPart::Last(bytes) => ("last".to_owned(), bytes),
            LogPart::Since { byte, most } => (byte.min(LARGEST_BYTE).to_string(), most),
        };
        let (kind, what, bytes) = match &look.checkpoint {
            None => ("''", "''".to_owned(), 0),
            Some((Checkpoint::Path(path), bytes)) => ("path", quote(path), *bytes),
            Some((Checkpoint::Command(text), bytes)) => ("command", quote(text), *bytes),
            Some((Checkpoint::JsonCommand(text), bytes)) => ("json", quote(text), *bytes),
        };
        let (gap, gap_bytes) = look.gap.unwrap_or((0, 0));
        let _ = writeln!(
            script,
            "look {number} {job} {attempt} {} {from} {} {} {kind} {what} {bytes} {} {} {gap_bytes}",
            quote(&look.log_file),
            most.min(MOST_LOG_BYTES),
            quote(&look.cwd),
            look.claimed_session(),
            gap.min(i64::MAX as u64 - 1),
        );
    }
    script.push_str("_ri=host; field over\nexit 0\n}\n");
    script
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "node_tests.rs"]
mod node_tests;

#[cfg(test)]
#[path = "claimed_tests.rs"]
mod claimed_tests;

#[cfg(test)]
#[path = "interrupted_tests.rs"]
mod interrupted_tests;

#[cfg(test)]
#[path = "shared_log_tests.rs"]
mod shared_log_tests;
