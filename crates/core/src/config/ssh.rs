//! How a host is reached by SSH: what an entry says, and what a connection needs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::{Secret, SecretName};

/// How to reach a sandbox.
#[derive(Debug, Clone)]
pub enum Reach {
    /// The entry says everything itself.
    Host(SshSettings),
    /// The user's own SSH configuration says the rest.
    Alias(AliasSettings),
}

impl Reach {
    /// How the host proves who it is.
    pub fn host_keys(&self) -> &HostKeySettings {
        match self {
            Self::Host(settings) => &settings.host_keys,
            Self::Alias(settings) => &settings.host_keys,
        }
    }

    /// Where the entry's own secrets come from.
    pub fn secret_sources(&self) -> impl Iterator<Item = &SecretSource> {
        let (passphrase, password) = match self {
            Self::Host(settings) => (&settings.key_passphrase, &settings.password),
            Self::Alias(settings) => (&settings.key_passphrase, &settings.password),
        };
        passphrase.iter().chain(password)
    }
}

/// Which program carries the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// The SSH client within this program.
    #[default]
    Builtin,
    /// The system's `ssh`, over its shared connection.
    OpenSsh {
        /// Whether a shared connection must be there already, instead of logging in.
        require_existing_master: bool,
    },
}

/// A name in the user's SSH configuration, safe as an argument of `ssh`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SshAlias(String);

/// Why a text is no name for the SSH configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "a name for the SSH configuration has 1 to 255 characters, no blanks, quotes or control characters, and does not begin with `-`"
)]
pub struct SshAliasError;

impl SshAlias {
    /// Checks the name.
    pub fn parse(text: &str) -> Result<Self, SshAliasError> {
        let bad = |character: char| {
            character.is_whitespace()
                || character.is_control()
                || "\"'`\\$;&<>|(){}!*?,".contains(character)
        };
        if text.is_empty() || text.len() > 255 || text.starts_with('-') || text.chars().any(bad) {
            return Err(SshAliasError);
        }
        Ok(SshAlias(text.to_owned()))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SshAlias {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A host of the user's SSH configuration, and what the entry says differently.
#[derive(Debug, Clone)]
pub struct AliasSettings {
    /// Its name there.
    pub alias: SshAlias,
    /// The TCP port, instead of the one written there.
    pub port: Option<u16>,
    /// The user to log in as, instead of the one written there.
    pub user: Option<String>,
    /// The private key, instead of those written there.
    pub key_file: Option<PathBuf>,
    /// Where the passphrase of the private key comes from.
    pub key_passphrase: Option<SecretSource>,
    /// Where the password comes from.
    pub password: Option<SecretSource>,
    /// How the host proves who it is; an empty list of files means those written there.
    pub host_keys: HostKeySettings,
    /// Whether somebody asked for that policy, so that it wins over the one written there.
    pub policy_is_given: bool,
    /// How long each step may take, where the entry says so.
    pub limits: GivenLimits,
}

/// Over what a connection goes.
#[derive(Debug, Clone, Default)]
pub enum Way {
    /// A TCP connection of our own.
    #[default]
    Direct,
    /// A channel through another host.
    Jump(Box<SshSettings>),
    /// The standard input and output of a program, as a line for the local shell with nothing left to fill in.
    Command(String),
}

/// Keys that may be tried besides an entry's own credential.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identities {
    /// Private keys in the order they are tried; one that does not exist is passed over.
    pub files: Vec<PathBuf>,
    /// Certificates besides those that lie beside their key.
    pub certificates: Vec<PathBuf>,
    /// Which agent is asked.
    pub agent: AgentChoice,
    /// Whether the agent may offer only the keys named in `files`.
    pub only_files: bool,
}

/// Which SSH agent is asked for keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AgentChoice {
    /// None.
    #[default]
    None,
    /// The one that listens on this socket.
    Socket(PathBuf),
}

/// How long each step of a connection may take, where somebody said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GivenLimits {
    /// Name lookup and TCP connection.
    pub tcp: Option<Duration>,
    /// The first line of the server.
    pub banner: Option<Duration>,
    /// The key exchange.
    pub key_exchange: Option<Duration>,
    /// The login.
    pub authentication: Option<Duration>,
    /// The pause between two signs of life.
    pub keepalive_interval: Option<Duration>,
    /// How many unanswered signs of life mean that the link is dead.
    pub keepalive_max: Option<u32>,
}

impl GivenLimits {
    /// Fills in what nobody said.
    pub fn or(self, rest: Limits) -> Limits {
        Limits {
            tcp: self.tcp.unwrap_or(rest.tcp),
            banner: self.banner.unwrap_or(rest.banner),
            key_exchange: self.key_exchange.unwrap_or(rest.key_exchange),
            authentication: self.authentication.unwrap_or(rest.authentication),
            keepalive_interval: self.keepalive_interval.unwrap_or(rest.keepalive_interval),
            keepalive_max: self.keepalive_max.unwrap_or(rest.keepalive_max),
        }
    }
}

/// How to reach a host by SSH.
#[derive(Debug, Clone)]
pub struct SshSettings {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
    /// The private key, as an absolute path.
    pub key_file: Option<PathBuf>,
    /// Where the passphrase of the private key comes from.
    pub key_passphrase: Option<SecretSource>,
    /// Where the password comes from.
    pub password: Option<SecretSource>,
    /// What else may prove who we are; empty when the entry names a credential of its own.
    pub identities: Identities,
    /// Over what the connection goes.
    pub way: Way,
    /// How the host proves who it is.
    pub host_keys: HostKeySettings,
    /// How long each step may take.
    pub limits: Limits,
}

impl SshSettings {
    /// Whether the entry leaves it to the agent and the user's usual keys to prove who we are.
    pub fn names_no_credential(&self) -> bool {
        self.key_file.is_none() && self.password.is_none()
    }
}

/// Where a secret comes from.
#[derive(Clone)]
pub enum SecretSource {
    /// It is known already.
    Clear(Secret<String>),
    /// A program prints it: the program and its arguments, started without a shell.
    Command(Vec<String>),
    /// It is kept in the keychain, or in our own file where there is none.
    Stored(SecretName),
}

impl SecretSource {
    /// The name under which the secret is kept, when it is.
    pub fn stored_name(&self) -> Option<&SecretName> {
        match self {
            Self::Stored(name) => Some(name),
            Self::Clear(_) | Self::Command(_) => None,
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear(secret) => formatter.debug_tuple("Clear").field(secret).finish(),
            // Whoever mistakes the key for `password` writes the secret where the program belongs.
            Self::Command(arguments) => write!(formatter, "Command({} texts)", arguments.len()),
            Self::Stored(name) => formatter.debug_tuple("Stored").field(name).finish(),
        }
    }
}

/// How a host proves who it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostKeySettings {
    /// What to do with a key that is not known.
    pub policy: HostKeyPolicy,
    /// The files with known keys; empty means the user's own.
    pub known_hosts_files: Vec<PathBuf>,
    /// The name under which the key is looked up, when it is not the host's.
    pub name: Option<String>,
}

/// What to do with the key of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostKeyPolicy {
    /// Trust the key of a host never seen before and remember it; refuse a changed one.
    #[default]
    AcceptNew,
    /// Refuse every key that is not known already.
    Strict,
    /// Check nothing.
    Insecure,
}

impl HostKeyPolicy {
    /// Reads the spelling used in the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "accept-new" => Some(Self::AcceptNew),
            "strict" => Some(Self::Strict),
            "insecure" => Some(Self::Insecure),
            _ => None,
        }
    }

    /// The spelling used in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AcceptNew => "accept-new",
            Self::Strict => "strict",
            Self::Insecure => "insecure",
        }
    }
}

/// How long each step of a connection may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Name lookup and TCP connection.
    pub tcp: Duration,
    /// The first line of the server.
    pub banner: Duration,
    /// The key exchange.
    pub key_exchange: Duration,
    /// The login.
    pub authentication: Duration,
    /// The pause between two signs of life.
    pub keepalive_interval: Duration,
    /// How many unanswered signs of life mean that the link is dead.
    pub keepalive_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tcp: Duration::from_secs(10),
            banner: Duration::from_secs(10),
            key_exchange: Duration::from_secs(15),
            authentication: Duration::from_secs(20),
            keepalive_interval: Duration::from_secs(15),
            keepalive_max: 3,
        }
    }
}
