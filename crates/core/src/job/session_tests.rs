use std::fs;
use std::process::Command;

use super::super::JobState;
use super::super::testing::*;
use super::*;

#[test]
fn live_session_name_fails_the_start_and_an_ended_one_is_reused() {
    for host in Host::all() {
        let first = job("sleep 60").in_session(named("pre"));
        let started = host.started(&first);
        let second = job("echo second").in_session(named("pre"));
        let expected = StartRefusal::SessionTaken {
            holder: Some(first.job.clone()),
        };
        assert_eq!(host.refused(&second), expected, "{}", host.name);
        // Another name that begins alike is another name.
        let longer = job("sleep 60").in_session(named("pre-long"));
        host.started(&longer);
        Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", started.process.pid)])
            .status()
            .unwrap();
        until("the first one is gone", || {
            host.judge(&first, &started.log_file).state != JobState::Running
        });
        let reused = host.started(&second);
        assert_eq!(reused.log_file, started.log_file);
        let (state, _) = host.end_of(&second, &reused.log_file);
        assert_eq!(state, JobState::Exited { code: 0 }, "{}", host.name);
    }
}

#[test]
fn of_many_who_want_the_same_session_one_has_it() {
    let Some(host) = Host::sparse("dash alone", "dash") else {
        return;
    };
    for round in 0..3 {
        let name = named(&format!("race{round}"));
        let specs: Vec<JobSpec> = (0..5)
            .map(|_| job("sleep 60").in_session(name.clone()))
            .collect();
        let count = std::thread::scope(|scope| {
            let threads: Vec<_> = specs
                .iter()
                .map(|spec| scope.spawn(|| host.start(spec)))
                .collect();
            let verdicts = threads.into_iter().map(|thread| thread.join().unwrap());
            verdicts
                .filter(|verdict| matches!(verdict, StartVerdict::Started(_)))
                .count()
        });
        assert_eq!(count, 1);
    }
}

#[test]
fn foreign_tmux_session_keeps_its_name() {
    if !has("tmux") {
        return;
    }
    let host = Host::full("dash", &["dash"]);
    host.tmux(&["new-session", "-d", "-s", "mine", "sleep 60"]);
    host.tmux(&["new-session", "-d", "-s", "other-long", "sleep 60"]);
    assert_eq!(
        host.refused(&job("true").in_session(named("mine"))),
        StartRefusal::SessionTaken { holder: None }
    );
    host.started(&job("sleep 60").in_session(named("other")));
    until("the view is there", || {
        host.sessions() == ["mine", "other", "other-long"]
    });
}

#[test]
fn session_shows_the_log_and_ends_with_the_job_but_not_the_other_way_round() {
    if !has("tmux") {
        return;
    }
    let host = Host::full("dash", &["dash"]);
    let spec = job("echo hello from the job; until [ -e go ]; do sleep 0.05; done; echo done")
        .in_session(named("show"));
    let started = host.started(&spec);
    assert_eq!(started.has_viewer, None, "it is made when all is said");
    until("the log is shown", || {
        host.tmux(&["capture-pane", "-p", "-t", "=show:"])
            .contains("hello from the job")
    });
    let other = job("until [ -e go ]; do sleep 0.05; done").in_session(named("stays"));
    let stays = host.started(&other);
    until("both are shown", || host.sessions() == ["show", "stays"]);
    host.tmux(&["kill-session", "-t", "=show"]);
    host.tmux(&["kill-server"]);
    Command::new("kill")
        .args(["-HUP", "--", &format!("-{}", started.process.pid)])
        .status()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(
        host.judge(&spec, &started.log_file).state,
        JobState::Running
    );
    assert_eq!(host.judge(&other, &stays.log_file).state, JobState::Running);
    let third = job("until [ -e go ]; do sleep 0.05; done").in_session(named("third"));
    let log = host.started(&third).log_file;
    until("the third is shown", || host.sessions() == ["third"]);
    host.write("go", "");
    assert_eq!(host.end_of(&third, &log).0, JobState::Exited { code: 0 });
    assert_eq!(
        host.end_of(&spec, &started.log_file).0,
        JobState::Exited { code: 0 }
    );
    until("the session ends with the job", || {
        host.sessions().is_empty()
    });
    assert!(
        fs::read_to_string(&started.log_file)
            .unwrap()
            .ends_with("done\nEXIT_CODE=0\n")
    );
}

/// A stand-in for a tmux whose server cannot be asked.
fn host_with_tmux(script: &str) -> Host {
    let mut host = Host::full("dash", &["dash"]);
    host.install("tmux", &format!("#!/bin/sh\n{script}\n"));
    host
}

#[test]
fn tmux_that_cannot_be_asked_fails_a_chosen_name_and_only_takes_the_view_from_others() {
    let denied = "echo 'error connecting to /tmp/tmux-7/default (Permission denied)' >&2; exit 1";
    for (script, detail) in [
        ("exec sleep 600", "did not answer within 5 seconds"),
        (denied, "Permission denied"),
    ] {
        let host = host_with_tmux(script);
        let chosen = job("touch ran").in_session(named("mine"));
        let refusal = host.refused(&chosen);
        let StartRefusal::SessionsUnknown { detail: told } = &refusal else {
            panic!("{refusal:?}")
        };
        assert!(told.contains(detail), "{told}");
        let left = fs::read_dir(host.home.path()).unwrap();
        assert_eq!(left.count(), 0, "nothing is left behind");
        let own = job("until [ -e go ]; do sleep 0.05; done");
        let begun = std::time::Instant::now();
        let started = host.started(&own);
        assert!(begun.elapsed().as_secs() < 4, "nobody waits for the view");
        assert_eq!(started.has_viewer, None);
        let verdict = host.judge(&own, &started.log_file);
        assert_eq!(verdict.state, JobState::Running);
        host.write("go", "");
        let (state, _) = host.end_of(&own, &started.log_file);
        assert_eq!(state, JobState::Exited { code: 0 });
    }
}

#[test]
fn tmux_without_a_server_has_no_sessions() {
    for words in [
        "no server running on /tmp/tmux-7/default",
        "error connecting to /tmp/tmux-7/default (No such file or directory)",
        "error connecting to /tmp/tmux-7/default (Connection refused)",
    ] {
        let host = host_with_tmux(&format!("echo '{words}' >&2; exit 1"));
        let spec = job("true").in_session(named("mine"));
        assert_eq!(host.outcome(&spec).0, JobState::Exited { code: 0 });
    }
}
