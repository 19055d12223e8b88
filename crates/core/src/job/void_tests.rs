use std::fs;

use super::super::testing::*;
use super::super::{JobState, StopTarget, VoidVerdict, parse_void, void_script};
use super::*;

/// A limit on the size of files stands in for a disk that is full.
fn full_disk(script: &str) -> String {
    format!("trap '' XFSZ; ulimit -f 0\n{script}")
}

fn start_on_full_disk(host: &Host, spec: &JobSpec) -> StartVerdict {
    let answer = host.run(&full_disk(&start_script(spec, &mark())));
    parse_start(&mark(), &answer)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&answer)))
}

fn void_on_full_disk(host: &Host, spec: &JobSpec) -> Option<VoidVerdict> {
    let target = StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    };
    let answer = host.run(&full_disk(&void_script(&target, &mark())));
    parse_void(&mark(), &answer)
}

/// What a start leaves that was ended before its runner came up.
fn broken_off(host: &Host, spec: &JobSpec, has_void: bool) {
    let folder = host.folder(spec);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("starter"), "999999999 1\n").unwrap();
    fs::write(folder.join("nonce"), format!("{}\n", spec.nonce)).unwrap();
    if has_void {
        fs::write(folder.join("void"), "void\n").unwrap();
    }
}

#[test]
fn attempt_is_made_void_also_when_the_disk_is_full() {
    for host in Host::all() {
        let (sent, stopped) = (job("touch ran"), job("touch ran"));
        broken_off(&host, &sent, true);
        broken_off(&host, &stopped, true);
        let abandoned = StartVerdict::Refused(StartRefusal::Abandoned);
        assert_eq!(start_on_full_disk(&host, &sent), abandoned, "{}", host.name);
        let never = Some(VoidVerdict::NeverBegan);
        assert_eq!(void_on_full_disk(&host, &stopped), never, "{}", host.name);
        for spec in [&sent, &stopped] {
            let state = host.judge(spec, "/none").state;
            assert_eq!(state, JobState::NotStarted, "{}", host.name);
            let (state, _) = host.outcome(&again(spec));
            assert_eq!(state, JobState::Exited { code: 0 }, "{}", host.name);
        }
    }
}

#[test]
fn attempt_that_cannot_be_made_void_is_settled_when_there_is_room_again() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("touch ran");
    // As older versions left it.
    broken_off(&host, &spec, false);
    let starting = StartVerdict::Refused(StartRefusal::StillStarting);
    assert_eq!(start_on_full_disk(&host, &spec), starting);
    let unwritable = Some(VoidVerdict::Unwritable);
    assert_eq!(void_on_full_disk(&host, &spec), unwritable);
    let seen = host.judge(&spec, "/none").state;
    assert_eq!(seen, JobState::Starting);
    assert_eq!(host.refused(&spec), StartRefusal::Abandoned);
    let (state, _) = host.outcome(&again(&spec));
    assert_eq!(state, JobState::Exited { code: 0 });
}

#[test]
fn number_that_could_not_be_made_void_can_still_be_started() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("echo ran >>ran");
    let unwritable = Some(VoidVerdict::Unwritable);
    assert_eq!(void_on_full_disk(&host, &spec), unwritable);
    assert!(!host.folder(&spec).exists());
    let (state, _) = host.outcome(&spec);
    assert_eq!(state, JobState::Exited { code: 0 });
}

#[test]
fn attempt_that_somebody_else_is_about_to_start_is_not_made_void() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("touch ran");
    broken_off(&host, &spec, true);
    let stranger = JobSpec {
        nonce: Nonce::from_bytes(unique()),
        ..spec.clone()
    };
    let target = StopTarget {
        job: &stranger.job,
        attempt: stranger.attempt,
        nonce: &stranger.nonce,
        session: &stranger.session,
    };
    let answer = host.run(&void_script(&target, &mark()));
    assert_eq!(parse_void(&mark(), &answer), Some(VoidVerdict::NotOurs));
    assert!(!host.folder(&spec).join("process").exists());
}
