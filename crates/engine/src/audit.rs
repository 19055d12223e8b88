//! The audit log: one line before every effect, one line after it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::secret::Mask;
use serde::Serialize;

use crate::clock;
use crate::fsio::{self, FileError};

/// A log past this size is set aside.
const LARGEST_LOG: u64 = 64 * 1024 * 1024;

/// How many logs that were set aside are kept.
const KEPT_LOGS: u32 = 4;

/// How long another process may keep the log locked while it sets it aside.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// Longest command text in a row.
const LONGEST_COMMAND: usize = 16 * 1024;

/// Why a row could not be written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file could not be opened or made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The row could not be appended.
    #[error("cannot append to the audit log `{}`", path.display())]
    Append {
        /// The log.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What is about to happen.
#[derive(Debug, Serialize)]
pub struct BeginRow<'a> {
    /// Whose call it is.
    pub principal: &'a str,
    /// The call it belongs to.
    pub call: &'a str,
    /// The tool that was called.
    pub tool: &'a str,
    /// Where it happens.
    pub sandbox: &'a str,
    /// The run it starts or ends.
    pub run: &'a str,
    /// The command, secrets masked.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub command: &'a str,
    /// The directory it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<&'a str>,
}

/// How it went.
#[derive(Debug, Serialize)]
pub struct EndRow<'a> {
    /// The run that ended.
    pub run: &'a str,
    /// The sandbox it ran in.
    pub sandbox: &'a str,
    /// The outcome in one word, or a failure code.
    pub outcome: &'a str,
    /// The exit code, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u32>,
    /// How long it took.
    pub duration_s: f64,
}

/// An append-only log that masks every configured secret.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    mask: Mask,
    file: Mutex<Option<File>>,
}

#[derive(Serialize)]
struct Row<'a, T: Serialize> {
    time: String,
    event: &'a str,
    #[serde(flatten)]
    facts: &'a T,
}

impl Audit {
    /// A log in the state folder; it is opened when the first row is written.
    pub fn new(state: &Path, mask: Mask) -> Self {
        Audit {
            path: state.join("audit.jsonl"),
            mask,
            file: Mutex::new(None),
        }
    }

    /// Records what is about to happen; when this fails it must not happen.
    pub fn begin(&self, row: &BeginRow<'_>) -> Result<(), AuditError> {
        // Masked before it is cut, or a part of a secret could stay; and before JSON escapes the
        // quotes and backslashes that a secret may hold.
        let command = self.mask.mask_text(row.command);
        let cut = command
            .char_indices()
            .nth(LONGEST_COMMAND)
            .map(|(at, _)| at);
        let command = command
            .get(..cut.unwrap_or(command.len()))
            .unwrap_or_default();
        let cwd = row.cwd.map(|cwd| self.mask.mask_text(cwd));
        self.append(
            "begin",
            &BeginRow {
                command,
                cwd: cwd.as_deref(),
                ..*row
            },
        )
    }

    /// Records how it went.
    pub fn end(&self, row: &EndRow<'_>) -> Result<(), AuditError> {
        self.append("end", row)
    }

    fn append<T: Serialize>(&self, event: &str, facts: &T) -> Result<(), AuditError> {
        let row = Row {
            time: clock::timestamp(),
            event,
            facts,
        };
        let line = serde_json::to_string(&row).map_err(|error| self.failed(error.into()))?;
        let line = format!("{}\n", self.mask.mask_text(&line));
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = guard.as_ref()
            && self.must_reopen(file)
        {
            *guard = None;
        }
        let file = match guard.as_mut() {
            Some(file) => file,
            None => guard.insert(self.open()?),
        };
        // One write call per row: rows of several processes do not mix.
        let written = file.write_all(line.as_bytes());
        if written.is_err() {
            *guard = None;
        }
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> AuditError {
        AuditError::Append {
            path: self.path.clone(),
            source,
        }
    }

    fn open(&self) -> Result<File, AuditError> {
        if let Some(folder) = self.path.parent() {
            fsio::private_directory(folder)?;
        }
        let file = fsio::append_private(&self.path)?;
        if file.metadata().is_ok_and(|found| found.len() > LARGEST_LOG) {
            drop(file);
            self.set_aside_once()?;
            return Ok(fsio::append_private(&self.path)?);
        }
        Ok(file)
    }

    /// The file has grown too large, or was moved away by another process or by a person.
    fn must_reopen(&self, file: &File) -> bool {
        use std::os::unix::fs::MetadataExt;
        match (file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(ours), Ok(named)) => ours.ino() != named.ino() || ours.len() > LARGEST_LOG,
            _ => true,
        }
    }

    /// Several servers share the log; the first one that finds it too large sets it aside.
    fn set_aside_once(&self) -> Result<(), FileError> {
        let guard = self.path.with_extension("lock");
        let file = fsio::read_write_private(&guard)?;
        fsio::lock_within(&file, LOCK_LIMIT).map_err(|source| FileError {
            action: "lock",
            path: guard,
            source,
        })?;
        if fsio::bytes_of(&self.path) > LARGEST_LOG {
            self.set_aside()?;
        }
        Ok(())
    }

    fn set_aside(&self) -> Result<(), FileError> {
        let numbered = |number: u32| self.path.with_extension(format!("jsonl.{number}"));
        for number in (1..KEPT_LOGS).rev() {
            if numbered(number).exists() {
                fsio::rename(&numbered(number), &numbered(number + 1))?;
            }
        }
        fsio::rename(&self.path, &numbered(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(command: &str) -> BeginRow<'_> {
        BeginRow {
            principal: "local",
            call: "c1",
            tool: "exec_bash",
            sandbox: "gpu1",
            run: "run_1",
            command,
            cwd: None,
        }
    }

    #[test]
    fn audit_masks_a_configured_secret_inside_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let mask = Mask::default();
        mask.learn("hunter2hunter2");
        let audit = Audit::new(folder.path(), mask);
        audit.begin(&begin("mysql -phunter2hunter2")).unwrap();
        let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let row: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(row["event"], "begin");
        assert_eq!(row["sandbox"], "gpu1");
    }

    #[test]
    fn audit_fails_when_the_folder_cannot_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let blocker = folder.path().join("state");
        std::fs::write(&blocker, b"").unwrap();
        let audit = Audit::new(&blocker, Mask::default());
        assert!(audit.begin(&begin("true")).is_err());
    }

    #[test]
    fn audit_starts_a_new_file_when_the_old_one_was_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path(), Mask::default());
        audit.begin(&begin("one")).unwrap();
        let log = folder.path().join("audit.jsonl");
        std::fs::rename(&log, folder.path().join("old")).unwrap();
        audit.begin(&begin("two")).unwrap();
        assert!(std::fs::read_to_string(&log).unwrap().contains("two"));
    }
}
