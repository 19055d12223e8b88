//! What is told of a watched task.

use super::alarm::Alarm;
use super::state::JobState;

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The host cannot be reached.
    SshUnreachable {
        /// After so many looks.
        failures: u32,
    },
    /// The task runs, after something else was told.
    RunningRestored,
    /// The task is gone without having ended.
    Interrupted {
        /// Its state.
        state: JobState,
    },
    /// It is gone because its host was booted again.
    HostRebooted,
    /// It was resumed.
    ResumeStarted {
        /// For the how-many-th time.
        number: u32,
    },
    /// It could not be resumed.
    ResumeFailed {
        /// The how-many-th time.
        number: u32,
    },
    /// It was resumed as often as allowed.
    Exhausted {
        /// How often that was.
        resumes: u32,
    },
    /// It ended.
    Completed {
        /// Its state.
        state: JobState,
    },
    /// Its sandbox is not in the configuration.
    ConfigMissing,
    /// Its log does not grow.
    Stalled {
        /// For so many seconds.
        silent_s: u64,
    },
    /// Something else is wrong.
    Alarm(Alarm),
}

impl WatchEvent {
    /// The type of the event, as it is stored and sent.
    pub fn word(&self) -> &'static str {
        match self {
            WatchEvent::SshUnreachable { .. } => "ssh_unreachable",
            WatchEvent::RunningRestored => "running_restored",
            WatchEvent::Interrupted { .. } => "interrupted",
            WatchEvent::HostRebooted => "host_rebooted",
            WatchEvent::ResumeStarted { .. } => "resume_started",
            WatchEvent::ResumeFailed { .. } => "resume_failed",
            WatchEvent::Exhausted { .. } => "exhausted",
            WatchEvent::Completed { .. } => "completed",
            WatchEvent::ConfigMissing => "config_missing",
            WatchEvent::Stalled { .. } => "stalled",
            WatchEvent::Alarm(_) => "alarm",
        }
    }
}
