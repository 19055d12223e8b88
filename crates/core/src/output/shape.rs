//! Fits standard output and standard error into one budget of characters.

use super::{HeadTail, clean_text};

/// The two streams as a reply shows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shaped {
    /// Standard output, with a line in the middle where something was left out.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// How many bytes of both were left out.
    pub omitted_bytes: u64,
}

/// Shows both streams within `budget` characters together, head and tail of each.
pub fn shape(stdout: &HeadTail, stderr: &HeadTail, budget: usize) -> Shaped {
    let (out, err) = (Pieces::of(stdout), Pieces::of(stderr));
    let (out_need, err_need) = (out.characters, err.characters);
    // The smaller stream is shown whole where it fits into half; the other one gets the rest.
    let out_budget = budget
        .saturating_sub(err_need)
        .max(budget - budget / 2)
        .min(out_need.max(1));
    let err_budget = budget.saturating_sub(out_budget);
    let (stdout, out_gone) = out.fit(out_budget);
    let (stderr, err_gone) = err.fit(err_budget);
    Shaped {
        stdout,
        stderr,
        omitted_bytes: out_gone + err_gone,
    }
}

struct Pieces {
    head: Vec<u8>,
    tail: Vec<u8>,
    omitted: u64,
    /// The whole stream as it is shown, when all of it is there.
    whole: Option<String>,
    characters: usize,
}

impl Pieces {
    fn of(buffer: &HeadTail) -> Self {
        let (head, tail) = buffer.parts();
        let omitted = buffer.omitted();
        let whole = (omitted == 0).then(|| clean_text(&head));
        let characters = whole
            .as_ref()
            .map_or(usize::MAX, |text| text.chars().count());
        Pieces {
            head,
            tail,
            omitted,
            whole,
            characters,
        }
    }

    fn fit(mut self, budget: usize) -> (String, u64) {
        if let Some(whole) = self.whole.take().filter(|_| self.characters <= budget) {
            return (whole, 0);
        }
        if self.tail.is_empty() {
            let middle = self.head.len() / 2;
            let middle = (middle..).find(|&at| is_character_start(&self.head, at));
            self.tail = self.head.split_off(middle.unwrap_or(self.head.len()));
        }
        let head_budget = budget / 2;
        let (head, head_bytes) = first_characters(&self.head, head_budget);
        let (tail, tail_bytes) = last_characters(&self.tail, budget - head_budget);
        let shown = head_bytes + tail_bytes;
        let gone = self.omitted + (self.head.len() + self.tail.len() - shown) as u64;
        (
            format!("{head}\n... [{gone} bytes omitted] ...\n{tail}"),
            gone,
        )
    }
}

/// The longest start of `bytes` that takes at most `budget` characters when cleaned.
fn first_characters(bytes: &[u8], budget: usize) -> (String, usize) {
    let mut text = String::new();
    let (mut used, mut taken) = (0, 0);
    for (piece, length) in characters(bytes) {
        let cost = piece.chars().count();
        if used + cost > budget {
            break;
        }
        used += cost;
        taken += length;
        text.push_str(&piece);
    }
    (text, taken)
}

/// The longest end of `bytes` that takes at most `budget` characters when cleaned.
fn last_characters(bytes: &[u8], budget: usize) -> (String, usize) {
    // Four bytes hold at least one character, so nothing before this can be needed.
    let from = bytes.len().saturating_sub(budget.saturating_mul(4));
    let from = (from..bytes.len())
        .find(|&at| is_character_start(bytes, at))
        .unwrap_or(bytes.len());
    let pieces: Vec<_> = characters(bytes.get(from..).unwrap_or_default()).collect();
    let (mut used, mut taken, mut first) = (0, 0, pieces.len());
    for (index, (piece, length)) in pieces.iter().enumerate().rev() {
        let cost = piece.chars().count();
        if used + cost > budget {
            break;
        }
        used += cost;
        taken += length;
        first = index;
    }
    let text = pieces
        .iter()
        .skip(first)
        .map(|(piece, _)| piece.as_str())
        .collect();
    (text, taken)
}

fn is_character_start(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at)
        .is_none_or(|byte| byte & 0b1100_0000 != 0b1000_0000)
}

/// Each character as it is shown, with the number of bytes it came from; a piece of a character that
/// was cut off at either end is nobody's character and is left out as such.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (String, usize)> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let invalid = chunk.invalid();
        chunk
            .valid()
            .chars()
            .map(|character| {
                let mut buffer = [0; 4];
                let encoded = character.encode_utf8(&mut buffer);
                (clean_text(encoded.as_bytes()), encoded.len())
            })
            .chain((!invalid.is_empty()).then(|| ("\u{fffd}".to_owned(), invalid.len())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer(bytes: &[u8], limit: usize) -> HeadTail {
        let mut buffer = HeadTail::new(limit);
        buffer.push(bytes);
        buffer
    }

    #[test]
    fn shape_shows_everything_that_fits() {
        let shaped = shape(&buffer(b"out\n", 100), &buffer(b"err\n", 100), 20_000);
        assert_eq!(shaped.stdout, "out\n");
        assert_eq!(shaped.stderr, "err\n");
        assert_eq!(shaped.omitted_bytes, 0);
    }

    #[test]
    fn shape_keeps_both_ends_and_counts_the_middle() {
        let text: String = (0..1000).map(|n| format!("{n}\n")).collect();
        let shaped = shape(&buffer(text.as_bytes(), 80_000), &buffer(b"", 10), 100);
        assert!(shaped.stdout.starts_with("0\n1\n"), "{}", shaped.stdout);
        assert!(shaped.stdout.ends_with("998\n999\n"), "{}", shaped.stdout);
        assert_eq!(shaped.omitted_bytes, text.len() as u64 - 100);
        assert!(
            shaped
                .stdout
                .contains(&format!("[{} bytes omitted]", shaped.omitted_bytes))
        );
    }

    #[test]
    fn shape_leaves_room_for_a_short_error_stream() {
        let shaped = shape(
            &buffer(&[b'a'; 5000], 80_000),
            &buffer(b"the reason", 80_000),
            1000,
        );
        assert_eq!(shaped.stderr, "the reason");
    }

    #[test]
    fn shape_never_cuts_inside_a_character() {
        let text = "é漢😀".repeat(500);
        for budget in 1..50 {
            let shaped = shape(&buffer(text.as_bytes(), 100_000), &buffer(b"", 10), budget);
            assert!(
                !shaped.stdout.contains('\u{fffd}'),
                "budget {budget}: {}",
                shaped.stdout
            );
        }
    }

    proptest! {
        #[test]
        fn shape_stays_within_the_budget(
            out in prop::collection::vec(any::<u8>(), 0..400),
            err in prop::collection::vec(any::<u8>(), 0..400),
            budget in 1usize..500,
        ) {
            let shaped = shape(&buffer(&out, 1000), &buffer(&err, 1000), budget);
            let notice = 40;
            prop_assert!(shaped.stdout.chars().count() + shaped.stderr.chars().count() <= budget + 2 * notice);
        }
    }
}
