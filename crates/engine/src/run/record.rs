//! What is kept of a run on disk, for this server and the next one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::ids::{RunId, RunToken};
use remote_sandbox_core::shell::Target;
use serde::{Deserialize, Serialize};

use crate::fsio::{self, FileError};

const RECORD_NAME: &str = "record.json";
const LOCK_NAME: &str = "live";
const LARGEST_RECORD: u64 = 256 * 1024;

/// Longest command that a record repeats.
const LONGEST_COMMAND: usize = 4096;

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file is at fault.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content is at fault.
    #[error("the record `{}` cannot be understood", path.display())]
    Content {
        /// The record.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// A run as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// Where it ran.
    pub sandbox: String,
    /// The command, secrets masked.
    pub command: String,
    /// The mark its processes carry.
    pub token: String,
    /// When it started, seconds since the Unix epoch.
    pub started_at_s: f64,
    /// How it ended, in one word; `running` until then.
    pub outcome: String,
    /// Its exit code, if it has one.
    pub exit_code: Option<u32>,
    /// The signal that ended it, if one did.
    pub signal: Option<String>,
    /// How long it took.
    pub duration_s: Option<f64>,
    /// How many bytes of output are kept from the start.
    pub kept_bytes: u64,
    /// How many bytes of output there were.
    pub total_bytes: u64,
}

impl RunRecord {
    /// The word for a run that has not ended.
    pub const RUNNING: &str = "running";

    pub(super) fn cut_command(command: &str) -> String {
        let cut = command
            .char_indices()
            .nth(LONGEST_COMMAND)
            .map(|(at, _)| at);
        command
            .get(..cut.unwrap_or(command.len()))
            .unwrap_or_default()
            .to_owned()
    }

    /// What finds its processes on the host: the token alone, for the host may have been restarted
    /// since, and numbers of sessions then mean somebody else.
    pub fn target(&self) -> Option<Target> {
        let token = RunToken::parse(&self.token).ok()?;
        Some(Target {
            token,
            started: None,
        })
    }

    pub(super) fn save(&self, folder: &Path) -> Result<(), RecordError> {
        fsio::private_directory(folder)?;
        let path = folder.join(RECORD_NAME);
        let content = serde_json::to_vec(self).map_err(|source| RecordError::Content {
            path: path.clone(),
            source,
        })?;
        Ok(fsio::write_atomically(&path, &content)?)
    }

    pub(super) fn load(runs: &Path, id: &RunId) -> Result<Option<Self>, RecordError> {
        let path = runs.join(id.as_str()).join(RECORD_NAME);
        let Some(content) = fsio::read_bounded(&path, LARGEST_RECORD)? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&content)
            .map_err(|source| RecordError::Content { path, source })?;
        Ok(Some(record))
    }
}

/// Held as long as the process that runs it lives; the kernel lets go of it in every other case.
pub(super) fn hold_life_mark(folder: &Path) -> Option<File> {
    let file = fsio::read_write_private(&folder.join(LOCK_NAME)).ok()?;
    // Waits for somebody who is only looking.
    fsio::lock_within(&file, Duration::from_secs(1))
        .ok()
        .map(|()| file)
}

/// Whether the process that runs it still lives.
pub(super) fn owner_lives(folder: &Path) -> bool {
    let path = folder.join(LOCK_NAME);
    path.exists() && fsio::read_write_private(&path).is_ok_and(|file| !fsio::try_lock(&file))
}
