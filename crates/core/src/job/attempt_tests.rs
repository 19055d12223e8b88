use std::fs;
use std::process::Command;

use super::super::testing::*;
use super::super::{JobState, Sighting, judge};
use super::*;

#[test]
fn same_start_sent_twice_runs_once() {
    for host in Host::all() {
        let spec = job("echo ran; sleep 1");
        let first = host.started(&spec);
        let StartVerdict::StartedBefore(second) = host.start(&spec) else {
            panic!("{}", host.name)
        };
        assert_eq!(first.process, second.process);
        assert_eq!(
            (&first.log_file, first.log_offset),
            (&second.log_file, second.log_offset)
        );
        host.end_of(&spec, &first.log_file);
        assert_eq!(
            fs::read_to_string(&first.log_file).unwrap(),
            "ran\nEXIT_CODE=0\n",
            "{}",
            host.name
        );
    }
}

#[test]
fn of_many_who_want_the_same_attempt_one_has_it() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("echo ran >>count; sleep 60");
    let rivals: Vec<JobSpec> = (0..6)
        .map(|_| JobSpec {
            nonce: Nonce::from_bytes(unique()),
            ..spec.clone()
        })
        .collect();
    let verdicts: Vec<StartVerdict> = std::thread::scope(|scope| {
        let started: Vec<_> = rivals
            .iter()
            .map(|rival| scope.spawn(|| host.start(rival)))
            .collect();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let winners: Vec<usize> = (0..6)
        .filter(|at| matches!(verdicts[*at], StartVerdict::Started(_)))
        .collect();
    assert_eq!(winners.len(), 1, "{verdicts:?}");
    let winner = &rivals[winners[0]].nonce;
    for (at, verdict) in verdicts.iter().enumerate() {
        if at != winners[0] {
            let expected = StartRefusal::AttemptTaken {
                attempt: spec.attempt,
                holder: Some(winner.clone()),
            };
            assert_eq!(*verdict, StartVerdict::Refused(expected));
        }
    }
    let count = host.home.path().join("count");
    until("the command ran", || count.exists());
    assert_eq!(fs::read_to_string(count).unwrap(), "ran\n");
}

#[test]
fn next_attempt_waits_for_the_end_of_the_one_before() {
    for host in Host::all() {
        let spec = job("exec sleep 60").in_session(named("train"));
        let started = host.started(&spec);
        let second = again(&spec);
        let expected = StartRefusal::AttemptLive {
            attempt: spec.attempt,
            holder: Some(spec.nonce.clone()),
        };
        assert_eq!(host.refused(&second), expected, "{}", host.name);
        let child = host.folder(&spec).join("child");
        until("the command runs", || child.exists());
        // The runner alone is gone: the command still runs.
        kill("-KILL", started.process.pid);
        until("the runner is gone", || {
            start_time(&started.process.pid.to_string()).is_none()
        });
        assert!(
            matches!(host.refused(&second), StartRefusal::AttemptLive { .. }),
            "{}",
            host.name
        );
        let verdict = host.judge(&spec, &started.log_file);
        assert_eq!(
            (verdict.state, verdict.is_unattended),
            (JobState::Running, true),
            "{}",
            host.name
        );
        let child = fs::read_to_string(child).unwrap();
        kill(
            "-KILL",
            child.split_whitespace().next().unwrap().parse().unwrap(),
        );
        until("the command is gone", || {
            host.judge(&spec, &started.log_file).state != JobState::Running
        });
        host.started(&second);
        let late = host.refused(&JobSpec {
            nonce: Nonce::from_bytes(unique()),
            ..spec.clone()
        });
        assert!(
            matches!(late, StartRefusal::AttemptTaken { .. }),
            "{}",
            host.name
        );
    }
}

fn kill(signal: &str, pid: u32) {
    assert!(
        Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn attempt_whose_start_broke_off_never_begins() {
    for host in Host::all() {
        let spec = job("touch ran");
        // What a start leaves that was ended between its number and its runner.
        fs::create_dir_all(host.folder(&spec)).unwrap();
        fs::write(
            host.folder(&spec).join("nonce"),
            format!("{}\n", spec.nonce),
        )
        .unwrap();
        fs::write(host.folder(&spec).join("claim"), "999999999 1\n").unwrap();
        assert_eq!(
            host.refused(&spec),
            StartRefusal::Abandoned,
            "{}",
            host.name
        );
        let seen = host.look(&spec, "/none");
        let verdict = judge(&known(&spec), &Sighting::Seen(Box::new(seen)));
        assert_eq!(verdict.state, JobState::NotStarted, "{}", host.name);
        // A runner of it that comes late finds the gate closed.
        let late = again(&spec);
        let (state, _) = host.outcome(&late);
        assert_eq!(state, JobState::Exited { code: 0 }, "{}", host.name);
        assert!(host.home.path().join("ran").exists());
    }
}

#[test]
fn start_that_is_slow_loses_to_the_next_attempt_and_never_begins() {
    let mut host = Host::full("dash", &["dash"]);
    host.install(
        "nvidia-smi",
        "#!/bin/sh\nuntil [ -e ~/go ]; do sleep 0.02; done; echo 'No devices were found'; exit 6\n",
    );
    let slow = job("echo slow >>ran").with_gpus(GpuWish::Auto);
    let next = JobSpec {
        gpus: GpuWish::None,
        ..again(&slow)
    };
    std::thread::scope(|scope| {
        let held = scope.spawn(|| host.start(&slow));
        until("the first one has its number", || {
            host.folder(&slow).join("claim").exists()
        });
        let log = host.started(&next).log_file;
        host.write("go", "");
        assert_eq!(
            held.join().unwrap(),
            StartVerdict::Refused(StartRefusal::Abandoned)
        );
        assert_eq!(host.end_of(&next, &log).0, JobState::Exited { code: 0 });
    });
    assert_eq!(host.judge(&slow, "/none").state, JobState::NotStarted);
    assert_eq!(
        fs::read_to_string(host.home.path().join("ran")).unwrap(),
        "slow\n",
        "only one of them ran"
    );
}

#[test]
fn start_that_is_killed_at_any_moment_and_sent_again_runs_at_most_once() {
    let host = Host::full("dash", &["dash"]);
    let mut begun = 0;
    for round in 0..24 {
        let spec = job(&format!("echo ran >>ran{round}"));
        let script = host.home.path().join("script");
        fs::write(&script, start_script(&spec, &mark())).unwrap();
        let mut child = host
            .command()
            .stdin(fs::File::open(&script).unwrap())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(4 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = host.home.path().join(format!("ran{round}"));
        match host.start(&spec) {
            StartVerdict::Started(started) | StartVerdict::StartedBefore(started) => {
                begun += 1;
                host.end_of(&spec, &started.log_file);
                assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n", "round {round}");
            }
            StartVerdict::Refused(
                StartRefusal::Abandoned | StartRefusal::AttemptTaken { holder: None, .. },
            ) => {
                let late = again(&spec);
                host.outcome(&late);
                assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n", "round {round}");
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert!(begun > 0);
}
