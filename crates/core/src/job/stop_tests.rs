use std::fs;
use std::process::Command;

use proptest::prelude::*;

use super::super::testing::*;
use super::super::{
    JobSpec, JobState, LogPart, Look, LostReason, Sighting, StartRefusal, StartVerdict, judge,
    parse_start, start_script,
};
use super::*;

#[test]
fn stop_ends_the_whole_tree_and_says_what_it_ended() {
    for host in Host::all() {
        let tree = "trap '' TERM; setsid sleep 331 & (setsid sleep 332 >/dev/null 2>&1 &); sleep 333 & echo up; sleep 334; sleep 335";
        let spec = job(tree).in_session(named("tree"));
        let log = host.started(&spec).log_file;
        until("it is up", || {
            fs::read_to_string(&log).unwrap().contains("up")
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        let StopVerdict::Ended(report) = host.stop(&spec) else {
            panic!("{}", host.name)
        };
        assert!(
            report.survivors.is_empty() && !report.is_blind,
            "{}: {report:?}",
            host.name
        );
        assert!(report.found >= 5, "{}: {report:?}", host.name);
        let sleeps = report
            .ended
            .iter()
            .filter(|process| process.name == "sleep")
            .count();
        assert!(sleeps >= 4, "{}: {report:?}", host.name);
        assert_eq!(
            host.judge(&spec, &log).state,
            JobState::Stopped,
            "{}",
            host.name
        );
        if host.programs.is_none() && has("tmux") {
            assert!(host.sessions().is_empty(), "{}", host.name);
        }
        assert_eq!(stop_again(&host, &spec), JobState::Stopped);
        // The name is free again.
        let next = job("true").in_session(named("tree"));
        assert_eq!(
            host.outcome(&next).0,
            JobState::Exited { code: 0 },
            "{}",
            host.name
        );
    }
}

/// A second stop changes nothing.
fn stop_again(host: &Host, spec: &JobSpec) -> JobState {
    host.stop(spec);
    host.judge(spec, "/none").state
}

#[test]
fn stop_of_a_job_that_is_over_does_nothing() {
    for host in Host::all() {
        let spec = job("exit 4");
        let (state, _) = host.outcome(&spec);
        assert_eq!(host.stop(&spec), StopVerdict::AlreadyOver, "{}", host.name);
        assert_eq!(host.judge(&spec, "/none").state, state, "{}", host.name);
    }
}

#[test]
fn stop_of_a_job_that_never_began_keeps_it_from_beginning() {
    for host in Host::all() {
        let spec = job("touch ran");
        assert_eq!(host.stop(&spec), StopVerdict::NeverBegan, "{}", host.name);
        assert_eq!(
            host.refused(&spec),
            StartRefusal::Abandoned,
            "{}",
            host.name
        );
        assert_eq!(
            host.judge(&spec, "/none").state,
            JobState::NotStarted,
            "{}",
            host.name
        );
    }
}

#[test]
fn stop_leaves_others_alone() {
    for host in Host::all() {
        let spec = job("exec sleep 60");
        let started = host.started(&spec);
        let stranger = JobSpec {
            nonce: Nonce::from_bytes(unique()),
            ..spec.clone()
        };
        assert_eq!(host.stop(&stranger), StopVerdict::NotOurs, "{}", host.name);
        assert_eq!(
            host.judge(&spec, &started.log_file).state,
            JobState::Running,
            "{}",
            host.name
        );
        let group = format!("-{}", started.process.pid);
        Command::new("kill")
            .args(["-KILL", "--", &group])
            .status()
            .unwrap();
        host.end_of(&spec, &started.log_file);
        // Its number now belongs to somebody else.
        let mut innocent = Command::new("setsid")
            .args(["sleep", "30"])
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (pid, boot) = (innocent.id(), started.process.boot_id.as_str());
        fs::write(
            host.folder(&spec).join("process"),
            format!("{pid} 1 {boot} {pid}\n"),
        )
        .unwrap();
        let reused = JobState::Lost {
            reason: LostReason::PidReused,
        };
        assert_eq!(
            host.judge(&spec, &started.log_file).state,
            reused,
            "{}",
            host.name
        );
        host.stop(&spec);
        assert!(
            innocent.try_wait().unwrap().is_none(),
            "{}: an innocent process was ended",
            host.name
        );
        assert_eq!(
            host.judge(&spec, &started.log_file).state,
            reused,
            "{}",
            host.name
        );
        innocent.kill().unwrap();
        innocent.wait().unwrap();
    }
}

#[test]
fn job_starts_is_seen_and_ends_on_a_host_without_proc() {
    let host = Host::full("dash", &["dash"]);
    let without_proc = |script: String| script.replace("/proc/", "/nowhere/");
    let spec = job("sleep 336 & exec sleep 337");
    let answer = host.run(&without_proc(start_script(&spec, &mark())));
    let StartVerdict::Started(started) = parse_start(&mark(), &answer).unwrap() else {
        panic!("{}", String::from_utf8_lossy(&answer))
    };
    let state = || {
        let look = Look::job(
            spec.job.clone(),
            spec.attempt,
            &spec.session,
            &started.log_file,
            LogPart::Nothing,
        );
        let seen = host.see_with(&[look.unwrap()], without_proc).pop().unwrap();
        judge(&known(&spec), &Sighting::Seen(Box::new(seen))).state
    };
    assert_eq!(state(), JobState::Running);
    let target = StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    };
    let answer = host.run(&without_proc(stop_script(&target, &mark())));
    let Some(StopVerdict::Ended(report)) = parse_stop(&mark(), &answer) else {
        panic!("{}", String::from_utf8_lossy(&answer))
    };
    assert!(
        report.found >= 2 && report.survivors.is_empty(),
        "{report:?}"
    );
    assert_eq!(state(), JobState::Stopped);
}

proptest! {
    #[test]
    fn report_reader_survives_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_stop(&mark(), &bytes);
    }
}

fn void(host: &Host, spec: &JobSpec) -> Option<VoidVerdict> {
    let target = StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    };
    parse_void(&mark(), &host.run(&void_script(&target, &mark())))
}

#[test]
fn void_spares_what_has_begun_and_bars_what_has_not() {
    for host in Host::all() {
        let spec = job("sleep 341");
        let log = host.started(&spec).log_file;
        assert_eq!(
            void(&host, &spec),
            Some(VoidVerdict::Began),
            "{}",
            host.name
        );
        assert_eq!(
            host.judge(&spec, &log).state,
            JobState::Running,
            "{}",
            host.name
        );
        let never = job("true");
        assert_eq!(
            void(&host, &never),
            Some(VoidVerdict::NeverBegan),
            "{}",
            host.name
        );
        assert_eq!(
            host.refused(&never),
            StartRefusal::Abandoned,
            "{}",
            host.name
        );
        assert_eq!(
            void(&host, &never),
            Some(VoidVerdict::NeverBegan),
            "{}",
            host.name
        );
    }
}
