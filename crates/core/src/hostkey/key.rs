//! One host public key, checked for shape.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest as _, Sha256};

/// Far above the largest real key (RSA with 16384 bits takes about 2 KiB).
const MAX_BLOB_BYTES: usize = 16 * 1024;

/// Longest algorithm name the SSH protocol allows.
const MAX_ALGORITHM_BYTES: usize = 64;

/// Why some bytes are not a host key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The blob is larger than any real key.
    #[error("key of {length} bytes is longer than {MAX_BLOB_BYTES} bytes")]
    TooLong {
        /// Length of the blob in bytes.
        length: usize,
    },
    /// The blob does not begin with a printable algorithm name.
    #[error("key does not begin with an algorithm name")]
    NoAlgorithm,
    /// The algorithm is not a plain host key algorithm known here.
    #[error("unknown key algorithm '{algorithm}'")]
    UnknownAlgorithm {
        /// Name found in the key.
        algorithm: String,
    },
    /// A field of the key is missing, cut short or of the wrong value.
    #[error("malformed {algorithm} key")]
    Malformed {
        /// Algorithm the key claims.
        algorithm: &'static str,
    },
    /// Bytes follow the last field of the key.
    #[error("{algorithm} key is followed by {length} more bytes")]
    TrailingBytes {
        /// Algorithm of the key.
        algorithm: &'static str,
        /// How many bytes are left over.
        length: usize,
    },
}

/// What a field after the algorithm name must hold.
enum Field {
    Length(usize),
    Exactly(&'static [u8]),
    Filled,
}

/// Plain host key algorithms and their fields, in wire order.
const ALGORITHMS: [(&str, &[Field]); 8] = [
    ("ssh-ed25519", &[Field::Length(32)]),
    (
        "ecdsa-sha2-nistp256",
        &[Field::Exactly(b"nistp256"), Field::Filled],
    ),
    (
        "ecdsa-sha2-nistp384",
        &[Field::Exactly(b"nistp384"), Field::Filled],
    ),
    (
        "ecdsa-sha2-nistp521",
        &[Field::Exactly(b"nistp521"), Field::Filled],
    ),
    ("ssh-rsa", &[Field::Filled, Field::Filled]),
    (
        "ssh-dss",
        &[Field::Filled, Field::Filled, Field::Filled, Field::Filled],
    ),
    (
        "sk-ssh-ed25519@openssh.com",
        &[Field::Length(32), Field::Filled],
    ),
    (
        "sk-ecdsa-sha2-nistp256@openssh.com",
        &[Field::Exactly(b"nistp256"), Field::Filled, Field::Filled],
    ),
];

/// A host's public key in SSH wire form, of a known plain algorithm and complete.
#[derive(Clone, PartialEq, Eq)]
pub struct HostKey {
    algorithm: &'static str,
    blob: Vec<u8>,
}

impl HostKey {
    /// Checks an SSH wire public key blob; certificates are refused as an unknown algorithm.
    pub fn from_blob(blob: Vec<u8>) -> Result<Self, KeyError> {
        if blob.len() > MAX_BLOB_BYTES {
            return Err(KeyError::TooLong { length: blob.len() });
        }
        let (name, mut rest) = split_string(&blob).ok_or(KeyError::NoAlgorithm)?;
        let name = printable_name(name).ok_or(KeyError::NoAlgorithm)?;
        let Some((algorithm, fields)) = ALGORITHMS.iter().find(|(known, _)| *known == name) else {
            return Err(KeyError::UnknownAlgorithm {
                algorithm: name.to_owned(),
            });
        };
        for field in *fields {
            let (value, after) = split_string(rest).ok_or(KeyError::Malformed { algorithm })?;
            let fits = match field {
                Field::Length(length) => value.len() == *length,
                Field::Exactly(wanted) => value == *wanted,
                Field::Filled => !value.is_empty(),
            };
            if !fits {
                return Err(KeyError::Malformed { algorithm });
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Err(KeyError::TrailingBytes {
                algorithm,
                length: rest.len(),
            });
        }
        Ok(Self { algorithm, blob })
    }

    /// The key's algorithm; every RSA key is `ssh-rsa`, whatever hash its signatures use.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The fingerprint as OpenSSH prints it: `SHA256:` and base64 without padding.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        format!(
            "SHA256:{}",
            STANDARD_NO_PAD.encode(Sha256::digest(&self.blob))
        )
    }

    /// The key in SSH wire form.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    pub(super) fn to_base64(&self) -> String {
        STANDARD.encode(&self.blob)
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "HostKey({} {})",
            self.algorithm,
            self.fingerprint()
        )
    }
}

/// An algorithm name fit to be shown: not empty, short, printable ASCII without blanks.
pub(super) fn printable_name(bytes: &[u8]) -> Option<&str> {
    let fits =
        (1..=MAX_ALGORITHM_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    if fits {
        std::str::from_utf8(bytes).ok()
    } else {
        None
    }
}

/// Takes one length-prefixed string off the front.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

#[cfg(test)]
#[path = "key_tests.rs"]
mod tests;
