//! How a server says that something worked or did not.

use std::fmt;

use crate::output::clean_line;

use super::packet::{Input, PacketError};

/// Characters of a server's own words that are kept.
const LONGEST_MESSAGE: usize = 200;

/// What a status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusCode {
    /// It worked.
    Ok,
    /// There is nothing more to read.
    EndOfFile,
    /// No such file or directory.
    NoSuchFile,
    /// The account may not do it.
    PermissionDenied,
    /// Anything else; the server says no more.
    Failure,
    /// The server did not understand the request.
    BadMessage,
    /// The server has no connection to what it serves.
    NoConnection,
    /// The server has lost its connection to what it serves.
    ConnectionLost,
    /// The server cannot do that.
    Unsupported,
    /// A number that version 3 does not have.
    Unknown(u32),
}

impl From<u32> for StatusCode {
    fn from(number: u32) -> Self {
        match number {
            0 => StatusCode::Ok,
            1 => StatusCode::EndOfFile,
            2 => StatusCode::NoSuchFile,
            3 => StatusCode::PermissionDenied,
            4 => StatusCode::Failure,
            5 => StatusCode::BadMessage,
            6 => StatusCode::NoConnection,
            7 => StatusCode::ConnectionLost,
            8 => StatusCode::Unsupported,
            other => StatusCode::Unknown(other),
        }
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            StatusCode::Ok => "ok",
            StatusCode::EndOfFile => "end of file",
            StatusCode::NoSuchFile => "no such file",
            StatusCode::PermissionDenied => "permission denied",
            StatusCode::Failure => "failure",
            StatusCode::BadMessage => "bad message",
            StatusCode::NoConnection => "no connection",
            StatusCode::ConnectionLost => "connection lost",
            StatusCode::Unsupported => "operation unsupported",
            StatusCode::Unknown(number) => return write!(formatter, "status {number}"),
        })
    }
}

/// A code with the server's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The code.
    pub code: StatusCode,
    /// The words, cleaned and cut; often nothing that the code does not say.
    pub message: String,
}

impl Status {
    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, PacketError> {
        let code = StatusCode::from(input.number()?);
        // Old servers leave the words out.
        let words = if input.is_empty() {
            b"".as_slice()
        } else {
            input.counted()?
        };
        // A character has at most four bytes, and the cut is made by characters.
        let words = words.get(..4 * (LONGEST_MESSAGE + 1)).unwrap_or(words);
        let message = clean_line(&String::from_utf8_lossy(words), LONGEST_MESSAGE);
        Ok(Status { code, message })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.to_string();
        if self.message.is_empty() || self.message.eq_ignore_ascii_case(&code) {
            return formatter.write_str(&code);
        }
        write!(formatter, "{code} ({})", self.message)
    }
}
