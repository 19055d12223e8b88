//! Turns one entry of a list of sandboxes into a sandbox.

use super::fields::Fields;
use super::problem::shown;
use super::raw::Value;
use super::reference::{self, KeyPlace};
use super::{
    AliasSettings, Fault, HostKeyPolicy, HostKeySettings, Identities, Limits, Problem, Reach,
    SandboxConfig, SshAlias, SshSettings, Transport, Way, credentials, limits, surroundings,
};
use crate::ids::{SANDBOX_NAME_MAX_CHARS, SandboxName};

const WANTED_PORT: &str = "a whole number from 1 to 65535";
const WANTED_HOST: &str =
    "a host name or an address, without blanks or control characters and not beginning with `-`";
const WANTED_USER: &str = "a user name, without control characters and not beginning with `-`";
pub(super) const WANTED_POLICY: &str = "one of \"accept-new\", \"strict\", \"insecure\"";
const WANTED_TRANSPORT: &str = "one of \"builtin\", \"openssh\"";
/// What is worth knowing about a sandbox whose host proves nothing.
pub(super) const POLICY_NOTE: &str =
    "the host key is not checked: `host_key_policy` is \"insecure\"";
const IGNORED_KEYS_SHOWN: usize = 8;

/// What to do with a key that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownKeys {
    /// The entry is refused: a typing error must not change what a sandbox is.
    Refuse,
    /// The entry is kept and the key noted, as lists written for other servers may hold more keys.
    Note,
}

/// Where an entry says its host is.
enum Destination {
    Host(String),
    Alias(SshAlias),
}

impl Destination {
    fn as_str(&self) -> &str {
        match self {
            Self::Host(host) => host,
            Self::Alias(alias) => alias.as_str(),
        }
    }
}

/// Reads one entry.
pub(super) fn read(
    fields: &Fields<'_>,
    unknown_keys: UnknownKeys,
    default_policy: HostKeyPolicy,
) -> Result<SandboxConfig, Problem> {
    let mut notes = Vec::new();
    check_keys(fields, unknown_keys, &mut notes)?;
    let destination = destination(fields)?;
    let name = name(fields, &destination, &mut notes)?;
    let transport = transport(fields)?;
    let reach = match destination {
        Destination::Host(host) => Reach::Host(host_settings(fields, host, default_policy)?),
        Destination::Alias(alias) => Reach::Alias(alias_settings(fields, alias, default_policy)?),
    };
    if let Reach::Host(ssh) = &reach
        && ssh.key_passphrase.is_some()
        && ssh.key_file.is_none()
    {
        notes.push("a key passphrase is given without a key file and is not used".to_owned());
    }
    if reach.host_keys().policy == HostKeyPolicy::Insecure {
        notes.push(POLICY_NOTE.to_owned());
    }
    Ok(SandboxConfig {
        name,
        origin: fields.place.entry_text(),
        reach,
        transport,
        surroundings: surroundings::read(fields)?,
        tags: surroundings::tags(fields)?,
        notes,
    })
}

fn host_settings(
    fields: &Fields<'_>,
    host: String,
    default_policy: HostKeyPolicy,
) -> Result<SshSettings, Problem> {
    Ok(SshSettings {
        host,
        port: port(fields)?.unwrap_or(22),
        user: user(fields)?.ok_or_else(|| fields.problem("user", Fault::Required))?,
        key_file: fields.path("key_file")?,
        key_passphrase: credentials::read(fields, "key_passphrase")?,
        password: credentials::read(fields, "password")?,
        identities: Identities::default(),
        way: Way::Direct,
        host_keys: HostKeySettings {
            policy: policy(fields)?.unwrap_or(default_policy),
            known_hosts_files: fields.paths("known_hosts_files")?,
            name: None,
        },
        limits: limits::read(fields)?.or(Limits::default()),
    })
}

fn alias_settings(
    fields: &Fields<'_>,
    alias: SshAlias,
    default_policy: HostKeyPolicy,
) -> Result<AliasSettings, Problem> {
    let own_policy = policy(fields)?;
    Ok(AliasSettings {
        alias,
        port: port(fields)?,
        user: user(fields)?,
        key_file: fields.path("key_file")?,
        key_passphrase: credentials::read(fields, "key_passphrase")?,
        password: credentials::read(fields, "password")?,
        host_keys: HostKeySettings {
            policy: own_policy.unwrap_or(default_policy),
            known_hosts_files: fields.paths("known_hosts_files")?,
            name: None,
        },
        policy_is_given: own_policy.is_some() || default_policy != HostKeyPolicy::default(),
        limits: limits::read(fields)?,
    })
}

fn transport(fields: &Fields<'_>) -> Result<Transport, Problem> {
    let master_key = "require_existing_master";
    let require_existing_master = fields.flag(master_key)?.unwrap_or(false);
    match fields.text("transport")? {
        None | Some("builtin") if require_existing_master => {
            Err(fields.problem(master_key, Fault::NeedsOpenSsh))
        }
        None | Some("builtin") => Ok(Transport::Builtin),
        Some("openssh") => {
            credentials::refuse(fields)?;
            Ok(Transport::OpenSsh {
                require_existing_master,
            })
        }
        Some(_) => Err(fields.problem("transport", Fault::Wanted(WANTED_TRANSPORT))),
    }
}

/// The name an entry claims, also when something else in it is wrong.
pub(super) fn claimed_name(fields: &Fields<'_>) -> Option<SandboxName> {
    match fields.text("name") {
        Ok(Some(name)) => SandboxName::parse(name).ok(),
        // An entry that says both claims the alias, so that it still replaces an earlier one.
        Ok(None) => match (fields.text("ssh_alias"), fields.text("host")) {
            (Ok(Some(alias)), _) => SandboxName::parse(&shortened(alias)).ok(),
            (_, Ok(Some(text))) => host(fields, text)
                .ok()
                .and_then(|host| SandboxName::parse(&shortened(&host)).ok()),
            _ => None,
        },
        Err(_) => None,
    }
}

/// What to call an entry in messages.
pub(super) fn shown_name(fields: &Fields<'_>) -> Option<String> {
    ["name", "ssh_alias", "host"]
        .iter()
        .find_map(|key| fields.text(key).ok().flatten())
        .map(shown)
}

fn check_keys(
    fields: &Fields<'_>,
    unknown_keys: UnknownKeys,
    notes: &mut Vec<String>,
) -> Result<(), Problem> {
    let mut unknown = fields
        .members
        .iter()
        .filter(|(key, _)| !reference::is_known(KeyPlace::Sandbox, key))
        .peekable();
    let Some((first, node)) = unknown.peek() else {
        return Ok(());
    };
    match unknown_keys {
        UnknownKeys::Refuse => {
            let mut problem = fields.problem_here(Fault::UnknownKey {
                key: shown(first),
                known: reference::known_keys(KeyPlace::Sandbox),
            });
            problem.place.line = node.line.or(problem.place.line);
            Err(problem)
        }
        UnknownKeys::Note => {
            let mut keys: Vec<_> = unknown
                .by_ref()
                .take(IGNORED_KEYS_SHOWN)
                .map(|(key, _)| format!("`{}`", shown(key)))
                .collect();
            if unknown.next().is_some() {
                keys.push("and more".to_owned());
            }
            notes.push(format!("unknown keys are ignored: {}", keys.join(", ")));
            Ok(())
        }
    }
}

fn destination(fields: &Fields<'_>) -> Result<Destination, Problem> {
    match (fields.text("host")?, fields.text("ssh_alias")?) {
        (Some(text), None) => host(fields, text).map(Destination::Host),
        (None, Some(text)) => SshAlias::parse(text)
            .map(Destination::Alias)
            .map_err(|_| fields.problem("ssh_alias", Fault::Alias)),
        (Some(_), Some(_)) => Err(fields.problem_here(Fault::HostAndAlias)),
        (None, None) => Err(fields.problem("host", Fault::NoHost)),
    }
}

fn host(fields: &Fields<'_>, text: &str) -> Result<String, Problem> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let bad = |character: char| {
        character.is_whitespace() || character.is_control() || matches!(character, '[' | ']')
    };
    if bare.is_empty() || bare.starts_with('-') || bare.chars().any(bad) {
        return Err(fields.problem("host", Fault::Wanted(WANTED_HOST)));
    }
    Ok(bare.to_owned())
}

fn name(
    fields: &Fields<'_>,
    destination: &Destination,
    notes: &mut Vec<String>,
) -> Result<SandboxName, Problem> {
    let name = match fields.text("name")? {
        Some(name) => SandboxName::parse(name),
        None => {
            let whole = destination.as_str();
            let name = shortened(whole);
            if name.len() < whole.len() {
                notes.push(format!(
                    "the name is the host cut to {SANDBOX_NAME_MAX_CHARS} characters"
                ));
            }
            SandboxName::parse(&name)
        }
    };
    name.map_err(|error| fields.problem("name", Fault::Name(error)))
}

/// A host may be longer than a name; refusing it would take away a sandbox that could be used.
fn shortened(host: &str) -> String {
    host.chars().take(SANDBOX_NAME_MAX_CHARS).collect()
}

fn user(fields: &Fields<'_>) -> Result<Option<String>, Problem> {
    let Some(text) = fields.text("user")? else {
        return Ok(None);
    };
    if text.starts_with('-') || text.chars().any(char::is_control) || text.trim().is_empty() {
        return Err(fields.problem("user", Fault::Wanted(WANTED_USER)));
    }
    Ok(Some(text.to_owned()))
}

fn port(fields: &Fields<'_>) -> Result<Option<u16>, Problem> {
    let Some(number) = fields.whole("port", WANTED_PORT)? else {
        return Ok(None);
    };
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(fields.problem("port", Fault::Wanted(WANTED_PORT))),
    }
}

/// The host key policy of a table, when it names one.
pub(super) fn policy(fields: &Fields<'_>) -> Result<Option<HostKeyPolicy>, Problem> {
    let key = "host_key_policy";
    let policy = match fields.value(key) {
        None => return Ok(None),
        Some(Value::Text(text)) => HostKeyPolicy::parse(text.expose()),
        Some(_) => None,
    };
    match policy {
        Some(policy) => Ok(Some(policy)),
        None => Err(fields.problem(key, Fault::Wanted(WANTED_POLICY))),
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "entry_alias_tests.rs"]
mod alias_tests;
