//! The script that finds the processes of a run and ends them, over a channel of its own.

use std::fmt::Write as _;

use super::gate::Started;
use crate::ids::RunToken;
use crate::output::clean_line;

/// Most processes that a report lists.
const LISTED: usize = 50;

/// Which run is meant.
#[derive(Debug, Clone)]
pub struct Target {
    /// The token in the environment of its processes.
    pub token: RunToken,
    /// What the script said of itself, when that arrived.
    pub started: Option<Started>,
}

/// What the script shall do with what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// End them: TERM, and KILL after two seconds.
    End,
    /// Only tell which still run.
    Look,
}

/// A process of the run that still lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// Its process id on the host.
    pub pid: u32,
    /// Its name, cleaned for showing.
    pub name: String,
}

/// What the host said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndReport {
    /// How many processes of the run were found at first.
    pub found: u32,
    /// Those that still live now.
    pub survivors: Vec<Survivor>,
}

/// Builds the script.
pub fn end_script(target: &Target, purpose: Purpose) -> String {
    let session = target.started.map_or(0, |started| started.session);
    let start_time = target.started.map_or(0, |started| started.start_time);
    let mode = match purpose {
        Purpose::End => "end",
        Purpose::Look => "look",
    };
    let mut script = String::from("{\n");
    let _ = writeln!(
        script,
        "t={} q={session} b={start_time} mode={mode}",
        target.token
    );
    script.push_str(include_str!("end.sh"));
    script.push_str("exit 0\n}\n");
    script
}

/// Reads the script's report; `None` when it did not come whole.
pub fn parse_end_report(token: &RunToken, output: &[u8]) -> Option<EndReport> {
    let prefix = format!("RSMCP:{token}:");
    let text = String::from_utf8_lossy(output);
    let mut survivors = Vec::new();
    let mut found = None;
    for line in text.lines() {
        let Some(begin) = line.find(&prefix) else {
            continue;
        };
        let mut fields = line.get(begin + prefix.len()..)?.splitn(3, ':');
        match (fields.next(), fields.next(), fields.next()) {
            (Some("P"), Some(pid), name) if survivors.len() < LISTED => {
                if let Ok(pid) = pid.parse() {
                    survivors.push(Survivor {
                        pid,
                        name: clean_line(name.unwrap_or(""), 64),
                    });
                }
            }
            (Some("E"), Some(count), _) => found = count.trim().parse().ok(),
            _ => {}
        }
    }
    found.map(|found| EndReport { found, survivors })
}
