//! What an answer says about the whole file.

use super::{Content, Part, ReadAnswer};

/// What is known about a file and the piece of it that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// The true size of the file.
    pub size_bytes: u64,
    /// Whether some of what was asked for is not in the piece.
    pub truncated: bool,
    /// From which byte to read on.
    pub next_offset: Option<u64>,
    /// From which line to read on.
    pub next_line: Option<u64>,
    /// Whether the size changed while it was read.
    pub changed: bool,
}

impl ReadAnswer {
    /// Puts together what the host said before, during and after the reading.
    pub fn figures(&self, part: Part) -> Figures {
        let changed = self.header.size_bytes != self.size_after;
        let (length, is_cut) = (self.piece.length as u64, self.piece.is_cut);
        let offset = match part {
            Part::From(offset) => Some(offset),
            Part::LastLines(_) | Part::Lines { .. } => None,
        };
        let next = offset.unwrap_or(0) + self.piece.skipped as u64 + length;
        let whole = offset.is_some() && !is_cut && !changed && length > 0;
        let size_bytes = match offset {
            // The end was seen. Files of the kernel call themselves empty, or a page long.
            Some(_) if whole => next,
            Some(_) if is_cut => self.size_after.max(next),
            Some(_) => self.size_after,
            None => self.size_after.max(length),
        };
        let has_grown = offset.is_some() && self.size_after > self.header.size_bytes;
        let truncated = is_cut || (has_grown && next < self.size_after);
        Figures {
            size_bytes,
            truncated,
            next_offset: (truncated && offset.is_some()).then_some(next),
            next_line: self.next_line(part).filter(|_| is_cut),
            changed,
        }
    }

    /// The line in which the piece ends, when it is another one than it begins with.
    fn next_line(&self, part: Part) -> Option<u64> {
        match (part, &self.piece.content) {
            (Part::Lines { first, .. }, Content::Text(text)) => {
                let ended = text.bytes().filter(|byte| *byte == b'\n').count() as u64;
                (ended > 0).then(|| first.saturating_add(ended))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{FileState, Header, Piece};

    /// Figures of what was read of a file whose size was told before and after.
    fn figures(part: Part, came: &str, budget: usize, sizes: (u64, u64)) -> Figures {
        let answer = ReadAnswer {
            header: Header {
                state: FileState::File,
                size_bytes: sizes.0,
            },
            size_after: sizes.1,
            is_read: true,
            piece: Piece::new(came.as_bytes(), part, budget),
        };
        answer.figures(part)
    }

    #[test]
    fn size_is_that_of_the_file_and_not_of_the_piece() {
        let cut = figures(Part::From(2), "abcd", 3, (100, 100));
        assert_eq!((cut.size_bytes, cut.truncated), (100, true));
        assert_eq!(cut.next_offset, Some(5));
        let last = figures(Part::LastLines(1), "abc", 9, (100, 100));
        assert_eq!((last.size_bytes, last.truncated), (100, false));
        let past = figures(Part::From(200), "", 9, (100, 100));
        assert_eq!((past.size_bytes, past.truncated), (100, false));
    }

    #[test]
    fn file_that_calls_itself_empty_or_a_page_long_has_the_size_that_was_read() {
        for told in [0, 4096] {
            let read = figures(Part::From(0), "abc", 9, (told, told));
            assert_eq!((read.size_bytes, read.truncated), (3, false));
        }
    }

    #[test]
    fn file_that_grew_or_shrank_is_told_and_can_be_read_on() {
        let grown = figures(Part::From(0), "abc", 9, (3, 7));
        assert_eq!((grown.size_bytes, grown.truncated), (7, true));
        assert_eq!((grown.next_offset, grown.changed), (Some(3), true));
        let shrunk = figures(Part::From(0), "abc", 9, (5, 1));
        assert_eq!((shrunk.size_bytes, shrunk.truncated), (1, false));
        assert!(shrunk.changed);
    }

    #[test]
    fn lines_that_did_not_fit_can_be_read_on_by_line() {
        let part = Part::Lines {
            first: 7,
            last: None,
        };
        let cut = figures(part, "a\nb\ncdefgh", 5, (99, 99));
        assert_eq!((cut.truncated, cut.next_line), (true, Some(9)));
        assert_eq!(cut.next_offset, None);
        assert_eq!(figures(part, "abcdefgh", 5, (99, 99)).next_line, None);
    }
}
