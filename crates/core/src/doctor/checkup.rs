//! The script that looks at a host, and the reader of its report.

use std::fmt::Write as _;

use crate::ids::RunToken;
use crate::output::clean_line;
use crate::shell::TimeoutProgram;

/// Words of the host are kept up to this length.
const LONGEST_WORDS: usize = 120;

/// Why there is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckUpError {
    /// The report did not come whole.
    #[error("the host's shell did not run the check to its end")]
    Incomplete,
}

/// A program on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tool {
    /// It is not on the search path.
    #[default]
    Absent,
    /// It is there and says this about itself.
    Present(String),
}

/// How full a place is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filling {
    /// What is looked at: `home` or a path.
    pub place: String,
    /// What is left, in KiB or in files.
    pub free: u64,
    /// How much is used, in percent; none where there is no limit.
    pub used_percent: Option<u64>,
}

/// What was found on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckUp {
    /// The kernel and its release.
    pub system: String,
    /// The login shell.
    pub login_shell: String,
    /// Bash.
    pub bash: Tool,
    /// Tmux.
    pub tmux: Tool,
    /// Python 3.
    pub python: Tool,
    /// The tar program.
    pub tar: Tool,
    /// Which kind of `timeout` there is.
    pub timeout: TimeoutProgram,
    /// The find program; its words are `GNU` where it knows `-printf`.
    pub find: Tool,
    /// Room for bytes.
    pub disk: Vec<Filling>,
    /// Room for files.
    pub inodes: Vec<Filling>,
    /// The host's clock in seconds since the Unix epoch.
    pub time_s: Option<u64>,
}

impl Default for CheckUp {
    fn default() -> Self {
        CheckUp {
            system: String::new(),
            login_shell: String::new(),
            bash: Tool::Absent,
            tmux: Tool::Absent,
            python: Tool::Absent,
            tar: Tool::Absent,
            timeout: TimeoutProgram::Unknown,
            find: Tool::Absent,
            disk: Vec::new(),
            inodes: Vec::new(),
            time_s: None,
        }
    }
}

/// Builds the script; `mark` tells its report from other text.
pub fn checkup_script(mark: &RunToken) -> String {
    let mut script = String::from("{\n");
    let _ = writeln!(script, "n={mark}");
    script.push_str(include_str!("checkup.sh"));
    script.push_str("exit 0\n}\n");
    script
}

/// Reads the script's report.
pub fn parse_checkup(mark: &RunToken, output: &[u8]) -> Result<CheckUp, CheckUpError> {
    let prefix = format!("RSMCP:{mark}:");
    let text = String::from_utf8_lossy(output);
    let mut found = CheckUp::default();
    let mut whole = false;
    for line in text.lines() {
        let Some((key, value)) = line
            .split_once(&prefix)
            .and_then(|(_, report)| report.split_once(':'))
        else {
            continue;
        };
        match key {
            "time" => found.time_s = value.trim().parse().ok(),
            "system" => found.system = clean_line(value, LONGEST_WORDS),
            "login" => found.login_shell = clean_line(value, LONGEST_WORDS),
            "bash" => found.bash = tool(value),
            "tmux" => found.tmux = tool(value),
            "python" => found.python = tool(value),
            "tar" => found.tar = tool(value),
            "timeout" => found.timeout = timeout_program(value),
            "find" => {
                found.find = match value {
                    "have:g" => Tool::Present("GNU".to_owned()),
                    "none" => Tool::Absent,
                    _ => Tool::Present(String::new()),
                }
            }
            // The script says each once per place; a host that says more is not believed.
            "disk" if found.disk.len() < 2 => found.disk.extend(disk(value)),
            "inodes" if found.inodes.len() < 2 => found.inodes.extend(inodes(value)),
            "end" => whole = true,
            _ => {}
        }
    }
    if whole {
        Ok(found)
    } else {
        Err(CheckUpError::Incomplete)
    }
}

fn tool(value: &str) -> Tool {
    match value.strip_prefix("have:") {
        Some(words) => Tool::Present(clean_line(words.trim(), LONGEST_WORDS)),
        None => Tool::Absent,
    }
}

fn timeout_program(value: &str) -> TimeoutProgram {
    match value {
        "have:k" => TimeoutProgram::WithKill,
        "have:p" => TimeoutProgram::Plain,
        _ => TimeoutProgram::Absent,
    }
}

/// A line of `df -Pk`: what is free stands before the first percentage.
fn disk(value: &str) -> Option<Filling> {
    let (place, line) = value.split_once(' ')?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let filled = words.windows(2).find_map(filling)?;
    Some(named(place, filled))
}

/// A line of `df -Pi`: some systems put the bytes before the inodes, so the last percentage counts.
fn inodes(value: &str) -> Option<Filling> {
    let (place, line) = value.split_once(' ')?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let filled = words.windows(2).rev().find_map(filling)?;
    Some(named(place, filled))
}

fn named(place: &str, (free, used_percent): (u64, Option<u64>)) -> Filling {
    Filling {
        place: clean_line(place, 16),
        free,
        used_percent,
    }
}

fn filling(pair: &[&str]) -> Option<(u64, Option<u64>)> {
    let [free, used] = pair else {
        return None;
    };
    // A full disk may owe the reserve of root.
    let free = match free.strip_prefix('-') {
        Some(owed) => owed.parse::<u64>().ok().map(|_| 0)?,
        None => free.parse().ok()?,
    };
    match used.strip_suffix('%') {
        Some(percent) => Some((free, Some(percent.parse().ok()?))),
        None => (*used == "-").then_some((free, None)),
    }
}

#[cfg(test)]
#[path = "checkup_tests.rs"]
mod tests;
