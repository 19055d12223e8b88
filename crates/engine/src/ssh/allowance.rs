//! How many sessions a host allows on one connection, as far as refusals tell.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A host that refused nothing for this long may be asked for one session more.
const RECOVERY: Duration = Duration::from_secs(60);

/// A host that refuses again and again is asked for more no more often than this.
const LONGEST_RECOVERY: Duration = Duration::from_secs(3600);

/// The number of sessions that may be open at once. A refusal lowers it; time raises it again, for
/// the host may have been short of something else only for a moment.
#[derive(Debug)]
pub(super) struct Allowance {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// The lowest limit since the last time that there was none.
    lowest: usize,
    /// When it was last changed.
    since: Instant,
    /// Whether it was raised after the last refusal.
    raised: bool,
    recovery: Duration,
}

impl Allowance {
    pub(super) fn new(most: usize, now: Instant) -> Self {
        Allowance {
            most,
            state: Mutex::new(State {
                limit: most,
                lowest: most,
                since: now,
                raised: false,
                recovery: RECOVERY,
            }),
        }
    }

    /// How many sessions may be open.
    pub(super) fn limit(&self, now: Instant) -> usize {
        self.recovered(now).limit
    }

    /// The same without what time has raised it by: for sessions that could also be done without.
    pub(super) fn proven(&self, now: Instant) -> usize {
        self.recovered(now).lowest
    }

    /// Takes a refusal that came while others were open; gives the new limit.
    pub(super) fn refused(&self, others: usize, now: Instant) -> usize {
        let mut state = self.recovered(now);
        state.limit = state.limit.min(others.max(1));
        state.lowest = state.lowest.min(state.limit);
        if std::mem::take(&mut state.raised) {
            state.recovery = (state.recovery * 2).min(LONGEST_RECOVERY);
        }
        state.since = now;
        state.limit
    }

    fn recovered(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.limit < self.most
            && now.saturating_duration_since(state.since) >= state.recovery
        {
            let recovery = state.recovery;
            state.limit += 1;
            state.since += recovery;
            state.raised = true;
        }
        if state.limit == self.most {
            state.lowest = self.most;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MOST: usize = 8;

    fn allowance() -> (Allowance, Instant) {
        let now = clock::instant();
        (Allowance::new(MOST, now), now)
    }

    #[test]
    fn limit_recovers_by_one_a_minute_after_a_refusal_and_never_passes_the_most() {
        let (allowance, now) = allowance();
        assert_eq!(allowance.limit(now), MOST);
        assert_eq!(allowance.refused(1, now), 1);
        assert_eq!(allowance.limit(now + RECOVERY / 2), 1);
        assert_eq!(allowance.limit(now + RECOVERY), 2);
        assert_eq!(allowance.limit(now + RECOVERY * 2), 3);
        assert_eq!(allowance.limit(now + RECOVERY * 100), MOST);
    }

    #[test]
    fn refusal_puts_the_recovery_off() {
        let (allowance, now) = allowance();
        allowance.refused(3, now);
        allowance.refused(3, now + RECOVERY / 2);
        assert_eq!(allowance.limit(now + RECOVERY), 3);
        assert_eq!(allowance.limit(now + RECOVERY / 2 * 3), 4);
    }

    #[test]
    fn host_that_refuses_again_is_asked_less_and_less_often() {
        let (allowance, mut now) = allowance();
        allowance.refused(3, now);
        for doubled in 0..10 {
            let wait = (RECOVERY * 2_u32.pow(doubled)).min(LONGEST_RECOVERY);
            assert_eq!(allowance.limit(now + wait - Duration::from_secs(1)), 3);
            now += wait;
            assert_eq!(allowance.limit(now), 4);
            assert_eq!(allowance.refused(3, now), 3);
        }
    }

    #[test]
    fn refusal_without_others_leaves_one_session() {
        let (allowance, now) = allowance();
        assert_eq!(allowance.refused(0, now), 1);
    }

    #[test]
    fn proven_limit_stays_low_until_there_is_none() {
        let (allowance, now) = allowance();
        allowance.refused(3, now);
        assert_eq!(allowance.proven(now + RECOVERY * 4), 3);
        assert_eq!(allowance.proven(now + RECOVERY * 5), MOST);
    }
}
