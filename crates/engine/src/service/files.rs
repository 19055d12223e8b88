//! The files of the service: its lock, its log, and what service managers read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::service::CopyName;

use super::{Service, ServiceError};
use crate::fsio::{self, FileError};

/// How long another process may be at it.
const LOCK_LIMIT: Duration = Duration::from_secs(15);

/// A lock file that was removed while we waited for it is waited for again so often.
const MOST_ATTEMPTS: usize = 100;

/// Past this size a log begins anew.
const LONGEST_LOG: u64 = 1024 * 1024;

/// Longest text that tells a service manager what to run.
const LONGEST_DEFINITION: u64 = 256 * 1024;

/// Most that is read of the end of a log.
const LONGEST_TAIL: usize = 4096;

/// The folder of the lock, the log and the record.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join("service")
}

fn log_path(state: &Path) -> PathBuf {
    folder(state).join("watchdog.log")
}

/// Lets the log of the watchdog begin anew when it has become long. A watchdog should do that from time to time.
pub fn keep_log_short(state: &Path) -> Result<(), FileError> {
    let path = log_path(state);
    if fsio::bytes_of(&path) > LONGEST_LOG {
        open_log(state)?;
    }
    Ok(())
}

/// Opens the log for appending, for this user only, and lets it begin anew when it has become long.
pub(super) fn open_log(state: &Path) -> Result<File, FileError> {
    fsio::sealed_directory(&folder(state))?;
    let path = log_path(state);
    let file = fsio::append_private(&path)?;
    if fsio::bytes_of(&path) > LONGEST_LOG {
        // Whoever writes to it appends, so nothing but the old lines is lost.
        file.set_len(0).map_err(|source| FileError {
            action: "shorten",
            path,
            source,
        })?;
    }
    Ok(file)
}

/// How a property list writes characters that mean something to it.
const ENTITIES: [&str; 5] = ["&amp;", "&lt;", "&gt;", "&quot;", "&apos;"];

/// Writes what a service manager reads, when it is not there as it should be; says whether it was written.
pub(super) fn write_definition(path: &Path, text: &str) -> Result<bool, ServiceError> {
    if fsio::is_link(path) {
        return Err(ServiceError::Linked(path.to_owned()));
    }
    if read_definition(path).as_deref() == Some(text) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        fsio::private_directory(folder)?;
    }
    fsio::write_atomically(path, text.as_bytes())?;
    Ok(true)
}

fn read_definition(path: &Path) -> Option<String> {
    let content = fsio::read_bounded(path, LONGEST_DEFINITION)
        .ok()
        .flatten()?;
    String::from_utf8(content).ok()
}

impl Service {
    pub(super) fn log(&self) -> PathBuf {
        log_path(&self.state)
    }

    /// The last line of the log.
    pub(super) fn last_words(&self) -> Option<String> {
        let content = fsio::read_sealed(&self.log(), 2 * LONGEST_LOG).ok()??;
        let end = content.get(content.len().saturating_sub(LONGEST_TAIL)..)?;
        let text = String::from_utf8_lossy(end);
        let line = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(remote_sandbox_core::output::clean_line(line, 300))
    }

    /// Every text that points to a copy of the program, that of the process first.
    pub(super) fn definitions(&self) -> Vec<String> {
        let files = [self.record_path(), self.plist_path(), self.unit_path()];
        let own = files.iter().filter(|file| !self.is_foreign(file));
        own.filter_map(|file| read_definition(file)).collect()
    }

    /// Whether a file sets up the watchdog of another state folder: there is one service for a user, and it stays theirs.
    pub(super) fn is_foreign(&self, file: &Path) -> bool {
        let copies = self.state.join("bin");
        // As it is written there, where some characters are escaped; those that are never are enough.
        let plain = |text: &str| -> String {
            let text = ENTITIES
                .iter()
                .fold(text.to_owned(), |text, entity| text.replace(entity, ""));
            let is_plain = |c: &char| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
            text.chars().filter(is_plain).collect()
        };
        let own = plain(&format!("{}/", copies.to_string_lossy()));
        let named =
            |text: String| CopyName::named_in(&text).is_some() && !plain(&text).contains(&own);
        read_definition(file).is_some_and(named)
    }

    /// Makes sure that nobody else changes the service meanwhile; the lock goes with the file.
    pub(super) async fn lock(&self) -> Result<File, ServiceError> {
        let folder = folder(&self.state);
        let locked = tokio::task::spawn_blocking(move || lock(&folder));
        Ok(locked.await.map_err(|_| ServiceError::Interrupted)??)
    }

    /// Removes the log, the lock and their folder; it is no matter when that fails.
    pub(super) fn forget_files(&self) {
        let folder = folder(&self.state);
        for name in ["watchdog.log", "service.lock"] {
            let _ = fsio::remove_file(&folder.join(name));
        }
        let _ = fsio::remove_empty_directory(&folder);
    }
}

fn lock(folder: &Path) -> Result<File, FileError> {
    let path = folder.join("service.lock");
    let failed = |source| FileError {
        action: "lock",
        path: path.clone(),
        source,
    };
    for _ in 0..MOST_ATTEMPTS {
        fsio::sealed_directory(folder)?;
        let file = match fsio::read_write_private(&path) {
            // Somebody has taken the whole folder away.
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => continue,
            file => file?,
        };
        fsio::lock_within(&file, LOCK_LIMIT).map_err(failed)?;
        if fsio::is_still_at(&file, &path) {
            return Ok(file);
        }
    }
    Err(failed(std::io::ErrorKind::TimedOut.into()))
}
