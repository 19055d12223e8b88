//! Hands on the output of a run while it comes, whole and stream by stream, at the reader's own pace.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use crate::clock;
use crate::sandbox::Stream;

/// Bytes that may wait for the reader; past that, the host is made to wait.
const MOST_WAITING: usize = 4 * 1024 * 1024;

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
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
    /// Hands on a piece; waits for room until `deadline`, which makes the host wait in turn.
    pub(super) fn push(&self, stream: Stream, bytes: Vec<u8>, deadline: Instant) {
        if bytes.is_empty() {
            return;
        }
        let mut queue = self.0.queue();
        if queue.is_full() && !queue.hurried {
            drop(queue);
            let left = deadline.saturating_duration_since(clock::instant());
            blocking(|| self.wait_for_room(left));
            queue = self.0.queue();
        }
        if queue.abandoned {
            return;
        }
        if queue.is_full() {
            queue.dropped += bytes.len() as u64;
            return;
        }
        queue.bytes += bytes.len();
        queue.pieces.push_back((stream, bytes));
        self.0.changed.notify_all();
    }

    fn wait_for_room(&self, limit: Duration) {
        let wait = self
            .0
            .changed
            .wait_timeout_while(self.0.queue(), limit, |queue| {
                queue.is_full() && !queue.hurried
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
    fn is_full(&self) -> bool {
        self.bytes >= MOST_WAITING && !self.abandoned
    }
}

impl Follower {
    /// The next piece; blocks until there is one, `None` after the last one.
    pub fn next_piece(&self) -> Option<(Stream, Vec<u8>)> {
        let queue = self.0.queue();
        let nothing = |queue: &mut Queue| queue.pieces.is_empty() && !queue.ended;
        let waited = self.0.changed.wait_while(queue, nothing);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        let (stream, bytes) = queue.pieces.pop_front()?;
        queue.bytes -= bytes.len();
        self.0.changed.notify_all();
        Some((stream, bytes))
    }

    /// How many bytes were dropped because the run had to end and nobody took them.
    pub fn dropped_bytes(&self) -> u64 {
        self.0.queue().dropped
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.abandoned = true;
        queue.pieces.clear();
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
            if leave {
                drop(follower);
            } else {
                tap.hurry();
            }
            writer.join().unwrap();
        }
    }
}
