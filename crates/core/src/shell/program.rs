//! The shell that runs a command, as somebody may choose it.

use std::fmt;
use std::ops::Deref;

const LONGEST: usize = 255;

/// The name of a shell on the host, or its absolute path; a plain word that no shell takes apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellProgram(String);

/// Why a text does not name a shell.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a shell is a name or an absolute path of at most {LONGEST} letters, digits, `.`, `_`, `+`, `-`, without arguments"
)]
pub struct ShellProgramError;

impl ShellProgram {
    /// Checks the name or path.
    pub fn parse(text: &str) -> Result<Self, ShellProgramError> {
        let plain = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '+' | '-')
        };
        let word = |part: &str| part.chars().all(plain);
        let is_right = match text.strip_prefix('/') {
            Some(rest) => rest.split('/').all(word) && !rest.is_empty() && !rest.ends_with('/'),
            // `.` and `..` are directories, and a dash begins an option.
            None => word(text) && text.starts_with(|first: char| first.is_ascii_alphanumeric()),
        };
        if is_right && text.len() <= LONGEST {
            Ok(ShellProgram(text.to_owned()))
        } else {
            Err(ShellProgramError)
        }
    }

    /// The name or path itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for ShellProgram {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShellProgram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::ShellProgram;

    #[rstest]
    #[case("bash")]
    #[case("zsh-5.9")]
    #[case("/bin/sh")]
    #[case("/opt/conda_1/bin/g++-shell")]
    fn shell_is_taken_as_a_name_or_a_path(#[case] text: &str) {
        assert_eq!(ShellProgram::parse(text).unwrap().as_str(), text);
    }

    #[rstest]
    #[case::empty("")]
    #[case::arguments("bash -x")]
    #[case::option("-c")]
    #[case::relative("bin/sh")]
    #[case::home("~/bin/sh")]
    #[case::folder("/bin/")]
    #[case::root("/")]
    #[case::up("..")]
    #[case::substitution("$(id)")]
    #[case::quote("a'b")]
    #[case::newline("sh\nid")]
    #[case::long(&"x".repeat(256))]
    fn shell_is_refused_when_it_is_more_than_a_word(#[case] text: &str) {
        assert!(ShellProgram::parse(text).is_err());
    }
}
