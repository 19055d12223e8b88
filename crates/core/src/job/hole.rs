//! The part of a log that was given back to the disk.

/// The part of a log that its runner gave back to the disk; nothing but zeros is read there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first byte that is gone.
    from: u64,
    /// The first byte behind it that is kept.
    to: u64,
}

/// Which of two parts with a hole between them is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The one before it.
    Before,
    /// The one behind it.
    Behind,
}

impl Hole {
    /// From its first byte to the first one behind it.
    pub fn new(from: u64, to: u64) -> Option<Self> {
        (from < to).then_some(Hole { from, to })
    }

    /// Reads what the script says of it: both bytes, with a colon between them.
    pub(super) fn read(words: &str) -> Option<Self> {
        let (from, to) = words.split_once(':')?;
        Hole::new(from.parse().ok()?, to.parse().ok()?)
    }

    /// The first byte that is gone.
    pub fn from(self) -> u64 {
        self.from
    }

    /// The first byte behind it that is kept.
    pub fn to(self) -> u64 {
        self.to
    }

    /// How many of the bytes between these two it has swallowed.
    pub fn swallowed(self, begin: u64, end: u64) -> u64 {
        self.to.min(end).saturating_sub(self.from.max(begin))
    }

    /// What of a text that begins at this byte is kept, and where that begins. The hole may have grown while the text
    /// was read.
    pub(super) fn kept(self, begin: u64, text: &[u8], side: Side) -> (u64, &[u8]) {
        let end = begin.saturating_add(text.len() as u64);
        if self.swallowed(begin, end) == 0 {
            return (begin, text);
        }
        let place = |byte: u64| usize::try_from(byte.saturating_sub(begin)).unwrap_or(usize::MAX);
        if begin < self.from && side == Side::Before {
            return (begin, text.get(..place(self.from)).unwrap_or(text));
        }
        (self.to, text.get(place(self.to)..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::before_it(0, b"abcd", Side::Before, 0, b"abcd")]
    #[case::up_to_it(6, b"abcd", Side::Before, 6, b"abcd")]
    #[case::into_it(8, b"ab\0\0", Side::Before, 8, b"ab")]
    #[case::within(12, b"\0\0\0\0", Side::Before, 20, b"")]
    #[case::out_of_it(18, b"\0\0ab", Side::Before, 20, b"ab")]
    #[case::behind_it(20, b"abcd", Side::Before, 20, b"abcd")]
    #[case::across(8, b"ab\0\0\0\0\0\0\0\0\0\0cd", Side::Before, 8, b"ab")]
    #[case::end_across(8, b"ab\0\0\0\0\0\0\0\0\0\0cd", Side::Behind, 20, b"cd")]
    #[case::end_within(12, b"\0\0\0\0", Side::Behind, 20, b"")]
    fn text_that_reaches_into_a_hole_is_cut(
        #[case] begin: u64,
        #[case] text: &[u8],
        #[case] side: Side,
        #[case] from: u64,
        #[case] kept: &[u8],
    ) {
        let hole = Hole::new(10, 20).unwrap();
        assert_eq!(hole.kept(begin, text, side), (from, kept));
    }

    #[rstest]
    #[case(0, 10, 0)]
    #[case(0, 12, 2)]
    #[case(0, 99, 10)]
    #[case(15, 99, 5)]
    #[case(20, 99, 0)]
    #[case(99, 0, 0)]
    fn hole_swallows_what_lies_within_it(#[case] begin: u64, #[case] end: u64, #[case] bytes: u64) {
        assert_eq!(Hole::new(10, 20).unwrap().swallowed(begin, end), bytes);
    }

    #[rstest]
    #[case("10:20", true)]
    #[case("20:20", false)]
    #[case("20:10", false)]
    #[case("a:20", false)]
    #[case("10", false)]
    fn hole_that_makes_no_sense_is_none(#[case] words: &str, #[case] is_one: bool) {
        assert_eq!(Hole::read(words).is_some(), is_one);
    }
}
