//! Reads the table `[watchdog]`: what callers may have done at events, and who else is told of them.

use super::fields::Fields;
use super::raw::{Node, Value};
use super::reference::KeyPlace;
use super::{Fault, Place, Problem, SecretSource, credentials};
use crate::secret::Secret;
use crate::watch::{AllowEvents, EventPolicy, EventType, HostPort, NotifierKind, WebAddress};

const TABLE: &str = "watchdog";
const COMMANDS_MAX: usize = 64;
const COMMAND_MAX_BYTES: usize = 16 * 1024;
const HOSTS_MAX: usize = 64;
const NOTIFIERS_MAX: usize = 32;

const WANTED_TABLE: &str = "a table ([watchdog] in TOML); until then callers may name nothing";
const WANTED_ALLOW: &str = "\"config-only\" or \"any\"; until then it counts as \"config-only\"";
const WANTED_COMMANDS: &str = "a command or a list of at most 64 commands, each of at most 16 KiB; until then none is allowed";
const WANTED_HOSTS: &str = "a host or a list of at most 64 hosts, such as \"hooks.example.org\" or \"localhost:8080\"; until then none is allowed";
const WANTED_NOTIFIERS: &str =
    "a list of at most 32 tables ([[watchdog.notifiers]] in TOML); until then there is none";
const WANTED_NAME: &str = "1 to 64 letters, digits, `.`, `_` or `-`, and no other notifier's name";
const WANTED_KIND: &str = "one of \"ntfy\", \"slack\", \"feishu\", \"dingtalk\", \"wecom\"";
const WANTED_URL: &str = "an address that begins with https:// or http:// and names a host";
const WANTED_EVENTS: &str = "a type of events or a list of them, such as \"completed\"";
const WANTED_NO_SECRET: &str = "left out: this service has no secret besides its address";

/// Secrets of the table itself and of a notifier, each with one key per source.
const WEBHOOK_SECRET: &str = "webhook_secret";
const NOTIFIER_SECRETS: [&str; 2] = ["url", "secret"];

/// What holds for all watches.
#[derive(Debug, Clone, Default)]
pub struct WatchdogSettings {
    /// Whether the user wants no watchdog; nothing when that was not said.
    pub enabled: Option<bool>,
    /// What callers may have done at events.
    pub policy: EventPolicy,
    /// With what events are signed that are posted.
    pub signing: Signing,
    /// Who is told of every event.
    pub notifiers: Vec<Notifier>,
}

impl WatchdogSettings {
    /// Where its secrets come from.
    pub fn secret_sources(&self) -> impl Iterator<Item = &SecretSource> {
        let own = match &self.signing {
            Signing::With(source) => Some(source),
            Signing::Off | Signing::Broken => None,
        };
        let notifiers = self.notifiers.iter();
        let theirs = notifiers.flat_map(|notifier| [Some(&notifier.url), notifier.secret.as_ref()]);
        own.into_iter().chain(theirs.flatten())
    }
}

/// With what events are signed that are posted.
#[derive(Debug, Clone, Default)]
pub enum Signing {
    /// They are not.
    #[default]
    Off,
    /// With this secret.
    With(SecretSource),
    /// Somebody wanted it, and what was written cannot be used: nothing is posted unsigned instead.
    Broken,
}

/// A service that is told of events.
#[derive(Debug, Clone)]
pub struct Notifier {
    /// The name by which it is called.
    pub name: String,
    /// Which service it is.
    pub kind: NotifierKind,
    /// Its address, which is a secret of its own with most services.
    pub url: SecretSource,
    /// What else proves who we are.
    pub secret: Option<SecretSource>,
    /// Which events it is told; all when nothing was said.
    pub events: Option<Vec<EventType>>,
}

impl Notifier {
    /// Whether it is told of such an event.
    pub fn wants(&self, event: EventType) -> bool {
        self.events
            .as_ref()
            .is_none_or(|events| events.contains(&event))
    }
}

/// Takes the table out of the file's top. A slip of the pen must not allow more than was meant.
pub(super) fn read_file(
    top: &Fields<'_>,
    problems: &mut Vec<Problem>,
    clear_secrets: &mut Vec<Secret<String>>,
) -> WatchdogSettings {
    let fields = match top.table(TABLE, label, WANTED_TABLE) {
        Ok(Some(fields)) => fields,
        Ok(None) => return WatchdogSettings::default(),
        Err(problem) => {
            problems.push(problem);
            return WatchdogSettings {
                signing: Signing::Broken,
                ..WatchdogSettings::default()
            };
        }
    };
    problems.extend(fields.unknown_keys(KeyPlace::Watchdog));
    clear_secrets.extend(credentials::in_clear_of(&fields, &[WEBHOOK_SECRET]));
    let mut keep = Keep(problems);
    WatchdogSettings {
        enabled: keep.or_default(fields.flag("enabled")),
        policy: EventPolicy {
            allow: keep.or_default(allow(&fields)),
            commands: keep.or_default(commands(&fields)),
            webhook_hosts: keep.or_default(hosts(&fields)),
        },
        signing: match credentials::read(&fields, WEBHOOK_SECRET) {
            Ok(None) => Signing::Off,
            Ok(Some(source)) => Signing::With(source),
            Err(problem) => {
                keep.0.push(problem);
                Signing::Broken
            }
        },
        notifiers: notifiers(&fields, keep.0, clear_secrets),
    }
}

fn label(key: &str) -> String {
    format!("{TABLE}.{key}")
}

fn notifier_label(key: &str) -> String {
    format!("{TABLE}.notifiers.{key}")
}

/// Where wrong keys are noted.
struct Keep<'a>(&'a mut Vec<Problem>);

impl Keep<'_> {
    fn or_default<T: Default>(&mut self, read: Result<T, Problem>) -> T {
        read.unwrap_or_else(|problem| {
            self.0.push(problem);
            T::default()
        })
    }
}

fn allow(fields: &Fields<'_>) -> Result<AllowEvents, Problem> {
    let key = "allow_event_command";
    match fields.text(key)? {
        None => Ok(AllowEvents::default()),
        Some(text) => {
            AllowEvents::parse(text).ok_or_else(|| fields.problem(key, Fault::Wanted(WANTED_ALLOW)))
        }
    }
}

fn commands(fields: &Fields<'_>) -> Result<Vec<String>, Problem> {
    let key = "event_commands";
    let commands = fields.texts(key, WANTED_COMMANDS)?.unwrap_or_default();
    let is_wrong = |command: &&str| {
        command.trim().is_empty() || command.contains('\0') || command.len() > COMMAND_MAX_BYTES
    };
    if commands.len() > COMMANDS_MAX || commands.iter().any(is_wrong) {
        return Err(fields.problem(key, Fault::Wanted(WANTED_COMMANDS)));
    }
    Ok(commands.into_iter().map(str::to_owned).collect())
}

fn hosts(fields: &Fields<'_>) -> Result<Vec<HostPort>, Problem> {
    let key = "webhook_hosts";
    let wanted = || fields.problem(key, Fault::Wanted(WANTED_HOSTS));
    let hosts = fields.texts(key, WANTED_HOSTS)?.unwrap_or_default();
    if hosts.len() > HOSTS_MAX {
        return Err(wanted());
    }
    let read = hosts.into_iter().map(HostPort::parse);
    read.collect::<Result<_, _>>().map_err(|_| wanted())
}

fn notifiers(
    fields: &Fields<'_>,
    problems: &mut Vec<Problem>,
    clear_secrets: &mut Vec<Secret<String>>,
) -> Vec<Notifier> {
    let key = "notifiers";
    let nodes = match fields.value(key) {
        None => return Vec::new(),
        Some(Value::List(nodes)) if nodes.len() <= NOTIFIERS_MAX => nodes,
        Some(_) => {
            problems.push(fields.problem(key, Fault::Wanted(WANTED_NOTIFIERS)));
            return Vec::new();
        }
    };
    let mut notifiers: Vec<Notifier> = Vec::new();
    for node in nodes {
        let Some(entry) = entry(fields, node) else {
            problems.push(fields.problem(key, Fault::Wanted(WANTED_NOTIFIERS)));
            continue;
        };
        problems.extend(entry.unknown_keys(KeyPlace::Notifier));
        clear_secrets.extend(credentials::in_clear_of(&entry, &NOTIFIER_SECRETS));
        match notifier(&entry, &notifiers) {
            Ok(notifier) => {
                clear_secrets.extend(tokens(&notifier));
                notifiers.push(notifier);
            }
            Err(problem) => problems.push(problem),
        }
    }
    notifiers
}

fn entry<'a>(fields: &Fields<'a>, node: &'a Node) -> Option<Fields<'a>> {
    let Value::Table(members) = &node.value else {
        return None;
    };
    Some(Fields {
        place: Place {
            line: node.line.or(fields.place.line),
            key: Some(label("notifiers")),
            ..fields.place.clone()
        },
        members,
        environment: fields.environment,
        label: Some(notifier_label),
    })
}

fn notifier(fields: &Fields<'_>, others: &[Notifier]) -> Result<Notifier, Problem> {
    let wanted = |key: &str, wanted| fields.problem(key, Fault::Wanted(wanted));
    let name = fields.required_text("name")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_taken = others.iter().any(|other| other.name == name);
    if name.len() > 64 || !name.bytes().all(is_plain) || is_taken {
        return Err(wanted("name", WANTED_NAME));
    }
    let kind = NotifierKind::parse(fields.required_text("kind")?);
    let kind = kind.ok_or_else(|| wanted("kind", WANTED_KIND))?;
    let url = credentials::read(fields, "url")?;
    let url = url.ok_or_else(|| fields.problem("url", Fault::Required))?;
    if let SecretSource::Clear(text) = &url
        && WebAddress::parse(text.expose()).is_err()
    {
        return Err(wanted("url", WANTED_URL));
    }
    let secret = credentials::read(fields, "secret")?;
    if secret.is_some() && !kind.takes_secret() {
        return Err(wanted("secret", WANTED_NO_SECRET));
    }
    let events = fields.texts("events", WANTED_EVENTS)?;
    let events = events.map(|words| words.into_iter().map(EventType::parse).collect());
    let events = match events {
        None => None,
        Some(Some(events)) => Some(events),
        Some(None) => return Err(wanted("events", WANTED_EVENTS)),
    };
    Ok(Notifier {
        name: name.to_owned(),
        kind,
        url,
        secret,
        events,
    })
}

/// The parts of an address that are the secret in it: they must be masked also where they stand alone.
fn tokens(notifier: &Notifier) -> Vec<Secret<String>> {
    let SecretSource::Clear(text) = &notifier.url else {
        return Vec::new();
    };
    let Ok(address) = WebAddress::parse(text.expose()) else {
        return Vec::new();
    };
    let parts = notifier.kind.tokens(&address);
    let parts = std::iter::once(address.target()).chain(parts);
    parts.map(|part| Secret::new(part.to_owned())).collect()
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
mod tests;
