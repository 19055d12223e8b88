//! Reading on in the output of a run.

use std::borrow::Cow;

use remote_sandbox_core::output::{Pattern, clean_text, fitting_end, fitting_start};
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
    /// How many characters to show.
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
        let (found, read) = match wanted.position {
            ReadingPosition::Since(_) => next_lines(bytes, &text, grep, wanted.budget),
            ReadingPosition::LastLines(most) => {
                let found = last_lines(&text(bytes), grep, most, wanted.budget);
                (found, bytes.len())
            }
        };
        reading.next = from + read as u64;
        reading.text = found;
        return reading;
    }
    let skip = match wanted.position {
        ReadingPosition::Since(_) => 0,
        ReadingPosition::LastLines(lines) => {
            let least = bytes.len().saturating_sub(wanted.budget);
            let least = start_of_last_lines(bytes, lines).max(least);
            least + fitting_end(bytes.get(least..).unwrap_or_default(), wanted.budget)
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
    let fits = fitting_start(bytes, wanted.budget);
    let bytes = bytes.get(..fits).unwrap_or_default();
    reading.from = from + skip as u64;
    reading.next = reading.from + bytes.len() as u64;
    reading.text = text(bytes);
    reading
}

/// The first lines that are looked for, as many as fit, and up to which byte that is all of them.
fn next_lines(
    bytes: &[u8],
    text: &impl Fn(&[u8]) -> String,
    grep: &Pattern,
    budget: usize,
) -> (String, usize) {
    let (mut found, mut left, mut read) = (String::new(), budget, 0);
    let raw: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let whole = text(bytes);
    let mut lines: Vec<Cow<'_, str>> = whole.split_inclusive('\n').map(Cow::from).collect();
    if lines.len() != raw.len() {
        // A secret of several lines is one mark: which line is which must be seen line by line.
        lines = raw.iter().map(|line| Cow::from(text(line))).collect();
    }
    for (line, raw) in lines.iter().zip(raw) {
        if grep.is_in_line(line) {
            let length = line.chars().count();
            if length > left {
                if found.is_empty() {
                    found = beginning(line, budget);
                    read += raw.len();
                }
                break;
            }
            left -= length;
            found.push_str(line);
        }
        read += raw.len();
    }
    (found, read)
}

/// The last lines that are looked for, as many as fit.
fn last_lines(text: &str, grep: &Pattern, most: usize, budget: usize) -> String {
    let mut left = budget;
    let fits = |line: &&str| {
        let length = line.chars().count();
        let fits = length <= left;
        left = left.saturating_sub(length);
        fits
    };
    let lines = grep.lines_of(text).into_iter().rev().take(most);
    let mut lines: Vec<&str> = lines.take_while(fits).collect();
    if lines.is_empty() {
        let last = grep.lines_of(text).pop();
        return last.map_or_else(String::new, |line| beginning(line, budget));
    }
    lines.reverse();
    lines.concat()
}

/// A line that is longer than all that may be shown.
fn beginning(line: &str, budget: usize) -> String {
    let shown = line.chars().take(budget.saturating_sub(2));
    shown.chain("…\n".chars()).collect()
}

/// How many of the bytes are whole lines; all of them where no line ends, or where nothing follows.
fn whole_lines(bytes: &[u8], from: u64, total: u64) -> usize {
    let end = bytes.iter().rposition(|&byte| byte == b'\n');
    match end {
        Some(end) if from + (bytes.len() as u64) < total => end + 1,
        _ => whole_characters(bytes),
    }
}

/// Where the last so many lines begin; of none of them, at the end.
pub(crate) fn start_of_last_lines(bytes: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return bytes.len();
    }
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
#[path = "reading_tests.rs"]
mod tests;
