//! Sandboxes made from hosts of the user's SSH configuration.

use std::collections::BTreeSet;

use super::entry::POLICY_NOTE;
use super::fields::Fields;
use super::paths::variable;
use super::{
    AliasSettings, Config, Environment, Fault, GivenLimits, HostKeyPolicy, HostKeySettings, Origin,
    Place, Problem, Reach, SANDBOXES_MAX, SandboxConfig, SandboxEntry, SshAlias, Surroundings,
    Transport,
};
use crate::glob;
use crate::ids::SandboxName;

const KEY: &str = "import_ssh_config";
const VARIABLE: &str = "REMOTE_SANDBOX_IMPORT_SSH_CONFIG";
const PATTERNS_MAX: usize = 256;
const WANTED_PATTERNS: &str = "at most 256 patterns of host names such as \"gpu*\" (`*`, `?`, and `!` in front to leave a host out), at least one of them without `!`";
const ORIGIN: &str = "imported from the SSH configuration";

/// A pattern for names in the SSH configuration, with the meaning it has there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    glob: Vec<char>,
    excludes: bool,
}

/// Why a text is no pattern for names in the SSH configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a pattern is a name of the SSH configuration in which `*` stands for any text and `?` for any character, with `!` in front to leave hosts out"
)]
pub struct HostPatternError;

impl HostPattern {
    /// Checks the pattern.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let glob = text.strip_prefix('!').unwrap_or(text);
        // A pattern that no name could match is a mistake, so the rest of it keeps to the rules of names.
        SshAlias::parse(&glob.replace(['*', '?'], "x")).map_err(|_| HostPatternError)?;
        Ok(Self {
            glob: glob.chars().collect(),
            excludes: glob.len() < text.len(),
        })
    }

    /// Whether the pattern fits a name, whatever follows from that.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        glob::matches(&self.glob, &name, |wanted, character| wanted == character)
    }

    /// Whether a name that fits is left out instead of taken.
    pub fn excludes(&self) -> bool {
        self.excludes
    }
}

/// The patterns of the file, when it names any.
pub(super) fn read_file(fields: &Fields<'_>) -> Result<Option<Vec<HostPattern>>, Problem> {
    let Some(texts) = fields.texts(KEY, WANTED_PATTERNS)? else {
        return Ok(None);
    };
    match parse(texts.into_iter()) {
        Some(patterns) => Ok(Some(patterns)),
        None => Err(fields.problem(KEY, Fault::Wanted(WANTED_PATTERNS))),
    }
}

/// The patterns of the environment, when it names any.
pub(super) fn read_environment(
    environment: &Environment,
) -> Result<Option<Vec<HostPattern>>, Problem> {
    let Some(text) = variable(environment, VARIABLE) else {
        return Ok(None);
    };
    let texts = text.split(',').map(str::trim);
    match parse(texts.filter(|text| !text.is_empty())) {
        Some(patterns) => Ok(Some(patterns)),
        None => Err(Problem {
            place: Box::new(Place::whole(Origin::Variable(VARIABLE))),
            fault: Fault::Ignored {
                wanted: WANTED_PATTERNS,
            },
        }),
    }
}

fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Vec<HostPattern>> {
    let patterns: Vec<_> = texts
        .take(PATTERNS_MAX + 1)
        .map(HostPattern::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    // Exclusions alone would import nothing, and nobody would be told.
    let takes_some = patterns.is_empty() || patterns.iter().any(|pattern| !pattern.excludes);
    (patterns.len() <= PATTERNS_MAX && takes_some).then_some(patterns)
}

/// The sandboxes for those names of the SSH configuration that the patterns take and no entry has.
///
/// An entry that is disabled keeps its name too: no command goes to a host that was meant to be replaced.
pub fn imported(patterns: &[HostPattern], names: &[String], config: &Config) -> Vec<SandboxEntry> {
    let mut taken: BTreeSet<&str> = config.sandboxes.iter().map(SandboxEntry::name).collect();
    let room = SANDBOXES_MAX.saturating_sub(config.sandboxes.len());
    let mut entries = Vec::new();
    for text in names.iter().filter(|name| is_taken_by(patterns, name)) {
        let (Ok(name), Ok(alias)) = (SandboxName::parse(text), SshAlias::parse(text)) else {
            continue;
        };
        if entries.len() < room && taken.insert(text) {
            entries.push(SandboxEntry::Ready(sandbox(name, alias, config)));
        }
    }
    entries
}

/// As on a `Host` line: one exclusion outweighs everything else.
fn is_taken_by(patterns: &[HostPattern], name: &str) -> bool {
    let mut is_taken = false;
    for pattern in patterns.iter().filter(|pattern| pattern.matches(name)) {
        if pattern.excludes {
            return false;
        }
        is_taken = true;
    }
    is_taken
}

fn sandbox(name: SandboxName, alias: SshAlias, config: &Config) -> SandboxConfig {
    let policy = config.settings.host_key_policy;
    let mut notes = Vec::new();
    if policy == HostKeyPolicy::Insecure {
        notes.push(POLICY_NOTE.to_owned());
    }
    SandboxConfig {
        name,
        origin: ORIGIN.to_owned(),
        reach: Reach::Alias(AliasSettings {
            alias,
            port: None,
            user: None,
            key_file: None,
            key_passphrase: None,
            password: None,
            host_keys: HostKeySettings {
                policy,
                ..HostKeySettings::default()
            },
            policy_is_given: policy != HostKeyPolicy::default(),
            limits: GivenLimits::default(),
        }),
        transport: Transport::default(),
        surroundings: Surroundings::default(),
        tags: Vec::new(),
        notes,
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
