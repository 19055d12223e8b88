//! A command of the user's that is run when something happens, bounded in time, with all it starts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use super::CommandError;
use super::group::Group;
use super::piped::{LastWords, listen};
use super::supervised::begin_session;

/// The variable by which what a command has started is found, also when it has left its session.
const MARK: &str = "REMOTE_SANDBOX_HOOK";

/// How long what is still in the pipes of a command that has ended may take to be heard.
const WORDS_LIMIT: Duration = Duration::from_millis(200);

/// How often processes are killed that have meanwhile started others, and how long is waited in between.
const MOST_ROUNDS: usize = 25;
const LOOK: Duration = Duration::from_millis(20);

/// What is run, and in which surroundings.
#[derive(Debug)]
pub struct Hook<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// All its variables; it inherits none.
    pub variables: &'a [(String, String)],
    /// Where it begins.
    pub folder: &'a Path,
    /// How long it may take.
    pub limit: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub struct HookEnd {
    /// Its status; none when it took too long and was ended with all it started.
    pub status: Option<ExitStatus>,
    /// The end of what it wrote to both streams.
    pub words: LastWords,
}

impl Hook<'_> {
    /// Runs it in a session of its own until it has ended or its time is over.
    pub async fn run(self) -> Result<HookEnd, CommandError> {
        let mark = uuid::Uuid::now_v7().simple().to_string();
        let mut command = Command::new(self.program);
        command
            .args(self.arguments)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env(MARK, &mark)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        begin_session(&mut command);
        let mut child = command.spawn().map_err(CommandError::Start)?;
        let words = LastWords::default();
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let hearing = {
            let (one, other) = (words.clone(), words.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                let output = async {
                    if let Some(output) = output {
                        listen(output, one).await;
                    }
                };
                let errors = async {
                    if let Some(errors) = errors {
                        listen(errors, other).await;
                    }
                };
                tokio::join!(output, errors);
            }))
        };
        let leader = child.id();
        let ending = Group::new(child).end();
        tokio::pin!(ending);
        let status = match tokio::time::timeout(self.limit, &mut ending).await {
            Ok(ended) => Some(ended.map_err(CommandError::Read)?),
            Err(_) => {
                // The leader is not waited for yet, so that its number still belongs to it.
                end_all(leader, &mark).await;
                None
            }
        };
        let _ = tokio::time::timeout(WORDS_LIMIT, hearing).await;
        Ok(HookEnd { status, words })
    }
}

/// Ends a session, what descends from its leader and what bears the mark, until there is nobody left.
async fn end_all(leader: Option<u32>, mark: &str) {
    let Some(leader) = leader else {
        return;
    };
    let mark = format!("{MARK}={mark}");
    let mut known = BTreeSet::from([leader]);
    for _ in 0..MOST_ROUNDS {
        let living = members(&mut known, leader, &mark);
        if living.is_empty() {
            return;
        }
        for pid in living {
            if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Those that still live of all that belong to it; `known` grows by what is found.
fn members(known: &mut BTreeSet<u32>, leader: u32, mark: &str) -> Vec<u32> {
    let all = processes();
    let is_marked = |pid: u32| {
        let surroundings = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = surroundings.split(|byte| *byte == 0);
        variables.any(|variable| variable == mark.as_bytes())
    };
    let own = std::process::id();
    let mut living = BTreeSet::new();
    loop {
        let mut has_grown = false;
        for kin in &all {
            let belongs = kin.session == Some(leader)
                || kin.group == leader
                || kin.pid == leader
                || known.contains(&kin.parent)
                || is_marked(kin.pid);
            if belongs && kin.pid != own && !kin.is_dead && living.insert(kin.pid) {
                known.insert(kin.pid);
                has_grown = true;
            }
        }
        if !has_grown {
            return living.into_iter().collect();
        }
    }
}

struct Kin {
    pid: u32,
    parent: u32,
    group: u32,
    session: Option<u32>,
    is_dead: bool,
}

fn processes() -> Vec<Kin> {
    if !Path::new("/proc/self/stat").exists() {
        let listed = super::list_processes(&["-A", "-o", "pid=,ppid=,pgid=,stat="]);
        return listed.lines().filter_map(kin_of_line).collect();
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        kin_of_stat(pid, &stat)
    })
    .collect()
}

/// Reads a line of `ps`: number, parent, group, state.
fn kin_of_line(line: &str) -> Option<Kin> {
    let mut words = line.split_ascii_whitespace();
    let mut number = || words.next()?.parse().ok();
    let (pid, parent, group) = (number()?, number()?, number()?);
    Some(Kin {
        pid,
        parent,
        group,
        session: None,
        is_dead: words.next()?.starts_with('Z'),
    })
}

/// Reads the line that the kernel has about a process; its name may hold anything.
fn kin_of_stat(pid: u32, stat: &str) -> Option<Kin> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    let mut number = || words.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    Some(Kin {
        pid,
        parent,
        group,
        session: Some(session),
        is_dead: matches!(state, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use remote_sandbox_testkit::{process, wait_until};

    use super::*;

    async fn run(line: &str, limit: Duration) -> HookEnd {
        let hook = Hook {
            program: Path::new("/bin/sh"),
            arguments: &["-c".into(), line.into()],
            variables: &[("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            folder: Path::new("/"),
            limit,
        };
        hook.run().await.unwrap()
    }

    #[tokio::test]
    async fn hook_says_how_it_ended_and_what_it_wrote_last() {
        let end = run("echo out; echo err >&2; exit 3", Duration::from_secs(20)).await;
        assert_eq!(end.status.unwrap().code(), Some(3));
        let words = end.words.text();
        assert!(
            words.contains("out\n") && words.contains("err\n"),
            "{words}"
        );
    }

    #[tokio::test]
    async fn hook_has_no_variable_but_those_it_is_given() {
        let end = run("env | cut -d= -f1 | sort", Duration::from_secs(20)).await;
        let words = end.words.text();
        let own = ["OLDPWD", "PWD", "SHLVL", "_"];
        let given: Vec<&str> = words.lines().filter(|name| !own.contains(name)).collect();
        assert_eq!(given, ["PATH", MARK]);
    }

    #[tokio::test]
    async fn hook_that_prints_without_end_is_heard_out_in_bounded_memory() {
        let end = run("yes | head -c 3000000; echo done", Duration::from_secs(20)).await;
        assert!(end.status.unwrap().success());
        assert!(end.words.text().len() <= 2048 && end.words.text().ends_with("done\n"));
    }

    #[tokio::test]
    async fn hook_that_is_too_slow_is_ended_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let away = "( sleep 4331 & echo $!; wait ) & setsid sleep 4332 & ( setsid sh -c 'sleep 4333 & echo $!' & )";
        let line = format!(
            "exec >{}; {away}; echo $$; echo $!; sleep 4334",
            file.display()
        );
        let end = run(&line, Duration::from_millis(700)).await;
        assert!(end.status.is_none());
        let pids: Vec<u32> = std::fs::read_to_string(file)
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert!(pids.len() >= 4, "{pids:?}");
        let gone = || !pids.iter().any(|pid| process::is_alive(*pid));
        assert!(wait_until(Duration::from_secs(5), gone).await);
    }
}
