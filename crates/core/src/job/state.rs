//! The states of a job, and which of them what was seen leads to.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Nonce;
use super::observe::{Ending, ExitFault, ExitReading, Observation, SessionSight};
use super::process::{HostWord, Liveness, ProcessIdentity};

/// Why a job that did not end by itself is not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// The host was booted since.
    HostRebooted,
    /// Its process is gone and left no record.
    ProcessGone,
    /// Its process number belongs to another process now.
    PidReused,
}

/// Why nothing certain can be said of a job that can be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "why", content = "code")]
pub enum UnknownReason {
    /// Its folder is not there.
    FolderMissing,
    /// Its folder belongs to another attempt.
    OtherNonce,
    /// Its folder says that it never began, though it had.
    VoidAfterBegin,
    /// The file that names its process cannot be read.
    ProcessUnreadable,
    /// The record of its end is empty.
    ExitEmpty,
    /// The record of its end breaks off.
    ExitTruncated,
    /// The record of its end is too long.
    ExitTooLong,
    /// The record of its end is a link.
    ExitSymlink,
    /// The record of its end is not a file.
    ExitNotAFile,
    /// The record of its end is about something else.
    ExitOtherNonce,
    /// Only a line in the log of a task that is not ours says with which code it ended.
    OnlyTheLogSays(u32),
    /// The host has no tmux any more, by which alone a task that is not ours can be seen.
    NoTmux,
    /// The host that was asked shares its home with the one that the job began on, and sees none of its processes.
    OtherNode {
        /// Where it began.
        began: HostWord,
        /// Which host was asked.
        here: HostWord,
    },
}

impl UnknownReason {
    /// The reason in one sentence.
    pub fn sentence(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            UnknownReason::FolderMissing => "its folder on the host is missing",
            UnknownReason::OtherNonce => "its folder on the host belongs to another attempt",
            UnknownReason::VoidAfterBegin => {
                "its folder on the host says that it never began, though it had"
            }
            UnknownReason::ProcessUnreadable => "the file that names its process cannot be read",
            UnknownReason::ExitEmpty => "the record of its end is empty",
            UnknownReason::ExitTruncated => "the record of its end breaks off",
            UnknownReason::ExitTooLong => "the record of its end is too long",
            UnknownReason::ExitSymlink => "the record of its end is a symbolic link",
            UnknownReason::ExitNotAFile => "the record of its end is not a file",
            UnknownReason::ExitOtherNonce => "the record of its end is about something else",
            UnknownReason::OnlyTheLogSays(_) => "only a line in its log tells of its end",
            UnknownReason::NoTmux => "the host has no tmux, by which alone it could be seen",
            UnknownReason::OtherNode { began, here } => {
                let (began, here) = (began.as_str(), here.as_str());
                return Cow::Owned(format!(
                    "other node: it began on `{began}`, and the host that answered is `{here}`"
                ));
            }
        })
    }
}

impl From<ExitFault> for UnknownReason {
    fn from(fault: ExitFault) -> Self {
        match fault {
            ExitFault::Empty => UnknownReason::ExitEmpty,
            ExitFault::Truncated => UnknownReason::ExitTruncated,
            ExitFault::TooLong => UnknownReason::ExitTooLong,
            ExitFault::Symlink => UnknownReason::ExitSymlink,
            ExitFault::NotAFile => UnknownReason::ExitNotAFile,
            ExitFault::OtherNonce => UnknownReason::ExitOtherNonce,
        }
    }
}

/// How it is with an attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum JobState {
    /// It was asked for; whether it has begun is not known yet.
    Starting,
    /// It runs.
    Running,
    /// The command ended by itself.
    Exited {
        /// Its exit code.
        code: u32,
    },
    /// A signal ended the command.
    Signalled {
        /// The number of the signal.
        signal: u32,
    },
    /// Somebody ended it on purpose.
    Stopped,
    /// It is certain that it never began.
    NotStarted,
    /// It is gone and did not say how.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// Its host cannot be asked.
    Unreachable {
        /// Since when, on the clock of whoever asks.
        since: u64,
    },
    /// Its host was asked, and what it says decides nothing.
    Unknown {
        /// Why.
        reason: UnknownReason,
    },
}

impl JobState {
    /// Whether it is over for good; such a state never changes.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            JobState::Exited { .. }
                | JobState::Signalled { .. }
                | JobState::Stopped
                | JobState::NotStarted
                | JobState::Lost { .. }
        )
    }

    /// The state in one word, as replies have it.
    pub fn word(&self) -> &'static str {
        match self {
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Exited { .. } => "exited",
            JobState::Signalled { .. } => "signalled",
            JobState::Stopped => "stopped",
            JobState::NotStarted => "not_started",
            JobState::Lost { .. } => "lost",
            JobState::Unreachable { .. } => "unreachable",
            JobState::Unknown { .. } => "unknown",
        }
    }

    /// Why it stands so, in one sentence, where the word alone does not say it.
    pub fn reason(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            JobState::Starting => "whether it has begun is not known yet",
            JobState::NotStarted => "it never began and never will",
            JobState::Lost { reason } => match reason {
                LostReason::HostRebooted => "the host was booted again since",
                LostReason::ProcessGone => "its process is gone and left no record of its end",
                LostReason::PidReused => "its process is gone, its number belongs to another one",
            },
            JobState::Unreachable { .. } => "its host cannot be asked",
            JobState::Unknown { reason } => return Some(reason.sentence()),
            _ => return None,
        }))
    }

    /// The name of the signal that ended the command, where it is a common one.
    pub fn signal_name(&self) -> Option<String> {
        let JobState::Signalled { signal } = self else {
            return None;
        };
        // Those that have the same number everywhere.
        let names = [
            (1, "HUP"),
            (2, "INT"),
            (3, "QUIT"),
            (4, "ILL"),
            (5, "TRAP"),
            (6, "ABRT"),
            (8, "FPE"),
            (9, "KILL"),
            (11, "SEGV"),
            (13, "PIPE"),
            (14, "ALRM"),
            (15, "TERM"),
        ];
        let known = names.iter().find(|(number, _)| number == signal);
        Some(known.map_or_else(|| signal.to_string(), |(_, name)| (*name).to_owned()))
    }

    /// The exit code as shells count: that of the command, or 128 and the number of the signal.
    pub fn exit_code(&self) -> Option<u32> {
        match self {
            JobState::Exited { code } => Some(*code),
            JobState::Signalled { signal } => Some(128 + signal),
            _ => None,
        }
    }
}

/// What is written down of an attempt before it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAttempt {
    /// Its word.
    pub nonce: Option<Nonce>,
    /// Its state so far.
    pub state: JobState,
    /// Its process, when the host has told.
    pub process: Option<ProcessIdentity>,
    /// Whether somebody has asked to end it.
    pub is_stop_asked: bool,
}

/// What came of looking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// The host could not be asked, at this moment.
    Unreachable {
        /// When that was.
        at: u64,
    },
    /// This was seen.
    Seen(Box<Observation>),
}

/// The state that follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The state.
    pub state: JobState,
    /// The process to be written down, where none was yet: a start whose answer was lost is adopted so.
    pub adopted: Option<ProcessIdentity>,
    /// The word of whoever has the number of this attempt instead, where ours was never seen: that attempt is the job's.
    pub holder: Option<Nonce>,
    /// The exit code that only a line in the log tells.
    pub hearsay_code: Option<u32>,
    /// Whether the command runs without the runner that would write down its end.
    pub is_unattended: bool,
}

/// Decides about an attempt. Nothing but the host's own records decides, and a state that is over stays.
pub fn judge(known: &KnownAttempt, sighting: &Sighting) -> Verdict {
    let mut verdict = Verdict {
        state: known.state.clone(),
        adopted: None,
        holder: None,
        hearsay_code: None,
        is_unattended: false,
    };
    if known.state.is_terminal() {
        return verdict;
    }
    match sighting {
        Sighting::Unreachable { at } => {
            let since = match known.state {
                JobState::Unreachable { since } => since,
                _ => *at,
            };
            verdict.state = JobState::Unreachable { since };
        }
        Sighting::Seen(seen) => {
            verdict.hearsay_code = seen.hearsay_exit_code();
            if seen.is_ours {
                verdict.state = judge_ours(known, seen);
                verdict.is_unattended =
                    verdict.state == JobState::Running && !seen.runner.is_alive();
                let is_same = seen.nonce == known.nonce;
                if known.process.is_none() && is_same {
                    verdict.adopted = seen.runner.identity().cloned();
                } else if known.process.is_none() && known.nonce.is_some() {
                    verdict.holder = seen.nonce.clone();
                }
            } else {
                verdict.state = judge_foreign(seen);
            }
        }
    }
    verdict
}

fn judge_ours(known: &KnownAttempt, seen: &Observation) -> JobState {
    let unknown = |reason| JobState::Unknown { reason };
    if !seen.has_folder {
        return match known.state {
            // It may still be on its way; only the host can say that it never comes.
            JobState::Starting => JobState::Starting,
            _ => unknown(UnknownReason::FolderMissing),
        };
    }
    if seen.nonce.is_none()
        && known.state == JobState::Starting
        && seen.runner == Liveness::NotRecorded
    {
        return JobState::Starting;
    }
    if seen.nonce != known.nonce {
        return unknown(UnknownReason::OtherNonce);
    }
    let is_marked = seen.stop_mark.is_some() && seen.stop_mark == known.nonce;
    let fault = match &seen.exit {
        ExitReading::Record(record) if Some(&record.nonce) == known.nonce.as_ref() => {
            return match record.ending {
                // Without the mark it ended by itself, though somebody may have been about to end it.
                _ if is_marked => JobState::Stopped,
                Ending::Code(code) => JobState::Exited { code },
                Ending::Signal(signal) => JobState::Signalled { signal },
            };
        }
        ExitReading::Record(_) => Some(ExitFault::OtherNonce),
        ExitReading::Fault(fault) => Some(*fault),
        ExitReading::Absent => None,
    };
    let is_left = seen.has_left && seen.exit == ExitReading::Absent;
    if seen.runner.is_alive() || seen.command.is_alive() || is_left {
        return JobState::Running;
    }
    match (&seen.runner, fault) {
        // Somebody who did not find its folder has made it anew.
        (Liveness::Void, _) if known.process.is_some() => unknown(UnknownReason::VoidAfterBegin),
        (Liveness::Void, _) => JobState::NotStarted,
        // Nothing can be said of its processes from here, not even that somebody ended them.
        (Liveness::OtherNode { node, here, .. }, fault) => unknown(fault.map_or_else(
            || UnknownReason::OtherNode {
                began: node.clone(),
                here: here.clone(),
            },
            UnknownReason::from,
        )),
        (_, _) if (is_marked || known.is_stop_asked) && seen.runner.identity().is_some() => {
            JobState::Stopped
        }
        (_, Some(fault)) => unknown(fault.into()),
        (Liveness::NotRecorded, None) => JobState::Starting,
        (Liveness::Unreadable, None) => unknown(UnknownReason::ProcessUnreadable),
        (gone, None) => JobState::Lost {
            reason: match gone {
                Liveness::OtherBoot(_) => LostReason::HostRebooted,
                Liveness::Reused(_) => LostReason::PidReused,
                _ => LostReason::ProcessGone,
            },
        },
    }
}

/// A task that is not in our store is seen by the folder of the job that has claimed its session, else by its session
/// only, and its end by what its log says.
fn judge_foreign(seen: &Observation) -> JobState {
    let written = seen.has_folder.then(|| judge_claimed(seen));
    match (written, seen.session, seen.hearsay_exit_code()) {
        (Some(JobState::Running), _, _) | (_, SessionSight::Present, _) => JobState::Running,
        // Whoever claimed the session for it never began; the task may be an older one.
        (Some(state), _, _) if state != JobState::NotStarted => state,
        (_, _, Some(code)) => JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(code),
        },
        (_, SessionSight::NoTmux, None) => JobState::Unknown {
            reason: UnknownReason::NoTmux,
        },
        (_, SessionSight::Absent, None) => JobState::Lost {
            reason: LostReason::ProcessGone,
        },
    }
}

/// What the folder says of a job that somebody else started.
fn judge_claimed(seen: &Observation) -> JobState {
    let known = KnownAttempt {
        nonce: seen.nonce.clone(),
        state: JobState::Starting,
        process: None,
        is_stop_asked: false,
    };
    judge_ours(&known, seen)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
