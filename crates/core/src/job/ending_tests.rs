use super::*;

fn ended(state: JobState, alarms: &[Alarm]) -> WatchInput {
    WatchInput::Seen(WatchSight {
        state,
        log: LogSight::default(),
        host_now: None,
        alarms: alarms.to_vec(),
    })
}

#[test]
fn alarms_in_the_last_words_of_a_task_are_told_before_its_end() {
    let states = [
        JobState::Exited { code: 1 },
        JobState::Signalled { signal: 9 },
        JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(1),
        },
    ];
    for state in states {
        let input = ended(state.clone(), &[Alarm::OutOfMemory]);
        let next = step(
            &WatchPolicy::default(),
            &WatchHistory::default(),
            &input,
            10,
        );
        let expected = [
            WatchEvent::Alarm(Alarm::OutOfMemory),
            WatchEvent::Completed { state },
        ];
        assert_eq!(next.events, expected);
    }
}

#[test]
fn alarm_that_was_told_while_the_task_ran_is_not_told_again_at_its_end() {
    let history = WatchHistory {
        alarms_told: [Alarm::OutOfMemory].into(),
        ..WatchHistory::default()
    };
    let state = JobState::Exited { code: 1 };
    let input = ended(state.clone(), &[Alarm::OutOfMemory]);
    let next = step(&WatchPolicy::default(), &history, &input, 10);
    assert_eq!(next.events, [WatchEvent::Completed { state }]);
}
