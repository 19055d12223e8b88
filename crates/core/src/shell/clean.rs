//! The script that lists what runs have left on a host, and the reader of its report.

use std::fmt::Write as _;

use crate::ids::RunToken;
use crate::output::clean_line;

/// Most processes that a report lists.
const LISTED: usize = 1000;

/// Why there is no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CleanError {
    /// The host has no `/proc` that shows the environment of processes.
    #[error("the host does not show with which variables its processes were started")]
    Hidden,
    /// The report did not come whole.
    #[error("the list of processes did not come whole")]
    Incomplete,
}

/// A process that carries the token of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenProcess {
    /// The token of the run that started it.
    pub token: RunToken,
    /// Its process id on the host.
    pub pid: u32,
    /// For how many seconds it has been there.
    pub age_s: u64,
    /// Whether an SSH connection stands above it, so that somebody may be waiting for it.
    pub connected: bool,
    /// Its name, cleaned for showing.
    pub name: String,
}

/// Builds the script; `mark` tells its report from other text.
pub fn clean_script(mark: &RunToken) -> String {
    let mut script = String::from("{\n");
    let _ = writeln!(script, "n={mark}");
    script.push_str(include_str!("clean.sh"));
    script.push_str("exit 0\n}\n");
    script
}

/// Reads the script's report: all processes of the login user that carry a token.
pub fn parse_clean_report(mark: &RunToken, output: &[u8]) -> Result<Vec<TokenProcess>, CleanError> {
    let prefix = format!("RSMCP:{mark}:");
    let text = String::from_utf8_lossy(output);
    let mut processes = Vec::new();
    let mut whole = false;
    for line in text.lines() {
        let Some((_, report)) = line.split_once(&prefix) else {
            continue;
        };
        match report.split_once(':') {
            Some(("P", rest)) if processes.len() < LISTED => processes.extend(process(rest)),
            Some(("E", _)) => whole = true,
            None if report == "U" => return Err(CleanError::Hidden),
            _ => {}
        }
    }
    if whole {
        Ok(processes)
    } else {
        Err(CleanError::Incomplete)
    }
}

fn process(line: &str) -> Option<TokenProcess> {
    let mut fields = line.splitn(5, ':');
    Some(TokenProcess {
        token: RunToken::parse(fields.next()?).ok()?,
        pid: fields.next()?.parse().ok().filter(|&pid| pid > 1)?,
        age_s: fields.next()?.parse().ok()?,
        connected: fields.next()? != "d",
        name: clean_line(fields.next()?, 64),
    })
}

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;
