//! Processes as `/proc` shows them: who descends from whom, and signals by process id only.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::wait_until_blocking;

/// Whether the tests run as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Every process id that exists now.
#[must_use]
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The short name of a process, as the kernel keeps it (at most 15 bytes).
#[must_use]
pub fn name(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// The command line of a process, arguments joined by spaces.
#[must_use]
pub fn command_line(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    Some(text.trim_end().to_owned())
}

/// The processes whose command line contains `text`, this process excepted.
#[must_use]
pub fn with_command_line(text: &str) -> Vec<u32> {
    let own = std::process::id();
    all()
        .into_iter()
        .filter(|pid| *pid != own && command_line(*pid).is_some_and(|line| line.contains(text)))
        .collect()
}

/// Everything in the local sandboxes whose files are below a folder: their supervisors, the tools that
/// started those, and all that descends from them.
#[must_use]
pub fn of_sandboxes_below(folder: &Path) -> Vec<u32> {
    let folder = folder.join("").display().to_string();
    let mut found = with_command_line("sandbox-supervisor");
    found.retain(|pid| command_line(*pid).is_some_and(|line| line.contains(&folder)));
    let below: Vec<u32> = found.iter().flat_map(|pid| descendants(*pid)).collect();
    found.extend(below);
    found.retain(|pid| is_alive(*pid));
    found.sort_unstable();
    found.dedup();
    found
}

/// Ends everything in the local sandboxes whose files are below a folder.
pub fn end_sandboxes_below(folder: &Path) {
    // Whoever forks while it is looked at has children that only the next look shows.
    for _ in 0..3 {
        let left = of_sandboxes_below(folder);
        if left.is_empty() {
            break;
        }
        kill_and_wait(&left);
    }
}

/// The state letter of a process (`T` is stopped, `Z` a zombie); `None` when it is gone.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// Whether the process exists and is not a zombie.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// All living descendants of `root`, parents before children.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let table: Vec<(u32, u32)> = all()
        .into_iter()
        .filter_map(|pid| Some((pid, stat(pid)?.parent)))
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        for (pid, its_parent) in &table {
            if *its_parent == parent && !found.contains(pid) {
                found.push(*pid);
            }
        }
    }
    found.remove(0);
    found.retain(|pid| is_alive(*pid));
    found
}

/// The living processes of one user.
#[must_use]
pub fn of_user(uid: u32) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|pid| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == uid))
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// The living processes that were started with `NAME=value` in their environment.
#[must_use]
pub fn with_environment(entry: &str) -> Vec<u32> {
    let own = std::process::id();
    all()
        .into_iter()
        .filter(|pid| *pid != own && has_environment(*pid, entry))
        .filter(|pid| is_alive(*pid))
        .collect()
}

/// Resident memory of a process in KiB.
#[must_use]
pub fn rss_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Sends a signal; false when the process is gone. Refuses 0, 1 and this process.
pub fn signal(pid: u32, signal: Signal) -> bool {
    assert!(
        pid > 1 && pid != std::process::id(),
        "refusing to signal process {pid}"
    );
    let raw = i32::try_from(pid).expect("a process id fits in 31 bits");
    Pid::from_raw(raw).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Ends the processes with SIGKILL and waits until they are gone, at most five seconds.
pub fn kill_and_wait(pids: &[u32]) -> bool {
    for pid in pids {
        signal(*pid, Signal::KILL);
    }
    wait_until_blocking(Duration::from_secs(5), || {
        pids.iter().all(|pid| !is_alive(*pid))
    })
}

struct Stat {
    state: char,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name field may hold spaces and parentheses; everything after the last one is plain.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { state, parent })
}

fn has_environment(pid: u32, entry: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| {
        bytes
            .split(|byte| *byte == 0)
            .any(|part| part == entry.as_bytes())
    })
}
