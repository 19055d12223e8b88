//! The script that ends an attempt of a job with everything it started.

use std::fmt::Write as _;

use super::process::{HostWord, ProcessIdentity};
use super::script::{COMMON, TMUX, bare, marked};
use super::{AttemptNumber, JobId, Nonce, SessionName};
use crate::ids::RunToken;
use crate::output::clean_line;
use crate::shell::{Survivor, quote};

const STOP: &str = include_str!("stop.sh");

/// Finds the processes of a run by session and by a word in their environment; those of a job carry another variable,
/// so that nobody who cleans up after runs takes a job for one.
const END: &str = include_str!("../shell/end.sh");

/// Most processes that a report lists.
const LISTED: usize = 50;

/// Which attempt is meant.
#[derive(Debug, Clone)]
pub struct StopTarget<'a> {
    /// The job.
    pub job: &'a JobId,
    /// The attempt.
    pub attempt: AttemptNumber,
    /// The word of that attempt.
    pub nonce: &'a Nonce,
    /// Its session.
    pub session: &'a SessionName,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopVerdict {
    /// It was running.
    Ended(StopReport),
    /// It had ended before, or the host was booted since.
    AlreadyOver,
    /// It had ended before; what it had left running was ended now.
    LeftoversEnded(StopReport),
    /// It had begun, but its folder does not tell of it; what was found of it by other means was ended.
    FolderMissing(StopReport),
    /// It had not begun, and now it never will.
    NeverBegan,
    /// The attempt on the host is not the one that was meant; nothing was done.
    NotOurs,
    /// It had not begun, but the host did not let us make sure that it never will.
    Unwritable,
    /// It runs, or ran, on another host that shares its home with the one that was asked; nothing was done.
    Elsewhere {
        /// The host it runs on.
        node: HostWord,
        /// The host that was asked.
        here: HostWord,
    },
}

/// What was ended and what was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopReport {
    /// Processes that were found and are gone, at most 50 of them.
    pub ended: Vec<Survivor>,
    /// How many were found in all.
    pub found: u32,
    /// Processes that could not be ended, at most 50 of them.
    pub survivors: Vec<Survivor>,
    /// Whether the host could not be asked for its processes; then nothing is certain.
    pub is_blind: bool,
}

/// What came of the wish that an attempt which has not begun never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoidVerdict {
    /// It had not begun, and now it never will.
    NeverBegan,
    /// It has begun; nothing was done to it.
    Began,
    /// The attempt on the host is not the one that was meant; nothing was done.
    NotOurs,
    /// It had not begun, but the host did not let us make sure that it never will.
    Unwritable,
}

/// Builds the script; it takes two seconds for processes that do not heed TERM.
pub fn stop_script(target: &StopTarget<'_>, mark: &RunToken) -> String {
    script(target, mark, "", None)
}

/// The same for an attempt that is known to have begun: it does not become void when its folder is not found.
pub fn stop_begun_script(
    target: &StopTarget<'_>,
    process: &ProcessIdentity,
    mark: &RunToken,
) -> String {
    script(target, mark, "", Some(process))
}

/// Builds the script that makes sure that an attempt which has not begun never does, and ends nothing.
pub fn void_script(target: &StopTarget<'_>, mark: &RunToken) -> String {
    script(target, mark, "yes", None)
}

/// Reads what [`void_script`] says; none when it did not come to its end.
pub fn parse_void(mark: &RunToken, answer: &[u8]) -> Option<VoidVerdict> {
    match verdict(mark, answer)? {
        "voided" => Some(VoidVerdict::NeverBegan),
        "begun" => Some(VoidVerdict::Began),
        "other" => Some(VoidVerdict::NotOurs),
        "unwritable" => Some(VoidVerdict::Unwritable),
        _ => None,
    }
}

fn verdict<'a>(mark: &RunToken, answer: &'a [u8]) -> Option<&'a str> {
    let lines = marked(mark.as_str(), answer);
    lines
        .iter()
        .find_map(|(line, _)| line.strip_prefix("verdict:"))
}

fn script(
    target: &StopTarget<'_>,
    mark: &RunToken,
    only: &str,
    process: Option<&ProcessIdentity>,
) -> String {
    let mut script = String::from("{\n");
    let _ = writeln!(
        script,
        "_rm={mark} _rid={} _rn={} _rnonce={} _rname={} _ronly={only}",
        target.job, target.attempt, target.nonce, target.session
    );
    let known = process.map(|process| {
        let (start, boot) = (process.start_time.as_str(), process.boot_id.as_str());
        format!("{} {start} {boot} {}", process.pid, process.session)
    });
    let _ = writeln!(script, "_rknown={}", quote(&known.unwrap_or_default()));
    script.push_str(&bare(COMMON));
    script.push_str(&bare(TMUX));
    script.push_str("processes() {\n");
    script.push_str(&bare(
        &END.replace("REMOTE_SANDBOX_RUN=$t", "REMOTE_SANDBOX_JOB=$k"),
    ));
    script.push_str("}\n");
    script.push_str(&bare(STOP));
    script.push_str("}\n");
    script
}

/// Reads what [`stop_script`] says; none when it did not come to its end.
pub fn parse_stop(mark: &RunToken, answer: &[u8]) -> Option<StopVerdict> {
    Some(match verdict(mark, answer)? {
        "over" => match report(mark, answer) {
            left if left.found > 0 => StopVerdict::LeftoversEnded(left),
            _ => StopVerdict::AlreadyOver,
        },
        "missing" => StopVerdict::FolderMissing(report(mark, answer)),
        "voided" => StopVerdict::NeverBegan,
        "other" => StopVerdict::NotOurs,
        "unwritable" => StopVerdict::Unwritable,
        "ended" => StopVerdict::Ended(report(mark, answer)),
        word => {
            let (node, here) = word.strip_prefix("elsewhere:")?.split_once(':')?;
            StopVerdict::Elsewhere {
                node: HostWord::parse(node)?,
                here: HostWord::parse(here)?,
            }
        }
    })
}

fn report(mark: &RunToken, answer: &[u8]) -> StopReport {
    let (seen, _) = processes(&format!("{mark}.found"), answer);
    let (survivors, found) = processes(&format!("{mark}.ended"), answer);
    let is_whole = seen.len() < LISTED && survivors.len() < LISTED;
    let ended: Vec<Survivor> = seen
        .into_iter()
        .filter(|process| survivors.iter().all(|other| other.pid != process.pid))
        .collect();
    // What comes up while they end, as the last programs of a runner do, was no part of the job.
    let listed = u32::try_from(ended.len() + survivors.len()).unwrap_or(u32::MAX);
    StopReport {
        found: match found {
            Some(_) if is_whole => listed,
            found => found.unwrap_or(0),
        },
        is_blind: found.is_none(),
        ended,
        survivors,
    }
}

fn processes(mark: &str, answer: &[u8]) -> (Vec<Survivor>, Option<u32>) {
    let mut listed = Vec::new();
    let mut found = None;
    for (line, _) in marked(mark, answer) {
        let mut fields = line.splitn(3, ':');
        match (fields.next(), fields.next(), fields.next()) {
            (Some("P"), Some(pid), name) if listed.len() < LISTED => {
                if let Ok(pid) = pid.parse() {
                    let name = clean_line(name.unwrap_or(""), 64);
                    listed.push(Survivor { pid, name });
                }
            }
            (Some("E"), Some(count), _) => found = count.parse().ok(),
            _ => {}
        }
    }
    (listed, found)
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "leftover_tests.rs"]
mod leftover_tests;
