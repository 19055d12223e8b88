//! What a server and the supervisor of a sandbox say to each other: one JSON object per line.
//!
//! A connection is for one thing. The three streams of a shell travel beside its request as
//! descriptors, so no output goes through the supervisor.

use serde::{Deserialize, Serialize};

/// Longest line that is taken.
pub const LONGEST_LINE: usize = 4096;

/// What a server asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask", deny_unknown_fields)]
pub enum Request {
    /// A shell on the three descriptors that come with it.
    Shell,
    /// A sign of life.
    Status,
    /// Its end, unless something still runs or somebody is connected.
    Leave,
    /// Its end and that of everything in it.
    End,
    /// A signal for the group of the shell of this connection: please end.
    Terminate,
    /// The same: end.
    Kill,
}

/// What a supervisor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "say", deny_unknown_fields)]
pub enum Reply {
    /// The shell runs.
    Started {
        /// Its number inside.
        pid: u32,
        /// The terms under which the sandbox runs.
        terms: String,
    },
    /// No shell was started.
    Refused {
        /// Why not.
        words: String,
    },
    /// The shell, or what it became, ended by itself.
    Exited {
        /// With this code.
        code: u32,
    },
    /// A signal ended it.
    Signalled {
        /// Its name without `SIG`.
        name: String,
    },
    /// It lives.
    Status {
        /// Processes inside, the supervisor not counted.
        processes: usize,
        /// The terms under which the sandbox runs.
        terms: String,
    },
    /// It goes.
    Leaving,
    /// It stays.
    Staying,
}

/// One line that is no message.
#[derive(Debug, thiserror::Error)]
#[error("a line that is no message")]
pub struct WireError(#[source] serde_json::Error);

/// A message as a line.
pub fn line_of(message: &impl Serialize) -> Result<Vec<u8>, WireError> {
    let mut line = serde_json::to_vec(message).map_err(WireError)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a line.
pub fn parse_line<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, WireError> {
    serde_json::from_slice(line).map_err(WireError)
}
