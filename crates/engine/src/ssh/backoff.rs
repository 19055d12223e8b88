//! How long to leave a host alone after it could not be reached.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Moves a pause by up to a quarter either way, so that many clients do not come back at once.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = uuid::Uuid::now_v7();
    let byte = random.as_bytes().last().copied().unwrap_or(128);
    pause.mul_f64(0.75 + f64::from(byte) / 510.0)
}

/// Counts failures in a row and says from when on another attempt makes sense.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Notes another failure.
    pub(crate) fn failed(&mut self) {
        let doubled = SHORTEST
            .saturating_mul(2u32.saturating_pow(self.failures))
            .min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(clock::instant() + jittered(doubled));
    }

    /// Forgets all failures.
    pub(crate) fn succeeded(&mut self) {
        *self = Backoff::default();
    }

    /// How long to wait from now on, if at all.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(clock::instant());
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pause_grows_and_has_an_upper_bound() {
        let mut backoff = Backoff::default();
        assert!(backoff.remaining().is_none());
        backoff.failed();
        let first = backoff.remaining().unwrap();
        assert!(first >= Duration::from_millis(700) && first <= Duration::from_millis(1300));
        for _ in 0..40 {
            backoff.failed();
        }
        assert!(backoff.remaining().unwrap() <= LONGEST.mul_f64(1.3));
        backoff.succeeded();
        assert!(backoff.remaining().is_none());
    }
}
