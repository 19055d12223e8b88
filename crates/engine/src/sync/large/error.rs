//! Why a large file did not arrive.

use std::io;

use remote_sandbox_core::failure::{Code, Failure};

use crate::sandbox::conversation::SftpError;
use crate::shell::StreamError;
use crate::sync::far::SILENCE_LIMIT;

/// Why a large file did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LargeError {
    /// The file on this machine cannot be read.
    #[error("`{path}` cannot be read here")]
    Local {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file on this machine cannot be written.
    #[error("`{path}` cannot be written here")]
    Write {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The host has less of the file than it says.
    #[error("the host says that `{path}` has {expected_bytes} bytes and gives {got_bytes}")]
    Short {
        /// The file.
        path: String,
        /// What it says.
        expected_bytes: u64,
        /// What came.
        got_bytes: u64,
    },
    /// The file became another one on the way; nothing of it was put in place.
    #[error("`{path}` changed while it was on its way")]
    Changed {
        /// The file.
        path: String,
    },
    /// The host has no space; nothing of the file is left there.
    #[error("the host has no space for `{path}`, which needs {needed_bytes} bytes more")]
    NoSpace {
        /// The file.
        path: String,
        /// What was still to be written.
        needed_bytes: u64,
    },
    /// The link broke; what has arrived is kept, to be continued.
    #[error("the connection ended while `{path}` was on its way")]
    Cut {
        /// The file.
        path: String,
        /// How.
        #[source]
        source: SftpError,
    },
    /// The transfer was cut off and the host still answers; what has arrived is kept, to be continued.
    #[error(
        "the transfer of `{path}` was cut off, though the host answers; it may have a limit for the size of files, or the link is unsteady"
    )]
    Dropped {
        /// The file.
        path: String,
        /// How.
        #[source]
        source: Box<LargeError>,
    },
    /// The host refused something.
    #[error("the host does not take `{path}`")]
    Refused {
        /// The file.
        path: String,
        /// What it refused.
        #[source]
        source: SftpError,
    },
    /// There is no way to the host's files now.
    #[error("{}", .0.message)]
    Unreachable(Failure),
    /// This kind of sandbox has no conversation about files.
    #[error("the sandbox has no file transfer for large files")]
    NoConversation,
    /// The path is none on a host.
    #[error("`{path}` is no path on the host")]
    Path {
        /// The file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: remote_sandbox_core::sftp::PathError,
    },
    /// Something that runs beside the transfer broke.
    #[error("the work on `{path}` broke off")]
    Broken {
        /// The file.
        path: String,
    },
}

impl LargeError {
    /// Whether what has arrived is of no use: nobody will ask for this content again, the host
    /// does not want it, or its space is needed.
    pub(super) fn is_final(&self) -> bool {
        matches!(
            self,
            LargeError::Changed { .. }
                | LargeError::Local { .. }
                | LargeError::NoSpace { .. }
                | LargeError::Refused { .. }
        )
    }

    /// Whether it may be the link that broke.
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            LargeError::Cut { .. } => true,
            LargeError::Unreachable(failure) => failure.code == Code::LinkLost,
            _ => false,
        }
    }

    /// A program on the host that broke off with the link; what has arrived is kept.
    pub(super) fn broken_off(error: &StreamError) -> Self {
        let failure = Failure::new(Code::LinkLost, Failure::chain(error));
        let failure = failure.hint("sync again: it goes on where it stopped");
        LargeError::Unreachable(failure.retry())
    }

    /// A host that said or took nothing for so long; what has arrived is kept.
    pub(super) fn silent(path: &str) -> Self {
        let text = format!(
            "the host said nothing for {} s while `{path}` was on its way",
            SILENCE_LIMIT.as_secs()
        );
        let hint = "see what keeps the host busy, then sync again: it goes on where it stopped";
        LargeError::Unreachable(Failure::new(Code::TimedOut, text).hint(hint).retry())
    }

    /// What a refusal or a loss means for a file.
    pub(super) fn host(path: &str, source: SftpError) -> Self {
        let path = path.to_owned();
        match source {
            SftpError::Closed(_) => LargeError::Cut { path, source },
            source => LargeError::Refused { path, source },
        }
    }
}
