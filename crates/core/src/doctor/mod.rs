//! What `doctor` finds: steps with a status, a line and the fix, and the verdicts behind them.
//!
//! The script that looks at a host lies in `checkup.sh`; nothing here runs it.

mod banner;
mod checkup;
mod verdict;

pub use banner::judge_banner;
pub use checkup::{CheckUp, CheckUpError, Filling, Tool, checkup_script, parse_checkup};
pub use verdict::{judge_checkup, judge_sessions};

use serde::{Serialize, Serializer};

use crate::output::clean_line;

/// A longer line is cut.
const LONGEST_DETAIL: usize = 1000;

/// One thing that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepName {
    /// Which configuration file is read.
    File,
    /// Which variables are read.
    Variables,
    /// What is wrong in the configuration outside a single sandbox.
    Problem,
    /// One sandbox of the configuration.
    Entry,
    /// Something worth knowing about a sandbox.
    Note,
    /// A kept secret that the configuration names.
    Secret,
    /// Who may read the configuration file.
    Permissions,
    /// The folder for what this program keeps.
    State,
    /// How many sandboxes there are.
    Sandboxes,
    /// What the SSH configuration says about the way.
    Route,
    /// Which program carries the connection.
    Transport,
    /// The wall around a sandbox on this machine.
    Isolation,
    /// One thing that the wall keeps apart, or does not.
    Wall,
    /// What commands may use up.
    Limits,
    /// Whether a connection is open already that others made and that may be used.
    SharedConnection,
    /// The address of the name.
    Dns,
    /// The TCP connection, or what stands for it.
    Tcp,
    /// The first line of the server.
    Banner,
    /// The agreement on keys; told only when there is none.
    KeyExchange,
    /// Who the host is.
    HostKey,
    /// Who we are.
    Auth,
    /// The shell and the system.
    Shell,
    /// Bash.
    Bash,
    /// Tmux.
    Tmux,
    /// The program that ends others in time.
    Timeout,
    /// The program that finds files.
    Find,
    /// The program that packs files.
    Tar,
    /// Python.
    Python,
    /// Room for bytes.
    Disk,
    /// Room for files.
    Inodes,
    /// The host's clock.
    Clock,
    /// The file transfer of the server.
    Sftp,
    /// How many sessions one connection may have.
    Sessions,
    /// The time for the whole host.
    Time,
}

impl StepName {
    /// The steps of a host in their order; those after a failed one are skipped.
    pub const OF_A_HOST: [StepName; 17] = [
        StepName::Dns,
        StepName::Tcp,
        StepName::Banner,
        StepName::HostKey,
        StepName::Auth,
        StepName::Shell,
        StepName::Bash,
        StepName::Tmux,
        StepName::Timeout,
        StepName::Find,
        StepName::Tar,
        StepName::Python,
        StepName::Sftp,
        StepName::Disk,
        StepName::Inodes,
        StepName::Clock,
        StepName::Sessions,
    ];

    /// The steps of a sandbox on this machine.
    pub const OF_THIS_MACHINE: [StepName; 10] = [
        StepName::Isolation,
        StepName::Shell,
        StepName::Bash,
        StepName::Tmux,
        StepName::Timeout,
        StepName::Find,
        StepName::Tar,
        StepName::Python,
        StepName::Disk,
        StepName::Inodes,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            StepName::File => "file",
            StepName::Variables => "variables",
            StepName::Problem => "problem",
            StepName::Entry => "entry",
            StepName::Note => "note",
            StepName::Secret => "secret",
            StepName::Permissions => "permissions",
            StepName::State => "state",
            StepName::Sandboxes => "sandboxes",
            StepName::Route => "route",
            StepName::Transport => "transport",
            StepName::Isolation => "isolation",
            StepName::Wall => "wall",
            StepName::Limits => "limits",
            StepName::SharedConnection => "shared_connection",
            StepName::Dns => "dns",
            StepName::Tcp => "tcp",
            StepName::Banner => "banner",
            StepName::KeyExchange => "key_exchange",
            StepName::HostKey => "host_key",
            StepName::Auth => "auth",
            StepName::Shell => "shell",
            StepName::Bash => "bash",
            StepName::Tmux => "tmux",
            StepName::Timeout => "timeout",
            StepName::Find => "find",
            StepName::Tar => "tar",
            StepName::Python => "python",
            StepName::Disk => "disk",
            StepName::Inodes => "inodes",
            StepName::Clock => "clock",
            StepName::Sftp => "sftp",
            StepName::Sessions => "sessions",
            StepName::Time => "time",
        }
    }
}

impl Serialize for StepName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but something is missing or will go wrong.
    Warning,
    /// It does not work.
    Failed,
    /// It was not looked at.
    Skipped,
}

/// One step and how it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What was looked at.
    pub step: StepName,
    /// How it went.
    pub status: Status,
    /// What was found, in one line.
    pub detail: String,
    /// What to do about it, when there is something to do.
    pub fix: Option<String>,
    /// How many milliseconds it took, where that says something.
    pub ms: Option<u64>,
}

impl Step {
    fn new(step: StepName, status: Status, detail: &str, fix: Option<&str>) -> Self {
        Step {
            step,
            status,
            detail: clean_line(detail, LONGEST_DETAIL),
            fix: fix
                .filter(|fix| !fix.is_empty())
                .map(|fix| clean_line(fix, LONGEST_DETAIL)),
            ms: None,
        }
    }

    /// A step that went well.
    pub fn ok(step: StepName, detail: &str) -> Self {
        Self::new(step, Status::Ok, detail, None)
    }

    /// A step with something to mend that does not stop anybody.
    pub fn warning(step: StepName, detail: &str, fix: &str) -> Self {
        Self::new(step, Status::Warning, detail, Some(fix))
    }

    /// A step that went wrong.
    pub fn failed(step: StepName, detail: &str, fix: &str) -> Self {
        Self::new(step, Status::Failed, detail, Some(fix))
    }

    /// A step that was left out.
    pub fn skipped(step: StepName, why: &str) -> Self {
        Self::new(step, Status::Skipped, why, None)
    }

    /// The same with the time it took.
    #[must_use]
    pub fn took(mut self, time: std::time::Duration) -> Self {
        self.ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self
    }
}
