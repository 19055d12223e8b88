//! Reads where the secrets of an entry come from.

use super::fields::Fields;
use super::paths::variable;
use super::problem::shown;
use super::raw::Value;
use super::{Fault, Problem, SecretSource};
use crate::secret::{Secret, SecretName};

const WANTED_VARIABLE: &str = "the name of an environment variable";
const WANTED_STORED: &str = "the name of a kept secret: 1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter or digit";

/// What an entry may keep secret; each has one key per source.
const SECRETS: [&str; 2] = ["password", "key_passphrase"];

/// Where one secret of an entry comes from, when it is given.
pub(super) fn read(fields: &Fields<'_>, secret: &str) -> Result<Option<SecretSource>, Problem> {
    let [clear, from_environment, printed, stored] = keys(secret);
    let given: Vec<_> = [&clear, &from_environment, &printed, &stored]
        .into_iter()
        .filter(|key| fields.value(key).is_some())
        .collect();
    match given.as_slice() {
        [] => Ok(None),
        [only] if **only == from_environment => from_variable(fields, only).map(Some),
        [only] if **only == printed => command(fields, only).map(Some),
        [only] if **only == stored => kept(fields, only).map(Some),
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

/// The keys that name the sources of a secret.
fn keys(secret: &str) -> [String; 4] {
    ["", "_env", "_command", "_secret"].map(|source| format!("{secret}{source}"))
}

/// Refuses every secret: the system's `ssh` takes none from us, and one that is given would be forgotten silently.
pub(super) fn refuse(fields: &Fields<'_>) -> Result<(), Problem> {
    let mut all = SECRETS.into_iter().flat_map(keys);
    match all.find(|key| fields.value(key).is_some()) {
        Some(key) => Err(fields.problem(&key, Fault::OpenSshLogsIn)),
        None => Ok(()),
    }
}

/// Every secret that stands in an entry, whether or not the entry is usable.
pub(super) fn in_clear(fields: &Fields<'_>) -> Vec<Secret<String>> {
    in_clear_of(fields, &SECRETS)
}

/// The same for a table with other secrets.
pub(super) fn in_clear_of(fields: &Fields<'_>, secrets_of: &[&str]) -> Vec<Secret<String>> {
    let mut secrets = Vec::new();
    for key in secrets_of {
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

fn kept(fields: &Fields<'_>, key: &str) -> Result<SecretSource, Problem> {
    // As with variables: what cannot be a name may be the secret itself.
    SecretName::parse(fields.required_text(key)?)
        .map(SecretSource::Stored)
        .map_err(|_| fields.problem(key, Fault::Wanted(WANTED_STORED)))
}
