//! Why the store did not take or give something.

use std::path::{Path, PathBuf};

use remote_sandbox_core::failure::{Code, Failure};
use rusqlite::ErrorCode;

use super::place;
use crate::fsio::FileError;

/// Why the store did not take or give something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder or a file beside the store is at fault.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder or the file is not one that can be trusted.
    #[error("`{}` is not used as a store: {problem}", path.display())]
    Refused {
        /// Which one.
        path: PathBuf,
        /// Why.
        problem: &'static str,
    },
    /// The SQLite library has a fault that loses data.
    #[error(
        "the SQLite library is version {0}, which can damage a store that two processes write to"
    )]
    OldLibrary(&'static str),
    /// A later version of this program has changed the file so that this one would not understand it.
    #[error("`{}` was written by version {written_by}, this is {ours}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version that wrote it.
        written_by: String,
        /// The version that runs.
        ours: &'static str,
    },
    /// There is no room.
    #[error("there is no room to write `{}`", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// Another process holds it too long.
    #[error("another process keeps `{}` locked", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// What SQLite or the system said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Its content makes no sense.
    #[error("`{}` is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It was removed while it was written to.
    #[error("`{}` was removed or replaced while it was written to", .0.display())]
    Gone(PathBuf),
    /// Anything else that SQLite says.
    #[error("`{}` cannot be used", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// Somebody else has the lease by now; nothing was written.
    #[error("the lease `{0}` was lost to another process; nothing was written")]
    LeaseLost(String),
    /// The program is ending.
    #[error("the store is not there any more because the program is ending")]
    Ended,
}

impl StoreError {
    /// What an answer of SQLite means.
    pub(super) fn of(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        let code = source.sqlite_error_code();
        // Where not even a file for locks can grow, SQLite says that reading or writing failed.
        let may_be_room = matches!(
            code,
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
        );
        match code {
            Some(ErrorCode::DiskFull) => StoreError::Full { path, source },
            Some(_) if may_be_room && place::has_no_room(&path) => {
                StoreError::Full { path, source }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy {
                path,
                source: source.into(),
            },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged {
                path,
                source: source.into(),
            },
            _ => StoreError::Sqlite { path, source },
        }
    }

    /// Whether the file has to be looked through before it is trusted again.
    pub(super) fn is_about_the_disk(&self) -> bool {
        match self {
            StoreError::Damaged { .. } => true,
            StoreError::Sqlite { source, .. } => {
                source.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
            }
            _ => false,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let failure = Failure::new(Code::StoreUnavailable, Failure::chain(&error));
        match error {
            StoreError::Full { .. } => failure
                .hint("nothing was started; free some space and call again")
                .retry(),
            StoreError::Busy { .. } | StoreError::Damaged { .. } | StoreError::Gone(_) => {
                failure.hint("nothing was started; call again").retry()
            }
            StoreError::Newer { .. } => {
                failure.hint("use the newer version, or set REMOTE_SANDBOX_MCP_HOME to another folder")
            }
            _ => failure.hint("correct this, or set REMOTE_SANDBOX_MCP_HOME to another folder; `remote-sandbox-mcp doctor` shows more"),
        }
    }
}
