//! What can go wrong in the demo, and what to do then.

use std::process::ExitStatus;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_engine::fsio::FileError;
use remote_sandbox_engine::proc::CommandError;
use rmcp::service::{ClientInitializeError, ServiceError};

use super::server::Answer;

/// Longest text of the server that is repeated.
const LONGEST_WORDS: usize = 400;

/// The code with which a server refuses a sandbox that it cannot put a wall around.
const NO_WALL: &str = "unsupported";

/// Why a step did not give what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The folder for everything cannot be made or removed.
    #[error("the demo's own folder cannot be used")]
    Folder(#[source] FileError),
    /// This program does not know where it is.
    #[error("this program cannot find itself")]
    Program(#[source] std::io::Error),
    /// The server could not be started.
    #[error("the server cannot be started")]
    Start(#[source] CommandError),
    /// The server started and did not shake hands.
    #[error("the server did not shake hands; it said: {0}")]
    Farewell(String),
    /// The same, without a word.
    #[error("the server did not shake hands")]
    Handshake(#[source] Option<Box<ClientInitializeError>>),
    /// A call got no answer.
    #[error("`{tool}` got no answer")]
    Call {
        /// The tool.
        tool: &'static str,
        /// Why.
        #[source]
        source: Box<ServiceError>,
    },
    /// A call took too long.
    #[error("`{0}` did not answer in time")]
    Slow(&'static str),
    /// An answer is not one object.
    #[error("`{0}` did not answer with one JSON object")]
    NoAnswer(&'static str),
    /// A tool says that it failed.
    #[error("`{tool}` failed: {error}")]
    Refused {
        /// The tool.
        tool: &'static str,
        /// What it says.
        error: String,
        /// The reason in one word.
        code: String,
        /// What it says to do.
        hint: String,
    },
    /// A tool gave something else than it should.
    #[error("`{tool}` should have given {expected}, but gave {}", clean_line(.answer, LONGEST_WORDS))]
    Unexpected {
        /// The tool.
        tool: &'static str,
        /// What should have come.
        expected: String,
        /// What came.
        answer: String,
    },
    /// Something is there that should be gone.
    #[error("the sandbox was deleted, but `{0}` is still there")]
    NotGone(String),
    /// The server did not end.
    #[error("the server did not end")]
    End(#[source] CommandError),
    /// The server ended badly.
    #[error("the server ended with {0}")]
    Status(ExitStatus),
    /// A step came before the one that starts the server.
    #[error("there is no server")]
    NoServer,
}

impl DemoError {
    /// What the server itself said tells more than what the client saw of its end.
    pub(super) fn handshake(words: &str, source: Option<Box<ClientInitializeError>>) -> Self {
        let words: Vec<&str> = words.lines().map(str::trim).collect();
        match words.is_empty() {
            true => DemoError::Handshake(source),
            false => DemoError::Farewell(clean_line(&words.join("; "), LONGEST_WORDS)),
        }
    }

    pub(super) fn call(tool: &'static str, source: ServiceError) -> Self {
        DemoError::Call {
            tool,
            source: Box::new(source),
        }
    }

    pub(super) fn refused(answer: &Answer) -> Self {
        DemoError::Refused {
            tool: answer.tool,
            error: answer.text("error").to_owned(),
            code: answer.text("code").to_owned(),
            hint: answer.text("hint").to_owned(),
        }
    }

    /// Whether it says that no wall can be put up on this machine, and why.
    pub(super) fn no_wall(&self) -> Option<&str> {
        match self {
            DemoError::Refused {
                tool: "create_sandbox",
                error,
                code,
                ..
            } if code == NO_WALL => Some(error),
            _ => None,
        }
    }

    /// What to do next.
    pub(crate) fn hint(&self) -> &str {
        match self {
            DemoError::Folder(_) => "free space, or set TMPDIR to a folder that you can write to",
            DemoError::Refused { hint, .. } if !hint.is_empty() => hint,
            DemoError::Start(_) | DemoError::Program(_) => "build it anew: cargo build --release",
            DemoError::Farewell(_) | DemoError::Handshake(_) => {
                "start the server by hand to see more: remote-sandbox-mcp -v"
            }
            _ => "`remote-sandbox-mcp doctor` looks at this machine; please report what it says",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(tool: &'static str, code: &str) -> DemoError {
        DemoError::Refused {
            tool,
            error: "no wall can be put up".to_owned(),
            code: code.to_owned(),
            hint: "install one".to_owned(),
        }
    }

    #[test]
    fn only_a_missing_wall_counts_as_a_missing_wall() {
        let missing = refused("create_sandbox", "unsupported");
        assert_eq!(missing.no_wall(), Some("no wall can be put up"));
        assert_eq!(refused("create_sandbox", "remote_refused").no_wall(), None);
        assert_eq!(refused("exec_bash", "unsupported").no_wall(), None);
        assert_eq!(DemoError::Slow("create_sandbox").no_wall(), None);
    }

    #[test]
    fn every_failure_has_a_next_step() {
        assert_eq!(refused("exec_bash", "busy").hint(), "install one");
        let silent = DemoError::Refused {
            tool: "exec_bash",
            error: String::new(),
            code: String::new(),
            hint: String::new(),
        };
        assert!(silent.hint().contains("doctor"));
    }
}
