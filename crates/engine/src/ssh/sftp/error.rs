//! What can go wrong: with one request, or with the whole conversation.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::sftp::{Extension, PacketError, PathError, Status, StatusCode};

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub enum SftpError {
    /// The server said no.
    #[error("cannot {action} `{subject}`: {status}")]
    Status {
        /// What was asked for.
        action: &'static str,
        /// Of which file.
        subject: String,
        /// What the server said.
        status: Status,
    },
    /// The server cannot do that.
    #[error("the server does not offer {}", .0.name())]
    Missing(Extension),
    /// The server named something that is no path.
    #[error("the answer for `{subject}` is no path")]
    Path {
        /// What was asked about.
        subject: String,
        /// What is wrong with it.
        #[source]
        source: PathError,
    },
    /// An answer beyond the protocol cannot be read.
    #[error("the answer to {} cannot be read", extension.name())]
    Answer {
        /// What was asked for.
        extension: Extension,
        /// What is wrong with it.
        #[source]
        source: PacketError,
    },
    /// More than the server takes at once.
    #[error("{bytes} bytes at once are too many for `{subject}`; the most is {most}")]
    TooLong {
        /// The file.
        subject: String,
        /// How many it would be.
        bytes: usize,
        /// How many it may be.
        most: usize,
    },
    /// The server allows no further open file.
    #[error("cannot open `{subject}`: {most} files are open, and the server allows no more")]
    TooManyHandles {
        /// The file.
        subject: String,
        /// How many may be open.
        most: u64,
    },
    /// A directory has more entries than the caller wanted.
    #[error("the directory `{subject}` has more than {most} entries")]
    TooManyEntries {
        /// The directory.
        subject: String,
        /// How many were wanted.
        most: usize,
    },
    /// The server answers and answers, and nothing comes of it.
    #[error("the server answers for `{subject}` without getting on")]
    NoProgress {
        /// The file or directory.
        subject: String,
    },
    /// Two files of different servers.
    #[error("`{from}` and `{to}` are not open on the same connection")]
    Apart {
        /// The file that is read.
        from: String,
        /// The file that is written.
        to: String,
    },
    /// What was to be written could not be read.
    #[error("the content for `{subject}` cannot be read")]
    Source {
        /// The file on the server.
        subject: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What was read could not be written.
    #[error("the content of `{subject}` cannot be passed on")]
    Sink {
        /// The file on the server.
        subject: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The conversation is over.
    #[error("the file transfer connection ended")]
    Closed(#[source] Arc<Loss>),
}

impl SftpError {
    /// The code of the server's answer, where it was one.
    pub fn code(&self) -> Option<StatusCode> {
        match self {
            SftpError::Status { status, .. } => Some(status.code),
            _ => None,
        }
    }

    pub(super) fn refused(
        action: &'static str,
        subject: impl std::fmt::Display,
        status: Status,
    ) -> Self {
        SftpError::Status {
            action,
            subject: subject.to_string(),
            status,
        }
    }
}

/// Why a conversation is over.
#[derive(Debug, thiserror::Error)]
pub enum Loss {
    /// The server ended it.
    #[error("the server ended it")]
    Ended,
    /// It ended in the middle of a packet.
    #[error("it ended in the middle of a packet")]
    CutOff,
    /// The stream broke.
    #[error("the stream broke")]
    Broken(#[from] std::io::Error),
    /// The server does not keep to the protocol.
    #[error("the server does not keep to the protocol")]
    Packet(#[from] PacketError),
    /// An answer to a question that is not open.
    #[error("the server answered request {0}, which is not open")]
    UnknownRequest(u32),
    /// An answer that does not belong to its question.
    #[error("the server answered request {0} with something else")]
    OtherAnswer(u32),
    /// More bytes than were asked for.
    #[error("the server sent {sent} bytes where {most} were asked for")]
    TooMuch {
        /// How many came.
        sent: usize,
        /// How many were asked for.
        most: u32,
    },
    /// No SFTP but text, as login files print it.
    #[error("the host printed text instead: {0}")]
    Text(String),
    /// Nothing was heard for too long.
    #[error("nothing was heard for {} s", .0.as_secs())]
    Silent(Duration),
    /// We ended it ourselves.
    #[error("it was closed here")]
    LetGo,
}
