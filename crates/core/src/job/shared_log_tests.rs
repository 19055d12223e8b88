use super::super::testing::*;
use super::super::{JobSpec, JobState};
use super::*;

/// A job in a session that has a log of its own.
fn in_session(command: &str) -> JobSpec {
    job(command).in_session(named("train"))
}

fn look(spec: &JobSpec, log: &str, part: LogPart) -> Look {
    Look::job(spec.job.clone(), spec.attempt, &spec.session, log, part).unwrap()
}

fn since(byte: u64, most: u64) -> LogPart {
    LogPart::Since { byte, most }
}

#[test]
fn log_of_a_job_ends_where_the_next_one_in_its_session_begins() {
    for host in Host::all() {
        let first = in_session("echo first");
        let log = host.started(&first).log_file;
        let (state, _) = host.end_of(&first, &log);
        assert_eq!(state, JobState::Exited { code: 0 }, "{}", host.name);
        let second = in_session("echo CUDA out of memory");
        let started = host.started(&second);
        assert_eq!(started.log_file, log);
        host.end_of(&second, &log);

        let own = b"first\nEXIT_CODE=0\n";
        let size = Some(own.len() as u64);
        let searched = look(&first, &log, LogPart::Nothing).searching(0, 1 << 20);
        let looks = [
            look(&first, &log, LogPart::Last(1 << 20)),
            look(&first, &log, since(3, 1 << 20)),
            look(&first, &log, LogPart::Last(4)),
            look(&first, &log, since(40, 100)),
            searched,
        ];
        let seen = host.see(&looks);
        let texts: Vec<_> = seen.iter().map(|seen| &seen.log.text[..]).collect();
        let expected = [&own[..], &own[3..], b"E=0\n", b"", b""];
        assert_eq!(texts, expected, "{}", host.name);
        assert!(seen.iter().all(|seen| seen.log.size_bytes == size));
        assert_eq!(seen[4].gap_text, b"", "{}", host.name);

        let seen = host.look(&second, &log);
        let whole = b"first\nEXIT_CODE=0\nCUDA out of memory\nEXIT_CODE=0\n";
        assert_eq!(seen.log.text, whole, "{}", host.name);
    }
}

#[test]
fn what_a_job_has_left_running_still_writes_into_its_log() {
    for host in Host::all() {
        let spec = job("{ until [ -e go ]; do sleep 0.05; done; echo later; } & echo now");
        let log = host.started(&spec).log_file;
        host.end_of(&spec, &log);
        until("the runner has seen what is left", || {
            host.folder(&spec).join("left").exists()
        });
        host.write("go", "");
        until("what is left has spoken", || {
            host.look(&spec, &log).log.text.ends_with(b"later\n")
        });
    }
}

#[test]
fn bound_of_a_log_takes_nothing_that_stood_there_before() {
    let host = Host::full("dash", &["dash"]);
    let before = "kept\n".repeat(60_000);
    host.write("old.log", &before);
    let lines = "i=0; while [ $i -lt 6 ]; do seq -f 'line %09.0f' $((i*20000)) $((i*20000+19999)); sleep 1.2; i=$((i+1)); done";
    let mut spec = job(lines)
        .with_max_log_bytes(256 * 1024)
        .unwrap()
        .with_log_file("old.log")
        .unwrap();
    spec.log_pause_s = 1;
    let log = host.started(&spec).log_file;
    host.end_of(&spec, &log);
    let bytes = std::fs::read(&log).unwrap();
    assert!(bytes.starts_with(before.as_bytes()));
    let own = &bytes[before.len()..];
    assert!(own.starts_with(b"line 000000000\n"));
    assert!(own.contains(&0), "its own middle is given back");
}

#[test]
fn log_of_a_job_that_is_lost_or_has_left_something_ends_where_the_next_one_begins() {
    for host in Host::all() {
        let lost = in_session("echo lost; exec sleep 60");
        let started = host.started(&lost);
        let log = started.log_file;
        until("it speaks", || host.look(&lost, &log).log.text == b"lost\n");
        let mut kill = std::process::Command::new("kill");
        let group = format!("-{}", started.process.pid);
        kill.args(["-KILL", "--", &group]).status().unwrap();
        until("it is gone", || {
            host.judge(&lost, &log).state != JobState::Running
        });

        let left = in_session("sleep 60 & echo left");
        assert_eq!(host.started(&left).log_file, log);
        host.end_of(&left, &log);
        until("the runner has seen what is left", || {
            host.folder(&left).join("left").exists()
        });
        assert_eq!(host.look(&lost, &log).log.text, b"lost\n", "{}", host.name);

        let last = in_session("echo last");
        host.started(&last);
        host.end_of(&last, &log);
        assert_eq!(host.look(&lost, &log).log.text, b"lost\n", "{}", host.name);
        let whole = b"lost\nleft\nEXIT_CODE=0\n";
        assert_eq!(host.look(&left, &log).log.text, whole, "{}", host.name);
    }
}

#[test]
fn log_of_a_job_goes_on_with_its_next_attempt() {
    let host = Host::full("dash", &["dash"]);
    let first = in_session("echo one; exit 1");
    let log = host.started(&first).log_file;
    host.end_of(&first, &log);
    let second = again(&first);
    host.started(&second);
    host.end_of(&second, &log);
    let whole = b"one\nEXIT_CODE=1\none\nEXIT_CODE=1\n";
    assert_eq!(host.look(&second, &log).log.text, whole);
}

#[test]
fn job_whose_log_has_become_a_pipe_ends_all_the_same() {
    for host in Host::all() {
        let log = host.home.path().join("x.log");
        let pipe = "rm x.log; mkfifo x.log 2>/dev/null || exit 9; exit 4";
        let spec = job(pipe).with_log_file("x.log").unwrap();
        if host.programs.is_some() {
            // It has no program that makes one.
            continue;
        }
        let started = host.started(&spec);
        let (state, _) = host.end_of(&spec, &started.log_file);
        assert_eq!(state, JobState::Exited { code: 4 }, "{}", host.name);
        assert!(log.exists());
    }
}
