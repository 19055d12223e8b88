//! Hands on the output of a run while it comes, whole and stream by stream, at the reader's own pace.
//! What a slow reader has not taken waits in memory, then on disk, and only then on the host.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use super::backlog::Backlog;
use crate::clock;
use crate::sandbox::Stream;

/// Bytes that may wait for the reader in memory.
const MOST_WAITING: usize = 4 * 1024 * 1024;

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
    /// What came after the pieces in memory.
    backlog: Backlog,
    dropped: u64,
    /// No piece comes any more.
    ended: bool,
    /// What does not fit is dropped from now on.
    hurried: bool,
    /// Nobody reads any more.
    abandoned: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a run's output that the run fills.
#[derive(Debug)]
pub struct Tap(Arc<Shared>);

/// The end of a run's output that somebody reads.
#[derive(Debug)]
pub struct Follower(Arc<Shared>);

/// Both ends of what a follower will see.
pub fn follow() -> (Tap, Follower) {
    let shared = Arc::new(Shared::default());
    (Tap(shared.clone()), Follower(shared))
}

impl Tap {
    /// Says where output may be written that the reader is too slow for.
    pub(super) fn keep_in(&self, folder: PathBuf) {
        self.0.queue().backlog.keep_in(folder);
    }

    /// Hands on a piece. Where the disk has no room for it either, waits until `deadline`, which makes
    /// the host wait in turn, and everybody on the same connection.
    pub(super) fn push(&self, stream: Stream, bytes: Vec<u8>, deadline: Instant) {
        if bytes.is_empty() {
            return;
        }
        let Some(bytes) = self.0.queue().take(stream, bytes) else {
            self.0.changed.notify_all();
            return;
        };
        let left = deadline.saturating_duration_since(clock::instant());
        blocking(|| self.wait_for_room(bytes.len(), left));
        let mut queue = self.0.queue();
        if let Some(bytes) = queue.take(stream, bytes) {
            queue.dropped += bytes.len() as u64;
        }
        self.0.changed.notify_all();
    }

    fn wait_for_room(&self, length: usize, limit: Duration) {
        let wait = self
            .0
            .changed
            .wait_timeout_while(self.0.queue(), limit, |queue| {
                queue.is_full(length) && !queue.hurried
            });
        drop(wait);
    }

    /// From now on nobody waits for the reader: the run shall end.
    pub(super) fn hurry(&self) {
        self.0.queue().hurried = true;
        self.0.changed.notify_all();
    }

    /// Nothing comes any more.
    pub(super) fn end(&self) {
        self.0.queue().ended = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue {
    fn is_full(&self, length: usize) -> bool {
        let behind = self.bytes >= MOST_WAITING || !self.backlog.is_empty();
        behind && !self.backlog.has_room(length) && !self.abandoned
    }

    /// Takes a piece where there is room for it; gives it back where not.
    fn take(&mut self, stream: Stream, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.abandoned {
            return None;
        }
        if self.bytes < MOST_WAITING && self.backlog.is_empty() {
            self.bytes += bytes.len();
            self.pieces.push_back((stream, bytes));
            return None;
        }
        // Once some wait on disk all do, or they would overtake each other.
        (!self.backlog.push(stream, &bytes)).then_some(bytes)
    }

    fn give(&mut self) -> Option<(Stream, Vec<u8>)> {
        if let Some((stream, bytes)) = self.pieces.pop_front() {
            self.bytes -= bytes.len();
            return Some((stream, bytes));
        }
        match self.backlog.pop()? {
            Ok(piece) => Some(piece),
            Err(lost) => {
                self.dropped += lost;
                None
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.backlog.is_empty()
    }
}

impl Follower {
    /// The next piece; blocks until there is one, `None` after the last one.
    pub fn next_piece(&self) -> Option<(Stream, Vec<u8>)> {
        let mut queue = self.0.queue();
        loop {
            let nothing = |queue: &mut Queue| queue.is_empty() && !queue.ended;
            let waited = self.0.changed.wait_while(queue, nothing);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
            let piece = queue.give();
            self.0.changed.notify_all();
            // What was lost on disk is no end.
            if piece.is_some() || (queue.ended && queue.is_empty()) {
                return piece;
            }
        }
    }

    /// How many bytes were lost because the run had to end and nobody took them, or the disk failed.
    pub fn dropped_bytes(&self) -> u64 {
        self.0.queue().dropped
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.abandoned = true;
        queue.pieces.clear();
        queue.backlog.clear();
        queue.bytes = 0;
        self.0.changed.notify_all();
    }
}

/// Blocks this thread without keeping others' tasks from running.
fn blocking(work: impl FnOnce()) {
    let many = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if many {
        tokio::task::block_in_place(work);
    } else {
        work();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(seconds: u64) -> Instant {
        clock::instant() + Duration::from_secs(seconds)
    }

    #[test]
    fn follower_sees_every_byte_of_both_streams_in_order() {
        let (tap, follower) = follow();
        let writer = std::thread::spawn(move || {
            for number in 0..40_000u32 {
                let stream = if number % 3 == 0 {
                    Stream::Err
                } else {
                    Stream::Out
                };
                tap.push(stream, vec![(number % 251) as u8; 1000], later(60));
            }
        });
        let mut seen = 0;
        while let Some((stream, bytes)) = follower.next_piece() {
            let expected = if seen % 3 == 0 {
                Stream::Err
            } else {
                Stream::Out
            };
            assert_eq!((stream, bytes[999]), (expected, (seen % 251) as u8));
            seen += 1;
        }
        writer.join().unwrap();
        assert_eq!((seen, follower.dropped_bytes()), (40_000, 0));
    }

    #[test]
    fn memory_is_bounded_when_nobody_reads_and_the_deadline_lets_go() {
        let (tap, follower) = follow();
        let piece = vec![b'x'; MOST_WAITING / 2];
        for _ in 0..6 {
            tap.push(
                Stream::Out,
                piece.clone(),
                clock::instant() + Duration::from_millis(20),
            );
        }
        assert!(follower.0.queue().bytes <= MOST_WAITING + piece.len());
        assert_eq!(follower.dropped_bytes(), 4 * piece.len() as u64);
    }

    #[test]
    fn tap_goes_on_when_it_is_hurried_or_left_alone() {
        for leave in [false, true] {
            let (tap, follower) = follow();
            let tap = Arc::new(tap);
            let writer = {
                let tap = tap.clone();
                std::thread::spawn(move || {
                    for _ in 0..3 {
                        tap.push(Stream::Out, vec![0; MOST_WAITING], later(60));
                    }
                })
            };
            while follower.0.queue().bytes < MOST_WAITING {
                std::thread::yield_now();
            }
            assert!(!writer.is_finished());
            if leave {
                drop(follower);
            } else {
                tap.hurry();
            }
            writer.join().unwrap();
        }
    }

    #[test]
    fn reader_that_has_fallen_behind_stops_nobody_and_sees_every_byte_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (tap, follower) = follow();
        tap.keep_in(folder.path().join("run_x"));
        let deadline = clock::instant();
        let stream =
            |number: u32| [Stream::Out, Stream::Err][usize::from(number.is_multiple_of(64))];
        let pieces = 30_000_u32;
        for number in 0..pieces {
            tap.push(stream(number), number.to_le_bytes().repeat(250), deadline);
        }
        assert!(follower.0.queue().bytes <= MOST_WAITING + 1000);
        assert_eq!(follower.dropped_bytes(), 0);
        let writer = std::thread::spawn(move || {
            for number in pieces..pieces * 2 {
                tap.push(stream(number), number.to_le_bytes().repeat(250), deadline);
            }
        });
        let (mut seen, mut expected) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        while let Some((stream, bytes)) = follower.next_piece() {
            seen[usize::from(stream == Stream::Err)].extend(bytes);
        }
        writer.join().unwrap();
        for number in 0..pieces * 2 {
            let bytes = number.to_le_bytes().repeat(250);
            expected[usize::from(stream(number) == Stream::Err)].extend(bytes);
        }
        assert!(seen == expected);
        assert_eq!(follower.dropped_bytes(), 0);
    }
}
