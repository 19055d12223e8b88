//! One sync at a time for one target, and for one pair of folders in either direction.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use remote_sandbox_core::failure::{Code, Failure};
use sha2::{Digest, Sha256};

use super::request::{SyncRequest, Way};
use super::sides::{Setting, Sides, far_path};
use crate::fsio;

/// The folder of lock files in the state folder.
const FOLDER: &str = "sync-locks";

/// How the folders of a pair are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// As the caller wrote it, which is all that is known before the scan.
    AsWritten,
    /// As it really lies.
    AsItLies,
}

/// A target or a pair that nobody else syncs; given back when dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub(super) struct SyncLock {
    _file: File,
}

impl SyncLock {
    /// Takes the lock of a target, named by the sandbox (none for this machine) and its path.
    pub(super) fn of_target(state: &Path, sandbox: &str, path: &[u8]) -> Result<Self, Failure> {
        let mut hasher = Sha256::new();
        hasher.update((sandbox.len() as u64).to_be_bytes());
        hasher.update(sandbox);
        hasher.update(path);
        SyncLock::take(state, hasher, "another sync to this target is under way")
    }

    /// Takes the lock of a folder here and one in a sandbox, whichever way files go.
    pub(super) fn of_pair(
        state: &Path,
        named: Named,
        sandbox: &str,
        here: &Path,
        there: &[u8],
    ) -> Result<Self, Failure> {
        let word = match named {
            Named::AsWritten => "pair as written",
            Named::AsItLies => "pair as it lies",
        };
        let mut hasher = Sha256::new();
        let here = here.as_os_str().as_encoded_bytes();
        for part in [word.as_bytes(), sandbox.as_bytes(), here, there] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        SyncLock::take(
            state,
            hasher,
            "another sync of these two folders is under way",
        )
    }

    fn take(state: &Path, hasher: Sha256, busy: &str) -> Result<Self, Failure> {
        let name: String = hasher
            .finalize()
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = state.join(FOLDER);
        let unavailable = |error: &fsio::FileError| {
            Failure::new(Code::StoreUnavailable, Failure::chain(error))
                .hint("the state folder must be writable; nothing was synced")
        };
        fsio::sealed_directory(&folder).map_err(|error| unavailable(&error))?;
        let opened = fsio::read_write_private(&folder.join(name));
        let mut file = opened.map_err(|error| unavailable(&error))?;
        if !fsio::try_lock(&file) {
            let mut holder = String::new();
            let _ = Read::by_ref(&mut file).take(64).read_to_string(&mut holder);
            let holder = holder.trim();
            let text = match holder.is_empty() {
                true => busy.to_owned(),
                false => format!("{busy}, in process {holder}"),
            };
            return Err(Failure::new(Code::Busy, text)
                .hint("wait for it; `remote-sandbox-mcp transfers` lists those in the background")
                .retry());
        }
        let _ = file.set_len(0);
        let _ = file.seek(SeekFrom::Start(0));
        let _ = write!(file, "{}", std::process::id());
        Ok(SyncLock { _file: file })
    }
}

impl Sides {
    /// Takes the locks of the target, so that nobody else syncs to it, and of the pair as it lies, so that nobody
    /// syncs the other way either who wrote it otherwise.
    pub(super) fn lock(&self) -> Result<[SyncLock; 2], Failure> {
        let (state, sandbox) = (&self.state, &self.request.sandbox);
        let (here, there) = (self.local_root.as_path(), self.far_location());
        let pair = SyncLock::of_pair(state, Named::AsItLies, sandbox, here, &there)?;
        let target = match self.request.way {
            Way::Up => SyncLock::of_target(state, sandbox, &there)?,
            Way::Down => SyncLock::of_target(state, "", here.as_os_str().as_encoded_bytes())?,
        };
        Ok([pair, target])
    }
}

/// Takes the lock of a pair as it was written, before anything is looked at: what another sync is changing meanwhile
/// must not be planned with.
pub(super) fn lock_pair(setting: &Setting<'_>, request: &SyncRequest) -> Result<SyncLock, Failure> {
    let here = setting.paths.resolve(&request.local_path)?.path;
    let there = far_path(setting.sandbox.as_ref(), &request.remote_path)?;
    let there = there.as_bytes();
    let there = there.strip_suffix(b"/").unwrap_or(there);
    let (state, sandbox) = (setting.state, &request.sandbox);
    SyncLock::of_pair(state, Named::AsWritten, sandbox, here.as_path(), there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_synced_by_one_at_a_time() {
        let state = tempfile::tempdir().unwrap();
        let first = SyncLock::of_target(state.path(), "box", b"/srv").unwrap();
        let second = SyncLock::of_target(state.path(), "box", b"/srv").unwrap_err();
        assert_eq!(second.code, Code::Busy);
        assert!(second.message.contains(&std::process::id().to_string()));
        SyncLock::of_target(state.path(), "box", b"/other").unwrap();
        SyncLock::of_target(state.path(), "", b"/srv").unwrap();
        drop(first);
        SyncLock::of_target(state.path(), "box", b"/srv").unwrap();
    }

    #[test]
    fn pair_is_synced_by_one_at_a_time_and_is_another_lock_than_its_target() {
        let state = tempfile::tempdir().unwrap();
        let take = |named, here: &str| {
            SyncLock::of_pair(state.path(), named, "box", Path::new(here), b"/srv")
        };
        let first = take(Named::AsWritten, "/a").unwrap();
        let second = take(Named::AsWritten, "/a").unwrap_err();
        assert_eq!(second.code, Code::Busy);
        // Whoever holds it takes the others as well.
        take(Named::AsItLies, "/a").unwrap();
        take(Named::AsWritten, "/b").unwrap();
        SyncLock::of_target(state.path(), "box", b"/srv").unwrap();
        drop(first);
        take(Named::AsWritten, "/a").unwrap();
    }
}
