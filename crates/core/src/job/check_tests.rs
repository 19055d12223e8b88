use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::super::testing::*;
use super::super::{
    CheckpointSight, ExitFault, FileKind, Hole, JobState, LostReason, Nonce, SessionSight,
    Sighting, StartVerdict, UnknownReason, judge, parse_check,
};
use super::*;

fn foreign(session: &str, log: &str) -> Look {
    Look::foreign(session, log, LogPart::Last(1000)).unwrap()
}

#[test]
fn many_jobs_are_seen_in_one_script() {
    for host in Host::all() {
        let specs: Vec<_> = (0..5)
            .map(|number| job(&format!("echo {number}; exit {number}")))
            .collect();
        let logs: Vec<String> = specs
            .iter()
            .map(|spec| host.started(spec).log_file)
            .collect();
        for (spec, log) in specs.iter().zip(&logs) {
            host.end_of(spec, log);
        }
        let looks: Vec<Look> = specs
            .iter()
            .zip(&logs)
            .map(|(spec, log)| {
                Look::job(
                    spec.job.clone(),
                    spec.attempt,
                    &spec.session,
                    log,
                    LogPart::Since { byte: 2, most: 5 },
                )
                .unwrap()
            })
            .collect();
        for (number, (seen, spec)) in host.see(&looks).into_iter().zip(&specs).enumerate() {
            assert_eq!(seen.log.text, b"EXIT_", "{}", host.name);
            assert_eq!(seen.log.size_bytes, Some(14), "{}", host.name);
            assert!(seen.log.age_s.unwrap() < 60, "{}", host.name);
            let state = judge(&known(spec), &Sighting::Seen(Box::new(seen))).state;
            assert_eq!(
                state,
                JobState::Exited {
                    code: number as u32
                },
                "{}",
                host.name
            );
        }
    }
}

#[test]
fn log_comes_back_byte_by_byte() {
    let host = Host::full("dash", &["dash"]);
    let bytes = [b"a\0b\n\n".as_slice(), &[0xff, 0xfe], b"RSMCP:x\n\nend"].concat();
    fs::write(host.home.path().join("log"), &bytes).unwrap();
    for host in Host::all() {
        fs::write(host.home.path().join("log"), &bytes).unwrap();
        assert_eq!(
            host.see(&[foreign("x", "~/log")])[0].log.text,
            bytes,
            "{}",
            host.name
        );
    }
}

#[test]
fn exit_record_that_is_not_whole_is_not_believed() {
    let other = Nonce::from_bytes([3; 16]);
    let whole = |nonce: &Nonce| format!("nonce={nonce}\ncode=0\nsignal=0\nended=1\nend=\n");
    for host in Host::all() {
        let spec = job("kill -KILL $PPID; kill -KILL $$");
        let log = host.started(&spec).log_file;
        let (state, _) = host.end_of(&spec, &log);
        assert_eq!(
            state,
            JobState::Lost {
                reason: LostReason::ProcessGone
            },
            "{}",
            host.name
        );
        let exit = host.folder(&spec).join("exit");
        let truncated = whole(&spec.nonce).replace("end=\n", "");
        let cases = [
            (String::new(), ExitFault::Empty),
            (truncated, ExitFault::Truncated),
            (whole(&other), ExitFault::OtherNonce),
            (
                whole(&spec.nonce) + &"x".repeat(10 << 20),
                ExitFault::TooLong,
            ),
        ];
        for (text, fault) in cases {
            fs::write(&exit, text).unwrap();
            let expected = JobState::Unknown {
                reason: UnknownReason::from(fault),
            };
            assert_eq!(host.judge(&spec, &log).state, expected, "{}", host.name);
        }
        fs::remove_file(&exit).unwrap();
        fs::write(host.home.path().join("elsewhere"), whole(&spec.nonce)).unwrap();
        symlink(host.home.path().join("elsewhere"), &exit).unwrap();
        let expected = JobState::Unknown {
            reason: UnknownReason::ExitSymlink,
        };
        assert_eq!(host.judge(&spec, &log).state, expected, "{}", host.name);
        fs::remove_file(&exit).unwrap();
        Command::new("mkfifo").arg(&exit).status().unwrap();
        let expected = JobState::Unknown {
            reason: UnknownReason::ExitNotAFile,
        };
        assert_eq!(host.judge(&spec, &log).state, expected, "{}", host.name);
    }
}

#[test]
fn printed_exit_code_is_never_believed() {
    for host in Host::all() {
        let spec = job("echo EXIT_CODE=0; exec sleep 60");
        let started = host.started(&spec);
        until("it has said so", || {
            host.judge(&spec, &started.log_file).hearsay_code == Some(0)
        });
        assert_eq!(
            host.judge(&spec, &started.log_file).state,
            JobState::Running,
            "{}",
            host.name
        );
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", started.process.pid)])
            .status()
            .unwrap();
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert_eq!(
            state,
            JobState::Lost {
                reason: LostReason::ProcessGone
            },
            "{}",
            host.name
        );
    }
}

#[test]
fn host_that_was_booted_again_is_noticed() {
    for host in Host::all() {
        let spec = job("exec sleep 60");
        let log = host.started(&spec).log_file;
        host.write("boot_id", "00000000-1111-2222-3333-444444444444\n");
        let fake = host.home.path().join("boot_id");
        let look = Look::job(
            spec.job.clone(),
            spec.attempt,
            &spec.session,
            &log,
            LogPart::Nothing,
        )
        .unwrap();
        let seen = host.see_with(&[look], |script| {
            script.replace("/proc/sys/kernel/random/boot_id", fake.to_str().unwrap())
        });
        let state = judge(&known(&spec), &Sighting::Seen(Box::new(seen[0].clone()))).state;
        assert_eq!(
            state,
            JobState::Lost {
                reason: LostReason::HostRebooted
            },
            "{}",
            host.name
        );
    }
}

#[test]
fn task_of_the_old_package_is_seen_by_session_and_log() {
    if !has("tmux") {
        return;
    }
    let host = Host::full("dash", &["dash"]);
    host.tmux(&["new-session", "-d", "-s", "prefix-long", "sleep 60"]);
    host.write("a.log", "working\n");
    host.write("b.log", "working\nEXIT_CODE=3\n");
    let looks = [
        foreign("prefix-long", "~/a.log"),
        foreign("prefix", "~/a.log"),
        foreign("prefix", "~/b.log"),
    ];
    let seen = host.see(&looks);
    assert_eq!(seen[0].session, SessionSight::Present);
    assert_eq!(
        seen[1].session,
        SessionSight::Absent,
        "only the whole name counts"
    );
    let known = super::super::KnownAttempt {
        nonce: None,
        state: JobState::Running,
        process: None,
        is_stop_asked: false,
    };
    let states: Vec<JobState> = seen
        .into_iter()
        .map(|seen| judge(&known, &Sighting::Seen(Box::new(seen))).state)
        .collect();
    let expected = [
        JobState::Running,
        JobState::Lost {
            reason: LostReason::ProcessGone,
        },
        JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(3),
        },
    ];
    assert_eq!(states, expected);
}

#[test]
fn checkpoint_is_bounded_and_nothing_that_hangs_is_opened() {
    for host in Host::all() {
        let home = host.home.path();
        fs::create_dir(home.join("work")).unwrap();
        host.write("work/state.json", "{\"step\": 12345}");
        Command::new("mkfifo")
            .arg(home.join("pipe"))
            .status()
            .unwrap();
        let with = |checkpoint: Checkpoint, most| {
            foreign("x", "/none")
                .with_checkpoint(checkpoint, "~/work", most)
                .unwrap()
        };
        let looks = [
            with(Checkpoint::Path("state.json".to_owned()), 8),
            with(Checkpoint::Path("~/pipe".to_owned()), 8),
            with(Checkpoint::Path("none".to_owned()), 8),
            with(
                Checkpoint::Command("cat state.json; echo e >&2; exit 3".to_owned()),
                100,
            ),
            with(
                Checkpoint::Command("while :; do echo flood; done".to_owned()),
                10,
            ),
            foreign("x", "~/pipe"),
        ];
        let seen = host.see(&looks);
        let CheckpointSight::File(file) = seen[0].checkpoint.as_ref().unwrap() else {
            panic!()
        };
        assert_eq!(
            (file.kind, &file.text[..], file.size_bytes),
            (FileKind::File, &b"{\"step\":"[..], Some(15))
        );
        let CheckpointSight::File(pipe) = seen[1].checkpoint.as_ref().unwrap() else {
            panic!()
        };
        assert_eq!(pipe.kind, FileKind::NotAFile, "{}", host.name);
        let CheckpointSight::File(none) = seen[2].checkpoint.as_ref().unwrap() else {
            panic!()
        };
        assert_eq!(none.kind, FileKind::Missing);
        let told = CheckpointSight::Told {
            code: Some(3),
            text: b"{\"step\": 12345}e\n".to_vec(),
        };
        assert_eq!(seen[3].checkpoint, Some(told), "{}", host.name);
        let CheckpointSight::Told { text, .. } = seen[4].checkpoint.as_ref().unwrap() else {
            panic!("{:?}", seen[4])
        };
        assert_eq!(text, b"flood\nfloo", "{}", host.name);
        assert_eq!(seen[5].log.kind, FileKind::NotAFile, "{}", host.name);
    }
}

#[test]
fn complaints_of_a_checkpoint_command_do_not_spoil_its_json() {
    for host in Host::all() {
        let command = "echo warning >&2; echo '{\"step\": 1}'; exit 4".to_owned();
        let look = foreign("x", "/none")
            .with_checkpoint(Checkpoint::JsonCommand(command), "", 100)
            .unwrap();
        let told = CheckpointSight::Told {
            code: Some(4),
            text: b"{\"step\": 1}\n".to_vec(),
        };
        let seen = host.see(&[look]);
        assert_eq!(seen[0].checkpoint, Some(told), "{}", host.name);
    }
}

#[test]
fn part_of_the_log_that_is_not_kept_is_passed_over() {
    for host in Host::all() {
        let spec = job("seq 100 199");
        let log = host.started(&spec).log_file;
        host.end_of(&spec, &log);
        fs::write(host.folder(&spec).join("hole"), "40 200\n").unwrap();
        let since = |byte, most| LogPart::Since { byte, most };
        let parts = [
            since(0, 100),
            since(40, 8),
            since(199, 4),
            since(200, 4),
            LogPart::Last(8),
            LogPart::Last(300),
        ];
        let looks: Vec<Look> = parts
            .iter()
            .map(|part| Look::job(spec.job.clone(), spec.attempt, &spec.session, &log, *part))
            .map(Result::unwrap)
            .collect();
        let seen = host.see(&looks);
        assert_eq!(seen[0].log.hole, Hole::new(40, 200), "{}", host.name);
        let end: String = (150..200).map(|number| format!("{number}\n")).collect();
        let end = end + "EXIT_CODE=0\n";
        let found: Vec<(Option<u64>, &str)> = seen
            .iter()
            .map(|seen| {
                let text = std::str::from_utf8(&seen.log.text).unwrap();
                (seen.log.begins_at, text)
            })
            .collect();
        let expected = [
            (None, "100\n101\n102\n103\n104\n105\n106\n107\n108\n109\n"),
            (Some(200), "150\n151\n"),
            (Some(200), "150\n"),
            (None, "150\n"),
            (None, &end[end.len() - 8..]),
            (Some(200), end.as_str()),
        ];
        assert_eq!(found, expected, "{}", host.name);
    }
}

#[test]
fn part_of_the_log_that_an_earlier_attempt_gave_back_is_passed_over() {
    for host in Host::all() {
        let first = job("seq 100 199");
        let log = host.started(&first).log_file;
        host.end_of(&first, &log);
        fs::write(host.folder(&first).join("hole"), "40 200\n").unwrap();
        let second = again(&first);
        host.started(&second);
        host.end_of(&second, &log);
        let part = LogPart::Since { byte: 60, most: 4 };
        let look = Look::job(
            second.job.clone(),
            second.attempt,
            &second.session,
            &log,
            part,
        );
        let seen = host.see(&[look.unwrap()]);
        assert_eq!(
            (seen[0].log.begins_at, seen[0].log.text.as_slice()),
            (Some(200), b"150\n".as_slice()),
            "{}",
            host.name
        );
        // What is left of a log that was begun anew has no hole.
        fs::write(&log, "0123456789".repeat(7)).unwrap();
        let look = Look::job(
            second.job.clone(),
            second.attempt,
            &second.session,
            &log,
            part,
        );
        let seen = host.see(&[look.unwrap()]);
        assert_eq!(seen[0].log.text, b"0123", "{}", host.name);
    }
}

#[test]
fn checkpoint_command_that_hangs_is_ended() {
    for host in [Host::full("dash", &["dash"])]
        .into_iter()
        .chain(Host::sparse("busybox alone", "busybox"))
    {
        let command = Checkpoint::Command("echo begun; sleep 341; sleep 342".to_owned());
        let look = foreign("x", "/none")
            .with_checkpoint(command, "", 100)
            .unwrap();
        assert_eq!(
            host.see(&[look])[0].checkpoint,
            Some(CheckpointSight::Hung),
            "{}",
            host.name
        );
    }
}

#[test]
fn answer_that_breaks_off_tells_of_the_tasks_before_it() {
    let host = Host::full("dash", &["dash"]);
    host.write("a.log", "a\n");
    let looks = [foreign("x", "~/a.log"), foreign("y", "~/a.log")];
    let answer = host.run(&check_script(&looks, &mark()));
    let text = String::from_utf8(answer).unwrap();
    let cut = text.find(":1:log").unwrap();
    let report = parse_check(&looks, &mark(), &text.as_bytes()[..cut]).unwrap();
    assert!(report.observations[0].is_some() && report.observations[1].is_none());
    assert!(parse_check(&looks, &mark(), b"no shell here").is_err());
}

#[test]
fn start_whose_answer_was_lost_is_adopted() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("exec sleep 60");
    let StartVerdict::Started(started) = host.start(&spec) else {
        panic!()
    };
    let known = super::super::KnownAttempt {
        state: JobState::Starting,
        ..known(&spec)
    };
    let verdict = judge(
        &known,
        &Sighting::Seen(Box::new(host.look(&spec, &started.log_file))),
    );
    assert_eq!(
        (verdict.state, verdict.adopted),
        (JobState::Running, Some(started.process))
    );
}

#[test]
fn foreign_session_is_found_whatever_it_is_called() {
    if !has("tmux") {
        return;
    }
    let host = Host::full("dash", &["dash"]);
    host.tmux(&["new-session", "-d", "-s", "my job.v1", "sleep 60"]);
    let seen = host.see(&[
        foreign("my job.v1", "/none"),
        foreign("", "/none"),
        foreign("my", "/none"),
    ]);
    let sessions: Vec<SessionSight> = seen.iter().map(|seen| seen.session).collect();
    assert_eq!(
        sessions,
        [
            SessionSight::Present,
            SessionSight::Absent,
            SessionSight::Absent
        ]
    );
}
