//! The configuration: from text that somebody wrote to settings that cannot be wrong.
//!
//! Nothing here reads a file or the environment; the caller hands both over in [`Sources`].

mod credentials;
mod entry;
mod fields;
mod import;
mod kept;
mod keys;
mod limits;
mod local;
mod paths;
mod problem;
mod raw;
mod reference;
mod resolve;
mod settings;
mod ssh;
mod surroundings;
mod sync;
mod toolset;
mod watchdog;

pub use import::{HostPattern, HostPatternError, imported};
pub use kept::{
    KeptEntry, KeptSecret, UnkeptError, kept_entry, kept_local, kept_local_source, whole_entry,
};
pub use keys::KEYS;
pub use local::LocalSettings;
pub use paths::{FileChoice, PathError, Platform, config_file_location, state_dir};
pub use problem::{EntryPlace, Fault, Origin, Place, Problem};
pub use reference::{Key, KeyPlace, VARIABLES, Variable, reference_markdown};
pub use resolve::resolve;
pub use ssh::{
    AgentChoice, AliasSettings, GivenLimits, HostKeyPolicy, HostKeySettings, Identities, Limits,
    Reach, SecretSource, SshAlias, SshAliasError, SshSettings, Transport, Way,
};
pub use surroundings::{Surroundings, names_a_secret};
pub use sync::SyncSettings;
pub use toolset::Toolset;
pub use watchdog::{Notifier, Signing, WatchdogSettings};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::ids::SandboxName;
use crate::secret::{Secret, SecretName};

/// The most bytes a configuration file or the sandbox list may have.
pub const SOURCE_MAX_BYTES: usize = 1024 * 1024;

/// The most sandboxes that are kept.
pub const SANDBOXES_MAX: usize = 1_000;

/// The environment variables as the caller read them.
pub type Environment = BTreeMap<String, String>;

/// Everything the configuration is made from.
#[derive(Clone, Default)]
pub struct Sources {
    /// The environment variables of the process.
    pub environment: Environment,
    /// The configuration file, when there is one.
    pub file: Option<ConfigText>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values hold passwords.
        formatter
            .debug_struct("Sources")
            .field("variables", &self.environment.len())
            .field("file", &self.file)
            .finish()
    }
}

/// The text of a configuration file.
#[derive(Clone)]
pub struct ConfigText {
    /// Where the file is, for messages.
    pub path: PathBuf,
    /// The language it is written in.
    pub format: Format,
    /// What the file holds.
    pub text: Vec<u8>,
}

impl ConfigText {
    /// Joins a file's path and content; the extension says the format.
    pub fn new(path: PathBuf, text: Vec<u8>) -> Result<Self, PathError> {
        let format = Format::from_path(&path)?;
        Ok(Self { path, format, text })
    }
}

impl fmt::Debug for ConfigText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConfigText")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("bytes", &self.text.len())
            .finish()
    }
}

/// The language of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML, file extension `.toml`.
    Toml,
    /// JSON, file extension `.json`.
    Json,
}

impl Format {
    /// Tells the format by the extension of a path.
    pub fn from_path(path: &Path) -> Result<Self, PathError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Ok(Self::Toml),
            Some("json") => Ok(Self::Json),
            _ => Err(PathError::Extension {
                path: path.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
        })
    }
}

/// The whole configuration; what was wrong in it stands beside what is usable.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The sandboxes, those of the environment first, each source in its own order.
    pub sandboxes: Vec<SandboxEntry>,
    /// What holds for all sandboxes.
    pub settings: Settings,
    /// What holds for all sandboxes on this machine.
    pub local: LocalSettings,
    /// What holds for all syncs.
    pub sync: SyncSettings,
    /// What holds for all watches.
    pub watchdog: WatchdogSettings,
    /// Which hosts of the user's SSH configuration are sandboxes too.
    pub import_ssh_config: Vec<HostPattern>,
    /// What was wrong outside a single sandbox.
    pub problems: Vec<Problem>,
    /// Kept also for entries that are disabled: what was written down must never be shown.
    clear_secrets: Vec<Secret<String>>,
}

impl Config {
    /// Every secret that was written in clear text or came from a variable, also of disabled entries; also values of
    /// `env` whose names say that they are secret.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.clear_secrets
            .iter()
            .map(|secret| secret.expose().as_str())
    }

    /// The names of kept secrets that usable sandboxes and the telling of events need, each once.
    pub fn stored_secret_names(&self) -> BTreeSet<&SecretName> {
        self.ready()
            .flat_map(|sandbox| sandbox.reach.secret_sources())
            .chain(self.watchdog.secret_sources())
            .filter_map(SecretSource::stored_name)
            .collect()
    }

    /// The sandboxes that can be used.
    pub fn ready(&self) -> impl Iterator<Item = &SandboxConfig> {
        self.sandboxes.iter().filter_map(|entry| match entry {
            SandboxEntry::Ready(sandbox) => Some(sandbox),
            SandboxEntry::Disabled { .. } => None,
        })
    }

    /// The names of the sandboxes that can be used.
    pub fn names(&self) -> impl Iterator<Item = &SandboxName> {
        self.ready().map(|sandbox| &sandbox.name)
    }

    /// Finds the entry with a name; a usable one is preferred to a disabled one.
    pub fn find(&self, name: &str) -> Option<&SandboxEntry> {
        let mut disabled = None;
        for entry in self.sandboxes.iter().filter(|entry| entry.name() == name) {
            match entry {
                SandboxEntry::Ready(_) => return Some(entry),
                SandboxEntry::Disabled { .. } => disabled = Some(entry),
            }
        }
        disabled
    }
}

/// One sandbox of the configuration.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "most entries are ready, and a box would hinder matching"
)]
pub enum SandboxEntry {
    /// It can be used.
    Ready(SandboxConfig),
    /// It cannot be used until its entry is mended.
    Disabled {
        /// The name to show: as written when possible, else the place of the entry.
        name: String,
        /// What is wrong.
        problem: Problem,
    },
}

impl SandboxEntry {
    /// The name to show.
    pub fn name(&self) -> &str {
        match self {
            Self::Ready(sandbox) => sandbox.name.as_str(),
            Self::Disabled { name, .. } => name,
        }
    }
}

/// A sandbox that can be used.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// The name by which it is called.
    pub name: SandboxName,
    /// Where it was configured, for messages.
    pub origin: String,
    /// How to reach it.
    pub reach: Reach,
    /// Which program carries the connection.
    pub transport: Transport,
    /// What every command in it finds.
    pub surroundings: Surroundings,
    /// Words by which sandboxes are chosen.
    pub tags: Vec<String>,
    /// Things worth knowing that do not prevent its use.
    pub notes: Vec<String>,
}

/// What holds for all sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether the advanced tools are offered.
    pub advanced_tools: bool,
    /// A sync of more files goes to the background; zero sends every sync there.
    pub inline_sync_max_files: u64,
    /// A sync of more bytes goes to the background; zero sends every sync there.
    pub inline_sync_max_bytes: u64,
    /// The form of tool results.
    pub result_style: ResultStyle,
    /// The host key policy of sandboxes that name none.
    pub host_key_policy: HostKeyPolicy,
    /// The groups of tools that are asked for; none when nothing was said.
    pub toolsets: Option<BTreeSet<Toolset>>,
    /// Whether this program starts the watchdog by itself and lets callers set it up.
    pub watchdog: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            advanced_tools: false,
            inline_sync_max_files: 200,
            inline_sync_max_bytes: 64 * 1024 * 1024,
            result_style: ResultStyle::Json,
            host_key_policy: HostKeyPolicy::AcceptNew,
            toolsets: None,
            watchdog: true,
        }
    }
}

/// The form of tool results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultStyle {
    /// One compact JSON object.
    #[default]
    Json,
    /// A verdict line and plain text.
    Text,
}

#[cfg(test)]
mod testing;

#[cfg(test)]
#[path = "canary_tests.rs"]
mod canary_tests;
