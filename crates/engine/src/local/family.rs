//! All processes of a sandbox, as its supervisor sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use remote_sandbox_core::local::Level;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::clock;

/// How often a look is taken whether all have ended.
const LOOK: Duration = Duration::from_millis(20);

/// How often processes are killed that have meanwhile started others.
const MOST_ROUNDS: usize = 50;

/// What the processes of a sandbox have in common.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    /// They are all there are, but for ourselves; we are the first one there.
    Namespace,
    /// They descend from us, also when their parents have ended.
    Descendants,
}

/// What one process says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kin {
    parent: u32,
    is_dead: bool,
}

impl Family {
    pub(super) fn new(level: Level) -> Self {
        match level {
            Level::Bubblewrap { .. } => Family::Namespace,
            Level::Landlock { .. } | Level::Seatbelt | Level::None => Family::Descendants,
        }
    }

    /// How many live.
    pub(super) fn count(self) -> usize {
        self.members().len()
    }

    fn members(self) -> Vec<u32> {
        let all = processes();
        let own = std::process::id();
        let living = |pid: &u32, kin: &Kin| *pid != own && !kin.is_dead;
        match self {
            Family::Namespace => all
                .iter()
                .filter(|(pid, kin)| living(pid, kin))
                .map(|(pid, _)| *pid)
                .collect(),
            Family::Descendants => {
                let found = descendants(&all, own);
                found
                    .into_iter()
                    .filter(|pid| all.get(pid).is_some_and(|kin| living(pid, kin)))
                    .collect()
            }
        }
    }

    /// Ends all of them: politely, and after the patience by force.
    pub(super) async fn end(self, patience: Duration) {
        let send = |signal| {
            for pid in self.members() {
                if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, signal);
                }
            }
        };
        send(Signal::TERM);
        send(Signal::CONT);
        let until = clock::instant() + patience;
        while self.count() > 0 && clock::instant() < until {
            tokio::time::sleep(LOOK).await;
        }
        for _ in 0..MOST_ROUNDS {
            if self.count() == 0 {
                break;
            }
            send(Signal::KILL);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for children of ours that have ended and that nobody else waits for.
    pub(super) fn reap(known: &BTreeSet<u32>) {
        let own = std::process::id();
        for (pid, kin) in processes() {
            if kin.parent == own
                && kin.is_dead
                && !known.contains(&pid)
                && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
            {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }
}

/// All processes that can be seen.
fn processes() -> BTreeMap<u32, Kin> {
    if !std::path::Path::new("/proc/self/stat").exists() {
        let listed = crate::proc::list_processes(&["-A", "-o", "pid=,ppid=,stat="]);
        return listed.lines().filter_map(kin_of_line).collect();
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, kin(&stat)?))
    })
    .collect()
}

/// Reads a line of `ps`: number, parent, state.
fn kin_of_line(line: &str) -> Option<(u32, Kin)> {
    let mut words = line.split_ascii_whitespace();
    let pid = words.next()?.parse().ok()?;
    let parent = words.next()?.parse().ok()?;
    let is_dead = words.next()?.starts_with('Z');
    Some((pid, Kin { parent, is_dead }))
}

/// Reads the line that the kernel has about a process; its name may hold anything.
fn kin(stat: &str) -> Option<Kin> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    Some(Kin {
        parent,
        is_dead: matches!(state, "Z" | "X"),
    })
}

/// All that descend from a process, itself not among them.
fn descendants(all: &BTreeMap<u32, Kin>, root: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, kin) in all {
        children.entry(kin.parent).or_default().push(*pid);
    }
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if found.insert(*child) {
                next.push(*child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_brackets_does_not_hide_the_parent() {
        let stat = "12 (a) Z 99 (b)) S 7 12 12 0";
        let expected = Kin {
            parent: 7,
            is_dead: false,
        };
        assert_eq!(kin(stat), Some(expected));
        assert!(kin("12 (x) Z 7 1").unwrap().is_dead);
        assert_eq!(kin("nonsense"), None);
    }

    #[test]
    fn line_of_ps_is_read_where_there_is_no_proc() {
        let read = |line| kin_of_line(line).map(|(pid, kin)| (pid, kin.parent, kin.is_dead));
        assert_eq!(read("  12     7 Ss+"), Some((12, 7, false)));
        assert_eq!(read("13 12 Z"), Some((13, 12, true)));
        assert_eq!(read("PID PPID STAT"), None);
        let own = crate::proc::list_processes(&["-A", "-o", "pid=,ppid=,stat="]);
        let pid = std::process::id();
        let found = own
            .lines()
            .filter_map(kin_of_line)
            .any(|(found, _)| found == pid);
        assert!(found, "{own}");
    }

    #[test]
    fn descendants_are_found_through_generations_and_circles() {
        let alive = |parent| Kin {
            parent,
            is_dead: false,
        };
        let all = BTreeMap::from([
            (2, alive(1)),
            (3, alive(2)),
            (4, alive(3)),
            (5, alive(1)),
            (6, alive(7)),
            (7, alive(6)),
        ]);
        assert_eq!(descendants(&all, 2), BTreeSet::from([3, 4]));
        assert_eq!(descendants(&all, 6), BTreeSet::from([6, 7]));
        assert_eq!(descendants(&all, 9), BTreeSet::new());
    }

    #[tokio::test]
    async fn children_of_this_process_are_counted() {
        let mut child = tokio::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let pid = child.id().unwrap();
        assert!(Family::Descendants.members().contains(&pid));
        child.kill().await.unwrap();
        assert!(!Family::Descendants.members().contains(&pid));
    }
}
