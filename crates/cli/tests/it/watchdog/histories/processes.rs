//! The processes of jobs on a host, and what the host remembers of them.

use std::fs;
use std::path::Path;

use remote_sandbox_testkit::process;

use super::model::{Attempt, attempt};

/// The variable that names the attempt a process belongs to.
const WORD: &str = "REMOTE_SANDBOX_JOB=";

/// A process of a job.
pub(super) struct Living {
    pub(super) pid: u32,
    pub(super) attempt: Attempt,
    /// Whether it waits for the command and is not part of it.
    pub(super) is_runner: bool,
}

/// What a process is to a job, if anything.
pub(super) fn living(pid: u32) -> Option<Living> {
    let line = process::command_line(pid)?;
    if let Some((before, _)) = line.split_once("/runner ") {
        let (rest, number) = before.rsplit_once('/')?;
        let (_, job) = rest.rsplit_once('/')?;
        return Some(Living {
            pid,
            attempt: (job.to_owned(), number.parse().ok()?),
            is_runner: true,
        });
    }
    let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let word = variables
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(WORD.as_bytes()))?;
    let is_alive = process::is_alive(pid);
    Some(Living {
        pid,
        attempt: attempt(std::str::from_utf8(word).ok()?)?,
        is_runner: false,
    })
    .filter(|_| is_alive)
}

/// Changes the boot in the record of a process.
pub(super) fn boot_anew(path: &Path) {
    let record = fs::read_to_string(path).unwrap_or_default();
    let mut words: Vec<&str> = record.split_whitespace().collect();
    if words.len() > 2 {
        words[2] = "00000000-0000-0000-0000-000000000000";
        fs::write(path, words.join(" ") + "\n").unwrap();
    }
}
