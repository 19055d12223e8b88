//! Looks at jobs that somebody else started, and at parts of logs that are only searched.

use std::fs;

use super::super::testing::*;
use super::super::{
    Alarm, JobSpec, JobStarted, JobState, KnownAttempt, Sighting, StartRefusal, StopTarget,
    alarms_in, judge, stop_script,
};
use super::*;

/// What somebody on another laptop sees, who knows session and log.
fn elsewhere(host: &Host, spec: &JobSpec, started: &JobStarted) -> JobState {
    let part = LogPart::Last(1000);
    let look = Look::foreign(spec.session.as_str(), &started.log_file, part).unwrap();
    let seen = host.see(&[look]).pop().unwrap();
    let known = KnownAttempt {
        nonce: None,
        state: JobState::Running,
        process: None,
        is_stop_asked: false,
    };
    judge(&known, &Sighting::Seen(Box::new(seen))).state
}

#[test]
fn job_of_another_laptop_is_seen_without_its_view_and_its_name_stays_taken() {
    for host in Host::all() {
        let spec = job("sleep 361");
        let started = host.started(&spec);
        if host.programs.is_none() && has("tmux") {
            host.tmux(&["kill-server"]);
        }
        let state = elsewhere(&host, &spec, &started);
        assert_eq!(state, JobState::Running, "{}", host.name);
        let resume = job("sleep 362").in_session(spec.session.clone());
        let expected = StartRefusal::SessionTaken {
            holder: Some(spec.job.clone()),
        };
        assert_eq!(host.refused(&resume), expected, "{}", host.name);
        host.run(&stop_script(&target_of(&spec), &mark()));
        let state = elsewhere(&host, &spec, &started);
        assert_eq!(state, JobState::Stopped, "{}", host.name);
    }
}

#[test]
fn end_of_a_job_of_another_laptop_is_that_of_its_record() {
    for host in Host::all() {
        let spec = job("echo EXIT_CODE=0; exit 3");
        let started = host.started(&spec);
        host.end_of(&spec, &started.log_file);
        until("its view is gone", || {
            elsewhere(&host, &spec, &started) == JobState::Exited { code: 3 }
        });
    }
}

#[test]
fn alarm_in_a_part_that_is_not_brought_is_found() {
    let mut log = b"step 1 loss 0.5\n".repeat(2000);
    let begin = log.len() as u64;
    log.extend([0; 9000]);
    log.extend(b"\rRuntimeError: CUDA out of memory. Tried\n");
    log.extend(b"loss: nano\nloss=nancy\nxcuda error\n");
    let end = log.len() as u64;
    log.extend(b"No space left on device\n");
    for host in Host::all() {
        fs::write(host.home.path().join("log"), &log).unwrap();
        let look = |from, bytes| {
            let look = Look::foreign("", "~/log", LogPart::Nothing).unwrap();
            let seen = host.see(&[look.searching(from, bytes)]).pop().unwrap();
            alarms_in(&seen.gap_text)
        };
        let found = look(begin - 100, end - begin + 100);
        assert_eq!(found, [Alarm::OutOfMemory], "{}", host.name);
        assert_eq!(look(0, begin), [], "{}", host.name);
    }
}

#[test]
fn name_of_a_job_that_is_over_means_the_job_that_has_taken_it_since() {
    for host in Host::all() {
        let first = job("exit 5");
        let started = host.started(&first);
        host.end_of(&first, &started.log_file);
        let second = job("sleep 363").in_session(first.session.clone());
        let again = host.started(&second);
        let state = elsewhere(&host, &second, &again);
        assert_eq!(state, JobState::Running, "{}", host.name);
        let resumed = super::super::testing::again(&first);
        let expected = StartRefusal::SessionTaken {
            holder: Some(second.job.clone()),
        };
        assert_eq!(host.refused(&resumed), expected, "{}", host.name);
        host.run(&stop_script(&target_of(&second), &mark()));
    }
}

fn target_of(spec: &JobSpec) -> StopTarget<'_> {
    StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    }
}
