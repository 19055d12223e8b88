//! f37: two servers and several watchdogs on one store, many jobs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::site::{Kind, Site};
use super::stored::rows_of;
use super::{Dog, LIMIT, begun, tree};
use crate::support::{builder, entry, ready};

/// Starts that are under way at the same time.
const AT_ONCE: usize = 8;

/// One job in so many is killed and resumed.
const EACH: usize = 5;

/// Through which of three gates a job goes, and so when it ends.
const GATES: usize = 3;

/// A pipe at which jobs wait until the test opens it.
struct Gate {
    path: PathBuf,
    open: Option<fs::File>,
}

impl Gate {
    fn new(folder: &Path, number: usize) -> Self {
        let path = folder.join(format!("gate-{number}"));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        Gate { path, open: None }
    }

    /// Lets everybody through from now on.
    fn open(&mut self) {
        let mut both = fs::OpenOptions::new();
        self.open = Some(both.read(true).write(true).open(&self.path).unwrap());
    }
}

/// Two servers with one home, their jobs, and what these wrote.
struct Crowd {
    site: Site,
    servers: [McpClient; 2],
    marker: PathBuf,
    gates: Vec<Gate>,
    jobs: Vec<Value>,
}

impl Crowd {
    async fn start(count: usize) -> Self {
        // Many views in tmux would only be slow.
        let site = Site::start(Kind::Bare);
        let sshd = site.sshd().expect("a host");
        let sandbox = [entry("box", sshd)];
        let shown = |server: remote_sandbox_testkit::McpClientBuilder| {
            server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1")
        };
        let first = ready(shown(builder(&sandbox)).start()).await;
        let second = shown(builder(&sandbox)).home(first.home()).start();
        let servers = [first, ready(second).await];
        let folder = sshd.dir().to_owned();
        let mut crowd = Crowd {
            marker: folder.join("begun"),
            gates: (0..GATES)
                .map(|number| Gate::new(&folder, number))
                .collect(),
            site,
            servers,
            jobs: Vec::new(),
        };
        for some in (0..count).collect::<Vec<_>>().chunks(AT_ONCE) {
            crowd.start_some(some).await;
        }
        crowd
    }

    async fn start_some(&mut self, numbers: &[usize]) {
        let mut calls = Vec::new();
        for number in numbers {
            let server = &self.servers[number % 2];
            let command = |word: &str| {
                let (marker, gate) = (self.marker.display(), &self.gates[number % GATES].path);
                let gate = gate.display();
                format!("echo {word}{number} >>{marker}; : <{gate}; exit 3")
            };
            let order = json!({
                "command": command("first"), "resume_command": command("again"), "auto_resume": true,
                "interval_s": 1, "resume_delay_s": 0, "ensure_watchdog": false, "notify_local": false,
            });
            calls.push((
                server,
                server.start_call("exec_bash_background", order).await,
            ));
        }
        let mut jobs = Vec::new();
        for (server, call) in calls {
            let reply = server.wait_tool_reply(call, LIMIT * 2).await.unwrap();
            assert_eq!(reply.json["status"], "started", "{}", reply.text);
            jobs.push(reply.json);
        }
        self.jobs.extend(jobs);
    }

    fn home(&self) -> &Path {
        self.servers[0].home()
    }

    /// How many events of a type were written down.
    fn told(&self, word: &str) -> usize {
        let query = format!("SELECT type FROM events WHERE type = '{word}'");
        rows_of(self.home(), &query).len()
    }

    async fn wait_told(&self, word: &str, count: usize, dogs: &[&Dog]) {
        let enough = wait_until(LIMIT * 3, || self.told(word) >= count).await;
        let logs: Vec<String> = dogs.iter().map(|dog| dog.log()).collect();
        let found = self.told(word);
        assert!(
            enough,
            "{word}: {found} of {count}\n{}",
            logs.join("\n--\n")
        );
    }

    /// How many jobs go through this gate.
    fn of_gate(&self, gate: usize) -> usize {
        (0..self.jobs.len())
            .filter(|number| number % GATES == gate)
            .count()
    }

    /// The jobs that are killed: none of those that go through the first gate.
    fn victims(&self) -> Vec<usize> {
        let numbers = 0..self.jobs.len();
        numbers
            .filter(|number| number % EACH == 1 && number % GATES != 0)
            .collect()
    }

    /// Every job is listed by both servers, and began as often as it should.
    async fn check_jobs(&self) {
        let victims = self.victims();
        for (number, job) in self.jobs.iter().enumerate() {
            let again = usize::from(victims.contains(&number));
            let count = |word: &str| begun(&self.marker, &format!("{word}{number}"));
            assert_eq!((count("first"), count("again")), (1, again), "{job}");
        }
        let mut wanted: Vec<_> = self
            .jobs
            .iter()
            .map(|job| job["task_id"].as_str())
            .collect();
        wanted.sort_unstable();
        for server in &self.servers {
            let limit = json!({"limit": 200});
            let list = server.call_tool("list_background_tasks", limit).await;
            let tasks = list.json["tasks"].as_array().unwrap();
            let mut found: Vec<_> = tasks.iter().map(|task| task["task_id"].as_str()).collect();
            found.sort_unstable();
            assert_eq!(found, wanted, "{}", list.text);
            assert!(
                tasks.iter().all(|task| task["exit_code"] == 3),
                "{}",
                list.text
            );
        }
    }

    /// Of every job each thing was told once, and nothing else.
    fn check_events(&self) {
        let victims = self.victims();
        let rows = rows_of(
            self.home(),
            "SELECT cast(watch AS text), type FROM events ORDER BY id",
        );
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in rows {
            told.entry(row[0].clone()).or_default().push(row[1].clone());
        }
        for (number, job) in self.jobs.iter().enumerate() {
            let words = told
                .remove(&job["watch_id"].to_string())
                .unwrap_or_default();
            let all: &[&str] = match victims.contains(&number) {
                true => &["interrupted", "resume_started", "completed"],
                false => &["completed"],
            };
            assert_eq!(words, all, "{job}");
        }
        assert_eq!(told.len(), 0, "{told:?}");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Some(sshd) = self.site.sshd() {
            process::kill_and_wait(&sshd.command_pids());
        }
    }
}

/// How often a watchdog got the lease.
fn turns(dog: &Dog) -> usize {
    dog.log().matches("the watchdog works").count()
}

async fn works(dog: &Dog) {
    assert!(wait_until(LIMIT, || turns(dog) == 1).await, "{}", dog.log());
}

async fn play(count: usize) {
    let mut crowd = Crowd::start(count).await;
    let home = crowd.home().to_owned();
    let dog = || Dog::start_with(&home, &["-v"], &[]);
    let mut first = dog();
    works(&first).await;
    let second = dog();
    let holder = format!("process {}", first.pid());
    let says = || second.log().contains(&holder);
    assert!(wait_until(LIMIT, says).await, "{}", second.log());
    assert_eq!(turns(&second), 0, "{}", second.log());

    // Killed while it tells.
    crowd.gates[0].open();
    crowd.wait_told("completed", 1, &[&first]).await;
    first.kill();
    works(&second).await;
    crowd
        .wait_told("completed", crowd.of_gate(0), &[&first, &second])
        .await;

    let victims = crowd.victims();
    for number in &victims {
        let job = &crowd.jobs[*number];
        assert!(
            wait_until(LIMIT, || begun(&crowd.marker, &format!("first{number}"))
                == 1)
            .await
        );
        assert!(process::kill_and_wait(&tree(job)));
    }
    crowd
        .wait_told("resume_started", victims.len(), &[&second])
        .await;

    // Frozen while jobs end; the next one tells of them.
    let third = dog();
    process::signal(second.pid(), Signal::STOP);
    crowd.gates[1].open();
    works(&third).await;
    let some = crowd.of_gate(0) + crowd.of_gate(1);
    crowd.wait_told("completed", some, &[&third]).await;
    process::signal(second.pid(), Signal::CONT);
    crowd.gates[2].open();
    crowd
        .wait_told("completed", count, &[&second, &third])
        .await;
    let noticed = || second.log().contains("taken over");
    assert!(wait_until(LIMIT, noticed).await, "{}", second.log());

    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    crowd.check_events();
    crowd.check_jobs().await;
    // Nobody worked without having taken the lease.
    let fence = rows_of(&home, "SELECT cast(fence AS text) FROM leases");
    let all: usize = [&first, &second, &third].map(turns).iter().sum();
    assert_eq!(fence, [[all.to_string()]], "{}", second.log());
}

#[tokio::test]
async fn f37_two_servers_and_watchdogs_tell_each_end_once_and_run_no_job_twice() {
    play(20).await;
}

#[tokio::test]
#[ignore = "heavy load: two hundred jobs at once"]
async fn f37_two_servers_and_watchdogs_look_after_two_hundred_jobs() {
    play(200).await;
}
