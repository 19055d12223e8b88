use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::super::testing::*;
use super::super::{JobSpec, JobState, Nonce};
use super::*;

fn adopt(host: &Host, spec: &JobSpec) -> Option<JobStarted> {
    let target = StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    };
    let answer = host.run(&adopt_script(&target, &mark()));
    parse_adopt(&mark(), &answer)
}

/// All files below a folder with what is in them.
fn files(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.insert(path.clone(), Vec::new());
            files(&path, found);
        } else if path.is_file() {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
}

fn content(host: &Host) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    files(host.home.path(), &mut found);
    found
}

#[test]
fn start_whose_answer_was_lost_is_told_as_it_was_also_when_it_is_over() {
    for host in Host::all() {
        let spec = job("exit 3");
        let started = host.started(&spec);
        assert_eq!(
            host.end_of(&spec, &started.log_file).0,
            JobState::Exited { code: 3 }
        );
        let told = adopt(&host, &spec).unwrap();
        let expected = JobStarted {
            has_viewer: None,
            ..started
        };
        assert_eq!(told, expected, "{}", host.name);
    }
}

#[test]
fn adopting_starts_nothing_and_changes_nothing_whatever_stands_there() {
    for host in Host::all() {
        let never = job("touch ran");
        assert_eq!(adopt(&host, &never), None, "{}", host.name);
        // What a start leaves that broke off.
        fs::create_dir_all(host.folder(&never)).unwrap();
        let nonce = format!("{}\n", never.nonce);
        fs::write(host.folder(&never).join("nonce"), nonce).unwrap();
        let other = job("exit 0");
        let log = host.started(&other).log_file;
        host.end_of(&other, &log);
        let stranger = JobSpec {
            nonce: Nonce::from_bytes(unique()),
            ..other.clone()
        };
        until("the runner has left", || {
            let runner = host.look(&other, &log).runner;
            !runner.is_alive()
        });
        let before = content(&host);
        assert_eq!(adopt(&host, &never), None, "{}", host.name);
        assert_eq!(adopt(&host, &stranger), None, "{}", host.name);
        assert_eq!(content(&host), before, "{}", host.name);
        fs::write(host.folder(&never).join("process"), "void\n").unwrap();
        assert_eq!(adopt(&host, &never), None, "{}", host.name);
    }
}
