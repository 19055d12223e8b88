//! Removes one entry, if it is still what was seen.

use std::os::fd::AsFd;

use remote_sandbox_core::sync::{Entry, Kind};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::BeneathError;
use super::stat::{is_same, look_at};
use super::tree::Tree;

/// What became of an entry that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It was removed.
    Gone,
    /// It was not there any more.
    Missing,
    /// Something else is there by now, which stays.
    Changed,
    /// It is a directory in which something is, and stays.
    NotEmpty,
}

impl Tree {
    /// Removes a file, a link or an empty directory, after one more look whether it is what was seen.
    pub fn remove(&self, expected: &Entry) -> Result<Removed, BeneathError> {
        let path = &expected.path;
        let failed = |error| BeneathError::of("remove", path, error);
        let parent = match self.parent(path) {
            Err(Errno::NOENT) => return Ok(Removed::Missing),
            parent => parent.map_err(failed)?,
        };
        let found = look_at(parent.as_fd(), path.name(), path).map_err(failed)?;
        let flags = match found {
            None => return Ok(Removed::Missing),
            Some(found) if !is_same(expected, &found) => return Ok(Removed::Changed),
            Some(found) => match found.kind {
                Kind::Directory => AtFlags::REMOVEDIR,
                Kind::File | Kind::Link { .. } => AtFlags::empty(),
                // Nothing of this kind was ever put there by a sync.
                Kind::Special(special) => {
                    return Err(BeneathError::NotAFile {
                        shown: path.shown().text,
                        kind: special.name(),
                    });
                }
            },
        };
        match unlinkat(&parent, path.name(), flags) {
            Ok(()) => Ok(Removed::Gone),
            Err(Errno::NOENT) => Ok(Removed::Missing),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Removed::NotEmpty),
            // A directory where a file was, or the other way round.
            Err(Errno::ISDIR | Errno::NOTDIR) => Ok(Removed::Changed),
            Err(error) => Err(failed(error)),
        }
    }
}
