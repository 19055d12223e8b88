//! The log of one transfer: plain lines for people, bounded, without secrets.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use remote_sandbox_core::output::clean_text;
use remote_sandbox_core::secret::Mask;

use crate::fsio::FileError;
use crate::{clock, fsio};

/// Past this size only how it ended is added.
const LONGEST_LOG: u64 = 4 * 1024 * 1024;

/// Most that is read of the end of a log.
const LONGEST_TAIL: u64 = 256 * 1024;

/// A log that is being written.
#[derive(Debug)]
pub(super) struct TransferLog {
    file: File,
    path: PathBuf,
    mask: Mask,
}

/// Opens a log for appending and makes it and its folder where needed, for this user only.
pub(super) fn open(path: &Path) -> Result<File, FileError> {
    if let Some(folder) = path.parent() {
        fsio::sealed_directory(folder)?;
    }
    fsio::append_private(path)
}

impl TransferLog {
    pub(super) fn open(path: &Path, mask: Mask) -> Result<Self, FileError> {
        Ok(TransferLog {
            file: open(path)?,
            path: path.to_owned(),
            mask,
        })
    }

    /// What hides secrets in it.
    pub(super) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Adds a line, unless the log is long enough.
    pub(super) fn line(&self, text: &str) {
        if fsio::bytes_of(&self.path) < LONGEST_LOG {
            self.last_line(text);
        }
    }

    /// Adds a line in any case. A log that cannot be written is no reason to stop a transfer.
    pub(super) fn last_line(&self, text: &str) {
        let line = format!("{} {text}", clock::timestamp());
        let line = clean_text(self.mask.mask_text(&line).as_bytes()).replace('\n', " ");
        let _ = (&self.file).write_all(format!("{line}\n").as_bytes());
    }
}

/// The last lines of a log; nothing when there is none.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    let bytes = read_end(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut last: Vec<&str> = text.lines().rev().take(lines).collect();
    last.reverse();
    last.join("\n")
}

fn read_end(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(LONGEST_TAIL);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_TAIL).read_to_end(&mut bytes)?;
    if skipped > 0 {
        // The first line is only a part of one.
        let whole = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..whole.map_or(bytes.len(), |end| end + 1));
    }
    Ok(bytes)
}
