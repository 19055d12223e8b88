//! Secrets kept for the user: in the keychain of the system where one works, in a private file where not.

mod index;
mod keeper;
mod kept;
mod keychain;

use std::path::{Path, PathBuf};

use remote_sandbox_core::config::{Environment, PathError, Platform, state_dir};
use remote_sandbox_core::secret::{Secret, SecretName};
use zeroize::Zeroize as _;

pub use index::{IndexError, Keeping};
pub use keeper::{SecretError, SecretKeeper};
pub use kept::KeptSecrets;
pub use keychain::KeychainError;

use crate::fsio::{self, FileError};
use index::Index;
use keychain::Keychain;

/// Longest secret that is kept.
pub const LONGEST_SECRET: usize = 16 * 1024;

/// Why a secret could not be kept, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing is kept under this name.
    #[error("no secret is kept under the name `{0}`")]
    Unknown(SecretName),
    /// The list of names is at fault.
    #[error("the list of kept secrets cannot be used")]
    Index(#[from] IndexError),
    /// The keychain is at fault.
    #[error("the keychain cannot be used for the secret `{name}`")]
    Keychain {
        /// The secret.
        name: SecretName,
        /// Why.
        #[source]
        source: KeychainError,
    },
    /// The file is at fault.
    #[error("the file of the secret `{name}` cannot be used")]
    File {
        /// The secret.
        name: SecretName,
        /// Why.
        #[source]
        source: FileError,
    },
    /// What was kept is not there any more.
    #[error("the secret `{name}` was kept in {place}, but is not there any more")]
    Gone {
        /// The secret.
        name: SecretName,
        /// Where it was.
        place: Keeping,
    },
    /// What is kept there is not a text that we wrote.
    #[error("what is kept as the secret `{0}` is no text")]
    NoText(SecretName),
}

/// Where a secret went.
#[derive(Debug)]
pub struct Kept {
    /// Its place.
    pub place: Keeping,
    /// Why that is not the keychain, when one was wanted.
    pub no_keychain: Option<KeychainError>,
}

/// All kept secrets of this user. Its methods block, for two seconds each at most where a keychain hangs.
#[derive(Debug)]
pub struct SecretStore {
    index: Index,
    folder: PathBuf,
    keychain: Option<Keychain>,
}

impl SecretStore {
    /// The store that belongs to a state folder; nothing is opened yet.
    pub fn new(state: &Path) -> Self {
        SecretStore {
            index: Index::new(state),
            folder: state.join("secrets"),
            keychain: Some(Keychain),
        }
    }

    /// The store of the user whose environment this is.
    pub fn of(environment: &Environment) -> Result<Self, PathError> {
        Ok(Self::new(&state_dir(environment, Platform::current())?))
    }

    /// The same without a keychain: everything goes into files.
    #[must_use]
    pub fn in_files(mut self) -> Self {
        self.keychain = None;
        self
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps a secret: in the keychain where a trial shows that it works, in a file where not.
    pub fn set(&self, name: &SecretName, value: &Secret<String>) -> Result<Kept, StoreError> {
        let mut listed = self.index.open()?;
        listed.make_sure_of_room(name)?;
        let before = listed.get(name);
        let usable = match &self.keychain {
            Some(keychain) => keychain.try_out().map(|()| Some(keychain)),
            None => Ok(None),
        };
        let kept = match usable {
            Ok(Some(keychain)) => {
                keychain
                    .set(name, value)
                    .map_err(|source| self.keychain_error(name, source))?;
                Kept {
                    place: Keeping::Keychain,
                    no_keychain: None,
                }
            }
            Ok(None) => self.set_in_file(name, value, None)?,
            Err(why) => self.set_in_file(name, value, Some(why))?,
        };
        listed.insert(name.clone(), kept.place)?;
        // The place it had before must not go on holding the old value.
        if before.is_some_and(|before| before != kept.place)
            && let Some(before) = before
            && let Err(error) = self.remove_from(before, name)
        {
            tracing::warn!(%error, "an older value of this secret could not be removed");
        }
        Ok(kept)
    }

    fn set_in_file(
        &self,
        name: &SecretName,
        value: &Secret<String>,
        no_keychain: Option<KeychainError>,
    ) -> Result<Kept, StoreError> {
        fsio::sealed_directory(&self.folder)
            .and_then(|()| fsio::write_atomically(&self.file(name), value.expose().as_bytes()))
            .map_err(|source| self.file_error(name, source))?;
        Ok(Kept {
            place: Keeping::File,
            no_keychain,
        })
    }

    /// Names and places, sorted by name.
    pub fn list(&self) -> Result<Vec<(SecretName, Keeping)>, StoreError> {
        Ok(self.index.read()?.into_iter().collect())
    }

    /// Takes a secret from where it is kept.
    pub fn get(&self, name: &SecretName) -> Result<Secret<String>, StoreError> {
        let place = self.index.read()?.get(name).copied();
        let place = place.ok_or_else(|| StoreError::Unknown(name.clone()))?;
        let bytes = match place {
            Keeping::Keychain => Keychain
                .get(name)
                .map_err(|source| self.keychain_error(name, source))?,
            Keeping::File => fsio::read_sealed(&self.file(name), LONGEST_SECRET as u64)
                .map_err(|source| self.file_error(name, source))?,
        };
        let gone = || StoreError::Gone {
            name: name.clone(),
            place,
        };
        match String::from_utf8(bytes.ok_or_else(gone)?) {
            Ok(text) => Ok(Secret::new(text)),
            Err(error) => {
                error.into_bytes().zeroize();
                Err(StoreError::NoText(name.clone()))
            }
        }
    }

    /// Forgets a secret and says where it was.
    pub fn remove(&self, name: &SecretName) -> Result<Keeping, StoreError> {
        let mut listed = self.index.open()?;
        let place = listed.get(name);
        let place = place.ok_or_else(|| StoreError::Unknown(name.clone()))?;
        self.remove_from(place, name)?;
        listed.remove(name)?;
        Ok(place)
    }

    fn remove_from(&self, place: Keeping, name: &SecretName) -> Result<(), StoreError> {
        match place {
            Keeping::Keychain => Keychain
                .remove(name)
                .map_err(|source| self.keychain_error(name, source)),
            Keeping::File => {
                fsio::remove_file(&self.file(name)).map_err(|source| self.file_error(name, source))
            }
        }
    }

    fn file(&self, name: &SecretName) -> PathBuf {
        self.folder.join(name.as_str())
    }

    fn keychain_error(&self, name: &SecretName, source: KeychainError) -> StoreError {
        StoreError::Keychain {
            name: name.clone(),
            source,
        }
    }

    fn file_error(&self, name: &SecretName, source: FileError) -> StoreError {
        StoreError::File {
            name: name.clone(),
            source,
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
