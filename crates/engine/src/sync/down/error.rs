//! Why files could not be brought.

use remote_sandbox_core::archive::ArchiveError;
use remote_sandbox_core::failure::{Code, Failure};

use crate::beneath::BeneathError;
use crate::sandbox::conversation::SftpError;
use crate::shell::StreamError;

/// Why a download ended; what is here already is complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownError {
    /// The sandbox gives files neither way.
    #[error("the sandbox has no `tar` that can pack files, and no file protocol")]
    NoTar,
    /// The root is not there, or cannot be entered.
    #[error("the remote directory cannot be entered: {words}")]
    NoRoot {
        /// What the host said.
        words: String,
    },
    /// This machine has no room left.
    #[error("this machine has no room for more files")]
    NoSpace(#[source] BeneathError),
    /// The archive cannot be read.
    #[error("the archive that the host sent is wrong{}", said(words))]
    Archive {
        /// What its program said.
        words: String,
        /// What is wrong with it.
        #[source]
        source: ArchiveError,
    },
    /// The host sends without end what nobody asked for.
    #[error("the host sent more than {limit} bytes that nobody asked for")]
    Unasked {
        /// How much is put up with.
        limit: u64,
    },
    /// What the host has packed unpacks to more than was asked for.
    #[error("what the host sent unpacks to more than the {limit} bytes that were asked for")]
    TooMuch {
        /// How much is taken.
        limit: u64,
    },
    /// What the host has packed cannot be unpacked.
    #[error("the archive that the host sent cannot be unpacked")]
    Packed(#[source] std::io::Error),
    /// The program on the host broke off.
    #[error("the transfer broke off")]
    Stream(#[source] StreamError),
    /// The file protocol broke off.
    #[error("the transfer broke off")]
    Files(#[source] SftpError),
    /// Its program hangs.
    #[error("the host's program says nothing any more")]
    Late,
    /// The sandbox could not be reached.
    #[error("{}", .0.message)]
    Sandbox(Failure),
    /// The thread that writes files came to an end.
    #[error("the writing of files was ended")]
    Writer,
}

fn said(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({words})")
    }
}

impl From<DownError> for Failure {
    fn from(error: DownError) -> Self {
        let code = match &error {
            DownError::Sandbox(failure) => return failure.clone(),
            DownError::NoTar => Code::Unsupported,
            DownError::NoRoot { .. } => Code::NotFound,
            DownError::NoSpace(_) => Code::NoSpace,
            DownError::Archive {
                source: ArchiveError::Path(_),
                ..
            } => Code::PathRefused,
            DownError::Archive { .. }
            | DownError::Unasked { .. }
            | DownError::TooMuch { .. }
            | DownError::Packed(_) => Code::RemoteRefused,
            DownError::Stream(_) | DownError::Files(_) | DownError::Late => Code::LinkLost,
            DownError::Writer => Code::Internal,
        };
        let failure = Failure::new(code, Failure::chain(&error));
        match code {
            Code::LinkLost => failure
                .hint("sync again: it goes on where it stopped")
                .retry(),
            Code::NoSpace => failure.hint("make room on this machine, then sync again"),
            _ => failure,
        }
    }
}
