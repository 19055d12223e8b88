//! Names that are also names of folders.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name; a folder and a socket carry it.
const LONGEST: usize = 40;

/// The name is not usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name of a local sandbox has 1 to {LONGEST} letters, digits, `.`, `_` or `-` and begins with a letter or digit"
)]
pub struct LocalNameError;

/// The name of a sandbox on this machine, safe as the name of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LocalName(String);

impl LocalName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, LocalNameError> {
        let plain = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
        };
        let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric());
        if begins && text.len() <= LONGEST && text.chars().all(plain) {
            Ok(LocalName(text.to_owned()))
        } else {
            Err(LocalNameError)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LocalName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for LocalName {
    type Error = LocalNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        LocalName::parse(&text)
    }
}

impl From<LocalName> for String {
    fn from(name: LocalName) -> Self {
        name.0
    }
}
