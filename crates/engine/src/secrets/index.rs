//! Which secrets there are and where each is kept: names only, for keychains cannot be listed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::secret::SecretName;
use serde::{Deserialize, Serialize};

use crate::fsio::{self, FileError};

/// A list past this size is not one that we wrote.
const LARGEST_INDEX: u64 = 1024 * 1024;

/// Most secrets that are kept.
const MOST_SECRETS: usize = 1000;

/// How long another process may keep the list locked; it may be waiting for a keychain that hangs.
const LOCK_LIMIT: Duration = Duration::from_secs(15);

/// Where a secret is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keeping {
    /// The keychain of the system.
    Keychain,
    /// A file of ours that only this user can read.
    File,
}

impl fmt::Display for Keeping {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Keeping::Keychain => "the keychain",
            Keeping::File => "a file",
        })
    }
}

/// Why the list could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The file is at fault.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content is at fault.
    #[error("`{}` cannot be understood", path.display())]
    Content {
        /// The list.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// There are too many.
    #[error("there are {MOST_SECRETS} secrets already, which is the limit")]
    Full,
}

/// The list on disk.
#[derive(Debug)]
pub(super) struct Index {
    path: PathBuf,
}

/// The list while it is changed; nobody else changes it meanwhile.
pub(super) struct Opened<'a> {
    index: &'a Index,
    places: BTreeMap<SecretName, Keeping>,
    _lock: File,
}

impl Index {
    pub(super) fn new(state: &Path) -> Self {
        Index {
            path: state.join("secrets.json"),
        }
    }

    /// What is listed now; a name that cannot be one of ours is left out.
    pub(super) fn read(&self) -> Result<BTreeMap<SecretName, Keeping>, IndexError> {
        let Some(content) = fsio::read_bounded(&self.path, LARGEST_INDEX)? else {
            return Ok(BTreeMap::new());
        };
        let listed: BTreeMap<String, Keeping> =
            serde_json::from_slice(&content).map_err(|source| self.content(source))?;
        let checked =
            |(name, place): (String, Keeping)| Some((SecretName::parse(&name).ok()?, place));
        Ok(listed.into_iter().filter_map(checked).collect())
    }

    /// Opens the list for a change.
    pub(super) fn open(&self) -> Result<Opened<'_>, IndexError> {
        if let Some(state) = self.path.parent() {
            fsio::private_directory(state)?;
        }
        let path = self.path.with_extension("lock");
        let lock = fsio::read_write_private(&path)?;
        fsio::lock_within(&lock, LOCK_LIMIT).map_err(|source| FileError {
            action: "lock",
            path,
            source,
        })?;
        Ok(Opened {
            index: self,
            places: self.read()?,
            _lock: lock,
        })
    }

    fn content(&self, source: serde_json::Error) -> IndexError {
        IndexError::Content {
            path: self.path.clone(),
            source,
        }
    }
}

impl Opened<'_> {
    pub(super) fn get(&self, name: &SecretName) -> Option<Keeping> {
        self.places.get(name).copied()
    }

    /// Whether a name may be listed; asked before its secret goes anywhere.
    pub(super) fn make_sure_of_room(&self, name: &SecretName) -> Result<(), IndexError> {
        if self.places.len() >= MOST_SECRETS && !self.places.contains_key(name) {
            return Err(IndexError::Full);
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, name: SecretName, place: Keeping) -> Result<(), IndexError> {
        self.places.insert(name, place);
        self.save()
    }

    pub(super) fn remove(&mut self, name: &SecretName) -> Result<(), IndexError> {
        self.places.remove(name);
        self.save()
    }

    fn save(&self) -> Result<(), IndexError> {
        let listed: BTreeMap<&str, Keeping> = self
            .places
            .iter()
            .map(|(name, place)| (name.as_str(), *place))
            .collect();
        let content = serde_json::to_vec(&listed).map_err(|source| self.index.content(source))?;
        Ok(fsio::write_atomically(&self.index.path, &content)?)
    }
}
