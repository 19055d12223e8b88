use super::super::testing::*;
use super::super::{JobSpec, JobStarted, JobState, LostReason, StopVerdict};

/// A job whose command is up.
fn begun(host: &Host, command: &str) -> (JobSpec, JobStarted) {
    let spec = job(&format!("echo up; {command}"));
    let started = host.started(&spec);
    until("the command is up", || {
        host.look(&spec, &started.log_file).log.text == b"up\n"
    });
    (spec, started)
}

fn ask_to_end(target: &str) {
    let mut kill = std::process::Command::new("kill");
    let status = kill.args(["-TERM", "--", target]).status().unwrap();
    assert!(status.success(), "{target}");
}

#[test]
fn attempt_of_which_all_was_asked_to_end_is_lost_and_has_not_ended() {
    for host in Host::all() {
        for command in [
            "exec sleep 60",
            "sleep 60",
            "trap 'exit 143' TERM; sleep 60 & wait",
        ] {
            let (spec, started) = begun(&host, command);
            // As a host does that is shut down, or that ends what a login has left.
            ask_to_end(&format!("-{}", started.process.pid));
            let (state, seen) = host.end_of(&spec, &started.log_file);
            let lost = JobState::Lost {
                reason: LostReason::ProcessGone,
            };
            assert_eq!(state, lost, "{}: {command}: {seen:?}", host.name);
            let text = String::from_utf8_lossy(&seen.log.text);
            assert!(!text.contains("EXIT_CODE="), "{}: {text}", host.name);
        }
    }
}

#[test]
fn attempt_whose_runner_is_asked_last_is_lost_all_the_same() {
    for host in Host::all() {
        let (spec, started) = begun(&host, "exec sleep 60");
        let child = std::fs::read_to_string(host.folder(&spec).join("child")).unwrap();
        let child = child.split_whitespace().next().unwrap();
        ask_to_end(child);
        ask_to_end(&started.process.pid.to_string());
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert!(matches!(state, JobState::Lost { .. }), "{}", host.name);
    }
}

#[test]
fn command_that_alone_was_ended_or_that_ended_in_its_own_way_has_ended() {
    for host in Host::all() {
        let (spec, started) = begun(&host, "exec sleep 60");
        let child = std::fs::read_to_string(host.folder(&spec).join("child")).unwrap();
        ask_to_end(child.split_whitespace().next().unwrap());
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert_eq!(state, JobState::Signalled { signal: 15 }, "{}", host.name);

        let (spec, started) = begun(&host, "trap 'exit 0' TERM; sleep 60 & wait");
        ask_to_end(&format!("-{}", started.process.pid));
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert_eq!(state, JobState::Exited { code: 0 }, "{}", host.name);
    }
}

#[test]
fn attempt_that_was_stopped_is_stopped_and_its_end_is_written_down() {
    for host in Host::all() {
        let (spec, started) = begun(&host, "exec sleep 60");
        let verdict = host.stop(&spec);
        assert!(
            matches!(verdict, StopVerdict::Ended(_)),
            "{}: {verdict:?}",
            host.name
        );
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert_eq!(state, JobState::Stopped, "{}", host.name);
    }
}
