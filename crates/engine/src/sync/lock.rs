//! One sync at a time for one target.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use remote_sandbox_core::failure::{Code, Failure};
use sha2::{Digest, Sha256};

use crate::fsio;

/// The folder of lock files in the state folder.
const FOLDER: &str = "sync-locks";

/// A target that nobody else syncs to; given back when dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub(super) struct TargetLock {
    _file: File,
}

impl TargetLock {
    /// Takes the lock of a target, named by the sandbox (none for this machine) and its path.
    pub(super) fn take(state: &Path, sandbox: &str, path: &[u8]) -> Result<Self, Failure> {
        let mut hasher = Sha256::new();
        hasher.update((sandbox.len() as u64).to_be_bytes());
        hasher.update(sandbox);
        hasher.update(path);
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
                true => "another sync to this target is under way".to_owned(),
                false => format!("another sync to this target is under way, in process {holder}"),
            };
            return Err(Failure::new(Code::Busy, text)
                .hint("wait for it; `remote-sandbox-mcp transfers` lists those in the background")
                .retry());
        }
        let _ = file.set_len(0);
        let _ = file.seek(SeekFrom::Start(0));
        let _ = write!(file, "{}", std::process::id());
        Ok(TargetLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_synced_by_one_at_a_time() {
        let state = tempfile::tempdir().unwrap();
        let first = TargetLock::take(state.path(), "box", b"/srv").unwrap();
        let second = TargetLock::take(state.path(), "box", b"/srv").unwrap_err();
        assert_eq!(second.code, Code::Busy);
        assert!(second.message.contains(&std::process::id().to_string()));
        TargetLock::take(state.path(), "box", b"/other").unwrap();
        TargetLock::take(state.path(), "", b"/srv").unwrap();
        drop(first);
        TargetLock::take(state.path(), "box", b"/srv").unwrap();
    }
}
