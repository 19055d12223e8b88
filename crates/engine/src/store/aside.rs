//! Damaged files are put out of the way whole, under a name that says when.

use std::path::{Path, PathBuf};

use super::place::{Place, beside, look};
use super::{FILE_NAME, StoreError};
use crate::fsio::FileError;
use crate::{clock, fsio};

/// What SQLite keeps beside a file, the file itself first: without it the others are never used.
const PARTS: [&str; 4] = ["", "-wal", "-journal", "-shm"];

/// Between the name of the store and the time.
const MARK: &str = ".damaged-";

/// Most files that are looked for, and most names that are tried.
const MOST: usize = 100;

/// A rollback journal begins with eight bytes of its own, then three numbers; the third is the old size.
const JOURNAL_HEAD: std::ops::Range<usize> = 16..20;

/// Longest journal that is looked at; a longer one belongs to a store that was not empty.
const LONGEST_EMPTY_JOURNAL: u64 = 64 * 1024;

impl Place {
    /// Whether content is missing that the files beside the store are a part of. SQLite would throw these
    /// away without a word, with all that was promised in them.
    pub(super) fn has_lost_content(&self) -> Result<bool, StoreError> {
        let size = |path: &Path| Ok::<_, FileError>(look(path)?.map_or(0, |found| found.len()));
        if size(&self.path)? > 0 {
            return Ok(false);
        }
        if size(&self.beside("-wal"))? > 0 {
            return Ok(true);
        }
        let journal = self.beside("-journal");
        match size(&journal)? {
            0 => Ok(false),
            1..=LONGEST_EMPTY_JOURNAL => {
                let content = fsio::read_bounded(&journal, LONGEST_EMPTY_JOURNAL)?;
                let pages = content.as_deref().and_then(|bytes| bytes.get(JOURNAL_HEAD));
                // The first change of all has nothing to go back to.
                Ok(pages.is_some_and(|pages| pages != [0; 4]))
            }
            _ => Ok(true),
        }
    }

    /// Whether the last user of the store ended without closing it.
    pub(super) fn was_left_open(&self) -> Result<bool, StoreError> {
        let is_there = |suffix: &str| {
            Ok::<_, FileError>(look(&self.beside(suffix))?.is_some_and(|found| found.len() > 0))
        };
        Ok(self.is_alone && (is_there("-wal")? || is_there("-journal")?))
    }

    /// Renames the store with all that belongs to it and says so.
    pub(super) fn set_aside(&self, why: &str) -> Result<(), StoreError> {
        let stamp: String = clock::timestamp()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let is_free = |name: &PathBuf| {
            let is_taken = |part: &&str| !matches!(look(&beside(name, part)), Ok(None));
            !PARTS.iter().any(is_taken)
        };
        let names = (0..MOST).map(|number| match number {
            0 => self.beside(&format!("{MARK}{stamp}")),
            number => self.beside(&format!("{MARK}{stamp}-{number}")),
        });
        let Some(name) = names.into_iter().find(is_free) else {
            return Err(StoreError::Refused {
                path: self.path.clone(),
                problem: "it is damaged and there is no free name to set it aside",
            });
        };
        for part in PARTS {
            let from = self.beside(part);
            if look(&from)?.is_some() {
                fsio::rename(&from, &beside(&name, part))?;
            }
        }
        let (path, name) = (self.path.display(), name.display());
        tracing::error!(
            "`{path}` is damaged ({why}); it was set aside as `{name}` and a new one is begun"
        );
        Ok(())
    }
}

/// The stores of a state folder that were set aside.
pub fn damaged_files(state_dir: &Path) -> Vec<PathBuf> {
    let wanted = format!("{FILE_NAME}{MARK}");
    let is_store = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| {
            let beside = PARTS.iter().skip(1).any(|part| name.ends_with(part));
            name.starts_with(&wanted) && !beside
        })
    };
    let entries = std::fs::read_dir(state_dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(is_store)
        .take(MOST)
        .collect();
    found.sort();
    found
}
