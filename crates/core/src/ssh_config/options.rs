//! What `ssh -G` says of one host, read into types.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::expand::{Known, Local, Tokens, unset};
use super::{Hop, OptionsError, TEXT_MAX_BYTES};
use crate::config::{AgentChoice, GivenLimits, SshAlias};

/// The longest time an option may set for one step.
const LONGEST_STEP: Duration = Duration::from_secs(600);

/// The most unanswered signs of life that are waited for.
const MOST_SIGNS: u32 = 100;

/// Keys and certificates that are kept of each.
const MOST_FILES: usize = 64;

/// What has a meaning to a shell.
const SHELL_CHARACTERS: &[char] = &[
    '\'', '"', '`', '$', '\\', ';', '&', '<', '>', '|', '(', ')', '{', '}', ' ', '\t',
];

/// Default keys that live in a device, or in no server any more; an agent may still offer them.
const NOT_FILES: [&str; 3] = [
    "~/.ssh/id_ecdsa_sk",
    "~/.ssh/id_ed25519_sk",
    "~/.ssh/id_xmss",
];

/// The host that was asked about.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its name in the SSH configuration.
    pub alias: SshAlias,
    /// The user to log in as, instead of the one written there.
    pub user: Option<String>,
    /// The port, instead of the one written there.
    pub port: Option<u16>,
    /// The hosts to jump over, instead of those written there.
    pub hops: Vec<Hop>,
}

/// How a connection to a host begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approach {
    /// With a TCP connection.
    Direct,
    /// Over other hosts, the nearest first.
    Jump(Vec<Hop>),
    /// With a program, as a line for the shell with everything filled in.
    Command(String),
}

/// What the user wants to be done with the key of a host that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checking {
    /// Refuse it.
    Strict,
    /// Ask, or take it and remember it.
    Remember,
    /// Take every key, which this program does not do on behalf of this file.
    Off,
}

/// The options of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// Name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user to log in as.
    pub user: String,
    /// Private keys in the order they are tried.
    pub identity_files: Vec<PathBuf>,
    /// Whether an agent may offer only those.
    pub identities_only: bool,
    /// Certificates named apart from their keys.
    pub certificates: Vec<PathBuf>,
    /// Which agent is asked.
    pub agent: AgentChoice,
    /// How the connection begins.
    pub approach: Approach,
    /// The files with known host keys, the user's own and those of the machine.
    pub known_hosts_files: Vec<PathBuf>,
    /// The name under which the host's key is looked up.
    pub host_key_alias: Option<String>,
    /// What is done with a key that is not known.
    pub checking: Checking,
    /// How long each step may take.
    pub limits: GivenLimits,
    /// The socket of a shared connection of `ssh`.
    pub control_path: Option<PathBuf>,
    /// Whether `ssh` opens a shared connection by itself.
    pub control_master: bool,
    /// Things worth knowing that do not prevent a connection.
    pub notes: Vec<String>,
}

impl HostOptions {
    /// Reads an answer of `ssh -G`.
    pub fn read(text: &[u8], asked: &SshAlias, local: &Local) -> Result<Self, OptionsError> {
        if text.len() > TEXT_MAX_BYTES {
            return Err(OptionsError::TooLarge);
        }
        let text = String::from_utf8_lossy(text);
        let raw = Raw::new(&text);
        let host = raw.needed("hostname")?;
        let user = raw.needed("user")?;
        let port = raw.needed("port")?.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or(OptionsError::Unusable("port"))?;
        let host_key_alias = raw.first("hostkeyalias");
        let tokens = Tokens {
            local,
            asked: asked.as_str(),
            host,
            port,
            user,
            host_key_alias,
        };
        let mut notes = Vec::new();
        let identities_only = raw.first("identitiesonly") == Some("yes");
        let mut keys = raw.all("identityfile");
        if !identities_only {
            keys.retain(|key| !NOT_FILES.contains(key));
        }
        let checking = checking(raw.first("stricthostkeychecking"), &mut notes);
        Ok(HostOptions {
            identity_files: paths(&tokens, "identityfile", &keys, &mut notes)?,
            certificates: paths(
                &tokens,
                "certificatefile",
                &raw.all("certificatefile"),
                &mut notes,
            )?,
            identities_only,
            agent: agent(&tokens, raw.first("identityagent"))?,
            approach: approach(&tokens, &raw)?,
            known_hosts_files: known_hosts(&tokens, &raw, &mut notes)?,
            checking,
            limits: limits(&raw),
            control_path: match raw.set("controlpath") {
                Some(path) => tokens.path("controlpath", path).ok().flatten(),
                None => None,
            },
            control_master: !matches!(raw.first("controlmaster"), None | Some("no" | "false")),
            host_key_alias: host_key_alias.map(str::to_owned),
            host: host.to_owned(),
            port,
            user: user.to_owned(),
            notes,
        })
    }
}

/// The lines of an answer by keyword.
struct Raw<'a>(BTreeMap<&'a str, Vec<&'a str>>);

impl<'a> Raw<'a> {
    fn new(text: &'a str) -> Self {
        let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for line in text.lines() {
            if let Some((keyword, value)) = line.split_once(' ') {
                let values = lines.entry(keyword).or_default();
                if values.len() < MOST_FILES {
                    values.push(value.trim());
                }
            }
        }
        Raw(lines)
    }

    fn first(&self, keyword: &str) -> Option<&'a str> {
        let first = self.0.get(keyword)?.first()?;
        Some(*first).filter(|value| !value.is_empty())
    }

    /// The value, unless it says that there is none.
    fn set(&self, keyword: &str) -> Option<&'a str> {
        self.first(keyword)
            .filter(|value| !value.eq_ignore_ascii_case("none"))
    }

    fn all(&self, keyword: &str) -> Vec<&'a str> {
        let values = self.0.get(keyword).into_iter().flatten().copied();
        values
            .filter(|value| !value.eq_ignore_ascii_case("none") && !value.is_empty())
            .collect()
    }

    fn needed(&self, keyword: &'static str) -> Result<&'a str, OptionsError> {
        self.first(keyword).ok_or(OptionsError::Unusable(keyword))
    }

    fn seconds(&self, keyword: &str) -> Option<Duration> {
        let seconds = self.first(keyword)?.parse().ok().filter(|&s: &u64| s > 0)?;
        Some(Duration::from_secs(seconds).min(LONGEST_STEP))
    }
}

fn paths(
    tokens: &Tokens<'_>,
    option: &'static str,
    values: &[&str],
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>, OptionsError> {
    let mut found = Vec::new();
    for value in values {
        match tokens.path(option, value)? {
            Some(path) => found.push(path),
            None => notes.push(format!(
                "a relative path in `{option}` of the SSH configuration is passed over"
            )),
        }
    }
    Ok(found)
}

fn agent(tokens: &Tokens<'_>, value: Option<&str>) -> Result<AgentChoice, OptionsError> {
    const OPTION: &str = "identityagent";
    const USUAL: &str = "SSH_AUTH_SOCK";
    let variable = |name: &str| tokens.local.environment.get(name);
    let socket = match value {
        Some(value) if value.eq_ignore_ascii_case("none") => return Ok(AgentChoice::None),
        None | Some(USUAL) => variable(USUAL).map(PathBuf::from),
        Some(value) => match value
            .strip_prefix('$')
            .filter(|name| !name.starts_with('{'))
        {
            Some(name) => {
                let path = variable(name).ok_or_else(|| unset(OPTION, name))?;
                Some(PathBuf::from(path))
            }
            None => tokens.path(OPTION, value)?,
        },
    };
    let socket = socket.filter(|path| path.is_absolute());
    Ok(socket.map_or(AgentChoice::None, AgentChoice::Socket))
}

fn approach(tokens: &Tokens<'_>, raw: &Raw<'_>) -> Result<Approach, OptionsError> {
    // `ssh` prints the one that counts, never both.
    if let Some(hops) = raw.set("proxyjump") {
        let hops = tokens.fill("proxyjump", hops, Known::Remote)?;
        return Hop::parse_list(&hops).map(Approach::Jump);
    }
    let Some(line) = raw.set("proxycommand") else {
        return Ok(Approach::Direct);
    };
    // A shell reads the line; what stands in for a token must not become a command there.
    for (token, option, value) in [("%h", "hostname", tokens.host), ("%r", "user", tokens.user)] {
        if line.contains(token) && (value.starts_with('-') || value.contains(SHELL_CHARACTERS)) {
            return Err(OptionsError::Unusable(option));
        }
    }
    let line = tokens.fill("proxycommand", line, Known::Remote)?;
    Ok(Approach::Command(line))
}

fn known_hosts(
    tokens: &Tokens<'_>,
    raw: &Raw<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>, OptionsError> {
    let mut found = Vec::new();
    for option in ["userknownhostsfile", "globalknownhostsfile"] {
        let mut texts: Vec<String> = Vec::new();
        for word in raw.set(option).unwrap_or_default().split(' ') {
            let begins = word.starts_with(['/', '~', '%', '$']);
            match texts.last_mut() {
                // `ssh` drops the quotes of a path with a blank; its rest begins with no slash.
                Some(last) if !begins => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => texts.push(word.to_owned()),
            }
        }
        let texts: Vec<&str> = texts.iter().map(|text| text.trim_matches('"')).collect();
        let named = texts
            .into_iter()
            // Keys are thrown away there by those who switch the check off; it is no list.
            .filter(|text| !text.is_empty() && *text != "none" && *text != "/dev/null");
        found.extend(paths(tokens, option, &named.collect::<Vec<_>>(), notes)?);
    }
    Ok(found)
}

fn checking(value: Option<&str>, notes: &mut Vec<String>) -> Checking {
    match value {
        Some("yes" | "true") => Checking::Strict,
        Some("no" | "false" | "off") => {
            notes.push(
                "`StrictHostKeyChecking no` of the SSH configuration is taken as `accept-new`: a changed key is refused"
                    .to_owned(),
            );
            Checking::Off
        }
        _ => Checking::Remember,
    }
}

fn limits(raw: &Raw<'_>) -> GivenLimits {
    let interval = raw.seconds("serveraliveinterval");
    let signs = raw
        .first("serveralivecountmax")
        .and_then(|count| count.parse().ok())
        .map(|count: u32| count.clamp(1, MOST_SIGNS));
    GivenLimits {
        tcp: raw.seconds("connecttimeout"),
        keepalive_interval: interval,
        // Without an interval the number is a default that nobody wrote.
        keepalive_max: interval.and(signs),
        ..GivenLimits::default()
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
