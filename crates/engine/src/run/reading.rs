//! Reading on in the output of a run.

use remote_sandbox_core::output::clean_text;

use super::spool::Spool;

/// Lines asked for are looked for in this much of the end.
const SEARCHED_FOR_LINES: u64 = 256 * 1024;

/// From where to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingPosition {
    /// From a byte on.
    Since(u64),
    /// The last lines.
    LastLines(usize),
}

/// A piece of output as a reply shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The first byte shown.
    pub from: u64,
    /// Where to read on.
    pub next: u64,
    /// How many bytes there are in all so far.
    pub total: u64,
    /// Bytes that were asked for but are not kept.
    pub missing: u64,
    /// The text.
    pub text: String,
}

/// Reads at most `budget` bytes without splitting a character.
pub fn read(spool: &Spool, position: ReadingPosition, budget: usize) -> std::io::Result<Reading> {
    let total = spool.total();
    let (since, lines) = match position {
        ReadingPosition::Since(since) => (since, None),
        ReadingPosition::LastLines(lines) => {
            (total.saturating_sub(SEARCHED_FOR_LINES), Some(lines))
        }
    };
    let limit = if lines.is_some() {
        usize::try_from(SEARCHED_FOR_LINES).unwrap_or(0)
    } else {
        budget
    };
    let piece = spool.read(since, limit)?;
    let mut from = piece.from;
    let mut bytes = piece.bytes.as_slice();
    if let Some(lines) = lines {
        let skip = start_of_last_lines(bytes, lines).max(bytes.len().saturating_sub(budget));
        let skip = skip
            + bytes
                .get(skip..)
                .unwrap_or_default()
                .iter()
                .take(3)
                .take_while(|&&byte| byte & 0xc0 == 0x80)
                .count();
        from += skip as u64;
        bytes = bytes.get(skip..).unwrap_or_default();
    }
    let bytes = bytes.get(..whole_characters(bytes)).unwrap_or_default();
    let missing = if lines.is_some() { 0 } else { piece.missing };
    Ok(Reading {
        from,
        next: from + bytes.len() as u64,
        total,
        missing,
        text: clean_text(bytes),
    })
}

fn start_of_last_lines(bytes: &[u8], lines: usize) -> usize {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut seen = 0;
    for (at, &byte) in body.iter().enumerate().rev() {
        if byte == b'\n' {
            seen += 1;
            if seen == lines {
                return at + 1;
            }
        }
    }
    0
}

/// The length of `bytes` without a character that is cut off at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let byte = bytes.get(at).copied().unwrap_or_default();
        let length = match byte {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        // Alone in the piece it would never be read; then it is shown as it is.
        return if length > back && at > 0 {
            at
        } else {
            bytes.len()
        };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(text: &str) -> Spool {
        let mut spool = Spool::new(std::path::PathBuf::new());
        spool.push(text.as_bytes());
        spool
    }

    #[test]
    fn reading_on_never_splits_a_character() {
        let text = "é漢😀x".repeat(50);
        let spool = spool(&text);
        for budget in 4..12 {
            let (mut since, mut seen) = (0, String::new());
            while since < spool.total() {
                let piece = read(&spool, ReadingPosition::Since(since), budget).unwrap();
                assert!(piece.next > since);
                seen.push_str(&piece.text);
                since = piece.next;
            }
            assert_eq!(seen, text, "budget {budget}");
        }
    }

    #[test]
    fn last_lines_are_the_last_lines() {
        let spool = spool("a\nb\nc\nd\n");
        let text = |lines| {
            read(&spool, ReadingPosition::LastLines(lines), 100)
                .unwrap()
                .text
        };
        assert_eq!(text(2), "c\nd\n");
        assert_eq!(text(99), "a\nb\nc\nd\n");
        assert_eq!(
            read(&spool, ReadingPosition::LastLines(2), 100)
                .unwrap()
                .next,
            8
        );
    }
}
