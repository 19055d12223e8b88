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

    #[test]
    fn clean_line_is_one_line_and_cut() {
        assert_eq!(clean_line("a\nb\tc", 10), "a b c");
        assert_eq!(clean_line("abcdef", 3), "abc…");
    }
}
