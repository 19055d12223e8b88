//! Where a large file goes on a host, and how it gets its name there.

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sftp::{
    Attributes, Extension, FileKind, OpenFlags, RemotePath, StatusCode, Times,
};
use remote_sandbox_core::sync::path::inside;
use remote_sandbox_core::sync::temporary::temporary_name;
use remote_sandbox_core::sync::{Entry, RelPath};
use sha2::{Digest, Sha256};

use super::error::LargeError;
use crate::mark::new_mark;
use crate::sandbox::conversation::{Client, File, SftpError};

/// While it is written, nobody else may read it.
const UNFINISHED_MODE: u32 = 0o600;

/// The names of one file on a host.
#[derive(Debug)]
pub(super) struct Place {
    shown: String,
    /// Its own.
    pub(super) target: RemotePath,
    /// While its parts come in.
    pub(super) temporary: RemotePath,
    /// While the host builds it out of the old one.
    pub(super) built: RemotePath,
    /// Of the old one, for a moment, where a host cannot rename over it.
    aside: RemotePath,
    directory: RemotePath,
}

impl Place {
    /// The names follow from who sends and what is sent, so that a later transfer of the same finds them again and
    /// nobody else writes into them.
    pub(super) fn new(
        root: &[u8],
        path: &RelPath,
        entry: &Entry,
        owner: &[u8],
    ) -> Result<Self, LargeError> {
        let shown = path.shown().text;
        let wrong = |source| LargeError::Path {
            path: shown.clone(),
            source,
        };
        let directory = directory_of(root, path);
        let token = token(&inside(&directory, path.name()), entry, owner);
        let beside = |name: &[u8]| RemotePath::new(inside(&directory, name)).map_err(wrong);
        Ok(Place {
            target: beside(path.name())?,
            temporary: beside(temporary_name(&token, 0).as_bytes())?,
            // Nothing is ever continued in it, and two who build the same must not meet.
            built: beside(temporary_name(&new_mark(), 1).as_bytes())?,
            aside: beside(temporary_name(&token, 2).as_bytes())?,
            directory: RemotePath::new(directory.clone()).map_err(wrong)?,
            shown,
        })
    }

    /// The path as it is shown.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn failed(&self, source: SftpError) -> LargeError {
        LargeError::host(&self.shown, source)
    }

    /// How much an earlier transfer left. What is no file of ours there is removed.
    pub(super) async fn left_behind(&self, client: &Client, most: u64) -> Result<u64, LargeError> {
        let found = match client.lstat(&self.temporary).await {
            Ok(found) => found,
            Err(error) if error.code() == Some(StatusCode::NoSuchFile) => return Ok(0),
            Err(error) => return Err(self.failed(error)),
        };
        match (found.kind(), found.size_bytes) {
            (Some(FileKind::File), Some(size)) if size > 0 && size <= most => Ok(size),
            _ => {
                let removed = client.remove(&self.temporary).await;
                removed.map_err(|error| self.failed(error))?;
                Ok(0)
            }
        }
    }

    /// Begins the file, or takes up what was left behind.
    pub(super) async fn open(&self, client: &Client, is_new: bool) -> Result<File, LargeError> {
        let flags = if is_new {
            // Never through a link that somebody put there.
            OpenFlags::NEW
        } else {
            OpenFlags::WRITE
        };
        let attributes = Attributes::permissions(UNFINISHED_MODE);
        let file = client.open(&self.temporary, flags, attributes).await;
        file.map_err(|error| self.failed(error))
    }

    /// Bytes that may still be written; none where the host does not say.
    pub(super) async fn free_bytes(&self, client: &Client) -> Option<u64> {
        if !client.extensions().has(Extension::Statvfs) {
            return None;
        }
        let space = client.statvfs(&self.directory).await.ok()?;
        // Some file systems know no number at all.
        (space.blocks > 0).then(|| space.available_bytes())
    }

    /// What a refused write means: servers say no more than that it failed.
    pub(super) async fn refused_write(
        &self,
        client: &Client,
        error: LargeError,
        needed_bytes: u64,
    ) -> LargeError {
        let LargeError::Refused { source, .. } = &error else {
            return error;
        };
        let says_so = matches!(source, SftpError::Status { status, .. }
            if status.message.contains("space") || status.message.contains("quota"));
        let is_vague = source.code() == Some(StatusCode::Failure);
        let is_full = match self.free_bytes(client).await {
            Some(free) if is_vague => free < needed_bytes,
            _ => false,
        };
        if says_so || is_full {
            return LargeError::NoSpace {
                path: self.shown.clone(),
                needed_bytes,
            };
        }
        error
    }

    /// Removes what is unfinished, as far as that works.
    pub(super) async fn forget(&self, client: &Client) {
        let _ = tokio::join!(client.remove(&self.temporary), client.remove(&self.built));
    }

    /// Gives a file that is complete its mode and, to the second, its time.
    pub(super) async fn complete(&self, file: File, entry: &Entry) -> Result<(), LargeError> {
        let attributes = Attributes {
            mode: Some(u32::from(entry.carried_mode())),
            times: u32::try_from(entry.mtime.seconds)
                .ok()
                .map(|seconds| Times {
                    accessed_s: seconds,
                    modified_s: seconds,
                }),
            ..Attributes::default()
        };
        let set = file.setstat(attributes).await;
        set.map_err(|error| self.failed(error))?;
        // Some servers say only now that something could not be written.
        file.close().await.map_err(|error| self.failed(error))
    }

    /// Gives the file its own name. There is always the old one under it or the new one; where the host cannot
    /// rename over a file, there is none for a moment, but never half of one.
    pub(super) async fn publish(
        &self,
        client: &Client,
        from: &RemotePath,
    ) -> Result<(), LargeError> {
        let renamed = if client.extensions().has(Extension::PosixRename) {
            client.posix_rename(from, &self.target).await
        } else {
            self.publish_in_steps(client, from).await
        };
        renamed.map_err(|error| self.failed(error))
    }

    async fn publish_in_steps(&self, client: &Client, from: &RemotePath) -> Result<(), SftpError> {
        let error = match client.rename(from, &self.target).await {
            Ok(()) => return Ok(()),
            Err(error @ SftpError::Closed(_)) => return Err(error),
            Err(error) => error,
        };
        // Only what a file may replace gives way, and only while it is there.
        let found = client.lstat(&self.target).await?;
        if !matches!(found.kind(), Some(FileKind::File | FileKind::Link)) {
            return Err(error);
        }
        // An earlier attempt may have been cut just here.
        let _ = client.remove(&self.aside).await;
        if client.rename(&self.target, &self.aside).await.is_err() {
            return Err(error);
        }
        if let Err(error) = client.rename(from, &self.target).await {
            let _ = client.rename(&self.aside, &self.target).await;
            return Err(error);
        }
        client.remove(&self.aside).await
    }
}

/// The name of a file beside its place while its parts come in.
pub(crate) fn unfinished_name(root: &[u8], path: &RelPath, entry: &Entry, owner: &[u8]) -> String {
    let whole = inside(&directory_of(root, path), path.name());
    temporary_name(&token(&whole, entry, owner), 0)
}

fn directory_of(root: &[u8], path: &RelPath) -> Vec<u8> {
    match path.parent_bytes() {
        Some(parent) => inside(root, parent),
        None => root.to_vec(),
    }
}

/// A name for this content at this place, sent by this owner: size and time alone do not say what a file holds, and two
/// who write into one file at the same time make a mixture.
fn token(path: &[u8], entry: &Entry, owner: &[u8]) -> RunToken {
    let mut hash = Sha256::new();
    for part in [owner, path] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(entry.size_bytes.to_be_bytes());
    hash.update(entry.mtime.seconds.to_be_bytes());
    hash.update(entry.mtime.nanoseconds().unwrap_or(0).to_be_bytes());
    let hash = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    RunToken::from_uuid_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::testing::entry;
    use super::*;

    #[test]
    fn hidden_names_are_the_same_for_the_same_owner_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entry = entry(file.path(), "a/big");
        let names = |owner: &[u8]| {
            let place = Place::new(b"/srv", &entry.path, &entry, owner).unwrap();
            let name = unfinished_name(b"/srv", &entry.path, &entry, owner);
            assert!(place.temporary.as_bytes().ends_with(name.as_bytes()));
            [place.temporary, place.built, place.aside].map(|path| path.as_bytes().to_vec())
        };
        let (one, again, other) = (names(b"one"), names(b"one"), names(b"other"));
        assert_eq!((&one[0], &one[2]), (&again[0], &again[2]));
        assert!(one.iter().all(|name| !other.contains(name)));
        // What a host builds is never continued.
        assert_ne!(one[1], again[1]);
    }
}
