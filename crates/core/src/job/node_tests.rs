use std::fs;

use super::super::testing::*;
use super::super::{
    HostWord, JobState, LostReason, Observation, Sighting, StopVerdict, UnknownReason, judge,
    parse_stop, stop_script,
};
use super::super::{JobSpec, StartRefusal, StartVerdict, parse_start, start_script};
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
    let script = stop_script(&target(&spec), &mark());
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

/// Has the folder of an attempt say that its runner began elsewhere: under this name, or where the first process began at
/// this moment.
fn move_runner(host: &Host, spec: &JobSpec, node: Option<&str>, first: Option<&str>) {
    let path = host.folder(spec).join("process");
    let text = fs::read_to_string(&path).unwrap();
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // A number that no process has.
    words[0] = "4194999";
    words[4] = node.unwrap_or(words[4]);
    words[5] = first.unwrap_or(words[5]);
    fs::write(&path, format!("{}\n", words.join(" "))).unwrap();
    let _ = fs::remove_file(host.folder(spec).join("child"));
}

#[test]
fn process_that_is_not_found_may_live_in_another_container_of_the_same_boot() {
    for host in Host::all() {
        let spec = job("true");
        let started = host.started(&spec);
        host.end_of(&spec, &started.log_file);
        fs::remove_file(host.folder(&spec).join("exit")).unwrap();
        let looks = look(&spec, &started.log_file);
        let lost = JobState::Lost {
            reason: LostReason::ProcessGone,
        };
        // A container that was started again has the same name, a host that was renamed the same first process.
        move_runner(&host, &spec, None, Some("777"));
        assert_eq!(state(&spec, host.see(&looks)), lost, "{}", host.name);
        let same = fs::read_to_string("/proc/1/stat").unwrap();
        let same = same.rsplit_once(") ").unwrap().1;
        let same = same.split_whitespace().nth(19).unwrap();
        move_runner(&host, &spec, Some("other"), Some(same));
        assert_eq!(state(&spec, host.see(&looks)), lost, "{}", host.name);

        move_runner(&host, &spec, Some("other"), Some("777"));
        let unknown = JobState::Unknown {
            reason: UnknownReason::OtherNode {
                began: HostWord::parse("other").unwrap(),
                here: started.process.node.clone().unwrap(),
            },
        };
        assert_eq!(state(&spec, host.see(&looks)), unknown, "{}", host.name);
        let refusal = host.refused(&again(&spec));
        assert!(
            matches!(refusal, StartRefusal::AttemptLive { .. }),
            "{}: {refusal:?}",
            host.name
        );
        let verdict = host.stop(&spec);
        assert!(
            matches!(verdict, StopVerdict::Elsewhere { .. }),
            "{}: {verdict:?}",
            host.name
        );
    }
}

#[test]
fn session_and_gpu_of_a_job_in_one_container_are_not_given_away_in_another() {
    let mut host = Host::full("dash", &["dash"]);
    host.install(
        "nvidia-smi",
        "#!/bin/sh\ncase $1 in --query-compute-apps*) ;; *) echo '0, GPU-a, 3, 81920, [N/A]' ;; esac\n",
    );
    let wish = || {
        let spec = job("exec sleep 60").in_session(named("train"));
        spec.with_gpus(crate::job::GpuWish::parse("1").unwrap())
    };
    let spec = wish();
    host.started(&spec);
    let start = |spec: &JobSpec| {
        // The first process that it sees is its own, and it has a name of its own.
        let script = named_as(&host, start_script(spec, &mark()), Some("box-2"));
        let mut command = std::process::Command::new("unshare");
        let usual = host.command();
        command.args(["--pid", "--fork", "--mount-proc", "dash"]);
        for (name, value) in usual.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let output = crate::fed_shell::feed(command, &script);
        parse_start(&mark(), &output.stdout)
    };
    let other = wish();
    let Ok(verdict) = start(&other) else {
        println!("skipped: no namespace of processes can be made here");
        return;
    };
    assert!(
        matches!(
            verdict,
            StartVerdict::Refused(StartRefusal::SessionTaken { .. })
        ),
        "{verdict:?}"
    );
    let other = other.in_session(named("other"));
    let verdict = start(&other).unwrap();
    let full = StartRefusal::NoFreeGpu {
        free: 0,
        present: 1,
    };
    assert_eq!(verdict, StartVerdict::Refused(full));
}
