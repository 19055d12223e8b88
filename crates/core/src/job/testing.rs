//! Stand-in hosts for tests: a home, a shell and the programs they have. Whatever still runs in them is ended with them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::ids::RunToken;
use crate::shell::RunSpec;

/// Programs that every host has.
const PROGRAMS: [&str; 26] = [
    "sh", "setsid", "mkdir", "rm", "rmdir", "mv", "ln", "cat", "tail", "head", "tr", "cut", "wc",
    "ls", "stat", "date", "sleep", "ps", "grep", "mktemp", "env", "touch", "id", "seq", "uname",
    "sort",
];

pub(super) fn mark() -> RunToken {
    RunToken::from_uuid_bytes([9; 16])
}

/// Bytes that no other test, and no other test process, has.
pub(super) fn unique() -> [u8; 16] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(now.as_nanos() as u64).to_be_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    bytes[12..].copy_from_slice(&(COUNT.fetch_add(1, Ordering::Relaxed) as u32).to_be_bytes());
    bytes
}

pub(super) fn job(command: &str) -> JobSpec {
    job_of(RunSpec::new(command.to_owned()).unwrap())
}

pub(super) fn job_of(run: RunSpec) -> JobSpec {
    let (id, nonce) = (
        JobId::from_uuid_bytes(unique()),
        Nonce::from_bytes(unique()),
    );
    JobSpec::new(run, id, AttemptNumber::FIRST, nonce).unwrap()
}

/// The next attempt of the same job, with a nonce of its own.
pub(super) fn again(spec: &JobSpec) -> JobSpec {
    JobSpec {
        attempt: spec.attempt.next().unwrap(),
        nonce: Nonce::from_bytes(unique()),
        ..spec.clone()
    }
}

/// The attempt as something to be ended.
pub(super) fn target(spec: &JobSpec) -> StopTarget<'_> {
    StopTarget {
        job: &spec.job,
        attempt: spec.attempt,
        nonce: &spec.nonce,
        session: &spec.session,
    }
}

pub(super) fn named(name: &str) -> SessionName {
    SessionName::parse(name).unwrap()
}

pub(super) struct Host {
    pub(super) home: TempDir,
    pub(super) name: &'static str,
    shell: Vec<String>,
    /// The programs it has, when it does not have those of this machine.
    pub(super) programs: Option<TempDir>,
}

impl Host {
    /// A host with all programs of this machine, whose login leads to this shell.
    pub(super) fn full(name: &'static str, shell: &[&str]) -> Host {
        Host {
            home: tempfile::tempdir().unwrap(),
            name,
            shell: shell.iter().map(|&word| word.to_owned()).collect(),
            programs: None,
        }
    }

    /// A host with nothing but a few programs, all of them this one when it is busybox; no bash but as its shell, no tmux.
    pub(super) fn sparse(name: &'static str, shell: &str) -> Option<Host> {
        let busybox = shell == "busybox";
        let found = |program: &str| {
            ["/usr/bin", "/bin"]
                .iter()
                .map(|folder| Path::new(folder).join(program))
                .find(|path| path.exists())
        };
        let Some(shell) = found(shell) else {
            println!("skipped: this machine has no {name}");
            return None;
        };
        let programs = tempfile::tempdir().unwrap();
        for program in PROGRAMS {
            let target = if busybox || program == "sh" {
                shell.clone()
            } else {
                found(program).unwrap()
            };
            symlink(target, programs.path().join(program)).unwrap();
        }
        let shell = programs.path().join("sh").to_str().unwrap().to_owned();
        let mut host = Host::full(name, &[&shell]);
        host.programs = Some(programs);
        Some(host)
    }

    /// One host of each kind that this machine can stand in for.
    pub(super) fn all() -> Vec<Host> {
        let full: [(&str, &[&str]); 3] = [
            ("dash", &["dash"]),
            ("bash", &["bash", "--posix"]),
            ("busybox", &["busybox", "sh"]),
        ];
        full.iter()
            .filter(|(_, shell)| Command::new(shell[0]).arg("--help").output().is_ok())
            .map(|(name, shell)| Host::full(name, shell))
            .chain(Host::sparse("dash alone", "dash"))
            .chain(Host::sparse("busybox alone", "busybox"))
            .collect()
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.shell[0]);
        command
            .args(&self.shell[1..])
            .env("HOME", self.home.path())
            .env("TMUX_TMPDIR", self.home.path())
            .env_remove("TMUX")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .current_dir("/");
        if let Some(programs) = &self.programs {
            command.env("PATH", programs.path());
        }
        command
    }

    pub(super) fn run(&self, script: &str) -> Vec<u8> {
        crate::fed_shell::feed(self.command(), script).stdout
    }

    pub(super) fn start(&self, spec: &JobSpec) -> StartVerdict {
        let output = crate::fed_shell::feed(self.command(), &start_script(spec, &mark()));
        parse_start(&mark(), &output.stdout).unwrap_or_else(|error| {
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            panic!("{}: {error}: {out}\n{err}", self.name)
        })
    }

    pub(super) fn started(&self, spec: &JobSpec) -> JobStarted {
        match self.start(spec) {
            StartVerdict::Started(started) => started,
            other => panic!("{}: {other:?}", self.name),
        }
    }

    pub(super) fn refused(&self, spec: &JobSpec) -> StartRefusal {
        match self.start(spec) {
            StartVerdict::Refused(refusal) => refusal,
            other => panic!("{}: {other:?}", self.name),
        }
    }

    pub(super) fn stop(&self, spec: &JobSpec) -> StopVerdict {
        let answer = self.run(&stop_script(&target(spec), &mark()));
        parse_stop(&mark(), &answer)
            .unwrap_or_else(|| panic!("{}: {}", self.name, String::from_utf8_lossy(&answer)))
    }

    pub(super) fn look(&self, spec: &JobSpec, log_file: &str) -> Observation {
        let look = Look::job(
            spec.job.clone(),
            spec.attempt,
            &spec.session,
            log_file,
            LogPart::Last(1 << 20),
        )
        .unwrap();
        self.see(&[look]).pop().unwrap()
    }

    pub(super) fn see(&self, looks: &[Look]) -> Vec<Observation> {
        self.see_with(looks, |script| script)
    }

    /// Looks with a script that was changed, to stand in for another host.
    pub(super) fn see_with(
        &self,
        looks: &[Look],
        change: impl Fn(String) -> String,
    ) -> Vec<Observation> {
        let answer = self.run(&change(check_script(looks, &mark())));
        let report = parse_check(looks, &mark(), &answer).unwrap();
        report
            .observations
            .into_iter()
            .map(Option::unwrap)
            .collect()
    }

    pub(super) fn judge(&self, spec: &JobSpec, log_file: &str) -> Verdict {
        let seen = self.look(spec, log_file);
        judge(&known(spec), &Sighting::Seen(Box::new(seen)))
    }

    /// Waits for the end of a job.
    pub(super) fn end_of(&self, spec: &JobSpec, log_file: &str) -> (JobState, Observation) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = self.look(spec, log_file);
            let verdict = judge(&known(spec), &Sighting::Seen(Box::new(seen.clone())));
            if verdict.state != JobState::Running {
                return (verdict.state, seen);
            }
            assert!(Instant::now() < deadline, "{}: {seen:?}", self.name);
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Starts a command and waits for its end: its state, and all that its log holds.
    pub(super) fn outcome(&self, spec: &JobSpec) -> (JobState, String) {
        let started = self.started(spec);
        let (state, _) = self.end_of(spec, &started.log_file);
        (state, fs::read_to_string(started.log_file).unwrap())
    }

    pub(super) fn folder(&self, spec: &JobSpec) -> PathBuf {
        self.home.path().join(format!(
            ".remote-sandbox-mcp/jobs/{}/{}",
            spec.job, spec.attempt
        ))
    }

    pub(super) fn sessions(&self) -> Vec<String> {
        let output = self.tmux(&["list-sessions", "-F", "#{session_name}"]);
        output.lines().map(str::to_owned).collect()
    }

    pub(super) fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(arguments)
            .env("TMUX_TMPDIR", self.home.path())
            .env_remove("TMUX")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(super) fn write(&self, name: &str, content: &str) {
        fs::write(self.home.path().join(name), content).unwrap();
    }

    /// Puts a program of our own before those of the machine.
    pub(super) fn install(&mut self, name: &str, script: &str) {
        if self.programs.is_none() {
            let programs = tempfile::tempdir().unwrap();
            for folder in ["/usr/local/bin", "/usr/bin", "/bin"] {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    let _ = symlink(entry.path(), programs.path().join(entry.file_name()));
                }
            }
            self.programs = Some(programs);
        }
        let path = self.programs.as_ref().unwrap().path().join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

pub(super) fn known(spec: &JobSpec) -> KnownAttempt {
    KnownAttempt {
        nonce: Some(spec.nonce.clone()),
        state: JobState::Running,
        process: None,
        is_stop_asked: false,
    }
}

pub(super) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("-V").output().is_ok();
    if !found {
        println!("skipped: this machine has no {program}");
    }
    found
}

/// Waits until something is so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let jobs = fs::read_dir(self.home.path().join(".remote-sandbox-mcp/jobs"));
        for job in jobs.into_iter().flatten().flatten() {
            for attempt in fs::read_dir(job.path()).into_iter().flatten().flatten() {
                let words = fs::read_to_string(attempt.path().join("process")).unwrap_or_default();
                let words: Vec<&str> = words.split_whitespace().collect();
                if let [pid, start, ..] = words[..]
                    && start_time(pid).as_deref() == Some(start)
                {
                    let group = format!("-{pid}");
                    let _ = Command::new("kill").args(["-KILL", "--", &group]).output();
                }
            }
        }
        if self
            .home
            .path()
            .join(format!("tmux-{}", user_id()))
            .exists()
        {
            self.tmux(&["kill-server"]);
        }
    }
}

fn user_id() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").map_or(0, |entry| entry.uid())
}

pub(super) fn start_time(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit_once(") ")?.1;
    rest.split_whitespace().nth(19).map(str::to_owned)
}
