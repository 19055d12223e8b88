//! Takes the lease, keeps it, and gives it back.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Held, LEASE, Watchdog, WatchdogError};
use crate::clock;
use crate::store::{Fence, LeaseRow, ProcessMark};
use crate::transfer::process::{is_alive, own_mark};

/// Longest time between two looks at a lease that somebody else holds.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often a lease is renewed while it holds once.
const RENEWALS: u32 = 6;

/// Whether a lease that somebody holds may be taken. A process that is gone for certain does nothing any more; of any
/// other one nothing but time tells, and only the time on our own steady clock: `unchanged` is how long it has given no
/// sign.
fn may_take(
    lease: &LeaseRow,
    own: Option<&ProcessMark>,
    now: Duration,
    unchanged: Duration,
    length: Duration,
    is_alive: impl Fn(&ProcessMark) -> bool,
) -> bool {
    let Some(process) = lease.process.as_ref().filter(|_| lease.holder.is_some()) else {
        return lease.holder.is_none() || unchanged >= length;
    };
    let is_same_boot = own.is_some_and(|own| own.boot == process.boot);
    let is_gone = is_same_boot && !is_alive(process);
    let is_of_another_boot = !is_same_boot && lease.expires < now;
    is_gone || is_of_another_boot || unchanged >= length
}

impl Watchdog {
    /// Waits for the lease; none when it is told to stop before.
    pub(super) async fn acquire(
        &self,
        stop: &CancellationToken,
    ) -> Result<Option<Fence>, WatchdogError> {
        let own = own_mark();
        let holder = format!("watchdog, process {}", std::process::id());
        let length = self.options.lease;
        let mut last: Option<(LeaseRow, tokio::time::Instant)> = None;
        loop {
            let seen = self.store().lease(LEASE).await?;
            let since = match (&seen, &last) {
                (Some(seen), Some((before, since))) if seen == before => *since,
                _ => clock::instant(),
            };
            let is_news = last.as_ref().map(|(before, _)| before.fence)
                != seen.as_ref().map(|seen| seen.fence);
            let may = seen.as_ref().is_none_or(|lease| {
                let unchanged = clock::instant().saturating_duration_since(since);
                may_take(
                    lease,
                    own.as_ref(),
                    clock::wall(),
                    unchanged,
                    length,
                    is_alive,
                )
            });
            if may {
                let taking =
                    self.store()
                        .take_lease(LEASE, seen.clone(), &holder, own.clone(), length);
                if let Some(fence) = taking.await? {
                    return Ok(Some(fence));
                }
            } else if let Some(who) = seen.as_ref().and_then(|lease| lease.holder.as_ref()) {
                if self.options.is_once {
                    return Err(WatchdogError::Held(who.clone()));
                }
                if is_news {
                    tracing::warn!("the lease is held by another one ({who}); this one waits");
                }
            }
            last = seen.map(|seen| (seen, since));
            let pause = (length / RENEWALS).min(LONGEST_PAUSE);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return Ok(None),
            }
        }
    }

    /// Renews the lease until it is lost or given up.
    pub(super) async fn keep(&self, held: &Held) {
        let length = self.options.lease;
        let mut renewed = clock::instant();
        loop {
            tokio::select! {
                () = tokio::time::sleep(length / RENEWALS) => {}
                () = held.over.cancelled() => return,
            }
            match self.store().renew_lease(&held.fence, length).await {
                Ok(true) => renewed = clock::instant(),
                Ok(false) => {
                    tracing::warn!("another watchdog has taken over");
                    held.over.cancel();
                }
                Err(error) => {
                    held.note(&error);
                    // Somebody who can use the store may have it by now.
                    if clock::instant().saturating_duration_since(renewed) >= length {
                        held.over.cancel();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LENGTH: Duration = Duration::from_secs(30);

    fn process(boot: &str) -> ProcessMark {
        ProcessMark {
            pid: 7,
            start: 8,
            boot: boot.to_owned(),
        }
    }

    #[rstest]
    #[case::alive_and_silent_for_a_moment("b", true, 0, 5, false)]
    #[case::alive_though_the_clock_was_set_forward("b", true, 90_000, 5, false)]
    #[case::frozen("b", true, 0, 30, true)]
    #[case::gone("b", false, 0, 0, true)]
    #[case::of_another_boot_and_expired("c", false, 90_000, 0, true)]
    #[case::of_another_boot_and_not_expired("c", false, 0, 5, false)]
    fn lease_is_broken_only_when_its_holder_cannot_act(
        #[case] boot: &str,
        #[case] alive: bool,
        #[case] passed_s: u64,
        #[case] unchanged_s: u64,
        #[case] may: bool,
    ) {
        let taken = Duration::from_secs(1_000_000);
        let lease = LeaseRow {
            holder: Some("x".to_owned()),
            fence: 1,
            process: Some(process(boot)),
            taken,
            renewed: taken,
            expires: taken + LENGTH,
        };
        let now = taken + Duration::from_secs(passed_s);
        let unchanged = Duration::from_secs(unchanged_s);
        let own = process("b");
        let found = may_take(&lease, Some(&own), now, unchanged, LENGTH, |_| alive);
        assert_eq!(found, may);
    }

    #[test]
    fn lease_that_was_given_back_is_free() {
        let lease = LeaseRow {
            holder: None,
            fence: 1,
            process: None,
            taken: LENGTH,
            renewed: LENGTH,
            expires: LENGTH * 2,
        };
        let zero = Duration::ZERO;
        assert!(may_take(&lease, None, LENGTH, zero, LENGTH, |_| true));
    }
}
