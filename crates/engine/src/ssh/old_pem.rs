//! Private keys in the forms that OpenSSL wrote before PKCS #8: one label per algorithm, and an
//! encryption of the whole that is announced in header lines.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use remote_sandbox_core::secret::Secret;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::Mpint;
use russh::keys::ssh_key::private::{DsaKeypair, DsaPrivateKey, KeypairData};
use russh::keys::ssh_key::public::DsaPublicKey;

const LABELS: [&str; 3] = ["RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY"];
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const LONGEST_IV_BYTES: usize = 16;
const SALT_BYTES: usize = 8;

/// Why an encrypted key stays closed.
#[derive(Debug, thiserror::Error)]
pub enum OldPemError {
    /// It is encrypted in a way that we do not know.
    #[error(
        "it is encrypted with `{0}`; only AES and 3DES in CBC mode are known, `ssh-keygen -p -f` converts it"
    )]
    Cipher(String),
    /// The header lines make no sense.
    #[error("its header lines are damaged")]
    Header,
    /// The passphrase does not fit.
    #[error("the passphrase does not fit")]
    Passphrase,
}

/// One key in an old form.
pub(super) struct OldPem {
    label: &'static str,
    cipher: Option<String>,
    body: Secret<Vec<u8>>,
}

impl OldPem {
    /// The key in a text, when the text holds one of these forms.
    pub(super) fn find(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let label = lines.by_ref().find_map(|line| {
            let found = line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
            LABELS.into_iter().find(|label| *label == found)
        })?;
        let mut cipher = None;
        let mut parts = Vec::new();
        for line in lines.take_while(|line| !line.starts_with("-----END ")) {
            match line.split_once(':') {
                Some(("DEK-Info", value)) => cipher = Some(value.trim().to_owned()),
                Some(_) => {}
                None => parts.push(line),
            }
        }
        let encoded = Secret::new(parts.concat());
        Some(OldPem {
            label,
            cipher,
            body: Secret::new(STANDARD.decode(encoded.expose()).ok()?),
        })
    }

    /// Whether a passphrase is needed.
    pub(super) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// The same key without encryption.
    pub(super) fn decrypt(&self, passphrase: &str) -> Result<Self, OldPemError> {
        let header = self.cipher.as_deref().unwrap_or_default();
        let (cipher, iv) = header.split_once(',').ok_or(OldPemError::Header)?;
        let iv = unhex(iv.trim()).ok_or(OldPemError::Header)?;
        let salt = iv.get(..SALT_BYTES).ok_or(OldPemError::Header)?;
        let key = |length| derive_key(passphrase, salt, length);
        let body = self.body.expose();
        let plain = match cipher.trim() {
            "AES-128-CBC" => opened::<aes::Aes128>(&key(16), &iv, body),
            "AES-192-CBC" => opened::<aes::Aes192>(&key(24), &iv, body),
            "AES-256-CBC" => opened::<aes::Aes256>(&key(32), &iv, body),
            "DES-EDE3-CBC" => opened::<des::TdesEde3>(&key(24), &iv, body),
            other => return Err(OldPemError::Cipher(other.chars().take(40).collect())),
        };
        Ok(OldPem {
            label: self.label,
            cipher: None,
            body: Secret::new(plain?),
        })
    }

    /// The key itself, when it is not encrypted.
    pub(super) fn key(&self) -> Result<PrivateKey, russh::keys::Error> {
        if self.label == "DSA PRIVATE KEY" {
            let key = dsa_key(self.body.expose()).ok_or(russh::keys::Error::CouldNotReadKey)?;
            return Ok(PrivateKey::new(KeypairData::Dsa(key), "")?);
        }
        let encoded = Secret::new(STANDARD.encode(self.body.expose()));
        let (label, body) = (self.label, encoded.expose());
        let text = Secret::new(format!(
            "-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"
        ));
        russh::keys::decode_secret_key(text.expose(), None)
    }
}

fn opened<Cipher: BlockCipherDecrypt + KeyInit>(
    key: &Secret<Vec<u8>>,
    iv: &[u8],
    sealed: &[u8],
) -> Result<Vec<u8>, OldPemError> {
    cbc::Decryptor::<Cipher>::new_from_slices(key.expose(), iv)
        .map_err(|_| OldPemError::Header)?
        .decrypt_padded_vec::<Pkcs7>(sealed)
        .map_err(|_| OldPemError::Passphrase)
}

/// OpenSSL's own way from a passphrase to a key: MD5, chained until there is enough.
fn derive_key(passphrase: &str, salt: &[u8], length: usize) -> Secret<Vec<u8>> {
    let mut key = Secret::new(Vec::new());
    let mut block = Secret::new(Vec::new());
    while key.expose().len() < length {
        let input = Secret::new([block.expose(), passphrase.as_bytes(), salt].concat());
        block = Secret::new(md5::compute(input.expose()).0.to_vec());
        key = Secret::new([key.expose().as_slice(), block.expose()].concat());
    }
    Secret::new(key.expose().iter().copied().take(length).collect())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.len() > 2 * LONGEST_IV_BYTES {
        return None;
    }
    (0..text.len() / 2)
        .map(|index| u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok())
        .collect()
}

/// A sequence of six numbers: version, p, q, g, public, private.
fn dsa_key(der: &[u8]) -> Option<DsaKeypair> {
    let mut outer = der;
    let mut inner = take(&mut outer, SEQUENCE)?;
    let _version = take(&mut inner, INTEGER)?;
    let mut number = || take(&mut inner, INTEGER).map(Mpint::from_positive_bytes);
    let (p, q, g, y, x) = (number()?, number()?, number()?, number()?, number()?);
    let public = DsaPublicKey::new(p, q, g, y).ok()?;
    DsaKeypair::new(public, DsaPrivateKey::new(x).ok()?).ok()
}

/// Takes one value of a kind from the front of DER bytes.
fn take<'a>(input: &mut &'a [u8], kind: u8) -> Option<&'a [u8]> {
    let (&found, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        rest = after;
        if digits.len() > 4 {
            return None;
        }
        digits
            .iter()
            .fold(0, |length, digit| length << 8 | usize::from(*digit))
    };
    let (value, after) = rest.split_at_checked(length)?;
    *input = after;
    (found == kind).then_some(value)
}

#[cfg(test)]
#[path = "old_pem_tests.rs"]
mod tests;
