//! What a caller sees of the bytes of a file: whole characters, or the bytes as they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Part;

/// Bytes that are asked for beyond the wanted ones: to see that there are more, and to complete a character.
pub(super) const BEYOND: usize = 4;

/// The bytes of a file as they can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Text(String),
    /// Bytes that are no text.
    Binary(Vec<u8>),
}

impl Content {
    /// The word for the form it is written in, and what is written.
    pub fn written(self) -> (&'static str, String) {
        match self {
            Content::Text(text) => ("utf-8", text),
            Content::Binary(bytes) => ("base64", STANDARD.encode(bytes)),
        }
    }
}

/// A piece of a file that fits into a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it holds.
    pub content: Content,
    /// How many bytes before it are the rest of a character that begins earlier, or were left out.
    pub skipped: usize,
    /// How many bytes of the file it is.
    pub length: usize,
    /// Whether the budget was too small for all that was asked for.
    pub is_cut: bool,
}

impl Piece {
    /// Makes one of the bytes that came, which are up to [`BEYOND`] more than the budget.
    pub(super) fn new(bytes: &[u8], part: Part, budget: usize) -> Self {
        let is_cut = bytes.len() > budget;
        let keeps_end = matches!(part, Part::LastLines(_));
        let (from, to) = match (is_cut, keeps_end) {
            (false, _) => (0, bytes.len()),
            (true, false) => (0, budget),
            (true, true) => (bytes.len() - budget, bytes.len()),
        };
        let may_begin_within = from > 0 || matches!(part, Part::From(offset) if offset > 0);
        let text_from = if may_begin_within {
            from + continued(bytes.get(from..).unwrap_or_default())
        } else {
            from
        };
        let text_to = if is_cut && !keeps_end {
            character_end(bytes, text_from, to)
        } else {
            to
        };
        let slice = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
        let (content, from, to) = match std::str::from_utf8(slice(text_from, text_to)) {
            Ok(text) if !text.contains('\0') => {
                (Content::Text(text.to_owned()), text_from, text_to)
            }
            _ => (Content::Binary(slice(from, to).to_vec()), from, to),
        };
        Piece {
            content,
            skipped: from,
            length: to.saturating_sub(from),
            is_cut,
        }
    }
}

/// How many bytes at the beginning belong to a character that begins earlier.
fn continued(bytes: &[u8]) -> usize {
    let rest = bytes.iter().take(3);
    rest.take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Where the last whole character before `to` ends; the first character is given whole even if it does not fit.
fn character_end(bytes: &[u8], from: usize, to: usize) -> usize {
    let is_border = |at: usize| bytes.get(at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let before = (to.saturating_sub(3)..=to).rev().find(|at| is_border(*at));
    match before {
        Some(at) if at > from => at,
        _ => (to..=to + 3).find(|at| is_border(*at)).unwrap_or(to),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn text(bytes: &[u8], part: Part, budget: usize) -> (String, usize, bool) {
        let piece = Piece::new(bytes, part, budget);
        let Content::Text(text) = piece.content else {
            panic!("no text: {piece:?}")
        };
        assert_eq!(text.len(), piece.length);
        (text, piece.skipped, piece.is_cut)
    }

    /// What a host sends of a file.
    fn sent(file: &[u8], offset: usize, budget: usize) -> &[u8] {
        let rest = &file[offset..];
        &rest[..rest.len().min(budget + BEYOND)]
    }

    #[test]
    fn reading_on_never_splits_a_character_and_always_goes_on() {
        let whole = "é漢😀x".repeat(40);
        for budget in 1..12 {
            let (mut offset, mut seen) = (0, String::new());
            while offset < whole.len() {
                let bytes = sent(whole.as_bytes(), offset, budget);
                let (text, skipped, _) = text(bytes, Part::From(offset as u64), budget);
                assert_eq!(skipped, 0);
                assert!(!text.is_empty() && text.len() < budget + BEYOND);
                offset += text.len();
                seen.push_str(&text);
            }
            assert_eq!(seen, whole, "budget {budget}");
        }
    }

    #[test]
    fn offset_within_a_character_begins_with_the_next_one() {
        let bytes = "漢é".as_bytes();
        assert_eq!(
            text(&bytes[1..], Part::From(1), 100),
            ("é".to_owned(), 2, false)
        );
    }

    #[test]
    fn last_lines_that_do_not_fit_lose_their_beginning() {
        let bytes = "漢字\nab".as_bytes();
        assert_eq!(
            text(bytes, Part::LastLines(2), 7),
            ("字\nab".to_owned(), 3, true)
        );
        assert_eq!(
            text(bytes, Part::LastLines(2), 5),
            ("\nab".to_owned(), 6, true)
        );
    }

    #[rstest]
    #[case::not_utf8(b"a\xff")]
    #[case::nul(b"a\0")]
    fn bytes_that_are_no_text_are_given_as_they_are(#[case] bytes: &[u8]) {
        let piece = Piece::new(bytes, Part::From(0), 10);
        assert_eq!(piece.content, Content::Binary(bytes.to_vec()));
        let cut = Piece::new(&[0x80, 0, 0xc3, 0xa9], Part::From(1), 3);
        assert_eq!(cut.content, Content::Binary(vec![0x80, 0, 0xc3]));
        assert_eq!((cut.skipped, cut.length, cut.is_cut), (0, 3, true));
        assert_eq!(cut.content.written(), ("base64", "gADD".to_owned()));
    }
}
