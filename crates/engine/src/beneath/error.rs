//! What can go wrong beneath a directory.

use std::io;

use remote_sandbox_core::sync::{FilterError, RelPath};
use rustix::io::Errno;

use crate::listing::ListingError;

/// Why something beneath a directory could not be done.
#[derive(Debug, thiserror::Error)]
pub enum BeneathError {
    /// The system refused.
    #[error("cannot {action} `{shown}`")]
    File {
        /// What was attempted.
        action: &'static str,
        /// On which path, escaped.
        shown: String,
        /// Why it did not work.
        #[source]
        source: io::Error,
    },
    /// A link lies on the way or in the place.
    #[error("cannot {action} `{shown}`: it is a link or lies behind one")]
    Link {
        /// What was attempted.
        action: &'static str,
        /// On which path, escaped.
        shown: String,
    },
    /// Something else is where a regular file is needed.
    #[error("`{shown}` is a {kind}, not a regular file")]
    NotAFile {
        /// The path, escaped.
        shown: String,
        /// What is there.
        kind: &'static str,
    },
    /// Something else is where a directory is needed.
    #[error("`{shown}` is a {kind}, not a directory")]
    NotADirectory {
        /// The path, escaped.
        shown: String,
        /// What is there.
        kind: &'static str,
    },
    /// What is there is not what was seen before.
    #[error("`{shown}` was changed by somebody else in the meantime")]
    Changed {
        /// The path, escaped.
        shown: String,
    },
    /// The disk or the quota is full.
    #[error("there is no room left on the disk for `{shown}`")]
    DiskFull {
        /// The path, escaped.
        shown: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A link leads to a place that may not be used.
    #[error("the link `{shown}` leads to a place that a sync may not use")]
    Outside {
        /// The path, escaped.
        shown: String,
    },
    /// A name is not one of a temporary file.
    #[error("`{name}` is not the name of a temporary file")]
    NotTemporary {
        /// The name.
        name: String,
    },
    /// The tree has too many entries.
    #[error(transparent)]
    TooLarge(#[from] ListingError),
    /// A `.gitignore` file brings too many rules.
    #[error("the `.gitignore` files cannot be used")]
    Filter(#[from] FilterError),
    /// Somebody ended it.
    #[error("the scan was cancelled")]
    Cancelled,
}

impl BeneathError {
    /// Whether the disk or the quota is full, so that nothing else will work either.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, BeneathError::DiskFull { .. })
    }

    /// Whether there is nothing at the path.
    pub fn is_missing(&self) -> bool {
        matches!(self, BeneathError::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether this user may not do it.
    pub fn is_denied(&self) -> bool {
        matches!(self, BeneathError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    pub(super) fn of(action: &'static str, path: &RelPath, error: impl Into<io::Error>) -> Self {
        BeneathError::at(action, path.shown().text, error)
    }

    pub(super) fn at(
        action: &'static str,
        shown: impl Into<String>,
        error: impl Into<io::Error>,
    ) -> Self {
        let (shown, source) = (shown.into(), error.into());
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => BeneathError::DiskFull { shown, source },
            Some(Errno::LOOP) => BeneathError::Link { action, shown },
            _ => BeneathError::File {
                action,
                shown,
                source,
            },
        }
    }
}
