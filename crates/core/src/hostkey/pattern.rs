//! The host field of a known_hosts line: a list of patterns or one hashed name.

use crate::glob;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

const HASH_BYTES: usize = 20;

/// OpenSSH matches nothing with a list that holds a pattern this long or longer.
const PATTERN_LIMIT_BYTES: usize = 1023;

/// Which names a known_hosts line is about.
#[derive(Debug, Clone)]
pub(super) enum HostPatterns {
    /// Patterns separated by commas, as in the file.
    List(Vec<u8>),
    /// HMAC-SHA1 of one name, keyed with the salt.
    Hashed {
        salt: [u8; HASH_BYTES],
        hash: [u8; HASH_BYTES],
    },
}

impl HostPatterns {
    /// Reads the field; `None` for a hashed name that is broken and so can match no host.
    pub(super) fn parse(field: &[u8]) -> Option<Self> {
        if !field.starts_with(b"|") {
            return Some(Self::List(field.to_vec()));
        }
        let encoded = field.strip_prefix(b"|1|")?;
        let separator = encoded.iter().position(|byte| *byte == b'|')?;
        let (salt, hash) = encoded.split_at_checked(separator)?;
        Some(Self::Hashed {
            salt: decode_hash(salt)?,
            hash: decode_hash(hash.strip_prefix(b"|")?)?,
        })
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::List(list) => list_matches(list, name.as_bytes()),
            Self::Hashed { salt, hash } => {
                let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(salt) else {
                    return false;
                };
                mac.update(name.as_bytes());
                mac.verify_slice(hash).is_ok()
            }
        }
    }
}

fn decode_hash(encoded: &[u8]) -> Option<[u8; HASH_BYTES]> {
    STANDARD.decode(encoded).ok()?.try_into().ok()
}

fn list_matches(list: &[u8], name: &[u8]) -> bool {
    let mut matched = false;
    for pattern in list.split(|byte| *byte == b',') {
        let (negated, pattern) = match pattern.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        if pattern.len() >= PATTERN_LIMIT_BYTES {
            return false;
        }
        if glob_matches(pattern, name) {
            if negated {
                return false;
            }
            matched = true;
        }
    }
    matched
}

/// `*` stands for any run of bytes, `?` for one byte; ASCII case is ignored.
fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    glob::matches(pattern, name, |wanted: u8, byte: u8| {
        wanted.eq_ignore_ascii_case(&byte)
    })
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
