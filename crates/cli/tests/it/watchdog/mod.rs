//! The watchdog: the true binary in a process of its own, real jobs on a real sshd.

mod alarms;
mod cadence;
mod causes;
mod checkpoints;
pub(crate) mod clocks;
mod copies;
mod crashes;
mod detached;
mod foreign;
mod hanging;
mod histories;
mod hosts;
mod leases;
mod life;
mod links;
mod many;
mod nodes;
mod passwords;
mod races;
mod records;
mod seasons;
mod secrets;
mod site;
mod stored;
mod weaknesses;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::jobs::{Host, started};
use crate::support::{builder, entry, program, ready, with};

/// Long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// A watchdog that runs on the state of a server; it ends with this value.
struct Dog {
    child: Child,
    log: PathBuf,
}

impl Dog {
    /// Starts one with short pauses. It knows nothing of the server's configuration.
    fn start(home: &Path) -> Self {
        Self::start_with(home, &[], &[])
    }

    fn start_with(home: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut words = vec!["watchdog", "run", "--loop-sleep", "0.3"];
        if !arguments.contains(&"--lease") {
            words.extend(["--lease", "3"]);
        }
        words.extend(arguments);
        Self::called(home, &words, variables)
    }

    /// Starts one by exactly these words.
    fn called(home: &Path, words: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = home.join(format!("watchdog-{}.log", crate::support::unique()));
        let file = fs::File::create(&log).unwrap();
        let child = Command::new(program())
            .args(words)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Dog { child, log }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for its end by itself.
    async fn ended(&mut self) -> bool {
        let child = &mut self.child;
        wait_until(LIMIT, || matches!(child.try_wait(), Ok(Some(_)))).await
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Dog {
    fn drop(&mut self) {
        process::signal(self.pid(), Signal::CONT);
        self.kill();
    }
}

/// A host, a server that knows it as `box`, and what ends the jobs of the test.
struct Stage {
    host: Host,
    client: McpClient,
}

impl Stage {
    async fn new() -> Self {
        let host = Host::start();
        let client = ready(builder(&[entry("box", &host.sshd)]).start()).await;
        Stage { host, client }
    }

    fn home(&self) -> &Path {
        self.client.home()
    }

    /// Starts a job that is looked at every second.
    async fn job(&self, command: &str, more: Value) -> Value {
        let watched = json!({"interval_s": 1, "resume_delay_s": 0, "ensure_watchdog": false, "notify_local": false});
        started(&self.client, command, with(watched, more)).await
    }

    /// The types of all events so far, in their order.
    fn events(&self) -> Vec<String> {
        events(self.home())
            .iter()
            .map(|event| event["event_type"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until the types of events are exactly these.
    async fn told(&self, dog: &Dog, types: &[&str]) {
        let enough = wait_until(LIMIT, || self.events().len() >= types.len()).await;
        let found = self.events();
        assert!(enough && found == types, "{found:?}\n{}", dog.log());
    }

    /// Gives events that should not come the time to come.
    async fn nothing_more(&self, dog: &Dog, types: &[&str]) {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        self.told(dog, types).await;
    }

    /// Ends the processes of a job so that nobody can write down how.
    fn kill(&self, job: &Value) {
        let pids = tree(job);
        assert!(!pids.is_empty());
        assert!(process::kill_and_wait(&pids));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        process::kill_and_wait(&self.host.sshd.command_pids());
    }
}

/// The processes of a job, of whichever attempt.
fn tree(job: &Value) -> Vec<u32> {
    let task = job["task_id"].as_str().unwrap();
    let mut pids = Vec::new();
    for attempt in 1..6 {
        let word = format!("REMOTE_SANDBOX_JOB={task}.{attempt}");
        pids.extend(process::with_environment(&word));
        let runner = format!("{task}/{attempt}/runner");
        pids.extend(process::with_command_line(&runner));
    }
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// All events that are written as files, in their order.
fn events(home: &Path) -> Vec<Value> {
    events_of(&home.join(".local/state/remote-sandbox-mcp"))
}

/// The same of a state folder.
fn events_of(state: &Path) -> Vec<Value> {
    let Ok(files) = fs::read_dir(state.join("events")) else {
        return Vec::new();
    };
    let paths = files.map(|file| file.unwrap().path());
    let whole = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let mut events: Vec<Value> = whole
        .map(|path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
        .collect();
    events.sort_by_key(|event| event["id"].as_u64());
    events
}

/// A command that writes down that it began, then runs long.
fn marked(marker: &Path, word: &str) -> String {
    format!("echo {word} >>{}; sleep 600", marker.display())
}

/// How often something began.
fn begun(marker: &Path, word: &str) -> usize {
    let text = fs::read_to_string(marker).unwrap_or_default();
    text.lines().filter(|line| *line == word).count()
}
