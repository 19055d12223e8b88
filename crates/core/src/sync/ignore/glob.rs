//! One pattern that picks entries instead of leaving them out.

use super::rule::{Rule, RuleFault, Style};
use crate::sync::path::{RelPath, shown};

/// A pattern in the syntax of the excludes: without a slash it is matched with names at every depth, with one it is
/// a path from the directory that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Rule);

/// Why a text is no such pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It cannot be read.
    #[error("the pattern `{shown}` {fault}")]
    Pattern {
        /// The pattern, escaped.
        shown: String,
        /// What is wrong with it.
        fault: RuleFault,
    },
    /// It takes back what nothing has left out.
    #[error("the pattern `{shown}` begins with `!`; write `\\!` for the character itself")]
    Negated {
        /// The pattern, escaped.
        shown: String,
    },
}

impl Glob {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, GlobError> {
        let shown = || shown(text.as_bytes().get(..200).unwrap_or(text.as_bytes())).text;
        let fault = |fault| GlobError::Pattern {
            shown: shown(),
            fault,
        };
        match Rule::parse(text.as_bytes(), Style::Value).map_err(fault)? {
            Some(rule) if rule.includes => Err(GlobError::Negated { shown: shown() }),
            Some(rule) => Ok(Glob(rule)),
            None => Err(fault(RuleFault::Empty)),
        }
    }

    /// Whether it picks this entry.
    pub fn matches(&self, path: &RelPath, is_directory: bool) -> bool {
        let names: Vec<&[u8]> = path.components().collect();
        self.0.matches(&names, is_directory)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("*.py", "a.py", true)]
    #[case("*.py", "d/e/a.py", true)]
    #[case("*.py", "d/a.pyc", false)]
    #[case("src/*.py", "src/a.py", true)]
    #[case("src/*.py", "d/src/a.py", false)]
    #[case("src/**/*.py", "src/d/e/a.py", true)]
    #[case("d/", "d", false)]
    #[case("node_modules", "node_modules", true)]
    #[case(r"\!x", "!x", true)]
    fn glob_picks_names_and_paths(#[case] pattern: &str, #[case] path: &str, #[case] picked: bool) {
        let path = RelPath::parse(path.as_bytes()).unwrap();
        assert_eq!(Glob::parse(pattern).unwrap().matches(&path, false), picked);
    }

    #[rstest]
    #[case("")]
    #[case("!x")]
    #[case("[a")]
    #[case("a//b")]
    fn glob_that_means_nothing_is_refused(#[case] pattern: &str) {
        assert!(Glob::parse(pattern).is_err());
    }
}
