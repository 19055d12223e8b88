//! Reading known_hosts files line by line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::key::{HostKey, KeyError, printable_name};
use super::pattern::HostPatterns;

/// Lines longer than this are not read for their key.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a line about a host gives no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The line is longer than [`MAX_LINE_BYTES`].
    #[error("line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The line begins with a marker other than `@revoked` and `@cert-authority`, or with several.
    #[error("line has an unknown marker or more than one marker")]
    BadMarker,
    /// The line ends before the key.
    #[error("line has no key")]
    MissingKey,
    /// The key type field cannot be a name.
    #[error("key type is not a printable name")]
    BadKeyType,
    /// The key is not base64.
    #[error("key is not valid base64")]
    NotBase64(#[source] base64::DecodeError),
    /// The key decodes to something that is no host key.
    #[error("key cannot be read")]
    BadKey(#[source] KeyError),
    /// The key type field names another algorithm than the key itself.
    #[error("line says '{named}' but holds a key of type '{actual}'")]
    WrongKeyType {
        /// The line's key type field.
        named: String,
        /// The algorithm inside the key.
        actual: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    Plain,
    Revoked,
    CertAuthority,
}

#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) marker: Marker,
    pub(super) key: Result<HostKey, LineFault>,
    hosts: HostPatterns,
}

/// The lines of one known_hosts file, with the file's name for messages.
#[derive(Debug, Clone)]
pub struct KnownHosts {
    source: String,
    lines: Vec<Line>,
}

impl KnownHosts {
    /// Reads a whole file; a broken line is kept and matters only to the hosts it names.
    ///
    /// The caller bounds the length of `bytes`; `source` is the file's name as messages should show it.
    #[must_use]
    pub fn parse(source: impl Into<String>, bytes: &[u8]) -> Self {
        let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let lines = text
            .split(|byte| *byte == b'\n')
            .enumerate()
            .filter_map(|(index, line)| Line::parse(index + 1, line))
            .collect();
        Self {
            source: source.into(),
            lines,
        }
    }

    /// The file's name as given to [`KnownHosts::parse`].
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn lines_matching(&self, name: &str) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(move |line| line.hosts.matches(name))
    }
}

impl Line {
    /// `None` for lines that are about no host: blank, comment, marker alone, broken hash.
    fn parse(number: usize, line: &[u8]) -> Option<Self> {
        let too_long = line.len() > MAX_LINE_BYTES;
        let text = line.get(..MAX_LINE_BYTES).unwrap_or(line);
        let mut rest = trim(text);
        if rest.is_empty() || rest.starts_with(b"#") {
            return None;
        }
        let mut marker = Marker::Plain;
        let mut bad_marker = false;
        let mut markers = 0;
        while rest.starts_with(b"@") {
            let (word, after) = split_word(rest);
            markers += 1;
            match word {
                b"@revoked" => marker = Marker::Revoked,
                // A line that is revoked and something else stays a revocation, though a broken one.
                b"@cert-authority" if marker == Marker::Plain => marker = Marker::CertAuthority,
                _ => bad_marker = true,
            }
            rest = after;
        }
        let (hosts, after) = split_word(rest);
        if hosts.is_empty() {
            return None;
        }
        let key = if too_long {
            Err(LineFault::TooLong)
        } else if bad_marker || markers > 1 {
            Err(LineFault::BadMarker)
        } else {
            parse_key(after)
        };
        Some(Self {
            number,
            marker,
            key,
            hosts: HostPatterns::parse(hosts)?,
        })
    }
}

fn parse_key(text: &[u8]) -> Result<HostKey, LineFault> {
    let (named, after) = split_word(text);
    if named.is_empty() || named.starts_with(b"#") {
        return Err(LineFault::MissingKey);
    }
    let named = printable_name(named).ok_or(LineFault::BadKeyType)?;
    let (encoded, _comment) = split_word(after);
    if encoded.is_empty() {
        return Err(LineFault::MissingKey);
    }
    let blob = STANDARD.decode(encoded).map_err(LineFault::NotBase64)?;
    let key = HostKey::from_blob(blob).map_err(LineFault::BadKey)?;
    let actual = key.algorithm();
    // OpenSSH takes the names of RSA signature algorithms for RSA keys.
    let signature_name = actual == "ssh-rsa" && matches!(named, "rsa-sha2-256" | "rsa-sha2-512");
    if named == actual || signature_name {
        Ok(key)
    } else {
        Err(LineFault::WrongKeyType {
            named: named.to_owned(),
            actual,
        })
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Strips blanks from both ends, and the carriage return a file from another system ends its lines with.
fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_blank(*byte));
    let end = text
        .iter()
        .rposition(|byte| !is_blank(*byte) && *byte != b'\r');
    match (start, end) {
        (Some(start), Some(end)) => text.get(start..=end).unwrap_or_default(),
        _ => &[],
    }
}

/// The first word, and what follows it without leading blanks.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| is_blank(*byte));
    let (word, rest) = text
        .split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or((text, &[]));
    (word, trim(rest))
}

#[cfg(test)]
#[path = "known_hosts_tests.rs"]
mod tests;
