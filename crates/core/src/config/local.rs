//! Reads the table `[local]`: how sandboxes on this machine are walled off, and what their commands find.

use std::path::{Component, PathBuf};

use super::fields::Fields;
use super::raw::Value;
use super::reference::KeyPlace;
use super::{Fault, Problem, Surroundings, surroundings};
use crate::local::{Isolation, Limits, Network};
use crate::secret::Secret;

const TABLE: &str = "local";
const PROCESSES: u64 = 4096;
const READABLE_MAX: usize = 64;
const PATH_MAX_BYTES: usize = 4096;
const SMALLEST: u64 = 16;
/// So far that nobody needs more, and that no later sum overflows.
const MEMORY_MAX_MB: u64 = 1_000_000_000;
/// More processes than any Linux kernel numbers.
const PROCESSES_MAX: u64 = 4_194_304;
const CPU_MAX_PERCENT: u64 = 1_000_000;

const WANTED_TABLE: &str = "a table ([local] in TOML); until then local sandboxes have no network";
const WANTED_ISOLATION: &str = "one of \"auto\", \"bubblewrap\", \"landlock\", \"seatbelt\", \"none\"; until then it counts as \"auto\"";
const WANTED_NETWORK: &str = "\"on\" or \"off\"; until then it counts as \"off\"";
const WANTED_READABLE: &str = "a path or a list of at most 64 paths, each of at most 4096 bytes, without `..`, and not `/` itself";
const WANTED_MEMORY: &str = "a whole number from 16 to 1000000000";
const WANTED_PROCESSES: &str = "a whole number from 16 to 4194304, or 0 for no bound";
const WANTED_CPU: &str = "a whole number from 1 to 1000000, where 100 is one processor";

/// What holds for all sandboxes on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// The wall that is asked for.
    pub isolation: Isolation,
    /// Whether commands reach the network where a sandbox says nothing else.
    pub network: Network,
    /// What commands may read beyond the system, as absolute paths without `..`.
    pub readable: Vec<PathBuf>,
    /// What commands may use up.
    pub limits: Limits,
    /// What every command finds.
    pub surroundings: Surroundings,
    /// Words by which sandboxes are chosen.
    pub tags: Vec<String>,
    /// Whether the file has the table at all.
    pub is_given: bool,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self {
            isolation: Isolation::Auto,
            network: Network::On,
            readable: Vec::new(),
            limits: Limits {
                memory_mb: None,
                processes: Some(PROCESSES),
                cpu_percent: None,
            },
            surroundings: Surroundings::default(),
            tags: Vec::new(),
            is_given: false,
        }
    }
}

/// Takes the table out of the file's top; a key that is wrong is noted and the others hold.
pub(super) fn read_file(
    top: &Fields<'_>,
    problems: &mut Vec<Problem>,
    clear_secrets: &mut Vec<Secret<String>>,
) -> LocalSettings {
    match top.table(TABLE, label, WANTED_TABLE) {
        Ok(Some(fields)) => {
            clear_secrets.extend(surroundings::secret_values(&fields));
            read(&fields, problems)
        }
        Ok(None) => LocalSettings::default(),
        Err(problem) => {
            problems.push(problem);
            // Whoever wrote something here may have wanted less than the default gives.
            LocalSettings {
                network: Network::Off,
                ..LocalSettings::default()
            }
        }
    }
}

fn label(key: &str) -> String {
    format!("{TABLE}.{key}")
}

fn read(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> LocalSettings {
    let mut notes = Notes(problems);
    let default = LocalSettings::default();
    let isolation = word(fields, "isolation", Isolation::parse, WANTED_ISOLATION);
    let network = word(fields, "network", Network::parse, WANTED_NETWORK);
    let memory = number(fields, "memory_mb", SMALLEST..=MEMORY_MAX_MB, WANTED_MEMORY);
    let cpu = number(fields, "cpu_percent", 1..=CPU_MAX_PERCENT, WANTED_CPU);
    let settings = LocalSettings {
        // A slip of the pen must neither take the wall away nor open the network.
        isolation: notes
            .keep(isolation, Some(Isolation::Auto))
            .unwrap_or(default.isolation),
        network: notes
            .keep(network, Some(Network::Off))
            .unwrap_or(default.network),
        readable: notes.keep(readable(fields), default.readable),
        limits: Limits {
            memory_mb: notes.keep(memory, default.limits.memory_mb),
            processes: notes.keep(processes(fields), default.limits.processes),
            cpu_percent: notes.keep(cpu, default.limits.cpu_percent),
        },
        tags: notes.keep(surroundings::tags(fields), default.tags),
        surroundings: surroundings::read_usable(fields, problems),
        is_given: true,
    };
    problems.extend(fields.unknown_keys(KeyPlace::Local));
    settings
}

/// Where wrong keys are noted.
struct Notes<'a>(&'a mut Vec<Problem>);

impl Notes<'_> {
    /// What was read, or `instead` when it is wrong.
    fn keep<T>(&mut self, read: Result<T, Problem>, instead: T) -> T {
        read.unwrap_or_else(|problem| {
            self.0.push(problem);
            instead
        })
    }
}

fn word<T>(
    fields: &Fields<'_>,
    key: &str,
    parse: fn(&str) -> Option<T>,
    wanted: &'static str,
) -> Result<Option<T>, Problem> {
    let parsed = match fields.value(key) {
        None => return Ok(None),
        Some(Value::Text(text)) => parse(text.expose()),
        Some(_) => None,
    };
    match parsed {
        Some(value) => Ok(Some(value)),
        None => Err(fields.problem(key, Fault::Wanted(wanted))),
    }
}

fn number(
    fields: &Fields<'_>,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
    wanted: &'static str,
) -> Result<Option<u64>, Problem> {
    let Some(number) = fields.whole(key, wanted)? else {
        return Ok(None);
    };
    match u64::try_from(number) {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(fields.problem(key, Fault::Wanted(wanted))),
    }
}

fn processes(fields: &Fields<'_>) -> Result<Option<u64>, Problem> {
    let key = "processes";
    match fields.whole(key, WANTED_PROCESSES)? {
        None => Ok(Some(PROCESSES)),
        Some(0) => Ok(None),
        Some(_) => number(fields, key, SMALLEST..=PROCESSES_MAX, WANTED_PROCESSES),
    }
}

/// The paths, each once. `..` is refused: what a path shows must be told by the path alone.
fn readable(fields: &Fields<'_>) -> Result<Vec<PathBuf>, Problem> {
    let key = "readable";
    let wanted = || fields.problem(key, Fault::Wanted(WANTED_READABLE));
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in fields.paths(key)? {
        let is_named = path.file_name().is_some();
        let goes_up = path.components().any(|part| part == Component::ParentDir);
        if !is_named || goes_up || path.as_os_str().len() > PATH_MAX_BYTES {
            return Err(wanted());
        }
        let plain: PathBuf = path.components().collect();
        if paths.contains(&plain) {
            continue;
        }
        if paths.len() == READABLE_MAX {
            return Err(wanted());
        }
        paths.push(plain);
    }
    Ok(paths)
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
