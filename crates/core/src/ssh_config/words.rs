//! Lines of a configuration file, taken apart as OpenSSH does.

/// A line with a meaning: its keyword in lower case, its arguments, and the text they stand in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) keyword: String,
    pub(super) rest: &'a str,
}

/// Takes a line apart; none when it is empty or a comment.
pub(super) fn line(text: &str) -> Option<Line<'_>> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let end = text
        .find(|character: char| character.is_whitespace() || character == '=')
        .unwrap_or(text.len());
    let (keyword, rest) = text.split_at_checked(end)?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').map_or(rest, str::trim_start);
    Some(Line {
        keyword: keyword.trim_matches('"').to_ascii_lowercase(),
        rest,
    })
}

/// Splits at blanks outside quotes; none when a quote is not closed.
pub(super) fn words(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', _) if matches!(characters.peek(), Some('"' | '\'' | '\\')) => {
                current.get_or_insert_default().extend(characters.next());
            }
            ('"' | '\'', None) => {
                quote = Some(character);
                current.get_or_insert_default();
            }
            (_, Some(open)) if open == character => quote = None,
            (blank, None) if blank.is_whitespace() => found.extend(current.take()),
            ('#', None) if current.is_none() => break,
            _ => current.get_or_insert_default().push(character),
        }
    }
    found.extend(current);
    quote.is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("  Host a b ", "host", "a b")]
    #[case("HostName=a", "hostname", "a")]
    #[case("HostName = a", "hostname", "a")]
    #[case("User\tme", "user", "me")]
    #[case("Match", "match", "")]
    fn line_has_keyword_and_rest(#[case] text: &str, #[case] keyword: &str, #[case] rest: &str) {
        let keyword = keyword.to_owned();
        assert_eq!(line(text), Some(Line { keyword, rest }));
    }

    #[test]
    fn line_without_meaning_is_passed_over() {
        assert_eq!(line(""), None);
        assert_eq!(line("  # Host a"), None);
    }

    #[rstest]
    #[case("a  b", &["a", "b"])]
    #[case("\"a b\" c", &["a b", "c"])]
    #[case("'a \"b' c\\\"d", &["a \"b", "c\"d"])]
    #[case("a # b", &["a"])]
    #[case("a#b \"\"", &["a#b", ""])]
    fn words_are_split_outside_quotes(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(words(text).unwrap(), expected);
    }

    #[test]
    fn open_quote_is_noticed() {
        assert_eq!(words("a \"b"), None);
    }
}
