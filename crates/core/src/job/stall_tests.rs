use super::*;

fn sight(size: u64, written: Option<u64>, host_now: Option<u64>) -> WatchInput {
    WatchInput::Seen(WatchSight {
        state: JobState::Running,
        log: LogSight {
            size: Some(size),
            written,
        },
        host_now,
        alarms: Vec::new(),
    })
}

/// A watch of a task that must not be silent for ten minutes.
#[derive(Default)]
struct Watch(WatchHistory);

impl Watch {
    fn take(&mut self, now: u64, input: &WatchInput) -> Vec<WatchEvent> {
        let policy = WatchPolicy {
            stall_after_s: Some(600),
            ..WatchPolicy::default()
        };
        let step = step(&policy, &self.0, input, now);
        self.0 = step.history;
        step.events
    }
}

fn stalled(silent_s: u64) -> [WatchEvent; 1] {
    [WatchEvent::Stalled { silent_s }]
}

#[test]
fn stall_is_told_once_until_the_log_grows() {
    let mut watch = Watch::default();
    let at = |size| sight(size, None, None);
    assert_eq!(watch.take(10_000, &at(5)), []);
    assert_eq!(watch.take(10_599, &at(5)), []);
    assert_eq!(watch.take(10_600, &at(5)), stalled(600));
    assert_eq!(watch.take(20_000, &at(5)), []);
    assert_eq!(watch.take(20_300, &at(6)), []);
    assert_eq!(watch.take(20_899, &at(6)), []);
    assert_eq!(watch.take(20_900, &at(6)), stalled(600));
}

#[test]
fn stall_is_not_told_at_the_first_look_whatever_the_clock_of_the_host_says() {
    let written = Some(1_700_000_000);
    for host in [2_300_000_000_u64, 1_700_000_001, 5] {
        let mut watch = Watch::default();
        let at = |passed| sight(5, written, Some(host + passed));
        assert_eq!(watch.take(1_700_000_001, &at(0)), [], "{host}");
        assert_eq!(watch.take(1_700_000_301, &at(300)), [], "{host}");
        assert_eq!(watch.take(1_700_000_601, &at(600)), stalled(600), "{host}");
    }
}

#[test]
fn stall_is_not_told_because_a_clock_was_set() {
    let mut watch = Watch::default();
    let at = |host| sight(5, Some(1_700_000_000), Some(host));
    assert_eq!(watch.take(1_700_000_001, &at(1_700_000_001)), []);
    assert_eq!(watch.take(1_700_000_301, &at(2_300_000_000)), []);
    assert_eq!(watch.take(2_300_000_000, &at(2_300_000_001)), []);
    assert_eq!(watch.take(1_700_000_303, &at(1_700_000_303)), []);
    assert_eq!(watch.take(1_700_000_602, &at(1_700_000_602)), stalled(600));
}

#[test]
fn stall_that_an_older_version_has_told_is_not_told_again() {
    let mut watch = Watch(WatchHistory {
        is_stall_told: true,
        ..WatchHistory::default()
    });
    let at = |size| sight(size, None, None);
    assert_eq!(watch.take(10_000, &at(5)), []);
    assert_eq!(watch.take(20_000, &at(5)), []);
    assert_eq!(watch.take(20_300, &at(6)), []);
    assert_eq!(watch.take(20_900, &at(6)), stalled(600));
}
