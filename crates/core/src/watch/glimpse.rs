//! What is kept of a look at a task: the end of its log, and its checkpoint.
//!
//! A look brings only the part of a log that is new, from the last line on that was not whole; what was kept before is
//! continued with it.

use sha1::{Digest, Sha1};

use crate::job::{CheckpointFormat, CheckpointSight, FileKind};

/// Longest end of a log that is kept, in bytes: 200 lines of 250 characters, and less than an event holds.
pub const LONGEST_TAIL: usize = 56 * 1024;

/// A line that breaks off is read again from its beginning, unless it is longer than this.
const LONGEST_PART: usize = 4 * 1024;

/// A checkpoint that was written so recently may be half written.
const BEING_WRITTEN_S: u64 = 3;

/// The SHA-1 of a text, by which it is seen whether it changed.
pub fn digest(text: &str) -> String {
    let digest = Sha1::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where reading goes on when `text` was read from byte `from` on.
pub fn next_scan(from: u64, text: &[u8]) -> u64 {
    let line = text.iter().rposition(|byte| is_break(*byte));
    let whole = line.map_or(0, |line| line + 1);
    let read = if text.len() - whole > LONGEST_PART {
        text.len()
    } else {
        whole
    };
    from.saturating_add(read as u64)
}

/// Progress bars end their lines without a line feed.
fn is_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// The last lines of a log of which `kept` was known and `new` goes on at its last line that was not whole.
pub fn joined_tail(kept: &str, new: &str, lines: u32) -> String {
    let whole = kept.rfind(['\n', '\r']).map_or(0, |line| line + 1);
    let mut text = kept.get(..whole).unwrap_or_default().to_owned();
    text.push_str(new);
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    let body = text.strip_suffix('\n').unwrap_or(&text);
    let mut breaks = body.rmatch_indices('\n');
    let from = lines.checked_sub(1).and_then(|skip| breaks.nth(skip));
    let from = from.map_or(0, |(at, _)| at + 1);
    let least = text.len().saturating_sub(LONGEST_TAIL);
    if from >= least {
        return text.split_off(from);
    }
    let at = (least..=text.len()).find(|at| text.is_char_boundary(*at));
    let mut tail = text.split_off(at.unwrap_or(0));
    let broken = broken_line(tail.as_bytes());
    tail.split_off(broken)
}

/// How long the rest of a line is that a text begins with, where more follows: half a line may be half a word.
pub fn broken_line(text: &[u8]) -> usize {
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) if end + 1 < text.len() => end + 1,
        _ => 0,
    }
}

/// What a checkpoint says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointGlimpse {
    /// The bytes that were read; none when there is nothing new to keep.
    pub bytes: Option<Vec<u8>>,
    /// How long ago it was written, where it is a file.
    pub age_s: Option<u64>,
    /// Whether it is there and cannot be used.
    pub is_unreadable: bool,
}

/// Reads what was seen of a checkpoint of which at most so many bytes were asked for.
pub fn checkpoint_glimpse(
    sight: Option<&CheckpointSight>,
    format: CheckpointFormat,
    most_bytes: u64,
) -> CheckpointGlimpse {
    let unreadable = CheckpointGlimpse {
        is_unreadable: true,
        ..CheckpointGlimpse::default()
    };
    let (text, age_s, is_whole) = match sight {
        None | Some(CheckpointSight::Skipped) => return CheckpointGlimpse::default(),
        Some(CheckpointSight::Hung) => return unreadable,
        Some(CheckpointSight::Told { text, .. }) => (text, None, (text.len() as u64) < most_bytes),
        Some(CheckpointSight::File(file)) => match file.kind {
            FileKind::Missing => return CheckpointGlimpse::default(),
            FileKind::Unreadable | FileKind::NotAFile => return unreadable,
            FileKind::File => {
                // Its size and age were told before it was read, and it may have been written in between.
                let is_whole = file.size_bytes == Some(file.text.len() as u64)
                    && (file.text.len() as u64) <= most_bytes;
                (&file.text, file.age_s, is_whole)
            }
        },
    };
    let is_settled = age_s.is_none_or(|age| age >= BEING_WRITTEN_S);
    let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    CheckpointGlimpse {
        bytes: Some(text.clone()),
        age_s,
        is_unreadable: format == CheckpointFormat::Json && is_whole && is_settled && !is_json(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::job::FileSight;

    #[rstest]
    #[case(b"one\ntwo", 14)]
    #[case(b"one\n", 14)]
    #[case(b"", 10)]
    #[case(b"12%\r34%", 14)]
    fn reading_goes_on_at_the_line_that_broke_off(#[case] text: &[u8], #[case] next: u64) {
        assert_eq!(next_scan(10, text), next);
    }

    #[test]
    fn line_without_end_is_not_read_again_for_ever() {
        assert_eq!(next_scan(0, &[b'x'; 5000]), 5000);
    }

    #[rstest]
    #[case("", "a\nb\nc\n", 2, "b\nc\n")]
    #[case("a\nb", "bb\ncc", 2, "bb\ncc")]
    #[case("a\n", "", 5, "a\n")]
    #[case("a\nb\n", "c\n", 9, "a\nb\nc\n")]
    fn tail_goes_on_where_it_broke_off(
        #[case] kept: &str,
        #[case] new: &str,
        #[case] lines: u32,
        #[case] tail: &str,
    ) {
        assert_eq!(joined_tail(kept, new, lines), tail);
    }

    #[test]
    fn tail_holds_two_hundred_lines_of_ordinary_length_and_is_cut_between_lines() {
        let line = |number: usize| format!("{number:0>249}\u{e9}\n");
        let log: String = (0..300).map(line).collect();
        let last: String = (100..300).map(line).collect();
        assert_eq!(joined_tail("", &log, 200), last);
        let tail = joined_tail("", &log, 300);
        assert!(tail.len() <= LONGEST_TAIL && tail.len() > LONGEST_TAIL - 300);
        assert!(log.ends_with(&format!("\n{tail}")), "{tail}");
        let endless = "\u{e9}".repeat(LONGEST_TAIL);
        assert_eq!(joined_tail("", &endless, 9).len(), LONGEST_TAIL);
    }

    #[rstest]
    #[case(b"half\nwhole\n", 5)]
    #[case(b"no end", 0)]
    #[case(b"only\n", 0)]
    #[case(b"", 0)]
    fn rest_of_a_line_is_left_out_where_more_follows(#[case] text: &[u8], #[case] length: usize) {
        assert_eq!(broken_line(text), length);
    }

    fn file(kind: FileKind, text: &str, size: u64, age: u64) -> CheckpointSight {
        CheckpointSight::File(FileSight {
            kind,
            size_bytes: Some(size),
            age_s: Some(age),
            text: text.as_bytes().to_vec(),
            ..FileSight::default()
        })
    }

    #[rstest]
    #[case::whole(file(FileKind::File, "{\"n\":1}", 7, 60), false)]
    #[case::being_written(file(FileKind::File, "{\"n\":", 5, 0), false)]
    #[case::half_written_for_long(file(FileKind::File, "{\"n\":", 5, 60), true)]
    #[case::longer_than_read(file(FileKind::File, "{\"n\":", 1 << 31, 60), false)]
    #[case::fifo(file(FileKind::NotAFile, "", 0, 60), true)]
    #[case::missing(file(FileKind::Missing, "", 0, 60), false)]
    #[case::hung(CheckpointSight::Hung, true)]
    #[case::skipped(CheckpointSight::Skipped, false)]
    fn checkpoint_is_unreadable_only_when_it_stays_so(
        #[case] sight: CheckpointSight,
        #[case] is_unreadable: bool,
    ) {
        let glimpse = checkpoint_glimpse(Some(&sight), CheckpointFormat::Json, 8192);
        assert_eq!(glimpse.is_unreadable, is_unreadable, "{glimpse:?}");
    }

    proptest! {
        #[test]
        fn tail_is_the_end_of_the_log_however_it_is_cut(
            text in "[a-c\n]{0,200}",
            cuts in prop::collection::vec(0_usize..200, 0..6),
            lines in 1_u32..10,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= text.len()).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut kept, mut from) = (String::new(), 0_u64);
            for cut in cuts {
                let piece = &text[usize::try_from(from).unwrap()..cut];
                kept = joined_tail(&kept, piece, lines);
                from = next_scan(from, piece.as_bytes());
            }
            prop_assert_eq!(kept, joined_tail("", &text, lines));
        }
    }
}
