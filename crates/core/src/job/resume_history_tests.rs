use proptest::prelude::*;

use super::tests::{other_node, resuming, sight};
use super::*;

fn any_input() -> impl Strategy<Value = WatchInput> {
    let state = prop_oneof![
        6 => Just(JobState::Running),
        4 => Just(JobState::Lost { reason: LostReason::ProcessGone }),
        2 => Just(JobState::Lost { reason: LostReason::HostRebooted }),
        1 => Just(JobState::NotStarted),
        1 => Just(JobState::Starting),
        1 => Just(JobState::Exited { code: 1 }),
        1 => Just(JobState::Unknown { reason: UnknownReason::ExitEmpty }),
        1 => Just(other_node()),
    ];
    let alarms = prop::collection::vec(
        prop_oneof![Just(Alarm::NanLoss), Just(Alarm::DiskFull)],
        0..2,
    );
    let sight = (state, prop::option::of(0_u64..3), alarms).prop_map(|(state, size, alarms)| {
        WatchInput::Seen(WatchSight {
            log: LogSight {
                size,
                written: None,
            },
            alarms,
            ..sight(state)
        })
    });
    prop_oneof![
        6 => sight,
        2 => Just(WatchInput::Unreachable),
        1 => Just(WatchInput::NotLooked),
        1 => Just(WatchInput::ConfigMissing),
        2 => Just(WatchInput::ResumeStarted),
        1 => Just(WatchInput::ResumeFailed),
        1 => Just(WatchInput::ResumeAbandoned),
        1 => Just(WatchInput::ResumedByOther),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_history_tells_everything_once_and_never_resumes_by_guess(
        max in 0_u32..4, auto in any::<bool>(), command in any::<bool>(), delay in 0_u64..400,
        inputs in prop::collection::vec((0_u64..400, any_input()), 1..60))
    {
        let policy = WatchPolicy { auto_resume: auto, has_resume_command: command, resume_delay_s: delay,
            stall_after_s: Some(300), ..resuming(max) };
        let mut history = WatchHistory::default();
        let (mut now, mut is_over, mut waits) = (0, false, false);
        let (mut ordered, mut given_away) = (0_u32, 0_u32);
        let (mut is_interrupted, mut is_unreachable) = (false, false);
        let mut interrupted_at = None;
        for (pause, input) in inputs {
            now += pause;
            let step = step(&policy, &history, &input, now);
            prop_assert!(!is_over || (step.events.is_empty() && step.resume.is_none()));
            prop_assert_eq!(step.next_check_at.is_none(), matches!(step.history.phase, Phase::Ended { .. }));
            if waits && input == WatchInput::ResumedByOther {
                given_away += 1;
            }
            if waits && input == WatchInput::ResumeAbandoned && step.history.resumes < history.resumes {
                given_away += 1;
            }
            let is_gone = matches!(&input, WatchInput::Seen(sight)
                if matches!(sight.state, JobState::Lost { .. } | JobState::NotStarted));
            for event in &step.events {
                match event {
                    WatchEvent::Interrupted { .. } => {
                        prop_assert!(!is_interrupted && is_gone);
                        is_interrupted = true;
                        interrupted_at = Some(now);
                    }
                    WatchEvent::ResumeStarted { .. } => {
                        prop_assert!(waits);
                        is_interrupted = false;
                    }
                    WatchEvent::RunningRestored => (is_interrupted, is_unreachable) = (false, false),
                    WatchEvent::SshUnreachable { .. } => {
                        prop_assert!(!is_unreachable);
                        is_unreachable = true;
                    }
                    WatchEvent::Completed { .. } | WatchEvent::Exhausted { .. } => is_over = true,
                    _ => {}
                }
            }
            if !matches!(input, WatchInput::Unreachable | WatchInput::ConfigMissing) {
                is_unreachable = is_unreachable && step.history.is_unreachable_told;
            }
            if waits && input == WatchInput::ResumedByOther {
                is_interrupted = false;
            }
            if step.resume.is_some() {
                ordered += 1;
                // Only one at a time, only what is gone, only when wished for, and never before its delay.
                prop_assert!(is_gone || input == WatchInput::ResumeFailed);
                prop_assert!(auto && command);
                prop_assert!(now - interrupted_at.unwrap() >= delay || ordered > 1);
            }
            prop_assert!(ordered - given_away <= max);
            waits = step.history.phase == Phase::Resuming;
            history = step.history;
        }
    }
}
