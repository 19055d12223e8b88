//! Private key files: who may read them, and what is wrong with one that cannot be used.

use std::path::{Path, PathBuf};

use remote_sandbox_core::secret::Secret;
use russh::keys::PrivateKey;

use super::old_pem::{OldPem, OldPemError};
use super::pkcs8_key::{Pkcs8Error, Pkcs8Key};
use crate::fsio::{self, FileError};

/// A private key file is never larger than this.
const LARGEST_KEY: u64 = 256 * 1024;

/// Why a private key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file could not be read.
    #[error("the private key cannot be read")]
    File(#[from] FileError),
    /// There is no such file.
    #[error("the private key `{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// Others can read the file.
    #[error("the private key `{}` has mode {mode:04o}; others can read it, it must be 0600", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file belongs to somebody else.
    #[error("the private key `{}` belongs to another user; it must be yours, mode 0600", .0.display())]
    Foreign(PathBuf),
    /// The key is encrypted and the entry has no passphrase.
    #[error("the private key `{}` is encrypted and the entry has no `key_passphrase`", .0.display())]
    PassphraseMissing(PathBuf),
    /// The passphrase does not open the key.
    #[error("the private key `{}` cannot be opened with its `key_passphrase`", .0.display())]
    PassphraseWrong(PathBuf),
    /// The file is encrypted in a way that we do not know.
    #[error("the private key `{}` cannot be decrypted", path.display())]
    Cipher {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: OldPemError,
    },
    /// The file is sealed in a way that we cannot open.
    #[error("the private key `{}` cannot be decrypted", path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Pkcs8Error,
    },
    /// The file holds no key that we know.
    #[error("`{}` holds no private key of a known kind", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        #[source]
        source: russh::keys::Error,
    },
}

/// Reads a private key that nobody else can read.
pub(super) fn load(
    path: &Path,
    passphrase: Option<&Secret<String>>,
) -> Result<PrivateKey, KeyFileError> {
    let content = fsio::read_bounded(path, LARGEST_KEY)?
        .ok_or_else(|| KeyFileError::Missing(path.to_owned()))?;
    let found = fsio::mode_and_ownership(path)?;
    if found.mine && found.mode & 0o077 != 0 {
        return Err(KeyFileError::Exposed {
            path: path.to_owned(),
            mode: found.mode,
        });
    }
    if !found.mine && !found.of_root {
        return Err(KeyFileError::Foreign(path.to_owned()));
    }
    let text = Secret::new(String::from_utf8_lossy(&content).into_owned());
    decode(
        path,
        text.expose(),
        passphrase.map(|secret| secret.expose().as_str()),
    )
}

fn decode(path: &Path, text: &str, passphrase: Option<&str>) -> Result<PrivateKey, KeyFileError> {
    if let Some(old) = OldPem::find(text) {
        return decode_old(path, &old, passphrase);
    }
    if let Some(sealed) = Pkcs8Key::find(text) {
        return decode_pkcs8(path, sealed, passphrase);
    }
    decode_rest(path, text, passphrase)
}

fn decode_old(
    path: &Path,
    old: &OldPem,
    passphrase: Option<&str>,
) -> Result<PrivateKey, KeyFileError> {
    let named = path.to_owned();
    if !old.is_encrypted() {
        return old.key().map_err(|source| KeyFileError::Unusable {
            path: named,
            source,
        });
    }
    let Some(passphrase) = passphrase else {
        return Err(KeyFileError::PassphraseMissing(named));
    };
    match old.decrypt(passphrase) {
        // A wrong passphrase may give a sound padding by chance, but never a key.
        Ok(plain) => plain
            .key()
            .map_err(|_| KeyFileError::PassphraseWrong(named)),
        Err(OldPemError::Passphrase) => Err(KeyFileError::PassphraseWrong(named)),
        Err(source) => Err(KeyFileError::Cipher {
            path: named,
            source,
        }),
    }
}

fn decode_pkcs8(
    path: &Path,
    found: Pkcs8Key,
    passphrase: Option<&str>,
) -> Result<PrivateKey, KeyFileError> {
    let named = path.to_owned();
    if !found.is_encrypted() {
        return found.key().map_err(|source| KeyFileError::Unusable {
            path: named,
            source,
        });
    }
    let Some(passphrase) = passphrase else {
        return Err(KeyFileError::PassphraseMissing(named));
    };
    match found.decrypt(passphrase) {
        // A wrong passphrase may give a sound padding by chance, but never the shape of a key.
        Ok(plain) if plain.is_private_key() => {
            plain.key().map_err(|source| KeyFileError::Unusable {
                path: named,
                source,
            })
        }
        Ok(_) | Err(Pkcs8Error::Passphrase) => Err(KeyFileError::PassphraseWrong(named)),
        Err(source) => Err(KeyFileError::Sealed {
            path: named,
            source,
        }),
    }
}

/// OpenSSH's own format, which says inside whether it is encrypted, and everything unknown.
fn decode_rest(
    path: &Path,
    text: &str,
    passphrase: Option<&str>,
) -> Result<PrivateKey, KeyFileError> {
    // The library takes every other key for an encrypted one when it is given a passphrase.
    let needed = passphrase.filter(|_| text.contains("BEGIN OPENSSH PRIVATE KEY"));
    russh::keys::decode_secret_key(text, needed).map_err(|source| {
        let path = path.to_owned();
        let encrypted = matches!(source, russh::keys::Error::KeyIsEncrypted);
        match needed {
            None if encrypted => KeyFileError::PassphraseMissing(path),
            Some(_) => KeyFileError::PassphraseWrong(path),
            None => KeyFileError::Unusable { path, source },
        }
    })
}
