//! What outlives the runner and the command of a job, or the folder of it.

use std::fs;
use std::process::Command;

use super::super::testing::*;
use super::super::{JobSpec, JobStarted, JobState, ProcessIdentity, StartRefusal};
use super::*;

fn target(spec: &JobSpec) -> StopTarget<'_> {
    StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    }
}

fn stop(host: &Host, spec: &JobSpec, process: &ProcessIdentity) -> StopVerdict {
    let script = stop_begun_script(&target(spec), process, &mark());
    let answer = host.run(&script);
    parse_stop(&mark(), &answer)
        .unwrap_or_else(|| panic!("{}: {}", host.name, String::from_utf8_lossy(&answer)))
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Starts a command that writes the number of a process into a file, and gives that number.
fn started_with_child(host: &Host, spec: &JobSpec) -> (JobStarted, String) {
    let started = host.started(spec);
    let file = host.home.path().join("pid");
    let mut pid = String::new();
    until("it has a child", || {
        pid = fs::read_to_string(&file).unwrap_or_default();
        pid.ends_with('\n')
    });
    fs::remove_file(file).unwrap();
    (started, pid.trim().to_owned())
}

/// Ends the runner and the command, and nothing that the command started.
fn kill_both(host: &Host, spec: &JobSpec) {
    for file in ["process", "child"] {
        let words = fs::read_to_string(host.folder(spec).join(file)).unwrap();
        let pid = words.split_whitespace().next().unwrap().to_owned();
        Command::new("kill").args(["-KILL", &pid]).status().unwrap();
        until("it is gone", || !lives(&pid));
    }
}

#[test]
fn stop_of_a_job_whose_folder_is_missing_ends_it_and_makes_nothing_void() {
    for host in Host::all() {
        let spec = job("setsid sleep 351 & echo $! >~/pid; sleep 352");
        let (started, child) = started_with_child(&host, &spec);
        let folder = host.folder(&spec);
        let job_folder = folder.parent().unwrap();
        let aside = host.home.path().join("aside");
        fs::rename(job_folder, &aside).unwrap();
        let verdict = stop(&host, &spec, &started.process);
        let StopVerdict::FolderMissing(report) = verdict else {
            panic!("{}: {verdict:?}", host.name)
        };
        assert!(report.found >= 3, "{}: {report:?}", host.name);
        assert!(report.survivors.is_empty(), "{}: {report:?}", host.name);
        assert!(!lives(&child), "{}", host.name);
        assert!(!job_folder.exists(), "{}", host.name);
        fs::rename(&aside, job_folder).unwrap();
        let state = host.judge(&spec, &started.log_file).state;
        assert!(
            !matches!(state, JobState::NotStarted | JobState::Running),
            "{}: {state:?}",
            host.name
        );
    }
}

#[test]
fn job_whose_child_outlives_runner_and_command_runs_is_not_resumed_and_can_be_stopped() {
    let children = ["sleep 353", "setsid sleep 353", "env -i sleep 353"];
    for (host, child) in Host::all().iter().zip(children.iter().cycle()) {
        let spec = job(&format!("{child} & echo $! >~/pid; wait"));
        let (started, pid) = started_with_child(host, &spec);
        kill_both(host, &spec);
        assert!(lives(&pid), "{}", host.name);
        let verdict = host.judge(&spec, &started.log_file);
        assert_eq!(verdict.state, JobState::Running, "{} {child}", host.name);
        assert!(verdict.is_unattended, "{}", host.name);
        let expected = StartRefusal::AttemptLive {
            attempt: spec.attempt,
            holder: Some(spec.nonce.clone()),
        };
        assert_eq!(host.refused(&again(&spec)), expected, "{}", host.name);
        let stopped = stop(host, &spec, &started.process);
        let StopVerdict::Ended(report) = stopped else {
            panic!("{}: {stopped:?}", host.name)
        };
        assert!(report.found >= 1, "{}: {report:?}", host.name);
        assert!(!lives(&pid), "{}", host.name);
        let state = host.judge(&spec, &started.log_file).state;
        assert_eq!(state, JobState::Stopped, "{}", host.name);
    }
}

#[test]
fn what_a_job_left_at_its_end_is_told_and_ended_and_its_state_stays() {
    for host in Host::all() {
        let spec = job("sleep 354 & setsid sleep 355 & echo $! >~/pid; exit 5");
        let (started, pid) = started_with_child(&host, &spec);
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert_eq!(state, JobState::Exited { code: 5 }, "{}", host.name);
        until("it is told", || {
            host.look(&spec, &started.log_file).has_left
        });
        let verdict = stop(&host, &spec, &started.process);
        let StopVerdict::LeftoversEnded(report) = verdict else {
            panic!("{}: {verdict:?}", host.name)
        };
        assert_eq!(report.found, 2, "{}: {report:?}", host.name);
        assert!(report.survivors.is_empty(), "{}: {report:?}", host.name);
        assert!(!lives(&pid), "{}", host.name);
        let seen = host.look(&spec, &started.log_file);
        assert!(!seen.has_left, "{}", host.name);
        let state = host.judge(&spec, &started.log_file).state;
        assert_eq!(state, JobState::Exited { code: 5 }, "{}", host.name);
        assert_eq!(
            stop(&host, &spec, &started.process),
            StopVerdict::AlreadyOver,
            "{}",
            host.name
        );
    }
}
