//! The bytes of an archive on their way to the thread that writes.

use std::io::{self, BufRead, Read};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

/// What goes to the thread that writes.
pub(super) enum Piece {
    Bytes(Bytes),
    /// The archive is over, and the program that packed it has ended.
    End,
}

/// The pieces as one stream, for a thread that may wait.
pub(super) struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    is_over: bool,
    is_lost: bool,
}

impl Pieces {
    pub(super) fn new(pieces: mpsc::Receiver<Piece>) -> Self {
        Pieces {
            pieces,
            current: Bytes::new(),
            is_over: false,
            is_lost: false,
        }
    }

    /// Whether whoever sent them went away before the end.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether all of them came.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next bytes; none at the end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        self.fill();
        let bytes = std::mem::take(&mut self.current);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Whether the stream begins with these two bytes, which stay in it.
    pub(super) fn begin_with(&mut self, magic: [u8; 2]) -> bool {
        self.fill();
        if self.current.len() == 1 {
            let first = std::mem::take(&mut self.current);
            self.fill();
            self.current = [first, std::mem::take(&mut self.current)].concat().into();
        }
        self.current.starts_with(&magic)
    }

    /// Waits for bytes unless there are some, or no more come.
    fn fill(&mut self) {
        while self.current.is_empty() && !self.is_over && !self.is_lost {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.current = bytes,
                Some(Piece::End) => self.is_over = true,
                None => self.is_lost = true,
            }
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut held = self.fill_buf()?;
        let length = held.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.fill();
        Ok(&self.current)
    }

    fn consume(&mut self, length: usize) {
        self.current.advance(length.min(self.current.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(texts: &[&'static str], end: bool) -> Pieces {
        let (sender, receiver) = mpsc::channel(8);
        for text in texts {
            let piece = Piece::Bytes(Bytes::from_static(text.as_bytes()));
            sender.try_send(piece).ok().unwrap();
        }
        if end {
            sender.try_send(Piece::End).ok().unwrap();
        }
        Pieces::new(receiver)
    }

    #[test]
    fn pieces_are_one_stream_whose_first_bytes_can_be_looked_at() {
        for texts in [&["ab", "cd"][..], &["a", "bcd"], &["abcd"]] {
            let mut stream = pieces(texts, true);
            assert!(stream.begin_with(*b"ab") && !stream.begin_with(*b"bc"));
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text, "abcd");
            assert!(stream.is_over() && !stream.is_lost());
        }
    }

    #[test]
    fn stream_that_is_lost_has_no_end() {
        let mut stream = pieces(&["a"], false);
        assert!(!stream.begin_with(*b"ab"));
        assert_eq!(stream.next().as_deref(), Some(b"a".as_slice()));
        assert_eq!(stream.next(), None);
        assert!(stream.is_lost() && !stream.is_over());
    }
}
