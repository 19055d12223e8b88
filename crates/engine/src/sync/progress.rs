//! How far a sync has come, told while it works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::clock;

/// What a sync is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It waits for its turn.
    Queued,
    /// The process that does it is starting.
    Starting,
    /// The sandbox is being reached.
    Connecting,
    /// Both sides are being looked through.
    Scanning,
    /// Files of the same size are being compared by content.
    Comparing,
    /// Files go to the sandbox.
    Uploading,
    /// Files come from the sandbox.
    Downloading,
    /// What is superfluous is being deleted.
    Deleting,
    /// It is done.
    Complete,
    /// It did not work.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// The figures of one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// What is being done.
    pub phase: Phase,
    /// The file that is being worked on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub current_path: Option<String>,
    /// Files that are done.
    pub files_done: u64,
    /// Files there are.
    pub files_total: u64,
    /// Bytes that are done.
    pub bytes_done: u64,
    /// Bytes there are.
    pub bytes_total: u64,
    /// Bytes per second, since the transfer itself began.
    pub rate_bytes_s: u64,
    /// Seconds that are left, as far as one can tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub eta_s: Option<u64>,
    /// Seconds since the beginning.
    pub duration_s: f64,
}

/// Counts what is done; shared between those who work and those who watch.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    now: Mutex<Now>,
    files_done: AtomicU64,
    files_total: AtomicU64,
    bytes_done: AtomicU64,
    bytes_total: AtomicU64,
}

#[derive(Debug)]
struct Now {
    phase: Phase,
    current_path: Option<String>,
    /// When the first bytes could go.
    moving_since: Option<Instant>,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            began: clock::instant(),
            now: Mutex::new(Now {
                phase: Phase::Starting,
                current_path: None,
                moving_since: None,
            }),
            files_done: AtomicU64::new(0),
            files_total: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
        }
    }
}

impl Progress {
    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what is being done now.
    pub fn enter(&self, phase: Phase) {
        let mut now = self.now();
        now.phase = phase;
        if matches!(
            phase,
            Phase::Comparing | Phase::Uploading | Phase::Downloading
        ) {
            now.moving_since.get_or_insert_with(clock::instant);
        }
    }

    /// Says how much there is to be done.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.files_total.store(files, Ordering::Relaxed);
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }

    /// Names the file that is being worked on.
    pub fn at(&self, path: impl Into<String>) {
        self.now().current_path = Some(path.into());
    }

    /// Counts bytes that have gone.
    pub fn moved(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes back bytes that have to go again.
    pub fn moved_in_vain(&self, bytes: u64) {
        let _ = self
            .bytes_done
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |done| {
                Some(done.saturating_sub(bytes))
            });
    }

    /// How many bytes have gone.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    /// Takes back all but so many bytes, where nobody else counts meanwhile.
    pub fn back_to(&self, bytes: u64) {
        self.bytes_done.store(bytes, Ordering::Relaxed);
    }

    /// Counts files that are complete.
    pub fn finished(&self, files: u64) {
        self.files_done.fetch_add(files, Ordering::Relaxed);
    }

    /// How it stands.
    pub fn figures(&self) -> Figures {
        let now = self.now();
        let bytes_done = self.bytes_done();
        let bytes_total = self.bytes_total.load(Ordering::Relaxed);
        let moving = now.moving_since.map(|since| since.elapsed().as_secs_f64());
        let rate = match moving {
            Some(seconds) if seconds > 0.0 => bytes_done as f64 / seconds,
            _ => 0.0,
        };
        let left = bytes_total.saturating_sub(bytes_done) as f64;
        Figures {
            phase: now.phase,
            current_path: now.current_path.clone(),
            files_done: self.files_done.load(Ordering::Relaxed),
            files_total: self.files_total.load(Ordering::Relaxed),
            bytes_done,
            bytes_total,
            rate_bytes_s: rate as u64,
            eta_s: (rate > 0.0).then(|| (left / rate).ceil() as u64),
            duration_s: (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn figures_tell_rate_and_what_is_left() {
        let progress = Progress::default();
        progress.expect(2, 4000);
        assert_eq!(progress.figures().eta_s, None);
        progress.enter(Phase::Uploading);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        progress.at("a/b");
        progress.moved(1500);
        progress.moved_in_vain(500);
        progress.finished(1);
        let figures = progress.figures();
        assert_eq!((figures.rate_bytes_s, figures.eta_s), (500, Some(6)));
        assert_eq!((figures.files_done, figures.bytes_done), (1, 1000));
        assert_eq!(figures.current_path.as_deref(), Some("a/b"));
    }
}
