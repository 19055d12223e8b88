use proptest::prelude::*;
use rstest::rstest;

use super::super::observe::{ExitRecord, FileSight};
use super::super::process::HostWord;
use super::*;

fn nonce() -> Nonce {
    Nonce::from_bytes([1; 16])
}

fn process() -> ProcessIdentity {
    ProcessIdentity {
        pid: 100,
        start_time: HostWord::parse("77").unwrap(),
        boot_id: HostWord::parse("boot").unwrap(),
        session: 100,
        node: None,
    }
}

fn other_node() -> Liveness {
    Liveness::OtherNode {
        written: process(),
        node: HostWord::parse("a").unwrap(),
        here: HostWord::parse("b").unwrap(),
    }
}

fn known(state: JobState) -> KnownAttempt {
    KnownAttempt {
        nonce: Some(nonce()),
        state,
        process: Some(process()),
        is_stop_asked: false,
    }
}

fn seen(runner: Liveness, exit: ExitReading) -> Observation {
    Observation {
        is_ours: true,
        has_folder: true,
        nonce: Some(nonce()),
        runner,
        command: Liveness::NotRecorded,
        has_left: false,
        exit,
        stop_mark: None,
        log_is_unbounded: false,
        session: SessionSight::Absent,
        log: FileSight::default(),
        gap_text: Vec::new(),
        checkpoint: None,
        host_now: None,
    }
}

fn record(nonce: Nonce, ending: Ending) -> ExitReading {
    ExitReading::Record(ExitRecord {
        nonce,
        ending,
        ended_at: Some(1),
    })
}

fn state_of(known: &KnownAttempt, seen: Observation) -> JobState {
    judge(known, &Sighting::Seen(Box::new(seen))).state
}

fn lost(reason: LostReason) -> JobState {
    JobState::Lost { reason }
}

fn unknown(reason: UnknownReason) -> JobState {
    JobState::Unknown { reason }
}

#[rstest]
#[case::alive(Liveness::Alive(process()), ExitReading::Absent, JobState::Running)]
#[case::exited(Liveness::Gone(process()), record(nonce(), Ending::Code(3)), JobState::Exited { code: 3 })]
#[case::exited_and_still_there(Liveness::Alive(process()), record(nonce(), Ending::Code(0)), JobState::Exited { code: 0 })]
#[case::exited_before_a_boot(Liveness::OtherBoot(process()), record(nonce(), Ending::Code(0)), JobState::Exited { code: 0 })]
#[case::signalled(Liveness::Gone(process()), record(nonce(), Ending::Signal(9)), JobState::Signalled { signal: 9 })]
#[case::gone(
    Liveness::Gone(process()),
    ExitReading::Absent,
    lost(LostReason::ProcessGone)
)]
#[case::reused(
    Liveness::Reused(process()),
    ExitReading::Absent,
    lost(LostReason::PidReused)
)]
#[case::rebooted(
    Liveness::OtherBoot(process()),
    ExitReading::Absent,
    lost(LostReason::HostRebooted)
)]
#[case::other_record(Liveness::Gone(process()), record(Nonce::from_bytes([2; 16]), Ending::Code(0)), unknown(UnknownReason::ExitOtherNonce))]
#[case::other_record_while_alive(Liveness::Alive(process()), record(Nonce::from_bytes([2; 16]), Ending::Code(0)), JobState::Running)]
#[case::broken_record(
    Liveness::Gone(process()),
    ExitReading::Fault(ExitFault::Truncated),
    unknown(UnknownReason::ExitTruncated)
)]
#[case::linked_record(
    Liveness::Gone(process()),
    ExitReading::Fault(ExitFault::Symlink),
    unknown(UnknownReason::ExitSymlink)
)]
#[case::unreadable(
    Liveness::Unreadable,
    ExitReading::Absent,
    unknown(UnknownReason::ProcessUnreadable)
)]
fn state_follows_from_what_was_seen(
    #[case] runner: Liveness,
    #[case] exit: ExitReading,
    #[case] state: JobState,
) {
    assert_eq!(
        state_of(&known(JobState::Running), seen(runner, exit)),
        state
    );
}

#[test]
fn job_on_another_node_is_neither_lost_nor_stopped() {
    let expected = unknown(UnknownReason::OtherNode {
        began: HostWord::parse("a").unwrap(),
        here: HostWord::parse("b").unwrap(),
    });
    let asked = KnownAttempt {
        is_stop_asked: true,
        ..known(JobState::Running)
    };
    for known in [known(JobState::Running), asked] {
        let marked = Observation {
            stop_mark: Some(nonce()),
            ..seen(other_node(), ExitReading::Absent)
        };
        assert_eq!(state_of(&known, marked), expected);
        let plain = seen(other_node(), ExitReading::Absent);
        assert_eq!(state_of(&known, plain), expected);
    }
    let text = serde_json::to_string(&expected).unwrap();
    assert_eq!(serde_json::from_str::<JobState>(&text).unwrap(), expected);
}

#[test]
fn number_that_somebody_else_has_is_theirs_only_when_ours_was_never_seen() {
    let other = Nonce::from_bytes([2; 16]);
    let theirs = Observation {
        nonce: Some(other.clone()),
        ..seen(Liveness::Alive(process()), ExitReading::Absent)
    };
    let never_seen = KnownAttempt {
        process: None,
        ..known(JobState::Starting)
    };
    let verdict = judge(&never_seen, &Sighting::Seen(Box::new(theirs.clone())));
    assert_eq!((verdict.holder, verdict.adopted), (Some(other), None));
    let running = known(JobState::Running);
    let verdict = judge(&running, &Sighting::Seen(Box::new(theirs)));
    assert_eq!(verdict.holder, None);
}

#[test]
fn stopped_is_what_was_ended_on_purpose_and_nothing_else() {
    let marked = |exit| Observation {
        stop_mark: Some(nonce()),
        ..seen(Liveness::Gone(process()), exit)
    };
    let running = known(JobState::Running);
    assert_eq!(
        state_of(&running, marked(ExitReading::Absent)),
        JobState::Stopped
    );
    assert_eq!(
        state_of(&running, marked(record(nonce(), Ending::Code(0)))),
        JobState::Stopped
    );
    let strange = Observation {
        stop_mark: Some(Nonce::from_bytes([2; 16])),
        ..marked(ExitReading::Absent)
    };
    assert_eq!(state_of(&running, strange), lost(LostReason::ProcessGone));
    // Asked for, but it had ended by itself before anybody came to end it.
    let asked = KnownAttempt {
        is_stop_asked: true,
        ..known(JobState::Running)
    };
    let exited = seen(Liveness::Gone(process()), record(nonce(), Ending::Code(0)));
    assert_eq!(state_of(&asked, exited), JobState::Exited { code: 0 });
    assert_eq!(
        state_of(&asked, seen(Liveness::Gone(process()), ExitReading::Absent)),
        JobState::Stopped
    );
}

#[test]
fn start_without_an_answer_stays_a_start_until_the_host_says_more() {
    let starting = KnownAttempt {
        process: None,
        ..known(JobState::Starting)
    };
    let nothing = Observation {
        has_folder: false,
        nonce: None,
        ..seen(Liveness::NotRecorded, ExitReading::Absent)
    };
    assert_eq!(state_of(&starting, nothing.clone()), JobState::Starting);
    assert_eq!(
        state_of(&known(JobState::Running), nothing),
        unknown(UnknownReason::FolderMissing)
    );
    let verdict = judge(
        &starting,
        &Sighting::Seen(Box::new(seen(
            Liveness::Alive(process()),
            ExitReading::Absent,
        ))),
    );
    assert_eq!(
        (verdict.state, verdict.adopted),
        (JobState::Running, Some(process()))
    );
    let other = Observation {
        nonce: Some(Nonce::from_bytes([2; 16])),
        ..seen(Liveness::Alive(process()), ExitReading::Absent)
    };
    let verdict = judge(&starting, &Sighting::Seen(Box::new(other)));
    assert_eq!(
        (verdict.state, verdict.adopted),
        (unknown(UnknownReason::OtherNonce), None)
    );
}

#[test]
fn unreachable_keeps_its_first_moment_and_never_becomes_lost() {
    let mut known = known(JobState::Running);
    for at in [100, 200, 300_000] {
        known.state = judge(&known, &Sighting::Unreachable { at }).state;
        assert_eq!(known.state, JobState::Unreachable { since: 100 });
    }
    assert_eq!(
        state_of(
            &known,
            seen(Liveness::Alive(process()), ExitReading::Absent)
        ),
        JobState::Running
    );
}

#[test]
fn states_are_kept_as_text_and_read_back() {
    let states = [
        JobState::Running,
        lost(LostReason::PidReused),
        unknown(UnknownReason::OnlyTheLogSays(3)),
        unknown(UnknownReason::ExitEmpty),
    ];
    for state in states {
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(
            serde_json::from_str::<JobState>(&text).unwrap(),
            state,
            "{text}"
        );
        assert!(text.contains(state.word()), "{text}");
    }
}

fn any_liveness() -> impl Strategy<Value = Liveness> {
    prop_oneof![
        Just(Liveness::NotRecorded),
        Just(Liveness::Unreadable),
        Just(Liveness::Void),
        Just(Liveness::Alive(process())),
        Just(Liveness::Gone(process())),
        Just(Liveness::Reused(process())),
        Just(Liveness::OtherBoot(process())),
        Just(other_node()),
    ]
}

fn any_exit() -> impl Strategy<Value = ExitReading> {
    let faults = prop_oneof![
        Just(ExitFault::Empty),
        Just(ExitFault::Truncated),
        Just(ExitFault::TooLong),
        Just(ExitFault::Symlink)
    ];
    prop_oneof![
        3 => Just(ExitReading::Absent),
        1 => (1_u8..3, 0_u32..256).prop_map(|(word, code)| record(Nonce::from_bytes([word; 16]), Ending::Code(code))),
        1 => faults.prop_map(ExitReading::Fault),
    ]
}

prop_compose! {
    fn any_seen()(runner in any_liveness(), command in any_liveness(), exit in any_exit(), word in 0_u8..3, stop in 0_u8..3,
        has_folder in any::<bool>(), printed in any::<bool>()) -> Observation {
        let word_of = |word: u8| (word > 0).then(|| Nonce::from_bytes([word; 16]));
        let text = if printed { b"EXIT_CODE=0\n".to_vec() } else { Vec::new() };
        Observation { command, nonce: word_of(word), stop_mark: word_of(stop), has_folder,
            log: FileSight { text, ..FileSight::default() }, ..seen(runner, exit) }
    }
}

proptest! {
    #[test]
    fn any_history_keeps_what_is_over_and_believes_only_our_own_record(
        sights in prop::collection::vec(prop_oneof![4 => any_seen().prop_map(Some), 1 => Just(None)], 1..12))
    {
        let mut known = KnownAttempt { process: None, ..known(JobState::Starting) };
        for (at, sight) in sights.into_iter().enumerate() {
            let before = known.state.clone();
            let sighting = match sight.clone() {
                Some(seen) => Sighting::Seen(Box::new(seen)),
                None => Sighting::Unreachable { at: at as u64 },
            };
            let verdict = judge(&known, &sighting);
            if before.is_terminal() {
                prop_assert_eq!(&verdict.state, &before);
                continue;
            }
            if let JobState::Exited { code } = verdict.state {
                // Only a whole record with our word says so, whatever the log holds.
                prop_assert_eq!(&sight.as_ref().unwrap().exit, &record(nonce(), Ending::Code(code)));
            }
            if let JobState::Lost { .. } = verdict.state {
                let seen = sight.as_ref().unwrap();
                prop_assert!(!seen.runner.is_alive() && !seen.command.is_alive());
                prop_assert_eq!(&seen.exit, &ExitReading::Absent);
            }
            if sight.is_none() {
                prop_assert_eq!(verdict.state.word(), "unreachable");
            }
            if let Some(adopted) = verdict.adopted {
                prop_assert_eq!(sight.unwrap().nonce, known.nonce.clone());
                known.process = Some(adopted);
            }
            known.state = verdict.state;
        }
    }
}

#[test]
fn attempt_that_began_is_unknown_when_its_folder_says_that_it_never_did() {
    let void = Sighting::Seen(Box::new(seen(Liveness::Void, ExitReading::Absent)));
    let verdict = judge(&known(JobState::Running), &void);
    let expected = JobState::Unknown {
        reason: UnknownReason::VoidAfterBegin,
    };
    assert_eq!(verdict.state, expected);
    let unheard = KnownAttempt {
        process: None,
        ..known(JobState::Starting)
    };
    assert_eq!(judge(&unheard, &void).state, JobState::NotStarted);
}
