//! For how long a log has not changed, whatever is done to clocks meanwhile.
//!
//! The age of a file is the difference of two clocks where the file lies on another machine, or where a clock was set
//! after it was written. So nothing is concluded from it: only what changes between two looks counts, and of the time
//! between them only as much as our clock and the host's both say.

use serde::{Deserialize, Serialize};

/// A log as one look shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct LogSight {
    /// Its size.
    pub size: Option<u64>,
    /// When it was last written, by whichever clock: it is only compared with itself.
    pub written: Option<u64>,
}

/// What is remembered of a log that may have fallen silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The log at the last look.
    log: LogSight,
    /// For how many seconds it has not changed.
    seconds: u64,
    /// When the last look was, in seconds by our clock.
    ours: u64,
    /// When it was by the host's clock, where it has one.
    hosts: Option<u64>,
}

impl Silence {
    /// What is to be remembered after a look.
    pub(super) fn after(
        before: Option<&Silence>,
        log: LogSight,
        ours: u64,
        hosts: Option<u64>,
    ) -> Self {
        let seconds = match before {
            Some(before) if before.log == log => before
                .seconds
                .saturating_add(before.passed_until(ours, hosts)),
            _ => 0,
        };
        Silence {
            log,
            seconds,
            ours,
            hosts,
        }
    }

    /// For how many seconds the log has not changed.
    pub(super) fn seconds(&self) -> u64 {
        self.seconds
    }

    /// The time since the last look. A clock that was set ahead is not believed, for the other one was not; one that was
    /// set back costs no more than the time between two looks.
    fn passed_until(&self, ours: u64, hosts: Option<u64>) -> u64 {
        let here = ours.saturating_sub(self.ours);
        match self.hosts.zip(hosts) {
            Some((before, now)) => here.min(now.saturating_sub(before)),
            None => here,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const YEARS: u64 = 20 * 365 * 86_400;

    fn log(size: u64) -> LogSight {
        LogSight {
            size: Some(size),
            written: Some(1_000_000),
        }
    }

    /// Looks at a log that does not change, and says how long it is silent at the end.
    fn looked_at(times: &[(u64, u64)]) -> u64 {
        let mut silence: Option<Silence> = None;
        for &(ours, hosts) in times {
            silence = Some(Silence::after(silence.as_ref(), log(5), ours, Some(hosts)));
        }
        silence.unwrap().seconds()
    }

    #[rstest]
    #[case::host_years_ahead_of_its_files(&[(1000, 1_000_000 + YEARS)], 0)]
    #[case::host_years_behind_its_files(&[(1000, 5), (1300, 305)], 300)]
    #[case::both_go(&[(1000, 7000), (1300, 7300), (1600, 7601)], 600)]
    #[case::ours_set_ahead(&[(1000, 7000), (1000 + YEARS, 7300)], 300)]
    #[case::hosts_set_ahead(&[(1000, 7000), (1300, 7000 + YEARS)], 300)]
    #[case::ours_set_back(&[(YEARS, 7000), (1000, 7300), (1300, 7600)], 300)]
    #[case::hosts_set_back(&[(1000, YEARS), (1300, 7000), (1600, 7300)], 300)]
    fn silence_is_as_long_as_both_clocks_say(#[case] times: &[(u64, u64)], #[case] expected: u64) {
        assert_eq!(looked_at(times), expected);
    }

    #[test]
    fn silence_ends_when_size_or_time_of_the_log_change() {
        let first = Silence::after(None, log(5), 0, Some(0));
        let silent = Silence::after(Some(&first), log(5), 300, Some(300));
        assert_eq!(silent.seconds(), 300);
        let grown = Silence::after(Some(&silent), log(6), 600, Some(600));
        assert_eq!(grown.seconds(), 0);
        let rewritten = LogSight {
            written: Some(1_000_600),
            ..log(5)
        };
        let rewritten = Silence::after(Some(&silent), rewritten, 600, Some(600));
        assert_eq!(rewritten.seconds(), 0);
    }

    #[test]
    fn silence_on_a_host_without_a_clock_is_measured_by_ours() {
        let first = Silence::after(None, log(5), 100, None);
        assert_eq!(
            Silence::after(Some(&first), log(5), 400, None).seconds(),
            300
        );
    }

    proptest! {
        #[test]
        fn silence_is_never_longer_than_the_time_that_passed_by_either_clock_between_looks(
            pauses in prop::collection::vec((0_u64..1000, 0_u64..1000), 1..30),
            jump in any::<u32>(), at in 0_usize..30, is_ours in any::<bool>())
        {
            let (mut ours, mut hosts, mut times, mut most) = (1000_u64, 9000_u64, vec![], 0);
            for (place, (here, there)) in pauses.into_iter().enumerate() {
                times.push((ours, hosts));
                let jump = if place == at { u64::from(jump) } else { 0 };
                most += if jump > 0 { if is_ours { there } else { here } } else { here.min(there) };
                ours += here + if is_ours { jump } else { 0 };
                hosts += there + if is_ours { 0 } else { jump };
            }
            times.push((ours, hosts));
            prop_assert!(looked_at(&times) <= most);
        }
    }
}
