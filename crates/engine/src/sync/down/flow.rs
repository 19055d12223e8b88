//! How far a host is asked ahead, while it is open whether what comes should be packed.
//!
//! `tar` packs names as they come. So the list of them is given only so far ahead of what has arrived, and can end early
//! when the link turns out to be slow: the archive ends in good order, nothing has come in vain, and the rest is asked for
//! once more, packed. On a fast link the list never runs out. Some programs begin only when they have many names, or all;
//! they are not waited for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::sync::receive::Packing;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock;
use crate::sync::gauge::{Gauge, LOOK_AT_LEAST};

/// Bytes that are asked for ahead.
const AHEAD: u64 = 2 * 1024 * 1024;

/// When nothing has come for so long, the program may be waiting for more names.
const STALLED: Duration = Duration::from_secs(1);

/// One archive on its way here.
pub(super) struct Flow<'a> {
    gauge: &'a Gauge,
    began: Instant,
    /// When the first bytes came, and how many did not count because of that.
    first: Mutex<Option<(Instant, u64)>>,
    asked: AtomicU64,
    came: AtomicU64,
    /// Whether it is still open how the rest is asked for.
    is_open: AtomicBool,
    is_stopped: AtomicBool,
    changed: Notify,
}

impl<'a> Flow<'a> {
    pub(super) fn new(gauge: &'a Gauge) -> Self {
        Flow {
            gauge,
            began: clock::instant(),
            first: Mutex::new(None),
            asked: AtomicU64::new(0),
            came: AtomicU64::new(0),
            is_open: AtomicBool::new(gauge.is_slow().is_none()),
            is_stopped: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether the rest of the list was kept back, to be asked for packed.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Counts a file that was asked for.
    pub(super) fn asked(&self, bytes: u64) {
        self.asked.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether so much was asked for that the next has to wait.
    pub(super) fn is_ahead(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        let came = self.came.load(Ordering::Relaxed);
        self.is_open() && asked > came.saturating_add(AHEAD)
    }

    /// Waits until more may be asked for; false when the rest is asked for another time.
    pub(super) async fn may_go_on(&self) -> bool {
        while self.is_ahead() {
            let late = match self.came.load(Ordering::Relaxed) {
                0 => self.began + LOOK_AT_LEAST,
                _ => clock::instant() + STALLED,
            };
            let waiting = tokio::time::timeout_at(late, self.changed.notified());
            if waiting.await.is_err() {
                self.is_open.store(false, Ordering::Relaxed);
            }
        }
        !self.is_stopped()
    }

    /// Takes note of bytes that came.
    pub(super) fn came(&self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        let came = self.came.fetch_add(length, Ordering::Relaxed) + length;
        match self.gauge.is_slow() {
            None => self.judge(came, bytes),
            // For the next archive: whether it would get smaller.
            Some(true) => self.gauge.learn(bytes),
            Some(false) => {}
        }
        self.changed.notify_one();
    }

    fn judge(&self, came: u64, bytes: &[u8]) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) = *first.get_or_insert_with(|| (clock::instant(), came));
        match self.gauge.judge(came - before, since.elapsed()) {
            None => {}
            Some(false) => self.is_open.store(false, Ordering::Relaxed),
            Some(true) => {
                self.gauge.learn(bytes);
                let is_worth_it = self.gauge.packing() == Packing::Gzip;
                let is_held = self.is_open.swap(false, Ordering::Relaxed);
                self.is_stopped
                    .store(is_held && is_worth_it, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 64 * 1024;

    /// Lets bytes come for a while at this speed.
    async fn run(flow: &Flow<'_>, bytes_per_second: u64, piece: &[u8]) {
        for _ in 0..8 {
            flow.came(piece);
            let pause = piece.len() as f64 / bytes_per_second as f64;
            tokio::time::advance(Duration::from_secs_f64(pause)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn list_ends_early_on_a_slow_link_where_packing_pays() {
        let (text, mut state) = (b"loss 0.5\n".repeat(PIECE / 9), 1_u64);
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (state >> 56) as u8
        })
        .take(PIECE)
        .collect();
        for (speed, piece, is_stopped) in [
            (1_000_000, &text, true),
            (1_000_000, &noise, false),
            (400_000_000, &text, false),
        ] {
            let gauge = Gauge::default();
            let flow = Flow::new(&gauge);
            flow.asked(3 * AHEAD);
            assert!(flow.is_ahead());
            run(&flow, speed, piece).await;
            assert_eq!(flow.is_stopped(), is_stopped, "{speed}");
            if speed == 1_000_000 {
                assert!(!flow.is_ahead());
                assert_eq!(flow.may_go_on().await, !is_stopped);
            } else {
                assert!(flow.is_ahead(), "nothing is known yet");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn program_that_waits_for_the_whole_list_gets_it() {
        let gauge = Gauge::default();
        let flow = Flow::new(&gauge);
        flow.asked(3 * AHEAD);
        assert!(flow.is_ahead());
        assert!(flow.may_go_on().await);
        assert!(!flow.is_ahead() && !flow.is_stopped());
        // How fast the link is, is found out all the same, for the next archive.
        run(&flow, 1_000_000, &b"loss 0.5\n".repeat(PIECE / 9)).await;
        assert!(!flow.is_stopped());
        assert_eq!(gauge.packing(), Packing::Gzip);
    }

    #[tokio::test(start_paused = true)]
    async fn program_that_stops_for_more_names_gets_them() {
        let gauge = Gauge::default();
        let flow = Flow::new(&gauge);
        flow.asked(3 * AHEAD);
        flow.came(b"some");
        assert!(flow.is_ahead());
        let waiting = tokio::time::timeout(2 * STALLED, flow.may_go_on());
        assert_eq!(waiting.await, Ok(true));
        assert!(!flow.is_ahead());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_held_back_once_the_link_is_known() {
        let gauge = Gauge::default();
        gauge.judge(1, Duration::from_secs(1));
        let flow = Flow::new(&gauge);
        flow.asked(100 * AHEAD);
        assert!(!flow.is_ahead());
    }
}
