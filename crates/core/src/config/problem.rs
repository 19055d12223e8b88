//! What is wrong in a configuration, where, and what is wanted instead.
//!
//! A problem never holds a value from the configuration other than names of sandboxes, keys and variables.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::{Format, SANDBOXES_MAX, SOURCE_MAX_BYTES};
use crate::ids::IdError;

const SHOWN_MAX_CHARS: usize = 64;

/// One thing that is wrong in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {fault}")]
pub struct Problem {
    /// Where it is.
    pub place: Box<Place>,
    /// What it is; part of the message, so it is not given as the source too.
    pub fault: Fault,
}

impl Problem {
    /// Says that a configuration file exists but cannot be read.
    pub fn unreadable_file(path: PathBuf, reason: String) -> Self {
        Self {
            place: Box::new(Place::whole(Origin::File(path))),
            fault: Fault::Unreadable { reason },
        }
    }
}

/// A place in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file or the variable.
    pub origin: Origin,
    /// The line in the file, where known.
    pub line: Option<usize>,
    /// The entry in the list of sandboxes.
    pub entry: Option<EntryPlace>,
    /// The key, or the variable that stands for it.
    pub key: Option<String>,
}

/// Where a part of the configuration comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Variable(&'static str),
}

/// An entry in a list of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPlace {
    /// Its index, counted from zero; none for the sandbox of the single variables.
    pub index: Option<usize>,
    /// Its name or host, where one is written.
    pub name: Option<String>,
}

impl Place {
    /// The place of a whole source.
    pub(super) fn whole(origin: Origin) -> Self {
        Self {
            origin,
            line: None,
            entry: None,
            key: None,
        }
    }

    /// The place of the entry, without its name and without a key.
    pub(super) fn entry_text(&self) -> String {
        let mut text = match &self.origin {
            Origin::File(path) => escaped(path.to_string_lossy().chars()),
            Origin::Variable(name) => (*name).to_owned(),
        };
        if let Some(line) = self.line {
            text.push_str(&format!(":{line}"));
        }
        if let Some(index) = self.entry.as_ref().and_then(|entry| entry.index) {
            // A variable holds nothing but the list; a file holds the list under a key.
            let list = match self.origin {
                Origin::File(_) => ": sandbox",
                Origin::Variable(_) => "",
            };
            text.push_str(&format!("{list}[{index}]"));
        }
        text
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.entry_text())?;
        if let Some(name) = self.entry.as_ref().and_then(|entry| entry.name.as_ref()) {
            write!(formatter, " ({name})")?;
        }
        match &self.key {
            Some(key) => write!(formatter, ": `{key}`"),
            None => Ok(()),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The file is there, but its content cannot be had.
    #[error("cannot be read and was left out: {reason}")]
    Unreadable {
        /// What the system said.
        reason: String,
    },
    /// The text is longer than any sensible configuration.
    #[error("is larger than {SOURCE_MAX_BYTES} bytes and was not read")]
    TooLarge,
    /// The bytes are not text.
    #[error("is not UTF-8 text, see line {line}")]
    NotUtf8 {
        /// The line, counted from one.
        line: usize,
    },
    /// The text breaks the rules of its language.
    #[error("is not valid {format}, see line {line} column {column}")]
    Syntax {
        /// The language.
        format: Format,
        /// The line, counted from one.
        line: usize,
        /// The column, counted from one.
        column: usize,
    },
    /// The value has the wrong form.
    #[error("must be {0}")]
    Wanted(&'static str),
    /// A value that cannot be left out is missing.
    #[error("is required")]
    Required,
    /// A key that nobody reads.
    #[error("unknown key `{key}`, known keys: {known}")]
    UnknownKey {
        /// The key as written, escaped and shortened.
        key: String,
        /// The keys that exist.
        known: String,
    },
    /// There are more sandboxes than are kept.
    #[error(
        "more than {SANDBOXES_MAX} sandboxes are configured, only the first {SANDBOXES_MAX} are kept"
    )]
    TooManySandboxes,
    /// The name of the sandbox breaks a rule.
    #[error(transparent)]
    Name(IdError),
    /// Nothing says where the host is.
    #[error("is required, unless `ssh_alias` names a host of the SSH configuration")]
    NoHost,
    /// Two keys say where the host is.
    #[error("give only one of `host` and `ssh_alias`: both say where the host is")]
    HostAndAlias,
    /// The name of a host in the SSH configuration breaks a rule.
    #[error(
        "must be a name of the SSH configuration: 1 to 255 characters, no blanks, quotes, wildcards or control characters, not beginning with `-`"
    )]
    Alias,
    /// A secret is given to a program that takes none from us.
    #[error("has no place beside `transport` \"openssh\": the system's ssh logs in by itself")]
    OpenSshLogsIn,
    /// A key needs the other program.
    #[error("is only understood beside `transport` \"openssh\"")]
    NeedsOpenSsh,
    /// The name cannot be that of an environment variable.
    #[error(
        "is no name for an environment variable: letters, digits and `_`, not beginning with a digit, and not one that the shell keeps for itself"
    )]
    VariableName,
    /// The same secret is given in several ways.
    #[error("give only one of {keys}")]
    SeveralSources {
        /// The keys that were given.
        keys: String,
    },
    /// The variable that should hold a secret does not exist.
    #[error("the environment variable `{variable}` is not set or empty")]
    MissingVariable {
        /// Its name.
        variable: String,
    },
    /// A command was given as one text.
    #[error(
        "must be a list of a program and its arguments, such as [\"pass\", \"show\", \"gpu1\"]: it is started without a shell"
    )]
    CommandIsText,
    /// A path depends on the home directory, which is not known.
    #[error(
        "depends on the home directory, but HOME is not set to an absolute path; write an absolute path"
    )]
    NoHome,
    /// A path names the home directory of another user.
    #[error("`~` is only understood alone or before `/`; write an absolute path")]
    OtherHome,
    /// A later entry of the same source has the same name.
    #[error("another entry with this name comes later")]
    Replaced,
    /// The environment has an entry with the same name, which cannot be used either.
    #[error("the entry with this name in {winner} takes its place")]
    Shadowed {
        /// Where the other entry is.
        winner: String,
    },
    /// A setting was not understood, so it has no effect.
    #[error("must be {wanted}; it is ignored")]
    Ignored {
        /// What would be understood.
        wanted: &'static str,
    },
}

/// Text from the configuration in a form that is safe to print: short, on one line, no control characters.
pub(super) fn shown(text: &str) -> String {
    let mut shown = escaped(text.chars().take(SHOWN_MAX_CHARS));
    if text.chars().nth(SHOWN_MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

fn escaped(characters: impl Iterator<Item = char>) -> String {
    let mut escaped = String::new();
    for character in characters {
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            escaped.extend(character.escape_debug());
        } else {
            escaped.push(character);
        }
    }
    escaped
}
