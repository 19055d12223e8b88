//! Names and identifiers that are checked once, where they enter the program.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most characters a sandbox name may have.
pub const SANDBOX_NAME_MAX_CHARS: usize = 64;

const RUN_ID_PREFIX: &str = "run_";
const HEX_DIGITS: usize = 32;

/// Why a text is not a name or an identifier.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdError {
    /// The text of a sandbox name is empty.
    #[error("a sandbox name must not be empty")]
    EmptyName,
    /// The text of a sandbox name has too many characters.
    #[error("a sandbox name has at most {SANDBOX_NAME_MAX_CHARS} characters, this one has {chars}")]
    LongName {
        /// How many characters were given.
        chars: usize,
    },
    /// The text of a sandbox name holds a control character.
    #[error(
        "a sandbox name must not hold control characters, this one has `{shown}` at character {position}"
    )]
    ControlInName {
        /// The character in escaped form.
        shown: String,
        /// Where it stands, counted from one.
        position: usize,
    },
    /// The text of a sandbox name begins or ends with a blank.
    #[error("a sandbox name must not begin or end with a blank: \"{shown}\"")]
    BlankAtEdge {
        /// The name in escaped form.
        shown: String,
    },
    /// The text is not a run identifier.
    #[error("a run id is `run_` and 32 lower-case hexadecimal digits, not \"{shown}\"")]
    NotARunId {
        /// The beginning of the text in escaped form.
        shown: String,
    },
    /// The text is not a run token.
    #[error("a run token is 32 lower-case hexadecimal digits")]
    NotARunToken,
}

/// The name of a sandbox: 1 to 64 characters, no control characters, no blank at either end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

impl SandboxName {
    /// Checks a text and makes it a name.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError::EmptyName);
        }
        if let Some((index, character)) = text.chars().enumerate().find(|(_, c)| breaks_a_line(*c))
        {
            return Err(IdError::ControlInName {
                shown: character.escape_debug().to_string(),
                position: index + 1,
            });
        }
        let chars = text.chars().count();
        if chars > SANDBOX_NAME_MAX_CHARS {
            return Err(IdError::LongName { chars });
        }
        if text.trim() != text {
            return Err(IdError::BlankAtEdge {
                shown: text.escape_debug().to_string(),
            });
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A control character, or one of the two Unicode separators that end a line in some readers.
fn breaks_a_line(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

impl Borrow<str> for SandboxName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The identifier of a run: `run_` and 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Checks a text and makes it a run identifier.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        match text.strip_prefix(RUN_ID_PREFIX) {
            Some(digits) if is_lower_hex(digits) => Ok(Self(text.to_owned())),
            _ => Err(IdError::NotARunId {
                shown: text.chars().take(48).flat_map(char::escape_debug).collect(),
            }),
        }
    }

    /// Makes the identifier that stands for the bytes of a UUID.
    pub fn from_uuid_bytes(bytes: [u8; 16]) -> Self {
        Self(format!("{RUN_ID_PREFIX}{}", lower_hex(bytes)))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The token by which the processes of a run are recognised: 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunToken(String);

impl RunToken {
    /// Checks a text and makes it a run token.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if is_lower_hex(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::NotARunToken)
        }
    }

    /// Makes the token that stands for the bytes of a UUID.
    pub fn from_uuid_bytes(bytes: [u8; 16]) -> Self {
        Self(lower_hex(bytes))
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_lower_hex(text: &str) -> bool {
    text.len() == HEX_DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn lower_hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

macro_rules! checked_text {
    ($type:ty) => {
        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

checked_text!(SandboxName);
checked_text!(RunId);
checked_text!(RunToken);

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
