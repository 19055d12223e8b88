//! Puts the sources together: what each one says, and which one wins.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{self, UnknownKeys};
use super::fields::Fields;
use super::paths::variable;
use super::raw::{self, Node, Value};
use super::reference::KeyPlace;
use super::{
    Config, ConfigText, EntryPlace, Environment, Fault, Format, HostKeyPolicy, HostPattern, Origin,
    Place, Problem, SANDBOXES_MAX, SOURCE_MAX_BYTES, SandboxConfig, SandboxEntry, Sources,
    credentials, import, local, settings, surroundings, sync, watchdog,
};
use crate::ids::SandboxName;
use crate::secret::Secret;

const LIST: &str = "REMOTE_SANDBOX_LIST";
const HOST: &str = "REMOTE_HOST";

/// Makes the configuration; what is wrong in the sources is noted in it and never stops the rest.
pub fn resolve(sources: &Sources) -> Config {
    let mut config = Config::default();
    let environment = &sources.environment;
    let file = sources
        .file
        .as_ref()
        .map(|file| read_file(file, environment, &mut config))
        .unwrap_or_default();
    settings::read_environment(environment, &mut config.settings, &mut config.problems);
    let patterns = import::read_environment(environment);
    config.take_import(patterns);
    // The policy of the file holds for all entries, so the file's settings come before any entry.
    let policy = config.settings.host_key_policy;

    let list = match variable(environment, LIST).filter(|text| !text.trim().is_empty()) {
        Some(text) => read_list(text, &mut config),
        None => Some(Vec::new()),
    };
    let mut from_environment = match &list {
        // A list that cannot be read is not an empty list: the single variables stay out of it.
        None => Vec::new(),
        Some(nodes) if nodes.is_empty() => single_variables(environment, policy, &mut config),
        Some(nodes) => {
            let reader = Reader {
                origin: Origin::Variable(LIST),
                environment,
                unknown_keys: UnknownKeys::Note,
                policy,
            };
            reader.candidates(nodes, &mut config)
        }
    };
    let mut from_file = match &sources.file {
        Some(text) => {
            let reader = Reader {
                origin: Origin::File(text.path.clone()),
                environment,
                unknown_keys: UnknownKeys::Refuse,
                policy,
            };
            reader.candidates(&file, &mut config)
        }
        None => Vec::new(),
    };
    later_wins(&mut from_environment);
    later_wins(&mut from_file);
    merge(from_environment, from_file, &mut config);
    config
}

impl Config {
    fn take_import(&mut self, read: Result<Option<Vec<HostPattern>>, Problem>) {
        match read {
            Ok(Some(patterns)) => self.import_ssh_config = patterns,
            Ok(None) => {}
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// An entry on its way to the configuration.
struct Candidate {
    /// The name it claims; none when it has none or when another entry took it.
    name: Option<SandboxName>,
    place: Place,
    read: Result<SandboxConfig, Problem>,
}

impl Candidate {
    fn into_entry(self) -> SandboxEntry {
        match self.read {
            Ok(sandbox) => SandboxEntry::Ready(sandbox),
            Err(problem) => {
                let name = self
                    .place
                    .entry
                    .as_ref()
                    .and_then(|entry| entry.name.clone());
                SandboxEntry::Disabled {
                    name: name.unwrap_or_else(|| self.place.entry_text()),
                    problem,
                }
            }
        }
    }
}

/// What is the same for all entries of one source.
struct Reader<'a> {
    origin: Origin,
    environment: &'a Environment,
    unknown_keys: UnknownKeys,
    policy: HostKeyPolicy,
}

impl Reader<'_> {
    fn candidates(&self, nodes: &[Node], config: &mut Config) -> Vec<Candidate> {
        if nodes.len() > SANDBOXES_MAX {
            let place = Place::whole(self.origin.clone());
            config
                .problems
                .push(problem(place, Fault::TooManySandboxes));
        }
        let kept = nodes.iter().take(SANDBOXES_MAX).enumerate();
        kept.map(|(index, node)| self.candidate(index, node, &mut config.clear_secrets))
            .collect()
    }

    fn candidate(
        &self,
        index: usize,
        node: &Node,
        clear_secrets: &mut Vec<Secret<String>>,
    ) -> Candidate {
        let mut place = Place::whole(self.origin.clone());
        place.line = node.line;
        place.entry = Some(EntryPlace {
            index: Some(index),
            name: None,
        });
        let Value::Table(members) = &node.value else {
            let fault = Fault::Wanted("a table of keys and values");
            return Candidate {
                name: None,
                place: place.clone(),
                read: Err(problem(place, fault)),
            };
        };
        let fields = Fields {
            place,
            members,
            environment: self.environment,
            label: None,
        };
        candidate_of(fields, self.unknown_keys, self.policy, clear_secrets)
    }
}

fn candidate_of(
    mut fields: Fields<'_>,
    unknown_keys: UnknownKeys,
    policy: HostKeyPolicy,
    clear_secrets: &mut Vec<Secret<String>>,
) -> Candidate {
    let shown_name = entry::shown_name(&fields);
    if let Some(place) = &mut fields.place.entry {
        place.name = shown_name;
    }
    clear_secrets.extend(credentials::in_clear(&fields));
    clear_secrets.extend(surroundings::secret_values(&fields));
    Candidate {
        name: entry::claimed_name(&fields),
        read: entry::read(&fields, unknown_keys, policy),
        place: fields.place,
    }
}

/// The entries of the list variable; none when it cannot be read.
fn read_list(text: &str, config: &mut Config) -> Option<Vec<Node>> {
    let read = if text.len() > SOURCE_MAX_BYTES {
        Err(Fault::TooLarge)
    } else {
        raw::parse(text.as_bytes(), Format::Json)
    };
    let fault = match read {
        Ok(Node {
            value: Value::List(nodes),
            ..
        }) => return Some(nodes),
        Ok(_) => Fault::Wanted("a JSON array of sandboxes"),
        Err(fault) => fault,
    };
    let place = Place::whole(Origin::Variable(LIST));
    config.problems.push(problem(place, fault));
    None
}

/// The sandbox of `REMOTE_HOST` and its companions.
fn single_variables(
    environment: &Environment,
    policy: HostKeyPolicy,
    config: &mut Config,
) -> Vec<Candidate> {
    if variable(environment, HOST).is_none() {
        return Vec::new();
    }
    let keys = [
        "host",
        "port",
        "user",
        "password",
        "key_file",
        "key_passphrase",
    ];
    let members: Vec<_> = keys
        .into_iter()
        .filter_map(|key| {
            let text = variable(environment, &variable_of(key))?;
            let value = Value::Text(Secret::new(text.to_owned()));
            Some((key.to_owned(), Node { line: None, value }))
        })
        .collect();
    let mut place = Place::whole(Origin::Variable(HOST));
    place.entry = Some(EntryPlace {
        index: None,
        name: None,
    });
    let fields = Fields {
        place,
        members: &members,
        environment,
        label: Some(variable_of),
    };
    vec![candidate_of(
        fields,
        UnknownKeys::Note,
        policy,
        &mut config.clear_secrets,
    )]
}

fn variable_of(key: &str) -> String {
    format!("REMOTE_{}", key.to_ascii_uppercase())
}

/// Takes the settings of the file and gives back its entries.
fn read_file(file: &ConfigText, environment: &Environment, config: &mut Config) -> Vec<Node> {
    let place = Place::whole(Origin::File(file.path.clone()));
    let read = if file.text.len() > SOURCE_MAX_BYTES {
        Err(Fault::TooLarge)
    } else {
        raw::parse(&file.text, file.format)
    };
    let members = match read.map(|node| node.value) {
        Ok(Value::Table(members)) => members,
        // A file may hold just the list that the variable would hold.
        Ok(Value::List(nodes)) => return nodes,
        Ok(_) => {
            let fault = Fault::Wanted("a table with `sandboxes`, or a list of sandboxes");
            config.problems.push(problem(place, fault));
            return Vec::new();
        }
        Err(fault) => {
            config.problems.push(problem(place, fault));
            return Vec::new();
        }
    };
    let fields = Fields {
        place,
        members: &members,
        environment,
        label: None,
    };
    settings::read_file(&fields, &mut config.settings, &mut config.problems);
    config.take_import(import::read_file(&fields));
    config.local = local::read_file(&fields, &mut config.problems, &mut config.clear_secrets);
    config.sync = sync::read_file(&fields, &mut config.problems);
    let clear_secrets = &mut config.clear_secrets;
    config.watchdog = watchdog::read_file(&fields, &mut config.problems, clear_secrets);
    config.settings.watchdog = config.watchdog.enabled.unwrap_or(true);
    config
        .problems
        .extend(fields.unknown_keys(KeyPlace::TopLevel));
    for key in ["sandbox", "sandboxes"] {
        if !matches!(fields.value(key), None | Some(Value::List(_))) {
            let fault = Fault::Wanted("a list of sandboxes ([[sandbox]] in TOML)");
            config.problems.push(fields.problem(key, fault));
        }
    }
    members
        .into_iter()
        .filter(|(key, _)| key == "sandbox" || key == "sandboxes")
        .filter_map(|(_, node)| match node.value {
            Value::List(nodes) => Some(nodes),
            _ => None,
        })
        .flatten()
        .collect()
}

/// Of entries with one name in one source the last counts, even when it is broken:
/// a command must not go to a host that somebody meant to replace.
fn later_wins(candidates: &mut [Candidate]) {
    let mut taken = BTreeSet::new();
    for candidate in candidates.iter_mut().rev() {
        let Some(name) = candidate.name.take() else {
            continue;
        };
        if taken.insert(name.clone()) {
            candidate.name = Some(name);
        } else {
            candidate.read = Err(problem(candidate.place.clone(), Fault::Replaced));
        }
    }
}

fn merge(mut winners: Vec<Candidate>, from_file: Vec<Candidate>, config: &mut Config) {
    let by_name: BTreeMap<_, _> = winners
        .iter()
        .enumerate()
        .filter_map(|(index, winner)| Some((winner.name.clone()?, index)))
        .collect();
    let file = from_file.first().map(|first| first.place.origin.clone());
    for mut candidate in from_file {
        let winner = candidate
            .name
            .as_ref()
            .and_then(|name| by_name.get(name))
            .and_then(|index| winners.get_mut(*index));
        match winner {
            None => winners.push(candidate),
            Some(Candidate {
                read: Ok(sandbox), ..
            }) => sandbox.notes.push(format!(
                "the entry with this name in {} is not used",
                candidate.place.entry_text()
            )),
            Some(winner) => {
                let fault = Fault::Shadowed {
                    winner: winner.place.entry_text(),
                };
                candidate.read = Err(problem(candidate.place.clone(), fault));
                winners.push(candidate);
            }
        }
    }
    // Each source is bounded on its own; only both together can still be too many.
    if let Some(origin) = file.filter(|_| winners.len() > SANDBOXES_MAX) {
        winners.truncate(SANDBOXES_MAX);
        let fault = Fault::TooManySandboxes;
        config.problems.push(problem(Place::whole(origin), fault));
    }
    config.sandboxes = winners.into_iter().map(Candidate::into_entry).collect();
}

fn problem(place: Place, fault: Fault) -> Problem {
    Problem {
        place: Box::new(place),
        fault,
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
