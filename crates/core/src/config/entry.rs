//! Turns one entry of a list of sandboxes into a sandbox.

use std::time::Duration;

use super::fields::Fields;
use super::paths::variable;
use super::problem::shown;
use super::raw::Value;
use super::reference::{self, KeyPlace};
use super::{
    Fault, HostKeyPolicy, HostKeySettings, Identities, Limits, Problem, Reach, SandboxConfig,
    SecretSource, SshSettings, Surroundings, Transport, Way,
};
use crate::ids::{SANDBOX_NAME_MAX_CHARS, SandboxName};
use crate::secret::Secret;

const WANTED_PORT: &str = "a whole number from 1 to 65535";
const WANTED_SECONDS: &str = "a number of seconds above 0 and at most 3600";
const WANTED_KEEPALIVE_MAX: &str = "a whole number from 1 to 100";
const WANTED_HOST: &str =
    "a host name or an address, without blanks or control characters and not beginning with `-`";
const WANTED_USER: &str = "a user name, without control characters and not beginning with `-`";
pub(super) const WANTED_POLICY: &str = "one of \"accept-new\", \"strict\", \"insecure\"";
const WANTED_VARIABLE: &str = "the name of an environment variable";
const SECONDS_MIN: f64 = 0.001;
const SECONDS_MAX: f64 = 3600.0;
const IGNORED_KEYS_SHOWN: usize = 8;

/// What to do with a key that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownKeys {
    /// The entry is refused: a typing error must not change what a sandbox is.
    Refuse,
    /// The entry is kept and the key noted, as lists written for other servers may hold more keys.
    Note,
}

/// Reads one entry.
pub(super) fn read(
    fields: &Fields<'_>,
    unknown_keys: UnknownKeys,
    default_policy: HostKeyPolicy,
) -> Result<SandboxConfig, Problem> {
    let mut notes = Vec::new();
    check_keys(fields, unknown_keys, &mut notes)?;
    let host = host(fields)?;
    let name = name(fields, &host, &mut notes)?;
    let ssh = SshSettings {
        port: port(fields)?,
        user: user(fields)?,
        key_file: fields.path("key_file")?,
        key_passphrase: secret(fields, "key_passphrase")?,
        password: secret(fields, "password")?,
        identities: Identities::default(),
        way: Way::Direct,
        host_keys: HostKeySettings {
            policy: policy(fields)?.unwrap_or(default_policy),
            known_hosts_files: fields.paths("known_hosts_files")?,
            name: None,
        },
        limits: limits(fields)?,
        host,
    };
    if ssh.password.is_none() && ssh.key_file.is_none() {
        return Err(fields.problem_here(if fields.label.is_some() {
            Fault::NoCredentialVariable
        } else {
            Fault::NoCredential
        }));
    }
    if ssh.key_passphrase.is_some() && ssh.key_file.is_none() {
        notes.push("a key passphrase is given without a key file and is not used".to_owned());
    }
    if ssh.host_keys.policy == HostKeyPolicy::Insecure {
        notes.push("the host key is not checked: `host_key_policy` is \"insecure\"".to_owned());
    }
    Ok(SandboxConfig {
        name,
        origin: fields.place.entry_text(),
        reach: Reach::Host(ssh),
        transport: Transport::Builtin,
        surroundings: Surroundings::default(),
        tags: Vec::new(),
        notes,
    })
}

/// The name an entry claims, also when something else in it is wrong.
pub(super) fn claimed_name(fields: &Fields<'_>) -> Option<SandboxName> {
    match fields.text("name") {
        Ok(Some(name)) => SandboxName::parse(name).ok(),
        Ok(None) => host(fields)
            .ok()
            .and_then(|host| SandboxName::parse(&shortened(&host)).ok()),
        Err(_) => None,
    }
}

/// What to call an entry in messages.
pub(super) fn shown_name(fields: &Fields<'_>) -> Option<String> {
    ["name", "host"]
        .iter()
        .find_map(|key| fields.text(key).ok().flatten())
        .map(shown)
}

/// Every secret that stands in an entry, whether or not the entry is usable.
pub(super) fn clear_secrets(fields: &Fields<'_>) -> Vec<Secret<String>> {
    let mut secrets = Vec::new();
    for key in ["password", "key_passphrase"] {
        if let Some(Value::Text(text)) = fields.value(key) {
            secrets.push(text.clone());
        }
        let from_variable = fields
            .text(&format!("{key}_env"))
            .ok()
            .flatten()
            .and_then(|name| variable(fields.environment, name));
        secrets.extend(from_variable.map(|text| Secret::new(text.to_owned())));
    }
    secrets
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

fn host(fields: &Fields<'_>) -> Result<String, Problem> {
    let text = fields.required_text("host")?;
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

fn name(fields: &Fields<'_>, host: &str, notes: &mut Vec<String>) -> Result<SandboxName, Problem> {
    let name = match fields.text("name")? {
        Some(name) => SandboxName::parse(name),
        None => {
            let name = shortened(host);
            if name.len() < host.len() {
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

fn user(fields: &Fields<'_>) -> Result<String, Problem> {
    let text = fields.required_text("user")?;
    if text.starts_with('-') || text.chars().any(char::is_control) || text.trim().is_empty() {
        return Err(fields.problem("user", Fault::Wanted(WANTED_USER)));
    }
    Ok(text.to_owned())
}

fn port(fields: &Fields<'_>) -> Result<u16, Problem> {
    let Some(number) = fields.whole("port", WANTED_PORT)? else {
        return Ok(22);
    };
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
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

fn secret(fields: &Fields<'_>, key: &str) -> Result<Option<SecretSource>, Problem> {
    let variable_key = format!("{key}_env");
    let command_key = format!("{key}_command");
    let given: Vec<_> = [key, &variable_key, &command_key]
        .into_iter()
        .filter(|key| fields.value(key).is_some())
        .collect();
    match given.as_slice() {
        [] => Ok(None),
        [only] if *only == variable_key => from_variable(fields, only).map(Some),
        [only] if *only == command_key => command(fields, only).map(Some),
        [only] => Ok(fields
            .text(only)?
            .map(|text| SecretSource::Clear(Secret::new(text.to_owned())))),
        several => {
            let keys: Vec<_> = several.iter().map(|key| format!("`{key}`")).collect();
            Err(fields.problem_here(Fault::SeveralSources {
                keys: keys.join(", "),
            }))
        }
    }
}

fn from_variable(fields: &Fields<'_>, key: &str) -> Result<SecretSource, Problem> {
    let name = fields.required_text(key)?;
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
    // A text that cannot be a name may be the secret itself, so it is not shown.
    if !name.chars().all(plain) || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(fields.problem(key, Fault::Wanted(WANTED_VARIABLE)));
    }
    match variable(fields.environment, name) {
        Some(text) => Ok(SecretSource::Clear(Secret::new(text.to_owned()))),
        None => Err(fields.problem(
            key,
            Fault::MissingVariable {
                variable: shown(name),
            },
        )),
    }
}

fn command(fields: &Fields<'_>, key: &str) -> Result<SecretSource, Problem> {
    let refused = || fields.problem(key, Fault::CommandIsText);
    let Some(Value::List(items)) = fields.value(key) else {
        return Err(refused());
    };
    let mut arguments = Vec::with_capacity(items.len());
    for item in items {
        match &item.value {
            Value::Text(text) if !text.expose().contains('\0') => {
                arguments.push(text.expose().clone());
            }
            _ => return Err(refused()),
        }
    }
    if arguments.first().is_none_or(String::is_empty) {
        return Err(refused());
    }
    Ok(SecretSource::Command(arguments))
}

fn limits(fields: &Fields<'_>) -> Result<Limits, Problem> {
    let defaults = Limits::default();
    Ok(Limits {
        tcp: seconds(fields, "connect_timeout_s", defaults.tcp)?,
        banner: seconds(fields, "banner_timeout_s", defaults.banner)?,
        key_exchange: seconds(fields, "key_exchange_timeout_s", defaults.key_exchange)?,
        authentication: seconds(fields, "auth_timeout_s", defaults.authentication)?,
        keepalive_interval: seconds(fields, "keepalive_s", defaults.keepalive_interval)?,
        keepalive_max: keepalive_max(fields, defaults.keepalive_max)?,
    })
}

fn seconds(fields: &Fields<'_>, key: &str, default: Duration) -> Result<Duration, Problem> {
    match fields.number(key, WANTED_SECONDS)? {
        None => Ok(default),
        Some(number) if (SECONDS_MIN..=SECONDS_MAX).contains(&number) => {
            Ok(Duration::from_secs_f64(number))
        }
        Some(_) => Err(fields.problem(key, Fault::Wanted(WANTED_SECONDS))),
    }
}

fn keepalive_max(fields: &Fields<'_>, default: u32) -> Result<u32, Problem> {
    let key = "keepalive_max";
    let Some(number) = fields.whole(key, WANTED_KEEPALIVE_MAX)? else {
        return Ok(default);
    };
    match u32::try_from(number) {
        Ok(count) if (1..=100).contains(&count) => Ok(count),
        _ => Err(fields.problem(key, Fault::Wanted(WANTED_KEEPALIVE_MAX))),
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
