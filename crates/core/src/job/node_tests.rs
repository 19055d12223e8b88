use std::fs;

use super::super::testing::*;
use super::super::{
    HostWord, JobState, LostReason, Observation, Sighting, StopTarget, StopVerdict, UnknownReason,
    judge, parse_stop, stop_script,
};
use super::super::{JobSpec, StartVerdict, parse_start, start_script};
use super::*;

/// A script as another host with the same home would run it: with another boot, and perhaps another name.
fn elsewhere(host: &Host, script: String, node: Option<&str>) -> String {
    let boot = host.home.path().join("boot_id");
    host.write("boot_id", "00000000-1111-2222-3333-444444444444\n");
    let script = script.replace("/proc/sys/kernel/random/boot_id", boot.to_str().unwrap());
    named_as(host, script, node)
}

fn named_as(host: &Host, script: String, node: Option<&str>) -> String {
    let Some(node) = node else { return script };
    host.write("hostname", &format!("{node}\n"));
    let name = host.home.path().join("hostname");
    script.replace("/proc/sys/kernel/hostname", name.to_str().unwrap())
}

fn look(spec: &JobSpec, log: &str) -> [Look; 1] {
    let look = Look::job(
        spec.job.clone(),
        spec.attempt,
        &spec.session,
        log,
        LogPart::Nothing,
    );
    [look.unwrap()]
}

fn state(spec: &JobSpec, seen: Vec<Observation>) -> JobState {
    let seen = seen.into_iter().next().unwrap();
    judge(&known(spec), &Sighting::Seen(Box::new(seen))).state
}

#[test]
fn look_from_another_node_with_the_same_home_says_so_and_nothing_is_lost() {
    for host in Host::all() {
        let spec = job("until [ -e go ]; do sleep 0.05; done; exit 4");
        let started = host.started(&spec);
        let here = started.process.node.clone().unwrap();
        let looks = look(&spec, &started.log_file);
        let other = |script| elsewhere(&host, script, Some("login-2.cluster"));
        let expected = UnknownReason::OtherNode {
            began: here.clone(),
            here: HostWord::parse("login-2.cluster").unwrap(),
        };
        let sentence = expected.sentence().into_owned();
        assert!(sentence.starts_with("other node"), "{sentence}");
        assert!(sentence.contains(here.as_str()) && sentence.contains("login-2.cluster"));
        let seen = host.see_with(&looks, other);
        let expected = JobState::Unknown { reason: expected };
        assert_eq!(state(&spec, seen), expected, "{}", host.name);
        let seen = host.see(&looks);
        assert_eq!(state(&spec, seen), JobState::Running, "{}", host.name);
        // Its end is written down where all of them see it.
        host.write("go", "");
        host.end_of(&spec, &started.log_file);
        let seen = host.see_with(&looks, other);
        assert_eq!(
            state(&spec, seen),
            JobState::Exited { code: 4 },
            "{}",
            host.name
        );
    }
}

#[test]
fn node_that_was_booted_again_or_has_no_name_written_down_means_what_it_meant() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("exec sleep 60");
    let started = host.started(&spec);
    let looks = look(&spec, &started.log_file);
    let rebooted = JobState::Lost {
        reason: LostReason::HostRebooted,
    };
    let seen = host.see_with(&looks, |script| elsewhere(&host, script, None));
    assert_eq!(state(&spec, seen), rebooted, "the same node");
    // The same boot under another name is the same host.
    let seen = host.see_with(&looks, |script| named_as(&host, script, Some("renamed")));
    assert_eq!(state(&spec, seen), JobState::Running);
    // As older versions wrote it.
    let path = host.folder(&spec).join("process");
    let text = fs::read_to_string(&path).unwrap();
    let old: Vec<&str> = text.split_whitespace().take(4).collect();
    fs::write(&path, format!("{}\n", old.join(" "))).unwrap();
    let _ = fs::remove_file(host.folder(&spec).join("child"));
    let seen = host.see(&looks);
    assert_eq!(state(&spec, seen), JobState::Running);
    let seen = host.see_with(&looks, |script| elsewhere(&host, script, Some("login-2")));
    assert_eq!(state(&spec, seen), rebooted, "an old file");
}

#[test]
fn stop_from_another_node_ends_nothing_and_names_both() {
    let host = Host::full("dash", &["dash"]);
    let spec = job("exec sleep 60");
    let started = host.started(&spec);
    let target = StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    };
    let script = stop_script(&target, &mark());
    let answer = host.run(&elsewhere(&host, script, Some("login-2")));
    let expected = StopVerdict::Elsewhere {
        node: started.process.node.clone().unwrap(),
        here: HostWord::parse("login-2").unwrap(),
    };
    assert_eq!(parse_stop(&mark(), &answer), Some(expected));
    let verdict = host.judge(&spec, &started.log_file);
    assert_eq!(verdict.state, JobState::Running);
}

#[test]
fn name_of_a_node_is_made_one_plain_word() {
    for host in Host::all() {
        let spec = job("true");
        let script = start_script(&spec, &mark());
        let long = format!("a b:c'{}", "x".repeat(100));
        let answer = host.run(&named_as(&host, script, Some(&long)));
        let Ok(StartVerdict::Started(started)) = parse_start(&mark(), &answer) else {
            panic!("{}: {}", host.name, String::from_utf8_lossy(&answer))
        };
        let node = started.process.node.unwrap();
        let expected = format!("a-b-c-{}", "x".repeat(58));
        assert_eq!(node.as_str(), expected, "{}", host.name);
        host.end_of(&spec, &started.log_file);
    }
}
