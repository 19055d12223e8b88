//! Turns foreign bytes into text that cannot steer a terminal or hide from a reader.

/// Decodes bytes and shows control, bidirectional and tag characters instead of passing them on.
///
/// Newline, tab and carriage return stay. Bytes that are not UTF-8 become U+FFFD.
pub fn clean_text(bytes: &[u8]) -> String {
    // Most output is plain; looking at whole bytes first is many times faster than at characters.
    if is_plain(bytes)
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return text.to_owned();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push_clean(&mut text, chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

fn is_plain(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'))
}

/// Cleans one line of foreign text and cuts it to `limit` characters.
pub fn clean_line(line: &str, limit: usize) -> String {
    let mut text = String::new();
    push_clean(&mut text, line.trim());
    let mut text = text.replace(['\n', '\r', '\t'], " ");
    if let Some((cut, _)) = text.char_indices().nth(limit) {
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// How many of the first bytes become a clean text of at most so many characters; never less than one character.
pub fn fitting_start(bytes: &[u8], most: usize) -> usize {
    if is_plain(bytes) {
        return bytes.len().min(most.max(1));
    }
    let (mut at, mut left) = (0, most);
    for (length, cost) in shown_pieces(bytes) {
        if cost > left && at > 0 {
            break;
        }
        at += length;
        left = left.saturating_sub(cost);
    }
    at
}

/// From which byte on the rest becomes a clean text of at most so many characters.
pub fn fitting_end(bytes: &[u8], most: usize) -> usize {
    if is_plain(bytes) {
        return bytes.len().saturating_sub(most);
    }
    let mut left: usize = shown_pieces(bytes).map(|(_, cost)| cost).sum();
    let mut at = 0;
    for (length, cost) in shown_pieces(bytes) {
        if left <= most {
            break;
        }
        at += length;
        left -= cost;
    }
    at
}

/// Each character, or what stands for one: how many bytes it is, and how many characters show it.
fn shown_pieces(bytes: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let broken = chunk.invalid().len();
        let valid = chunk.valid().chars();
        valid
            .map(|character| (character.len_utf8(), shown_length(character)))
            .chain((broken > 0).then_some((broken, 1)))
    })
}

/// How many characters show one.
fn shown_length(character: char) -> usize {
    match character {
        _ if is_harmless(character) => 1,
        _ if character.is_ascii() => 4,
        _ => format!("\\u{{{:x}}}", u32::from(character)).len(),
    }
}

fn push_clean(text: &mut String, valid: &str) {
    let mut clean_from = 0;
    for (at, character) in valid.char_indices() {
        if is_harmless(character) {
            continue;
        }
        text.push_str(valid.get(clean_from..at).unwrap_or_default());
        if character.is_ascii() {
            text.push_str(&format!("\\x{:02x}", u32::from(character)));
        } else {
            text.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
        }
        clean_from = at + character.len_utf8();
    }
    text.push_str(valid.get(clean_from..).unwrap_or_default());
}

/// Whether a character neither steers a terminal nor hides from a reader; newline, tab and carriage return count as harmless.
pub(crate) fn is_harmless(character: char) -> bool {
    match character {
        '\n' | '\t' | '\r' => true,
        // Control characters: terminal escapes, NUL, C1.
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => false,
        // Characters that reorder or hide what a reader sees.
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain("héllo\n\tx\r\n".as_bytes(), "héllo\n\tx\r\n")]
    #[case::escape(b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m")]
    #[case::clipboard(b"\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07")]
    #[case::nul(b"a\0b", "a\\x00b")]
    #[case::bidi("a\u{202e}b".as_bytes(), "a\\u{202e}b")]
    #[case::tag("a\u{e0041}".as_bytes(), "a\\u{e0041}")]
    #[case::not_utf8(b"a\xffb", "a\u{fffd}b")]
    fn clean_text_shows_what_could_do_harm(#[case] bytes: &[u8], #[case] expected: &str) {
        assert_eq!(clean_text(bytes), expected);
    }

    #[rstest]
    #[case::plain(b"abcdefgh", 3)]
    #[case::nul(b"\0\0\0\0\0\0", 9)]
    #[case::escapes(b"ab\x1b[0mcd", 7)]
    #[case::bidi("x\u{202e}y\u{202e}z".as_bytes(), 10)]
    #[case::not_utf8(b"\xff\xfea\xff", 2)]
    #[case::wide("\u{6f22}\u{6f22}\u{6f22}".as_bytes(), 2)]
    fn as_many_bytes_fit_as_are_shown_within_the_limit(#[case] bytes: &[u8], #[case] most: usize) {
        let shown = |from, to| clean_text(bytes.get(from..to).unwrap()).chars().count();
        let start = fitting_start(bytes, most);
        let end = fitting_end(bytes, most);
        assert!(shown(0, start) <= most && shown(end, bytes.len()) <= most);
        assert!(shown(0, bytes.len()) > most, "otherwise nothing is tried");
        let next = bytes.get(start..).unwrap();
        assert!(shown(0, start + fitting_start(next, 1)) > most);
    }

    #[test]
    fn one_character_always_fits() {
        assert_eq!(fitting_start(b"\0\0", 1), 1);
        assert_eq!(fitting_start(b"ab", 0), 1);
        assert_eq!(fitting_start(b"", 1), 0);
    }

    #[test]
    fn clean_line_is_one_line_and_cut() {
        assert_eq!(clean_line("a\nb\tc", 10), "a b c");
        assert_eq!(clean_line("abcdef", 3), "abc…");
    }
}
