//! Patterns of names and files.

/// Whether a pattern, in which `*` stands for any text and `?` for one byte, describes a text.
///
/// Going back only to the last `*` keeps the work within pattern length times text length.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(read) {
        match pattern.get(at) {
            Some(b'*') => {
                last_star = Some((at, read));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted == byte => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else {
                    return false;
                };
                last_star = Some((star, taken + 1));
                at = star + 1;
                read = taken + 1;
            }
        }
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
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
