//! The real parts of a history: servers, watchdogs and commands of the true binary, a host, a link and a store.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::{Direction, FaultProxy};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::model::{Attempt, Marks, Model, Stored, pass_time};
use super::processes::{Living, boot_anew, living};
use super::steps::{Step, Trouble};
use crate::support::{builder, entry_via, program, ready};
use crate::watchdog::LIMIT;
use crate::watchdog::site::Site;

/// Most looks that the watchdog may need until nothing is left undone.
const MOST_TICKS: usize = 8;

/// One history.
pub(super) struct World<'a> {
    site: &'a Site,
    folder: TempDir,
    /// The way to the host, where it is another one.
    proxy: Option<FaultProxy>,
    is_up: bool,
    server: Option<McpClient>,
    starts: usize,
    model: Model,
    /// What was said on the way, for whoever has to find out why it failed.
    said: Vec<String>,
}

impl<'a> World<'a> {
    pub(super) async fn new(site: &'a Site) -> Self {
        let folder = TempDir::with_prefix("history-").unwrap();
        fs::create_dir(folder.path().join("home")).unwrap();
        let proxy = match site.sshd() {
            Some(sshd) => Some(FaultProxy::start(sshd.port()).await),
            None => None,
        };
        World {
            site,
            folder,
            proxy,
            is_up: true,
            server: None,
            starts: 0,
            model: Model::default(),
            said: Vec::new(),
        }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn state(&self) -> PathBuf {
        self.home().join(".local/state/remote-sandbox-mcp")
    }

    fn store(&self) -> PathBuf {
        self.state().join("store.sqlite3")
    }

    /// The home of the account that jobs run as.
    fn home_there(&self) -> PathBuf {
        match self.site.sshd() {
            Some(sshd) => sshd.dir().join("home"),
            None => self.state().join("sandboxes/local/home"),
        }
    }

    /// Where jobs have their folders.
    fn jobs_there(&self) -> PathBuf {
        self.home_there().join(".remote-sandbox-mcp/jobs")
    }

    /// What this history writes there has this in its name.
    fn word(&self) -> String {
        let name = self.folder.path().file_name().unwrap();
        name.to_string_lossy().into_owned()
    }

    fn marks(&self) -> PathBuf {
        self.home_there().join(format!("{}-marks", self.word()))
    }

    /// The sandboxes that servers know besides the one on this machine, as JSON.
    fn list(&self) -> String {
        let (sshd, proxy) = (self.site.sshd(), self.proxy.as_ref());
        let entry = sshd
            .zip(proxy)
            .map(|(sshd, proxy)| entry_via("box", sshd, proxy.port()));
        Value::from(entry.into_iter().collect::<Vec<_>>()).to_string()
    }

    /// Does what the step says.
    pub(super) async fn take(&mut self, step: &Step) {
        match *step {
            Step::Start { resumes, trouble } => self.start(resumes, trouble).await,
            Step::Stop { job, trouble } => self.stop(job, trouble).await,
            Step::Die { job } => self.kill(job, |_| true),
            Step::Orphan { job } => self.kill(job, |one| one.is_runner),
            Step::End { job } => self.end(job),
            Step::Reboot => self.reboot(),
            Step::Tick { trouble } => self.tick(trouble).await,
            Step::TwoTicks => {
                pass_time(&self.store());
                let (first, second) = (self.watchdog(None), self.watchdog(None));
                self.hear("tick", first, None).await;
                self.hear("tick", second, None).await;
            }
            Step::Resume { job, trouble } => self.resume(job, trouble).await,
            Step::Race { job, pause_ms } => self.race(job, pause_ms).await,
            Step::List => {
                self.listed().await;
            }
            Step::LinkDown => self.link_down().await,
            Step::LinkUp => self.link_up().await,
            Step::KillServer => self.kill_server().await,
        }
        self.cut(Trouble::CutThere(u64::MAX));
        self.cut(Trouble::CutBack(u64::MAX));
    }

    /// What must hold at every time.
    pub(super) fn check(&mut self) -> Result<(), String> {
        // In this order: an attempt is written down before it lives, and lives before it leaves a mark.
        let marks = Marks::read(&self.marks());
        let living = self.living_commands();
        let stored = Stored::read(&self.store());
        self.model.check(&stored, &marks, &living)
    }

    /// Has everybody come to rest over a good link, and checks what must hold then.
    pub(super) async fn settle(&mut self) -> Result<(), String> {
        self.link_up().await;
        for _ in 0..MOST_TICKS {
            self.tick(Trouble::None).await;
            self.listed().await;
            self.check()?;
            if Stored::read(&self.store()).is_settled() {
                break;
            }
        }
        let listed = self.listed().await;
        let stored = Stored::read(&self.store());
        let (marks, living) = (Marks::read(&self.marks()), self.living_commands());
        self.model.check(&stored, &marks, &living)?;
        self.model.check_end(&stored, &marks, &living, &listed)
    }

    /// What went wrong, with all that may tell why.
    pub(super) fn account(&self, place: usize, step: &dyn std::fmt::Debug, wrong: &str) -> String {
        let said = self.said.join("\n");
        let marks = fs::read_to_string(self.marks()).unwrap_or_default();
        let stored = Stored::read(&self.store());
        format!("after step {place}, {step:?}: {wrong}\n{said}\n{marks}\n{stored:#?}")
    }

    async fn link_down(&mut self) {
        if let Some(proxy) = self.proxy.as_ref().filter(|_| self.is_up) {
            proxy.refuse().await;
            proxy.drop_all();
            self.is_up = false;
        }
    }

    async fn link_up(&mut self) {
        if let Some(proxy) = self.proxy.as_ref().filter(|_| !self.is_up) {
            proxy.accept().await;
            self.is_up = true;
        }
    }

    async fn new_server(&self, seam: &str) -> McpClient {
        let server = builder(&[])
            .env("REMOTE_SANDBOX_LIST", self.list())
            .home(&self.home())
            .env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1")
            .env("REMOTE_SANDBOX_FAILPOINT", seam);
        ready(server.start()).await
    }

    /// The server that lives on from step to step.
    async fn server(&mut self) -> &McpClient {
        if self.server.is_none() {
            self.server = Some(self.new_server("").await);
        }
        self.server.as_ref().unwrap()
    }

    async fn kill_server(&mut self) {
        if let Some(server) = self.server.take() {
            ended(server).await;
        }
    }

    fn cut(&self, trouble: Trouble) {
        let Some(proxy) = &self.proxy else { return };
        match trouble {
            Trouble::CutThere(bytes) => proxy.cut_after(bytes, Direction::ToServer),
            Trouble::CutBack(bytes) => proxy.cut_after(bytes, Direction::ToClient),
            Trouble::None | Trouble::Crash(_) | Trouble::Kill(_) => {}
        }
    }

    /// The command of a job: it tells when it finds another attempt alive, when it begins and when it ends.
    fn command(&self, number: usize) -> String {
        let name = self.word();
        let tell = |word: &str| format!("echo \"{word} $REMOTE_SANDBOX_JOB\" >>~/{name}-marks");
        format!(
            "exec 9>>~/{name}-lock-{number}; flock -n 9 || {}; {}; sleep 600; {}; exit 7",
            tell("overlap"),
            tell("begin"),
            tell("end")
        )
    }

    async fn start(&mut self, resumes: u32, trouble: Trouble) {
        let command = self.command(self.starts);
        self.starts += 1;
        let arguments = json!({
            "command": command, "resume_command": command, "watch_name": resumes.to_string(),
            "auto_resume": resumes > 0, "max_resume_attempts": resumes.max(1), "resume_delay_s": 0,
            "interval_s": 1, "ensure_watchdog": false, "notify_local": false,
            "sandbox_name": if self.proxy.is_some() { "box" } else { "local" },
        });
        if let Trouble::Crash(seam) = trouble {
            let other = self.new_server(seam).await;
            let call = other.start_call("exec_bash_background", arguments).await;
            let reply = other.wait_tool_reply(call, LIMIT).await;
            ended(other).await;
            return self.started(reply.map(|reply| reply.json).ok());
        }
        self.server().await;
        self.cut(trouble);
        let server = self.server().await;
        let call = server.start_call("exec_bash_background", arguments).await;
        if let Trouble::Kill(after) = trouble {
            tokio::time::sleep(Duration::from_millis(after)).await;
            let reply = match server.has_reply(call) {
                true => server.wait_tool_reply(call, LIMIT).await.ok(),
                false => None,
            };
            self.kill_server().await;
            return self.started(reply.map(|reply| reply.json));
        }
        let reply = server.wait_tool_reply(call, LIMIT * 2).await;
        self.started(Some(reply.expect("an answer").json));
    }

    fn started(&mut self, reply: Option<Value>) {
        let reply = reply.unwrap_or_default();
        self.said.push(format!("start: {reply}"));
        if reply["status"] == "started" {
            let task = reply["task_id"].as_str().unwrap().to_owned();
            self.model.acknowledged.insert(task);
        }
    }

    async fn stop(&mut self, job: usize, trouble: Trouble) {
        let Some(job) = self.job(job) else { return };
        self.server().await;
        self.cut(trouble);
        let stop = json!({ "task_id": job });
        let server = self.server().await;
        let reply = server.call_tool("stop_background_task", stop).await;
        self.said.push(format!("stop: {}", reply.text));
    }

    async fn listed(&mut self) -> Vec<Value> {
        let server = self.server().await;
        let reply = server.call_tool("list_background_tasks", json!({})).await;
        let tasks = reply.json["tasks"].as_array().cloned().unwrap_or_default();
        self.said.push(format!("list: {}", reply.text));
        tasks
    }

    /// A job by a number that is taken modulo those that there are.
    fn job(&self, number: usize) -> Option<String> {
        let jobs = Stored::read(&self.store()).jobs;
        let (job, _) = jobs.get(number % jobs.len().max(1))?;
        Some(job.clone())
    }

    fn ours(&self, arguments: &[&str], seam: Option<&str>) -> Child {
        Command::new(program())
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("REMOTE_SANDBOX_LIST", self.list())
            .env("REMOTE_SANDBOX_FAILPOINT", seam.unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn watchdog(&self, seam: Option<&str>) -> Child {
        self.ours(&["watchdog", "run", "--once", "--lease", "3"], seam)
    }

    /// Waits for the end of a process, or brings it about; what it said.
    async fn hear(&mut self, what: &str, mut child: Child, kill_after: Option<u64>) -> String {
        if let Some(after) = kill_after {
            tokio::time::sleep(Duration::from_millis(after)).await;
            let _ = child.start_kill();
        }
        let output = tokio::time::timeout(LIMIT * 2, child.wait_with_output()).await;
        let output = output.expect("it ends").unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!words.contains("panicked"), "{words}");
        let line = format!("{what}: {} {}", output.status, words.trim_end());
        self.said.push(line);
        words
    }

    async fn tick(&mut self, trouble: Trouble) {
        pass_time(&self.store());
        self.cut(trouble);
        let child = self.watchdog(seam(trouble));
        self.hear("tick", child, kill_after(trouble)).await;
    }

    async fn resume(&mut self, job: usize, trouble: Trouble) {
        let Some(job) = self.job(job) else { return };
        self.cut(trouble);
        let child = self.ours(&["job", "resume", &job], seam(trouble));
        let words = self.hear("resume", child, kill_after(trouble)).await;
        self.resumed(job, &words);
    }

    async fn race(&mut self, job: usize, pause_ms: u64) {
        let Some(job) = self.job(job) else { return };
        pass_time(&self.store());
        let watchdog = self.watchdog(None);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let by_hand = self.ours(&["job", "resume", &job], None);
        let words = self.hear("resume", by_hand, None).await;
        self.hear("tick", watchdog, None).await;
        self.resumed(job, &words);
    }

    fn resumed(&mut self, job: String, words: &str) {
        if !words.contains("already_resuming") {
            *self.model.by_hand.entry(job).or_default() += 1;
        }
    }

    /// All processes of the jobs of this history.
    fn living(&self) -> Vec<Living> {
        let stored = Stored::read(&self.store());
        let is_ours = |(job, _): &Attempt| stored.jobs.iter().any(|(one, _)| one == job);
        let found = process::all().into_iter().filter_map(living);
        found.filter(|one| is_ours(&one.attempt)).collect()
    }

    fn living_commands(&self) -> BTreeSet<Attempt> {
        let commands = self.living().into_iter().filter(|one| !one.is_runner);
        commands.map(|one| one.attempt).collect()
    }

    fn kill(&mut self, job: usize, which: impl Fn(&Living) -> bool) {
        let Some(job) = self.job(job) else { return };
        // Whoever forks while it is looked at has children that only the next look shows.
        for _ in 0..3 {
            let doomed = self.living().into_iter();
            let doomed = doomed.filter(|one| one.attempt.0 == job && which(one));
            let pids: Vec<u32> = doomed.map(|one| one.pid).collect();
            if pids.is_empty() {
                break;
            }
            process::kill_and_wait(&pids);
            self.said.push(format!("killed of {job}: {pids:?}"));
        }
    }

    /// Wakes the command of a job, which then comes to its end.
    fn end(&mut self, job: usize) {
        let Some(job) = self.job(job) else { return };
        let is_sleep = |one: &Living| {
            one.attempt.0 == job
                && !one.is_runner
                && process::name(one.pid).is_some_and(|name| name == "sleep")
        };
        let sleeps: Vec<_> = self.living().into_iter().filter(is_sleep).collect();
        for one in &sleeps {
            process::kill_and_wait(&[one.pid]);
        }
        let gone = || {
            let living = self.living_commands();
            !sleeps.iter().any(|one| living.contains(&one.attempt))
        };
        assert!(remote_sandbox_testkit::wait_until_blocking(LIMIT, gone));
    }

    /// Ends everything on the host and has its records name another boot.
    fn reboot(&mut self) {
        let jobs = Stored::read(&self.store()).jobs;
        for number in 0..jobs.len() {
            self.kill(number, |_| true);
        }
        for (job, _) in &jobs {
            for attempt in fs::read_dir(self.jobs_there().join(job))
                .into_iter()
                .flatten()
            {
                for name in ["process", "child"] {
                    boot_anew(&attempt.as_ref().unwrap().path().join(name));
                }
            }
        }
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        let jobs = Stored::read(&self.store()).jobs.len();
        for number in 0..jobs {
            self.kill(number, |_| true);
        }
        process::end_sandboxes_below(&self.state());
    }
}

/// Kills a server that may have ended itself, and waits: only of one that is gone it is known that it does nothing.
async fn ended(server: McpClient) {
    process::signal(server.pid(), Signal::KILL);
    assert!(server.wait_exit(LIMIT).await.is_some());
}

fn seam(trouble: Trouble) -> Option<&'static str> {
    match trouble {
        Trouble::Crash(seam) => Some(seam),
        _ => None,
    }
}

fn kill_after(trouble: Trouble) -> Option<u64> {
    match trouble {
        Trouble::Kill(after) => Some(after),
        _ => None,
    }
}
