//! One sync at a time for one target, and for one pair of folders in either direction.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use sha2::{Digest, Sha256};

use super::request::{SyncRequest, Way};
use super::sides::{Setting, Sides, far_path};
use crate::fsio;

/// The folder of lock files in the state folder.
pub(super) const FOLDER: &str = "sync-locks";

/// A lock file may be removed just when somebody opens it; so often is the new one tried.
const MOST_ATTEMPTS: usize = 5;

/// What is told when a pair is in use.
const PAIR_BUSY: &str = "another sync of these two folders is under way";

/// A target or a pair that nobody else syncs; given back when dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub(super) struct SyncLock {
    _file: File,
    path: PathBuf,
}

impl SyncLock {
    /// Takes the lock of a target, named by its host (none for this machine) and its path.
    pub(super) fn of_target(state: &Path, host: &str, path: &[u8]) -> Result<Self, Failure> {
        let mut hasher = Sha256::new();
        hasher.update((host.len() as u64).to_be_bytes());
        hasher.update(host);
        hasher.update(path);
        let busy = "another sync to this target is under way";
        SyncLock::take(state, &name_of(hasher), busy)
    }

    /// Takes the lock of a folder here and one in a sandbox, whichever way files go, by the name of the pair.
    pub(super) fn of_pair(state: &Path, name: &str) -> Result<Self, Failure> {
        SyncLock::take(state, name, PAIR_BUSY)
    }

    /// Takes the lock of a pair as the caller wrote it, which is all that is known before the scan.
    pub(super) fn of_pair_as_written(
        state: &Path,
        sandbox: &str,
        here: &Path,
        there: &[u8],
    ) -> Result<Self, Failure> {
        let mut hasher = Sha256::new();
        let here = here.as_os_str().as_encoded_bytes();
        for part in [
            b"pair as written".as_slice(),
            sandbox.as_bytes(),
            here,
            there,
        ] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        SyncLock::take(state, &name_of(hasher), PAIR_BUSY)
    }

    fn take(state: &Path, name: &str, busy: &str) -> Result<Self, Failure> {
        let folder = state.join(FOLDER);
        let unavailable = |error: &fsio::FileError| {
            Failure::new(Code::StoreUnavailable, Failure::chain(error))
                .hint("the state folder must be writable; nothing was synced")
        };
        fsio::sealed_directory(&folder).map_err(|error| unavailable(&error))?;
        let path = folder.join(name);
        for _ in 0..MOST_ATTEMPTS {
            let opened = fsio::read_write_private(&path);
            let mut file = opened.map_err(|error| unavailable(&error))?;
            if !fsio::try_lock(&file) {
                return Err(held_by_another(file, busy));
            }
            // Whoever removed it meanwhile leaves a lock that keeps nobody away.
            if fsio::is_still_at(&file, &path) {
                let _ = file.set_len(0);
                let _ = file.seek(SeekFrom::Start(0));
                let _ = write!(file, "{}", std::process::id());
                return Ok(SyncLock { _file: file, path });
            }
        }
        Err(Failure::new(Code::Busy, busy).retry())
    }

    /// Gives it back and removes its file.
    pub(super) fn remove(self) {
        let _ = fsio::remove_file(&self.path);
    }

    /// Removes a lock file that was last taken before this moment and that nobody holds.
    pub(super) fn remove_free(path: &Path, before: Duration) {
        let Ok(file) = fsio::read_write_private(path) else {
            return;
        };
        let is_free = fsio::try_lock(&file) && fsio::is_still_at(&file, path);
        if is_free && fsio::is_older_than(path, before) {
            let _ = fsio::remove_file(path);
        }
    }
}

fn name_of(hasher: Sha256) -> String {
    let digest = hasher.finalize();
    let bytes = digest.iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

fn held_by_another(file: File, busy: &str) -> Failure {
    let mut holder = String::new();
    let _ = file.take(64).read_to_string(&mut holder);
    let holder = holder.trim();
    let text = match holder.is_empty() {
        true => busy.to_owned(),
        false => format!("{busy}, in process {holder}"),
    };
    Failure::new(Code::Busy, text)
        .hint("wait for it; `remote-sandbox-mcp transfers` lists those in the background")
        .retry()
}

impl Sides {
    /// Takes the lock of the target, so that nobody else syncs to it, also by another name of its host.
    pub(super) fn lock_target(&self) -> Result<SyncLock, Failure> {
        let here = self.local_root.as_path().as_os_str().as_encoded_bytes();
        match self.request.way {
            Way::Up => {
                let place = self.sandbox.description().place.as_ref();
                let host = place.unwrap_or(&self.request.sandbox);
                SyncLock::of_target(&self.state, host, &self.far_location())
            }
            Way::Down => SyncLock::of_target(&self.state, "", here),
        }
    }

    /// Takes the lock of the pair as it lies, so that nobody syncs the other way either who wrote it otherwise, and
    /// that what is remembered of it stays from the plan to the end.
    pub(super) fn lock_pair(&self) -> Result<SyncLock, Failure> {
        SyncLock::of_pair(&self.state, self.pair().name())
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
    SyncLock::of_pair_as_written(state, sandbox, here.as_path(), there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::pairs::Pair;

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
        let take = |here: &str| {
            SyncLock::of_pair_as_written(state.path(), "box", Path::new(here), b"/srv")
        };
        let first = take("/a").unwrap();
        let second = take("/a").unwrap_err();
        assert_eq!(second.code, Code::Busy);
        // Whoever holds it takes the others as well.
        let pair = Pair::new(state.path(), "box", Path::new("/a"), b"/srv");
        let lies = SyncLock::of_pair(state.path(), pair.name()).unwrap();
        assert!(SyncLock::of_pair(state.path(), pair.name()).is_err());
        take("/b").unwrap();
        SyncLock::of_target(state.path(), "box", b"/srv").unwrap();
        drop((first, lies));
        take("/a").unwrap();
    }

    #[test]
    fn lock_whose_file_was_removed_meanwhile_is_taken_anew() {
        let state = tempfile::tempdir().unwrap();
        let take = || SyncLock::of_pair(state.path(), "pair");
        for _ in 0..200 {
            // One removes the file while the other waits for it or opens it.
            let remover = take().unwrap();
            let taken = std::thread::scope(|scope| {
                let taking = scope.spawn(take);
                remover.remove();
                taking.join().unwrap()
            });
            if let Ok(held) = taken {
                assert!(take().is_err(), "two hold it");
                drop(held);
            }
        }
    }
}
