//! The first and the last bytes of a stream, and how many lay between.

use std::collections::VecDeque;

/// Keeps the head and the tail of a stream within a fixed size.
#[derive(Debug)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

impl HeadTail {
    /// A buffer that keeps about `limit` bytes, half of them from each end.
    pub fn new(limit: usize) -> Self {
        let head_limit = limit / 2;
        HeadTail {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_limit,
            tail_limit: limit - head_limit,
            total: 0,
        }
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self
            .head_limit
            .saturating_sub(self.head.len())
            .min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let newest = rest.len().saturating_sub(self.tail_limit);
        let rest = rest.get(newest..).unwrap_or_default();
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend(rest);
    }

    /// How many bytes were pushed in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many bytes between head and tail are gone.
    pub fn omitted(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The kept bytes: head and tail; when nothing is gone, the head is everything.
    pub fn parts(&self) -> (Vec<u8>, Vec<u8>) {
        let (front, back) = self.tail.as_slices();
        if self.omitted() == 0 {
            let mut whole = self.head.clone();
            whole.extend_from_slice(front);
            whole.extend_from_slice(back);
            (whole, Vec::new())
        } else {
            (self.head.clone(), [front, back].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn head_tail_counts_what_is_gone() {
        let mut buffer = HeadTail::new(10);
        buffer.push(b"0123456789abcdefghij");
        assert_eq!(buffer.parts(), (b"01234".to_vec(), b"fghij".to_vec()));
        assert_eq!((buffer.total(), buffer.omitted()), (20, 10));
    }

    proptest! {
        #[test]
        fn head_tail_is_the_same_however_the_stream_is_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            limit in 0usize..64,
        ) {
            let whole: Vec<u8> = chunks.concat();
            let mut pieces = HeadTail::new(limit);
            for chunk in &chunks { pieces.push(chunk); }
            let (head, tail) = pieces.parts();
            prop_assert_eq!(pieces.total(), whole.len() as u64);
            prop_assert!(whole.starts_with(&head));
            prop_assert!(whole.ends_with(&tail));
            prop_assert_eq!(pieces.omitted() as usize, whole.len() - head.len() - tail.len());
            prop_assert!(head.len() + tail.len() <= limit.max(1));
        }
    }
}
