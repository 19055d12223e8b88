//! Why a command did not run although there was a shell for it.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::SandboxName;

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The directory could not be entered.
    #[error("the directory `{cwd}` cannot be entered: {words}")]
    Directory {
        /// The directory as the caller wrote it, safe to show.
        cwd: String,
        /// What the shell said.
        words: String,
    },
    /// The text that the sandbox runs before each command failed.
    #[error("the sandbox's `init` failed: {words}")]
    Init {
        /// What it printed.
        words: String,
    },
    /// The chosen shell is not there.
    #[error("there is no shell `{shell}`")]
    Shell {
        /// The shell.
        shell: String,
    },
    /// No shell was started.
    #[error("the command was not started: {words}")]
    Refused {
        /// What was said.
        words: String,
    },
    /// The shell that had waited for the command ended before it took it up.
    #[error("the shell that waited for the command is gone")]
    Unused,
}

impl NotStarted {
    /// A refusal without words.
    pub(crate) fn unheard() -> Self {
        NotStarted::Refused {
            words: "no reason given".to_owned(),
        }
    }

    /// What a caller is told; `look` is what helps where no shell was started.
    pub(crate) fn failure(&self, sandbox: &SandboxName, look: &str) -> Failure {
        let (code, hint) = match self {
            NotStarted::Directory { .. } => (
                Code::NotFound,
                "pass an existing directory as `cwd`, or make it first",
            ),
            NotStarted::Init { .. } => (
                Code::InitFailed,
                "correct `init` in the configuration of this sandbox, or what it needs there",
            ),
            NotStarted::Shell { .. } => (
                Code::NotFound,
                "correct `shell` in the configuration of this sandbox, or install it there",
            ),
            NotStarted::Refused { .. } | NotStarted::Unused => (Code::RemoteRefused, look),
        };
        let text = format!("sandbox `{sandbox}`: {}", Failure::chain(self));
        Failure::new(code, text).hint(format!("the command did not run; {hint}"))
    }
}
