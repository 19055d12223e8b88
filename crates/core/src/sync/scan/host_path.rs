//! A path on a host as a caller writes it.

use std::fmt::Write as _;

use crate::shell::quote;
use crate::sync::path::{LONGEST_PATH, shown};

/// A path on a host: absolute, or from the home directory of the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPath {
    /// Begins with a slash, or with `./` when it is counted from the home directory.
    bytes: Vec<u8>,
    wants_directory: bool,
}

/// Why bytes are no path on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPathError {
    /// There is nothing.
    #[error("the remote path is empty; write `.` for the home directory")]
    Empty,
    /// It holds a NUL byte.
    #[error("the remote path has a NUL byte in it")]
    Nul,
    /// It is too long.
    #[error("the remote path is longer than {LONGEST_PATH} bytes")]
    TooLong,
    /// It is in the home directory of somebody else.
    #[error(
        "the remote path `{shown}` names the home of another user; write it out, or `./~name` for a file of that name"
    )]
    OtherHome {
        /// The beginning of the path, escaped.
        shown: String,
    },
}

impl HostPath {
    /// Reads `/x`, `~`, `~/x` and `x`, which lies in the home directory, too.
    pub fn parse(bytes: &[u8]) -> Result<Self, HostPathError> {
        match bytes {
            [] => return Err(HostPathError::Empty),
            _ if bytes.contains(&0) => return Err(HostPathError::Nul),
            _ if bytes.len() > LONGEST_PATH => return Err(HostPathError::TooLong),
            _ => {}
        }
        let from_home = match bytes {
            [b'/', ..] => None,
            [b'~'] => Some(&[] as &[u8]),
            [b'~', b'/', rest @ ..] => Some(rest),
            [b'~', ..] => {
                return Err(HostPathError::OtherHome {
                    shown: shown(bytes.get(..200).unwrap_or(bytes)).text,
                });
            }
            _ => Some(bytes),
        };
        // With `./` in front no path is taken for an option, for `cd -` or for an empty word.
        let bytes_kept = match from_home {
            Some(rest) => [b"./", rest].concat(),
            None => bytes.to_vec(),
        };
        Ok(HostPath {
            bytes: bytes_kept,
            wants_directory: bytes.ends_with(b"/"),
        })
    }

    /// The same, but a relative path is counted from the directory in which commands of the sandbox begin, where it has one.
    pub fn parse_from(workdir: Option<&str>, bytes: &[u8]) -> Result<Self, HostPathError> {
        match (workdir, bytes) {
            (Some(workdir), [first, ..]) if !matches!(first, b'/' | b'~') => {
                HostPath::parse(&[workdir.as_bytes(), b"/", bytes].concat())
            }
            _ => HostPath::parse(bytes),
        }
    }

    /// The path as a host understands it: absolute, or from the home directory with `./` in front.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether it is counted from the home directory.
    pub fn is_from_home(&self) -> bool {
        self.bytes.first() != Some(&b'/')
    }

    /// Whether it was written with a slash at its end, so that it means a directory.
    pub fn wants_directory(&self) -> bool {
        self.wants_directory
    }
}

/// A line of a script that gives a variable exactly these bytes.
///
/// Scripts are text. Bytes that are no text are written by `printf` in octal; the letter at the end, which is taken
/// off again, keeps the shell from dropping newlines there. It needs the C locale, where every byte is a character.
pub(crate) fn assignment(variable: &str, bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{variable}={}\n", quote(text)),
        Err(_) => {
            let octal = bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "\\{byte:03o}");
                text
            });
            format!("{variable}=$(printf '{octal}x')\n{variable}=${{{variable}%x}}\n")
        }
    }
}
