//! The host and port a connection is made to, in the form known_hosts files use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const DEFAULT_PORT: u16 = 22;

/// Longest host name DNS allows, with room for the zone of an IPv6 address.
const MAX_HOST_BYTES: usize = 320;

/// Why a host and port cannot be looked up in known_hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The host is empty.
    #[error("host name is empty")]
    Empty,
    /// The host is longer than any real name.
    #[error("host name of {length} bytes is longer than {MAX_HOST_BYTES} bytes")]
    TooLong {
        /// Length of the name in bytes.
        length: usize,
    },
    /// The host holds a character that has a meaning in known_hosts files or cannot be written there.
    #[error("host name {host:?} holds the character {character:?}")]
    BadCharacter {
        /// The name as given.
        host: String,
        /// The first offending character.
        character: char,
    },
    /// Port 0 cannot be connected to.
    #[error("port of host '{host}' is 0")]
    PortZero {
        /// The host whose port is 0.
        host: String,
    },
}

/// A host and port as OpenSSH looks them up: lower case, numeric addresses in their shortest form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostAddress {
    host: String,
    port: u16,
}

impl HostAddress {
    /// Normalises a host name or numeric address (IPv6 with or without brackets) and its port.
    pub fn new(host: &str, port: u16) -> Result<Self, AddressError> {
        let bare = host
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(host);
        check(bare)?;
        if port == 0 {
            return Err(AddressError::PortZero {
                host: bare.to_owned(),
            });
        }
        let host = shortest_address(bare).unwrap_or_else(|| bare.to_owned());
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// A name looked up as it stands, without port, as OpenSSH does for `HostKeyAlias`.
    pub fn alias(name: &str) -> Result<Self, AddressError> {
        check(name)?;
        // Case is kept: OpenSSH hashes an alias as written, and plain patterns ignore case anyway.
        Ok(Self {
            host: name.to_owned(),
            port: DEFAULT_PORT,
        })
    }

    /// The normalised host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name known_hosts files record: the host for port 22, else `[host]:port`.
    #[must_use]
    pub fn known_hosts_name(&self) -> String {
        if self.port == DEFAULT_PORT {
            self.host.clone()
        } else {
            format!("[{}]:{}", self.host, self.port)
        }
    }

    /// The host alone, when that is not already the recorded name.
    pub(super) fn name_without_port(&self) -> Option<&str> {
        (self.port != DEFAULT_PORT).then_some(self.host.as_str())
    }
}

fn check(host: &str) -> Result<(), AddressError> {
    if host.is_empty() {
        return Err(AddressError::Empty);
    }
    if host.len() > MAX_HOST_BYTES {
        return Err(AddressError::TooLong { length: host.len() });
    }
    // A recorded `*` would trust its key for every host, a blank or line break would forge a line.
    let bad = |character: &char| {
        character.is_whitespace()
            || character.is_control()
            || ",*?!|#@[]\u{feff}".contains(*character)
    };
    match host.chars().find(bad) {
        Some(character) => Err(AddressError::BadCharacter {
            host: host.to_owned(),
            character,
        }),
        None => Ok(()),
    }
}

/// OpenSSH resolves numeric addresses before the lookup, so `127.1` and `0:0:0:0:0:0:0:1` are recorded in short form.
fn shortest_address(host: &str) -> Option<String> {
    if let Some((address, zone)) = host.split_once('%') {
        let address: Ipv6Addr = address.parse().ok()?;
        return Some(format!("{address}%{zone}"));
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    legacy_ipv4(host).map(|address| address.to_string())
}

/// The old notations `a.b.c`, `a.b` and `a`, each part decimal, `0x` hexadecimal or `0` octal; the last part fills
/// all bytes that remain.
fn legacy_ipv4(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u32> = host
        .split('.')
        .map(legacy_number)
        .collect::<Option<Vec<_>>>()?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 {
        return None;
    }
    let mut address = 0_u32;
    let mut room = 32_u32;
    for part in leading {
        room -= 8;
        address |= u32::from(u8::try_from(*part).ok()?) << room;
    }
    if u64::from(*last) >= 1_u64 << room {
        return None;
    }
    Some(Ipv4Addr::from(address | last))
}

fn legacy_number(text: &str) -> Option<u32> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let octal = text.strip_prefix('0').filter(|rest| !rest.is_empty());
    let (digits, radix) = match (hexadecimal, octal) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) => (digits, 8),
        (None, None) => (text, 10),
    };
    // The conversion would take a sign, an address has none.
    let unsigned = digits.chars().all(|digit| digit.is_digit(radix));
    unsigned.then(|| u32::from_str_radix(digits, radix).ok())?
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
