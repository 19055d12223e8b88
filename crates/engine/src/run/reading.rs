//! Reading on in the output of a run.

use remote_sandbox_core::output::{Pattern, clean_text};
use remote_sandbox_core::secret::Mask;

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

/// What somebody wants to read.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// From where.
    pub position: ReadingPosition,
    /// How many bytes to show.
    pub budget: usize,
    /// Only lines that have this.
    pub grep: Option<Pattern>,
}

impl Wanted {
    /// How many bytes have to be looked at: lines are looked for in more than is shown.
    pub(crate) fn window(&self) -> u64 {
        match (self.position, &self.grep) {
            (ReadingPosition::Since(_), None) => self.budget as u64,
            _ => SEARCHED_FOR_LINES,
        }
    }
}

/// Reads at most so many bytes as are wanted, without splitting a character.
pub fn read(spool: &Spool, wanted: &Wanted) -> std::io::Result<Reading> {
    let total = spool.total();
    let since = match wanted.position {
        ReadingPosition::Since(since) => since,
        ReadingPosition::LastLines(_) => total.saturating_sub(wanted.window()),
    };
    let piece = spool.read(since, usize::try_from(wanted.window()).unwrap_or(0))?;
    let mut reading = shown(&piece.bytes, piece.from, total, wanted, &Mask::default());
    if matches!(wanted.position, ReadingPosition::Since(_)) {
        reading.missing = piece.missing;
    }
    Ok(reading)
}

/// Makes a reading of bytes that begin at `from` and of which there are `total` in all.
pub(crate) fn shown(bytes: &[u8], from: u64, total: u64, wanted: &Wanted, mask: &Mask) -> Reading {
    let text = |bytes: &[u8]| clean_text(&mask.mask_bytes(bytes));
    let mut reading = Reading {
        from,
        next: from,
        total,
        missing: 0,
        text: String::new(),
    };
    if let Some(grep) = &wanted.grep {
        // Only whole lines: a half one would be judged by its first half and never seen again.
        let whole = match wanted.position {
            ReadingPosition::Since(_) => whole_lines(bytes, from, total),
            ReadingPosition::LastLines(_) => whole_characters(bytes),
        };
        let bytes = bytes.get(..whole).unwrap_or_default();
        reading.next = from + bytes.len() as u64;
        reading.text = found_lines(&text(bytes), grep, wanted);
        return reading;
    }
    let skip = match wanted.position {
        ReadingPosition::Since(_) => 0,
        ReadingPosition::LastLines(lines) => {
            start_of_last_lines(bytes, lines).max(bytes.len().saturating_sub(wanted.budget))
        }
    };
    let rest = bytes.get(skip..).unwrap_or_default();
    let broken = rest.iter().take(3).take_while(|&&b| b & 0xc0 == 0x80);
    let skip = skip + if skip > 0 { broken.count() } else { 0 };
    let bytes = bytes.get(skip..).unwrap_or_default();
    let bytes = bytes
        .get(..bytes.len().min(wanted.budget))
        .unwrap_or_default();
    let bytes = bytes.get(..whole_characters(bytes)).unwrap_or_default();
    reading.from = from + skip as u64;
    reading.next = reading.from + bytes.len() as u64;
    reading.text = text(bytes);
    reading
}

/// The lines that are looked for, as many as fit: the last ones, or the first ones of a reading from a byte on.
fn found_lines(text: &str, grep: &Pattern, wanted: &Wanted) -> String {
    let mut lines = grep.lines_of(text);
    let mut left = wanted.budget;
    let mut fits = |line: &&str| {
        left = left.saturating_sub(line.len());
        left > 0
    };
    match wanted.position {
        ReadingPosition::Since(_) => lines.into_iter().take_while(&mut fits).collect(),
        ReadingPosition::LastLines(most) => {
            lines.reverse();
            let mut lines: Vec<&str> = lines.into_iter().take(most).take_while(&mut fits).collect();
            lines.reverse();
            lines.concat()
        }
    }
}

/// How many of the bytes are whole lines; all of them where no line ends, or where nothing follows.
fn whole_lines(bytes: &[u8], from: u64, total: u64) -> usize {
    let end = bytes.iter().rposition(|&byte| byte == b'\n');
    match end {
        Some(end) if from + (bytes.len() as u64) < total => end + 1,
        _ => whole_characters(bytes),
    }
}

pub(crate) fn start_of_last_lines(bytes: &[u8], lines: usize) -> usize {
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

    fn wanted(position: ReadingPosition, budget: usize) -> Wanted {
        Wanted {
            position,
            budget,
            grep: None,
        }
    }

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
                let piece = read(&spool, &wanted(ReadingPosition::Since(since), budget)).unwrap();
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
        let last = |lines| read(&spool, &wanted(ReadingPosition::LastLines(lines), 100)).unwrap();
        assert_eq!(last(2).text, "c\nd\n");
        assert_eq!(last(99).text, "a\nb\nc\nd\n");
        assert_eq!(last(2).next, 8);
    }

    #[test]
    fn lines_with_a_pattern_are_the_last_ones_or_the_next_ones() {
        let text: String = (0..100).map(|n| format!("step {n}\nloss {n}\n")).collect();
        let spool = spool(&text);
        let grep = |position, budget| {
            let grep = Pattern::parse("grep", "^loss").unwrap();
            let wanted = Wanted {
                position,
                budget,
                grep,
            };
            read(&spool, &wanted).unwrap()
        };
        let last = grep(ReadingPosition::LastLines(2), 100);
        assert_eq!(last.text, "loss 98\nloss 99\n");
        assert_eq!(last.next, spool.total());
        assert_eq!(grep(ReadingPosition::LastLines(9), 10).text, "loss 99\n");
        let next = grep(ReadingPosition::Since(0), 16);
        assert_eq!(next.text, "loss 0\nloss 1\n");
        assert_eq!(next.next, spool.total());
    }

    #[test]
    fn secret_is_masked_where_the_bytes_are_not_ours() {
        let mask = Mask::new(["correct horse"]);
        let bytes = b"x correct horse y\n";
        let piece = shown(bytes, 7, 25, &wanted(ReadingPosition::Since(7), 100), &mask);
        assert!(!piece.text.contains("horse"), "{}", piece.text);
        assert_eq!(piece.next, 7 + bytes.len() as u64);
    }
}
