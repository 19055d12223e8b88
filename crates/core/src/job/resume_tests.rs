use super::*;

pub(super) fn resuming(max: u32) -> WatchPolicy {
    WatchPolicy {
        auto_resume: true,
        has_resume_command: true,
        max_resume_attempts: max,
        ..WatchPolicy::default()
    }
}

pub(super) fn sight(state: JobState) -> WatchSight {
    WatchSight {
        state,
        log: LogSight::default(),
        host_now: None,
        alarms: Vec::new(),
    }
}

fn seen(state: JobState) -> WatchInput {
    WatchInput::Seen(sight(state))
}

fn gone() -> WatchInput {
    seen(JobState::Lost {
        reason: LostReason::ProcessGone,
    })
}

/// A watch that takes one input after the other.
struct Watch {
    policy: WatchPolicy,
    history: WatchHistory,
}

impl Watch {
    fn new(policy: WatchPolicy) -> Self {
        Watch {
            policy,
            history: WatchHistory::default(),
        }
    }

    /// The events in words, and whether a resume is ordered.
    fn take(&mut self, now: u64, input: &WatchInput) -> (Vec<&'static str>, Option<u32>) {
        let step = step(&self.policy, &self.history, input, now);
        self.history = step.history;
        (
            step.events.iter().map(WatchEvent::word).collect(),
            step.resume,
        )
    }
}

#[test]
fn f42_unreachable_host_is_told_once_and_its_task_is_not_lost_when_that_lasts_three_days() {
    // Whoever took it for lost would resume it.
    let mut watch = Watch::new(resuming(3));
    assert_eq!(watch.take(0, &seen(JobState::Running)), (vec![], None));
    assert_eq!(watch.take(300, &WatchInput::Unreachable), (vec![], None));
    assert_eq!(
        watch.take(600, &WatchInput::Unreachable),
        (vec!["ssh_unreachable"], None)
    );
    for tick in 3..=3 * 288 {
        assert_eq!(
            watch.take(tick * 300, &WatchInput::Unreachable),
            (vec![], None)
        );
        assert_eq!(watch.history.phase, Phase::Watching);
    }
    assert_eq!(
        watch.take(300_000, &seen(JobState::Running)),
        (vec!["running_restored"], None)
    );
    assert_eq!(
        watch.take(300_300, &WatchInput::Unreachable),
        (vec![], None)
    );
    assert_eq!(
        watch.take(300_600, &seen(JobState::Running)),
        (vec![], None)
    );
}

#[test]
fn missing_configuration_is_told_once_and_so_is_the_return() {
    let mut watch = Watch::new(WatchPolicy::default());
    assert_eq!(
        watch.take(0, &WatchInput::ConfigMissing).0,
        ["config_missing"]
    );
    assert!(watch.take(300, &WatchInput::ConfigMissing).0.is_empty());
    assert_eq!(
        watch.take(600, &seen(JobState::Running)).0,
        ["running_restored"]
    );
}

#[test]
fn task_that_is_gone_is_resumed_after_the_delay_and_then_given_up() {
    let mut watch = Watch::new(resuming(2));
    watch.take(0, &seen(JobState::Running));
    assert_eq!(watch.take(1000, &gone()), (vec!["interrupted"], None));
    assert_eq!(watch.take(1299, &gone()), (vec![], None));
    assert_eq!(watch.take(1300, &gone()), (vec![], Some(1)));
    assert_eq!(
        watch.take(1301, &WatchInput::ResumeStarted),
        (vec!["resume_started"], None)
    );
    // It dies at once; the next pause is twice as long.
    assert_eq!(watch.take(1600, &gone()), (vec!["interrupted"], None));
    assert_eq!(watch.take(2199, &gone()), (vec![], None));
    assert_eq!(watch.take(2200, &gone()), (vec![], Some(2)));
    assert_eq!(
        watch.take(2201, &WatchInput::ResumeFailed),
        (vec!["resume_failed", "exhausted"], None)
    );
    for input in [
        gone(),
        seen(JobState::Running),
        WatchInput::Unreachable,
        WatchInput::ResumeStarted,
    ] {
        assert_eq!(watch.take(9_999_999, &input), (vec![], None));
    }
}

#[test]
fn nothing_is_started_again_without_a_command_or_a_wish() {
    for policy in [
        WatchPolicy {
            auto_resume: false,
            ..resuming(5)
        },
        WatchPolicy {
            has_resume_command: false,
            ..resuming(5)
        },
        resuming(0),
    ] {
        let mut watch = Watch::new(policy);
        assert_eq!(watch.take(0, &gone()), (vec!["interrupted"], None));
        for tick in 1..50 {
            assert_eq!(watch.take(tick * 300, &gone()), (vec![], None));
        }
        assert_eq!(
            watch.take(50_000, &seen(JobState::Running)).0,
            ["running_restored"]
        );
    }
}

#[test]
fn f35_task_that_never_began_is_told_and_not_resumed() {
    let mut watch = Watch::new(resuming(3));
    let never = seen(JobState::NotStarted);
    assert_eq!(watch.take(0, &never), (vec!["interrupted"], None));
    let end = WatchEnd::Completed;
    assert_eq!(watch.history.phase, Phase::Ended { end });
    assert_eq!(watch.take(9999, &never), (vec![], None));
}

#[test]
fn reboot_is_told_apart() {
    let mut watch = Watch::new(WatchPolicy::default());
    let rebooted = seen(JobState::Lost {
        reason: LostReason::HostRebooted,
    });
    assert_eq!(watch.take(0, &rebooted).0, ["host_rebooted", "interrupted"]);
    assert!(watch.take(300, &rebooted).0.is_empty());
}

#[test]
fn end_is_told_once_and_ends_the_watch() {
    let ends = [
        JobState::Exited { code: 0 },
        JobState::Exited { code: 3 },
        JobState::Signalled { signal: 9 },
        JobState::Stopped,
        JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(0),
        },
    ];
    for state in ends {
        let mut watch = Watch::new(resuming(3));
        let first = step(&watch.policy, &watch.history, &seen(state.clone()), 5);
        assert_eq!(
            first.events,
            [WatchEvent::Completed {
                state: state.clone()
            }]
        );
        assert_eq!((first.resume, first.next_check_at), (None, None));
        watch.history = first.history;
        assert_eq!(watch.take(300, &seen(state)), (vec![], None));
    }
}

#[test]
fn what_is_unknown_is_an_alarm_and_never_a_resume() {
    let mut watch = Watch::new(resuming(3));
    let strange = seen(JobState::Unknown {
        reason: UnknownReason::ExitTruncated,
    });
    assert_eq!(watch.take(0, &strange), (vec!["alarm"], None));
    assert_eq!(watch.take(300_000, &strange), (vec![], None));
}

#[test]
fn resume_whose_outcome_was_not_heard_is_found_by_looking() {
    let ordered = || {
        let mut watch = Watch::new(resuming(2));
        watch.take(0, &gone());
        assert_eq!(watch.take(300, &gone()).1, Some(1));
        watch
    };
    let mut watch = ordered();
    assert_eq!(
        watch.take(310, &seen(JobState::Running)),
        (vec!["resume_started"], None)
    );
    assert_eq!(watch.take(311, &WatchInput::ResumeStarted), (vec![], None));
    let mut watch = ordered();
    assert_eq!(
        watch.take(310, &seen(JobState::Exited { code: 0 })).0,
        ["resume_started", "completed"]
    );
    let mut watch = ordered();
    assert_eq!(watch.take(310, &seen(JobState::Starting)), (vec![], None));
    assert_eq!(
        watch.take(320, &seen(JobState::NotStarted)),
        (vec!["resume_failed"], None)
    );
    let mut watch = ordered();
    assert_eq!(watch.take(310, &WatchInput::ResumedByOther), (vec![], None));
    assert_eq!(watch.history.resumes, 0);
}

#[test]
fn alarm_is_told_once_for_each_attempt() {
    let mut watch = Watch::new(resuming(1));
    let alarming = |state| {
        WatchInput::Seen(WatchSight {
            alarms: vec![Alarm::OutOfMemory, Alarm::DiskFull],
            ..sight(state)
        })
    };
    assert_eq!(
        watch.take(0, &alarming(JobState::Running)).0,
        ["alarm", "alarm"]
    );
    assert!(watch.take(300, &alarming(JobState::Running)).0.is_empty());
    watch.take(600, &gone());
    watch.take(900, &gone());
    watch.take(901, &WatchInput::ResumeStarted);
    assert_eq!(
        watch.take(1200, &alarming(JobState::Running)).0,
        ["alarm", "alarm"]
    );
}

#[test]
fn clock_that_is_set_back_delays_a_resume_by_its_pause_only() {
    let mut watch = Watch::new(resuming(1));
    watch.take(1_000_000, &gone());
    assert_eq!(watch.take(500, &gone()), (vec![], None));
    assert_eq!(watch.take(800, &gone()), (vec![], Some(1)));
}

#[test]
fn pause_doubles_and_has_a_longest_and_a_shortest() {
    let policy = resuming(100);
    assert_eq!(
        [0, 1, 2, 3].map(|resumes| policy.pause_s(resumes)),
        [300, 600, 1200, 2400]
    );
    assert_eq!(
        [10, 64, 1000].map(|resumes| policy.pause_s(resumes)),
        [3600; 3]
    );
    let hasty = WatchPolicy {
        resume_delay_s: 0,
        ..resuming(3)
    };
    assert_eq!([0, 1].map(|resumes| hasty.pause_s(resumes)), [0, 20]);
    let patient = WatchPolicy {
        resume_delay_s: 86_400,
        ..resuming(3)
    };
    assert_eq!(patient.pause_s(2), 86_400);
}

#[test]
fn history_is_kept_as_text_and_read_back() {
    let mut watch = Watch::new(resuming(2));
    watch.take(0, &gone());
    let text = serde_json::to_string(&watch.history).unwrap();
    assert_eq!(
        serde_json::from_str::<WatchHistory>(&text).unwrap(),
        watch.history
    );
}

#[test]
fn resume_that_was_given_up_before_anything_ran_uses_up_none() {
    let mut watch = Watch::new(resuming(1));
    watch.take(0, &gone());
    let mut now = 300;
    assert_eq!(watch.take(now, &gone()), (vec![], Some(1)));
    for tries in 1..=MOST_ABANDONED {
        assert_eq!(
            watch.take(now, &WatchInput::ResumeAbandoned),
            (vec![], None),
            "{tries}"
        );
        // Each pause is longer than the one before.
        assert_eq!(watch.take(now + 300, &gone()), (vec![], None), "{tries}");
        now += 3600;
        assert_eq!(watch.take(now, &gone()), (vec![], Some(1)), "{tries}");
    }
    // It is the host's habit: now it counts.
    assert_eq!(
        watch.take(now, &WatchInput::ResumeAbandoned),
        (vec!["resume_failed", "exhausted"], None)
    );
}

#[test]
fn resume_that_begins_after_it_was_given_up_is_the_first_one() {
    let mut watch = Watch::new(resuming(1));
    watch.take(0, &gone());
    watch.take(300, &gone());
    watch.take(301, &WatchInput::ResumeAbandoned);
    assert_eq!(watch.take(4000, &gone()).1, Some(1));
    let started = step(
        &watch.policy,
        &watch.history,
        &WatchInput::ResumeStarted,
        4001,
    );
    assert_eq!(started.events, [WatchEvent::ResumeStarted { number: 1 }]);
    assert_eq!(started.history.abandoned, 0);
}

#[test]
fn history_of_an_older_version_is_read() {
    let mut history = serde_json::to_value(WatchHistory::default()).unwrap();
    let fields = history.as_object_mut().unwrap();
    for newer in ["abandoned", "silence"] {
        fields.remove(newer);
    }
    for older in ["log_size", "grown_at"] {
        fields.insert(older.to_owned(), 5.into());
    }
    let history: WatchHistory = serde_json::from_value(history).unwrap();
    assert_eq!(history, WatchHistory::default());
}

#[test]
fn look_that_the_watchdog_could_not_take_is_an_alarm_and_never_an_unreachable_host() {
    let mut watch = Watch::new(WatchPolicy::default());
    let missed = WatchInput::NotLooked;
    assert_eq!(watch.take(300, &missed), (vec![], None));
    assert_eq!(watch.take(600, &missed), (vec!["alarm"], None));
    assert_eq!(watch.take(900, &missed), (vec![], None));
}

pub(super) fn other_node() -> JobState {
    let word = |text| super::super::HostWord::parse(text).unwrap();
    JobState::Unknown {
        reason: UnknownReason::OtherNode {
            began: word("a"),
            here: word("b"),
        },
    }
}

#[test]
fn look_that_comes_to_another_node_resumes_nothing_and_is_told_when_it_happens_again_and_again() {
    let mut watch = Watch::new(resuming(3));
    watch.take(0, &seen(JobState::Running));
    for round in 0..5 {
        let now = 600 * round;
        assert_eq!(watch.take(now, &seen(other_node())), (vec![], None));
        assert_eq!(
            watch.take(now + 300, &seen(JobState::Running)),
            (vec![], None)
        );
    }
    assert_eq!(watch.take(9000, &seen(other_node())), (vec![], None));
    assert_eq!(watch.take(9300, &seen(other_node())), (vec!["alarm"], None));
    assert_eq!(watch.take(9600, &seen(other_node())), (vec![], None));
    // Nor does one that was due before.
    assert_eq!(watch.take(10_000, &gone()), (vec!["interrupted"], None));
    assert_eq!(watch.take(90_000, &seen(other_node())), (vec![], None));
    assert_eq!(watch.take(90_300, &gone()), (vec![], Some(1)));
}
