//! Where the store lies: whether folder and file can be trusted, and what kind of disk it is.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{FILE_NAME, StoreError};
use crate::disk;
use crate::fsio::{self, FileError};

/// How long another process may take to open the store, with the look through all of it.
const LOCK_LIMIT: Duration = Duration::from_secs(15);

/// Less room than this is none: a commit needs a few pages.
const LEAST_ROOM: u64 = 64 * 1024;

/// The folder of a store, seen through links, with what keeps its users apart.
#[derive(Debug)]
pub(super) struct Place {
    /// The store itself.
    pub(super) path: PathBuf,
    /// Held while the store is opened.
    opening: File,
    /// Held in common by all who use the store.
    users: File,
    /// Whether nobody else uses it.
    pub(super) is_alone: bool,
}

impl Place {
    /// Makes the folder where needed and keeps others from opening the store meanwhile.
    pub(super) fn enter(folder: &Path) -> Result<Self, StoreError> {
        fsio::private_directory(folder)?;
        // SQLite refuses any link on the way; those above the folder are the user's own business.
        let folder = std::fs::canonicalize(folder).map_err(|source| FileError {
            action: "find",
            path: folder.to_owned(),
            source,
        })?;
        let access = fsio::mode_and_ownership(&folder)?;
        if access.mode & 0o022 != 0 {
            return Err(StoreError::Refused {
                path: folder,
                problem: "others may write to this folder",
            });
        }
        let lock = folder.join("store.lock");
        let opening = fsio::read_write_private(&lock)?;
        fsio::lock_within(&opening, LOCK_LIMIT).map_err(|source| StoreError::Busy {
            path: lock,
            source: source.into(),
        })?;
        let users = fsio::read_write_private(&folder.join("store.users"))?;
        let is_alone = fsio::try_lock(&users);
        Ok(Place {
            path: folder.join(FILE_NAME),
            opening,
            users,
            is_alone,
        })
    }

    /// Lets others open the store; what is given back says that it is in use, as long as it is kept.
    pub(super) fn settle(self) -> Result<File, StoreError> {
        let shared = rustix::fs::FlockOperation::LockShared;
        rustix::fs::flock(&self.users, shared).map_err(|error| FileError {
            action: "lock",
            path: self.path.with_file_name("store.users"),
            source: error.into(),
        })?;
        drop(self.opening);
        Ok(self.users)
    }

    /// A file beside the store that SQLite names after it.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        beside(&self.path, suffix)
    }

    /// Makes the store's file where there is none, for this user only, and refuses what is not such a file.
    pub(super) fn make_sure_of_file(&self) -> Result<(), StoreError> {
        let refused = |problem| {
            Err(StoreError::Refused {
                path: self.path.clone(),
                problem,
            })
        };
        // Looked at by name only: to open and close the file here would take SQLite's locks away.
        let Some(found) = look(&self.path)? else {
            fsio::read_write_private(&self.path)?;
            return Ok(());
        };
        let kind = found.file_type();
        if kind.is_symlink() {
            return refused("it is a link");
        }
        if kind.is_fifo() {
            return refused("it is a pipe");
        }
        if !kind.is_file() {
            return refused("it is not a regular file");
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return refused("it belongs to another user");
        }
        if found.mode() & 0o077 != 0 {
            let only_mine = Permissions::from_mode(0o600);
            let closed = std::fs::set_permissions(&self.path, only_mine);
            closed.map_err(|source| FileError {
                action: "close",
                path: self.path.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

/// A file that SQLite names after the store.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What lies at a path, links not followed.
pub(super) fn look(path: &Path) -> Result<Option<Metadata>, FileError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError {
            action: "look at",
            path: path.to_owned(),
            source,
        }),
    }
}

/// What a path names at this moment, to be compared later.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Whether the disk below a path has no room for a commit.
pub(super) fn has_no_room(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    rustix::fs::statvfs(folder)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_ROOM)
}

/// Whether a file lies on another machine, where the shared memory of a write-ahead log does not work.
pub(super) fn is_remote(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    rustix::fs::statfs(folder).is_ok_and(|about| disk::is_remote(&about))
}
