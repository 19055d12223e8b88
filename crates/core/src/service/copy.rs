//! How the copies of this program are called that services point to.

use std::cmp::Ordering;
use std::fmt;

/// What every copy's name begins with.
const PREFIX: &str = "remote-sandbox-mcp-";

/// As many digits of the digest tell two builds of one version apart.
const DIGITS: usize = 12;

/// The file name of one copy: the version it is of, and the beginning of its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyName {
    version: String,
    digest: String,
}

impl CopyName {
    /// The name for a program of this version with this content.
    pub fn new(version: &str, sha256: &[u8]) -> Self {
        let digest: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        CopyName {
            version: version.to_owned(),
            digest: digest.chars().take(DIGITS).collect(),
        }
    }

    /// Reads a file name; none when it is not one of a copy.
    pub fn parse(name: &str) -> Option<Self> {
        let (version, digest) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_digest = digest.len() == DIGITS && digest.bytes().all(is_hex);
        let is_version = version.starts_with(|first: char| first.is_ascii_digit())
            && version.chars().all(is_of_a_name);
        (is_digest && is_version).then(|| CopyName {
            version: version.to_owned(),
            digest: digest.to_owned(),
        })
    }

    /// The copy that the text of a unit, a property list or a record points to.
    pub fn named_in(text: &str) -> Option<Self> {
        let places = text.match_indices(PREFIX);
        places
            .filter_map(|(start, _)| text.get(start..))
            .find_map(|rest| {
                let end = rest.find(|letter| !is_of_a_name(letter));
                CopyName::parse(rest.get(..end.unwrap_or(rest.len()))?)
            })
    }

    /// Whether a file in the folder of copies may be removed by us: a copy, or a part of one.
    pub fn is_ours(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// Whether it is of an older version than the given one; of what cannot be compared it is not said.
    pub fn is_older_than(&self, version: &str) -> bool {
        match (Version::parse(&self.version), Version::parse(version)) {
            (Some(own), Some(other)) => own.cmp(&other) == Ordering::Less,
            _ => false,
        }
    }
}

impl fmt::Display for CopyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{}-{}", self.version, self.digest)
    }
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '+')
}

/// Three numbers, and whether it is the final one of them: trial versions come before it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    numbers: [u64; 3],
    is_final: bool,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.split('+').next().unwrap_or(text);
        let (numbers, trial) = match text.split_once('-') {
            Some((numbers, trial)) => (numbers, Some(trial)),
            None => (text, None),
        };
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then_some(Version {
            numbers,
            is_final: trial.is_none(),
        })
    }
}
