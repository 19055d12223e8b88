//! How long a host that does not answer is left alone, however many of its tasks are due.

use std::time::Duration;

use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The failures of one host.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Rest {
    failures: u32,
    last_failure: Option<Instant>,
    /// Until when nobody asks it; none while it answers.
    until: Option<Instant>,
}

impl Rest {
    /// Notes that it did not answer.
    pub(super) fn failed(&mut self, now: Instant) {
        let doubled = SHORTEST.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(now);
        self.until = Some(now + doubled.min(LONGEST));
    }

    /// Notes that it answered; says whether its failures are long enough ago to be forgotten. One that comes and goes is
    /// not asked again at once each time it goes.
    pub(super) fn answered(&mut self, now: Instant) -> bool {
        self.until = None;
        let ago = |last| now.saturating_duration_since(last) >= LONGEST;
        self.last_failure.is_none_or(ago)
    }

    /// Whether it did not answer the last time.
    pub(super) fn is_failing(&self) -> bool {
        self.until.is_some()
    }

    /// Whether it is to be left alone now.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn rest_grows_with_each_failure_up_to_a_minute() {
        let now = clock::instant();
        let mut rest = Rest::default();
        let mut lengths = Vec::new();
        for _ in 0..9 {
            rest.failed(now);
            lengths.push((rest.until.unwrap() - now).as_secs());
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(rest.goes_on(now + Duration::from_secs(59)));
        assert!(!rest.goes_on(now + LONGEST) && rest.is_failing());
    }

    #[test]
    fn host_that_comes_and_goes_is_forgiven_only_after_a_while() {
        let now = clock::instant();
        let mut rest = Rest::default();
        rest.failed(now);
        rest.failed(now);
        assert!(!rest.answered(now + Duration::from_secs(5)));
        assert!(!rest.is_failing() && !rest.goes_on(now));
        rest.failed(now + Duration::from_secs(6));
        assert!(rest.goes_on(now + Duration::from_secs(9)), "four seconds");
        assert!(!rest.answered(now + Duration::from_secs(30)));
        assert!(rest.answered(now + Duration::from_secs(66)));
    }
}
