//! Keys and lines for the tests of this module.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use super::HostKey;

/// A wire blob of the given strings.
pub(super) fn blob(strings: &[&[u8]]) -> Vec<u8> {
    let mut blob = Vec::new();
    for string in strings {
        blob.extend(u32::try_from(string.len()).unwrap().to_be_bytes());
        blob.extend(*string);
    }
    blob
}

pub(super) fn ed25519(seed: u8) -> HostKey {
    HostKey::from_blob(blob(&[b"ssh-ed25519", &[seed; 32]])).unwrap()
}

pub(super) fn ecdsa(seed: u8) -> HostKey {
    let strings: [&[u8]; 3] = [b"ecdsa-sha2-nistp256", b"nistp256", &[seed; 65]];
    HostKey::from_blob(blob(&strings)).unwrap()
}

pub(super) fn rsa(seed: u8) -> HostKey {
    HostKey::from_blob(blob(&[b"ssh-rsa", &[1, 0, 1], &[seed; 256]])).unwrap()
}

/// Type and base64 of a key, as on a known_hosts line.
pub(super) fn text(key: &HostKey) -> String {
    format!("{} {}", key.algorithm(), key.to_base64())
}

/// The hashed form of a name.
pub(super) fn hashed(name: &str, salt: [u8; 20]) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap();
    mac.update(name.as_bytes());
    let hash = mac.finalize().into_bytes();
    format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(hash))
}
