//! The line of callers that wait for a place on a connection.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::clock;

/// A line that has not moved for this long needs another connection.
const PATIENCE: Duration = Duration::from_millis(500);

/// A caller who waited this long gets another connection although the line moves.
const LONGEST_PATIENCE: Duration = Duration::from_secs(2);

/// Wakes callers when a place comes free, and knows when that was.
#[derive(Debug)]
pub(crate) struct Line {
    change: Notify,
    last_move: Mutex<Instant>,
}

impl Line {
    /// A line in which nobody waits yet.
    pub(crate) fn new() -> Self {
        Line {
            change: Notify::new(),
            last_move: Mutex::new(clock::instant()),
        }
    }

    /// Waits until it may make sense to look for a place again.
    pub(crate) fn change(&self) -> Notified<'_> {
        self.change.notified()
    }

    /// One place came free: the first in line may have it.
    pub(crate) fn move_up(&self) {
        *self.last() = clock::instant();
        self.change.notify_one();
    }

    /// Connections came or went: everybody has to look.
    pub(crate) fn everybody(&self) {
        self.change.notify_waiters();
    }

    /// Waits until a caller in line since `since` should get another connection.
    pub(crate) async fn patience(&self, since: Instant) {
        loop {
            let still = since.max(*self.last()) + PATIENCE;
            let until = still.min(since + LONGEST_PATIENCE);
            if clock::instant() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.last_move
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn line_that_moves_is_waited_in_longer_but_not_for_ever() {
        let line = Line::new();
        let since = clock::instant();
        line.patience(since).await;
        assert_eq!(since.elapsed().as_millis(), PATIENCE.as_millis());
        let since = clock::instant();
        let moving = async {
            loop {
                line.move_up();
                tokio::time::sleep(PATIENCE / 5).await;
            }
        };
        tokio::select! {
            () = line.patience(since) => {}
            () = moving => {}
        }
        assert_eq!(since.elapsed().as_millis(), LONGEST_PATIENCE.as_millis());
    }
}
