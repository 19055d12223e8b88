//! Private keys in PKCS #8, plain or sealed with a passphrase.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pkcs8::der::{Decode, Reader, SliceReader};
use pkcs8::pkcs5::EncryptionScheme;
use pkcs8::pkcs5::pbes2::{Kdf, PBES2_OID};
use pkcs8::spki::AlgorithmIdentifierRef;
use pkcs8::{EncryptedPrivateKeyInfoRef, ObjectIdentifier, PrivateKeyInfoRef, SecretDocument};
use remote_sandbox_core::secret::Secret;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::{DsaKeypair, KeypairData};

const PLAIN: &str = "-----BEGIN PRIVATE KEY-----";
const SEALED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const DSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10040.4.1");

/// The most rounds from passphrase to key; more would take many seconds.
const MOST_ROUNDS: u32 = 10_000_000;

/// The most memory that scrypt may take.
const MOST_SCRYPT_BYTES: u64 = 256 << 20;

/// Why a sealed key stays closed.
#[derive(Debug, thiserror::Error)]
pub enum Pkcs8Error {
    /// It is sealed in a way that we do not know.
    #[error(
        "it is encrypted with the scheme {0}; only PBES2 with AES or 3DES is known, `ssh-keygen -p -f` converts it"
    )]
    Scheme(ObjectIdentifier),
    /// Its parameters make no sense.
    #[error("the description of its encryption is damaged")]
    Damaged(#[source] pkcs8::der::Error),
    /// It asks for more work than a key is worth.
    #[error("its passphrase is stretched beyond all measure")]
    Cost,
    /// A part of its scheme is not known.
    #[error("a part of its encryption is not known")]
    Unsupported(#[source] pkcs8::pkcs5::Error),
    /// The passphrase does not fit.
    #[error("the passphrase does not fit")]
    Passphrase,
}

/// One key in PKCS #8.
pub(super) struct Pkcs8Key {
    encrypted: bool,
    body: SecretDocument,
}

impl Pkcs8Key {
    /// The key in a text, when the text holds this form.
    pub(super) fn find(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let begin = lines.by_ref().find(|line| [PLAIN, SEALED].contains(line))?;
        let inside: Vec<&str> = lines
            .take_while(|line| !line.starts_with("-----END "))
            .collect();
        let encoded = Secret::new(inside.concat());
        let decoded = Secret::new(STANDARD.decode(encoded.expose()).ok()?);
        Some(Pkcs8Key {
            encrypted: begin == SEALED,
            body: SecretDocument::try_from(decoded.expose().as_slice()).ok()?,
        })
    }

    /// Whether a passphrase is needed.
    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// The same key without encryption.
    pub(super) fn decrypt(&self, passphrase: &str) -> Result<Self, Pkcs8Error> {
        let scheme = self.scheme().map_err(Pkcs8Error::Damaged)?;
        if scheme != PBES2_OID {
            return Err(Pkcs8Error::Scheme(scheme));
        }
        let sealed: EncryptedPrivateKeyInfoRef<'_> =
            self.body.decode_msg().map_err(Pkcs8Error::Damaged)?;
        if too_costly(&sealed.encryption_algorithm) {
            return Err(Pkcs8Error::Cost);
        }
        let body = sealed.decrypt(passphrase).map_err(|error| match error {
            pkcs8::Error::EncryptedPrivateKey(
                error @ (pkcs8::pkcs5::Error::UnsupportedAlgorithm { .. }
                | pkcs8::pkcs5::Error::AlgorithmParametersInvalid { .. }),
            ) => Pkcs8Error::Unsupported(error),
            _ => Pkcs8Error::Passphrase,
        })?;
        Ok(Pkcs8Key {
            encrypted: false,
            body,
        })
    }

    /// Whether the bytes have the shape of a plain key.
    pub(super) fn is_private_key(&self) -> bool {
        self.body.decode_msg::<PrivateKeyInfoRef<'_>>().is_ok()
    }

    /// The key itself, when it is not encrypted.
    pub(super) fn key(&self) -> Result<PrivateKey, russh::keys::Error> {
        let Ok(info) = self.body.decode_msg::<PrivateKeyInfoRef<'_>>() else {
            return russh::keys::pkcs8::decode_pkcs8(self.body.as_bytes(), None);
        };
        if info.algorithm.oid != DSA {
            return russh::keys::pkcs8::decode_pkcs8(self.body.as_bytes(), None);
        }
        // The library reads DSA in every form but this one.
        let key = DsaKeypair::from(dsa::SigningKey::try_from(info)?);
        Ok(PrivateKey::new(KeypairData::Dsa(key), "")?)
    }

    /// The scheme alone, also where its parameters are of an unknown shape.
    fn scheme(&self) -> Result<ObjectIdentifier, pkcs8::der::Error> {
        SliceReader::new(self.body.as_bytes())?.sequence(|inner| {
            let algorithm = AlgorithmIdentifierRef::decode(inner)?;
            let rest = inner.remaining_len();
            inner.read_slice(rest)?;
            Ok(algorithm.oid)
        })
    }
}

fn too_costly(scheme: &EncryptionScheme) -> bool {
    let EncryptionScheme::Pbes2(parameters) = scheme else {
        return false;
    };
    match &parameters.kdf {
        Kdf::Pbkdf2(stretch) => stretch.iteration_count > MOST_ROUNDS,
        Kdf::Scrypt(stretch) => {
            let blocks = u64::from(stretch.block_size) * u64::from(stretch.parallelization.max(1));
            let bytes = stretch.cost_parameter.saturating_mul(128 * blocks);
            bytes > MOST_SCRYPT_BYTES
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "pkcs8_key_tests.rs"]
mod tests;
