//! f43: resumes that hang, while they are started and after that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Dog, LIMIT, Stage, begun, events, marked};
use crate::jobs::Host;
use crate::support::{builder, entry, ready};

/// A `mkdir`, with which a start begins, that can be told not to return.
struct Hanging(TempDir);

impl Hanging {
    fn new() -> Self {
        let folder = TempDir::with_prefix("programs-").unwrap();
        let hanging = Hanging(folder);
        let (hang, hung) = (hanging.file("hang"), hanging.file("hung"));
        // A line for each call that hangs.
        let script = format!(
            "#!/bin/sh\n[ ! -e {0} ] || echo hung >>{1}\nwhile [ -e {0} ]; do sleep 0.1; done\nexec /bin/mkdir \"$@\"\n",
            hang.display(),
            hung.display()
        );
        let program = hanging.file("mkdir");
        fs::write(&program, script).unwrap();
        for path in [program.as_path(), hanging.0.path()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        hanging
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn host(&self) -> Host {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        Host::start_with(Sshd::builder().session_environment("PATH", &path))
    }

    fn begin(&self) {
        fs::write(self.file("hang"), "").unwrap();
    }

    fn end(&self) {
        fs::remove_file(self.file("hang")).unwrap();
    }

    /// How many starts hung.
    fn count(&self) -> usize {
        begun(&self.file("hung"), "hung")
    }

    /// Whether all of them have gone on.
    fn is_over(&self) -> bool {
        let program = self.file("mkdir");
        process::with_command_line(program.to_str().unwrap()).is_empty()
    }
}

/// The attempts of a job that its host knows of.
fn attempts(stage: &Stage, job: &Value) -> Vec<String> {
    let jobs = stage.host.home().join(".remote-sandbox-mcp/jobs");
    let files = fs::read_dir(jobs.join(job["task_id"].as_str().unwrap())).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut numbers: Vec<String> = names.filter(|name| name.parse::<u32>().is_ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// A job whose resume hangs while it is started, one beside it and one on another host; these end when they may.
struct Scene {
    stage: Stage,
    job: Value,
    beside: Value,
    elsewhere: Value,
    marker: PathBuf,
    gate: PathBuf,
    hanging: Hanging,
    _other: Host,
}

impl Scene {
    async fn start() -> Self {
        let hanging = Hanging::new();
        let (host, other) = (hanging.host(), Host::start());
        let entries = [entry("box", &host.sshd), entry("other", &other.sshd)];
        let client = ready(builder(&entries).start()).await;
        let stage = Stage { host, client };
        let folder = stage.host.sshd.dir();
        let (marker, gate) = (folder.join("begun"), folder.join("gate"));
        let more = json!({
            "sandbox_name": "box", "resume_command": marked(&marker, "again"), "auto_resume": true,
            "max_resume_attempts": 3,
        });
        let job = stage.job(&marked(&marker, "first"), more).await;
        let waits = format!("until [ -e {} ]; do sleep 0.2; done", gate.display());
        let beside = stage.job(&waits, json!({"sandbox_name": "box"})).await;
        let elsewhere = stage.job(&waits, json!({"sandbox_name": "other"})).await;
        assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
        hanging.begin();
        stage.kill(&job);
        Scene {
            stage,
            job,
            beside,
            elsewhere,
            marker,
            gate,
            hanging,
            _other: other,
        }
    }

    /// The types of the events about a job.
    fn told_of(&self, job: &Value) -> Vec<String> {
        let told = events(self.stage.home());
        let about = told
            .iter()
            .filter(|event| event["watch_id"] == job["watch_id"]);
        let types = about.map(|event| event["event_type"].as_str().unwrap().to_owned());
        types.collect()
    }

    /// Waits until exactly these events were told of a job.
    async fn told(&self, dog: &Dog, job: &Value, types: &[&str]) {
        let is_told = || self.told_of(job) == types;
        let told = wait_until(LIMIT * 2, is_told).await;
        assert!(told, "{:?}\n{}", self.told_of(job), dog.log());
    }

    /// Waits until the start was sent so many times.
    async fn sent(&self, dog: &Dog, times: usize) {
        let is_sent = || self.hanging.count() >= times;
        assert!(wait_until(LIMIT * 2, is_sent).await, "{}", dog.log());
    }

    /// Has the host go on: one of all sendings is carried out.
    async fn go_on(&self, dog: &Dog) {
        assert_eq!(self.told_of(&self.job), ["interrupted"], "{}", dog.log());
        assert_eq!(begun(&self.marker, "again"), 0);
        self.hanging.end();
        let types = ["interrupted", "resume_started"];
        self.told(dog, &self.job, &types).await;
        // Those that nobody listens to any more go on too, and find that it has begun.
        assert!(wait_until(LIMIT, || self.hanging.is_over()).await);
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.told(dog, &self.job, &types).await;
        assert_eq!(begun(&self.marker, "again"), 1, "{}", dog.log());
        assert_eq!(attempts(&self.stage, &self.job), ["1", "2"]);
    }
}

#[tokio::test]
async fn f43_resume_whose_start_hangs_delays_no_other_host_and_runs_once_when_it_is_sent_twice() {
    let scene = Scene::start().await;
    let dog = Dog::start_with(scene.stage.home(), &["-v"], &[]);
    scene.sent(&dog, 1).await;
    let begin = Instant::now();
    fs::write(&scene.gate, "").unwrap();
    scene.told(&dog, &scene.elsewhere, &["completed"]).await;
    let passed = begin.elapsed();
    assert!(passed < Duration::from_secs(8), "{passed:?}");
    // Nobody answers, so it is sent again.
    scene.sent(&dog, 2).await;
    scene.go_on(&dog).await;
    scene.told(&dog, &scene.beside, &["completed"]).await;
}

#[tokio::test]
#[ignore = "minutes: a start hangs for longer than it is waited for"]
async fn f43_resume_whose_start_hangs_for_long_is_sent_by_the_next_visit_and_runs_once() {
    let scene = Scene::start().await;
    let dog = Dog::start_with(scene.stage.home(), &["-v"], &[]);
    scene.sent(&dog, 1).await;
    fs::write(&scene.gate, "").unwrap();
    // Three times within the time that a start has, then by whoever visits the host next.
    scene.sent(&dog, 4).await;
    // It is asked for its other tasks all the same, between two visits that wait for the start.
    scene.told(&dog, &scene.beside, &["completed"]).await;
    scene.go_on(&dog).await;
}

#[tokio::test]
async fn f43_resume_whose_command_hangs_is_told_as_stalled_once_and_not_resumed_again() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({
        "resume_command": marked(&marker, "again"), "auto_resume": true, "max_resume_attempts": 3,
        "stall_after_s": 3,
    });
    let job = stage.job(&marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    let dog = Dog::start(stage.home());
    let types = ["interrupted", "resume_started", "stalled"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    assert_eq!(begun(&marker, "again"), 1, "{}", dog.log());
}
