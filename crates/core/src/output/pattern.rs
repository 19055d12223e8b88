//! Lines that somebody looks for in foreign output.

use regex::{Regex, RegexBuilder};

/// Longest pattern that is accepted.
const LONGEST_PATTERN: usize = 1000;

/// Memory that a pattern may need.
const MOST_MEMORY: usize = 1 << 20;

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// It is longer than any that is needed.
    #[error("`{field}` is longer than {LONGEST_PATTERN} characters")]
    TooLong {
        /// The argument at fault.
        field: &'static str,
    },
    /// It is no regular expression, or one that needs too much memory.
    #[error("`{field}` is not a regular expression that can be used")]
    NotAPattern {
        /// The argument at fault.
        field: &'static str,
        /// Why.
        #[source]
        source: Box<regex::Error>,
    },
}

/// A regular expression for single lines; matching takes time in proportion to the text, whatever the pattern.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Checks a pattern that came as the named argument; none when it is empty.
    pub fn parse(field: &'static str, text: &str) -> Result<Option<Self>, PatternError> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.chars().count() > LONGEST_PATTERN {
            return Err(PatternError::TooLong { field });
        }
        let built = RegexBuilder::new(text)
            .multi_line(true)
            .size_limit(MOST_MEMORY)
            .dfa_size_limit(MOST_MEMORY)
            .build();
        let pattern = built.map_err(|source| PatternError::NotAPattern {
            field,
            source: Box::new(source),
        })?;
        Ok(Some(Pattern(pattern)))
    }

    /// Whether a text has it.
    pub fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The lines of a text that have it, each with its end.
    pub fn lines_of<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let lines = text.split_inclusive('\n');
        lines.filter(|line| self.is_in_line(line)).collect()
    }

    /// Whether a single line has it, whose end does not count.
    pub fn is_in_line(&self, line: &str) -> bool {
        self.0.is_match(line.trim_end_matches(['\n', '\r']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_pattern() {
        let pattern = Pattern::parse("grep", r"^(loss|error)\b").unwrap().unwrap();
        let text = "loss 1\nno loss\r\nerror: x\r\nerrors\nloss";
        assert_eq!(pattern.lines_of(text), ["loss 1\n", "error: x\r\n", "loss"]);
        assert!(pattern.is_in("a\nloss 3\n"));
        assert!(!pattern.is_in("a loss"));
    }

    #[test]
    fn pattern_is_refused_when_it_is_none_or_a_bomb() {
        assert!(Pattern::parse("grep", "").unwrap().is_none());
        let long = "x".repeat(LONGEST_PATTERN + 1);
        for wrong in ["(", "(x{1000}){1000}", &long] {
            let error = Pattern::parse("grep", wrong).unwrap_err();
            assert!(error.to_string().contains("`grep`"), "{error}");
        }
    }
}
