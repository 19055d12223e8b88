//! Patterns of names and files.

use crate::glob;

/// Whether a pattern, in which `*` stands for any text and `?` for one byte, describes a text.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    glob::matches(pattern.as_bytes(), text.as_bytes(), |wanted, byte| {
        wanted == byte
    })
}

/// Whether a list describes a name: one pattern must, and none with `!` may.
pub(super) fn matches_list<'a>(patterns: impl Iterator<Item = &'a str>, name: &str) -> bool {
    let mut matched = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(refused) if matches_pattern(refused, name) => return false,
            Some(_) => {}
            None => matched |= matches_pattern(pattern, name),
        }
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("gpu*", "gpu1", true)]
    #[case("*.a?c", "x.abc", true)]
    #[case("*", "", true)]
    #[case("gpu", "GPU", false)]
    #[case("a*b*c", "axxbxx", false)]
    fn pattern_describes_a_text(#[case] pattern: &str, #[case] text: &str, #[case] wanted: bool) {
        assert_eq!(matches_pattern(pattern, text), wanted);
    }

    #[test]
    fn refused_pattern_wins_over_the_others() {
        let list = ["*", "!gpu*"];
        assert!(matches_list(list.into_iter(), "cpu1"));
        assert!(!matches_list(list.into_iter(), "gpu1"));
        assert!(!matches_list(["!gpu*"].into_iter(), "cpu1"));
    }
}
