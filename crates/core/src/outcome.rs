//! How a run ended, in words that cannot be mistaken for one another.

use crate::shell::Survivor;

/// Why a run that was still going was ended by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The caller cancelled its call.
    Cancelled,
    /// Somebody asked for this run to be stopped.
    Stopped,
    /// The server went down.
    Shutdown,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended by itself with this code.
    Exited(u32),
    /// A signal ended the command.
    Signalled(String),
    /// The deadline passed and the processes were ended.
    TimedOut,
    /// We ended it for another reason.
    Ended(StopReason),
    /// The connection broke; whether the command still runs is not known.
    LinkLost,
}

impl Outcome {
    /// The outcome in one word, as replies and the audit log have it.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Exited(_) => "exited",
            Outcome::Signalled(_) => "signalled",
            Outcome::TimedOut => "timed_out",
            Outcome::Ended(StopReason::Cancelled) => "cancelled",
            Outcome::Ended(StopReason::Stopped) => "stopped",
            Outcome::Ended(StopReason::Shutdown) => "ended_by_shutdown",
            Outcome::LinkLost => "link_lost",
        }
    }

    /// Whether it is certain that the command does not run any more.
    pub fn is_known(&self) -> bool {
        !matches!(self, Outcome::LinkLost)
    }

    /// The exit code a caller may rely on; only a command that ended by itself has one of its own.
    pub fn exit_code(&self) -> Option<u32> {
        match self {
            Outcome::Exited(code) => Some(*code),
            // The old server's clients expect the code of the `timeout` program here.
            Outcome::TimedOut => Some(124),
            _ => None,
        }
    }
}

/// What is known about processes of the run that outlived it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftRunning {
    /// None were seen.
    Nothing,
    /// These still live.
    Processes(Vec<Survivor>),
    /// The host did not answer when asked.
    Unknown,
}
