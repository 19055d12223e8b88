//! What every command in a sandbox finds, whoever starts it.

use std::borrow::Cow;
use std::fmt;

use super::fields::Fields;
use super::problem::shown;
use super::raw::{Node, Value};
use super::{Fault, Problem};
use crate::secret::{SHORTEST_MASKED_CHARS, Secret};
use crate::shell::{EnvironmentName, ShellProgram};

const VARIABLES_MAX: usize = 256;
const TEXT_MAX_BYTES: usize = 64 * 1024;
const WORKDIR_MAX_BYTES: usize = 4096;
const TAGS_MAX: usize = 32;
const TAG_MAX_CHARS: usize = 64;
const WANTED_VARIABLES: &str = "a table of at most 256 names and values";
const WANTED_VALUE: &str = "text of at most 64 KiB without NUL, a whole number, or true or false; write a fraction as text in quotes";
const WANTED_INIT: &str = "text of at most 64 KiB without NUL";
const WANTED_WORKDIR: &str = "a directory: at most 4096 bytes, without control characters";
const WANTED_SHELL: &str = "the name of a shell or its absolute path, without arguments";
const WANTED_TAGS: &str = "at most 32 tags, each of 1 to 64 letters, digits, `.`, `_` or `-`";

/// Words in the name of a variable whose value nobody wants to see in output.
const SECRET_WORDS: [&str; 9] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "API_KEY",
    "APIKEY",
    "CREDENTIAL",
    "ACCESS_KEY",
    "PRIVATE_KEY",
];

/// Environment, start-up snippet, directory and shell of a sandbox.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Environment variables; those of a call come after them.
    pub variables: Vec<(EnvironmentName, String)>,
    /// Shell text that runs before each command, in the command's own shell.
    pub init: Option<String>,
    /// The directory for commands that name none.
    pub workdir: Option<String>,
    /// The shell for commands that name none.
    pub shell: Option<ShellProgram>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables and start-up snippets often hold API keys.
        let names: Vec<_> = self
            .variables
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        formatter
            .debug_struct("Surroundings")
            .field("variables", &names)
            .field("init_bytes", &self.init.as_ref().map(String::len))
            .field("workdir", &self.workdir)
            .field("shell", &self.shell)
            .finish()
    }
}

/// What an entry says about the surroundings of its commands.
pub(super) fn read(fields: &Fields<'_>) -> Result<Surroundings, Problem> {
    Ok(Surroundings {
        variables: variables(fields)?,
        init: init(fields)?,
        workdir: workdir(fields)?,
        shell: shell(fields)?,
    })
}

/// The same, but a key or variable that is wrong is noted and takes nothing else with it.
pub(super) fn read_usable(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Surroundings {
    let members = usable(variable_members(fields), problems);
    let variables = members
        .iter()
        .filter_map(|(name, node)| usable(read_variable(fields, name, node), problems))
        .collect();
    Surroundings {
        variables,
        init: usable(init(fields), problems),
        workdir: usable(workdir(fields), problems),
        shell: usable(shell(fields), problems),
    }
}

fn usable<T: Default>(read: Result<T, Problem>, problems: &mut Vec<Problem>) -> T {
    read.unwrap_or_else(|problem| {
        problems.push(problem);
        T::default()
    })
}

/// The words by which the sandbox can be chosen, each once.
pub(super) fn tags(fields: &Fields<'_>) -> Result<Vec<String>, Problem> {
    let key = "tags";
    let texts = fields.texts(key, WANTED_TAGS)?.unwrap_or_default();
    let plain =
        |character: char| character.is_alphanumeric() || matches!(character, '.' | '_' | '-');
    let mut tags: Vec<String> = Vec::new();
    for text in texts {
        let length = text.chars().count();
        if !(1..=TAG_MAX_CHARS).contains(&length) || !text.chars().all(plain) {
            return Err(fields.problem(key, Fault::Wanted(WANTED_TAGS)));
        }
        if tags.iter().any(|known| known == text) {
            continue;
        }
        if tags.len() == TAGS_MAX {
            return Err(fields.problem(key, Fault::Wanted(WANTED_TAGS)));
        }
        tags.push(text.to_owned());
    }
    Ok(tags)
}

/// The values that must not be shown, told by the names of their variables.
pub(super) fn secret_values(fields: &Fields<'_>) -> Vec<Secret<String>> {
    let Some(Value::Table(members)) = fields.value("env") else {
        return Vec::new();
    };
    members
        .iter()
        .filter(|(name, _)| names_a_secret(name))
        .filter_map(|(_, node)| value_text(node))
        .filter(|text| text.chars().count() >= SHORTEST_MASKED_CHARS)
        .map(|text| Secret::new(text.into_owned()))
        .collect()
}

/// Whether the name of a variable says that its value is nobody's business.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

fn variables(fields: &Fields<'_>) -> Result<Vec<(EnvironmentName, String)>, Problem> {
    let members = variable_members(fields)?;
    members
        .iter()
        .filter_map(|(name, node)| read_variable(fields, name, node).transpose())
        .collect()
}

fn variable_members<'a>(fields: &Fields<'a>) -> Result<&'a [(String, Node)], Problem> {
    let key = "env";
    match fields.value(key) {
        None => Ok(&[]),
        Some(Value::Table(members)) if members.len() <= VARIABLES_MAX => Ok(members),
        Some(_) => Err(fields.problem(key, Fault::Wanted(WANTED_VARIABLES))),
    }
}

/// One variable, none when it has no value.
fn read_variable(
    fields: &Fields<'_>,
    name: &str,
    node: &Node,
) -> Result<Option<(EnvironmentName, String)>, Problem> {
    if matches!(node.value, Value::Nothing) {
        return Ok(None);
    }
    match variable(name, node) {
        Ok(variable) => Ok(Some(variable)),
        Err(fault) => Err(at(fields, name, node, fault)),
    }
}

fn variable(name: &str, node: &Node) -> Result<(EnvironmentName, String), Fault> {
    let name = EnvironmentName::parse(name).map_err(|_| Fault::VariableName)?;
    match value_text(node) {
        Some(text) if is_carried(&text) => Ok((name, text.into_owned())),
        _ => Err(Fault::Wanted(WANTED_VALUE)),
    }
}

/// A fraction is not taken: 3.10 would arrive as 3.1.
fn value_text(node: &Node) -> Option<Cow<'_, str>> {
    match &node.value {
        Value::Text(text) => Some(Cow::Borrowed(text.expose())),
        Value::Whole(number) => Some(Cow::Owned(number.to_string())),
        Value::Flag(flag) => Some(Cow::Owned(flag.to_string())),
        _ => None,
    }
}

fn at(fields: &Fields<'_>, name: &str, node: &Node, fault: Fault) -> Problem {
    let mut problem = fields.problem("env", fault);
    if let Some(key) = &mut problem.place.key {
        key.push('.');
        key.push_str(&shown(name));
    }
    problem.place.line = node.line.or(problem.place.line);
    problem
}

fn is_carried(text: &str) -> bool {
    text.len() <= TEXT_MAX_BYTES && !text.contains('\0')
}

fn init(fields: &Fields<'_>) -> Result<Option<String>, Problem> {
    let key = "init";
    match fields.text(key)? {
        Some(text) if !is_carried(text) => Err(fields.problem(key, Fault::Wanted(WANTED_INIT))),
        text => Ok(text.map(str::to_owned)),
    }
}

fn workdir(fields: &Fields<'_>) -> Result<Option<String>, Problem> {
    let key = "workdir";
    let Some(text) = fields.text(key)? else {
        return Ok(None);
    };
    if text.len() > WORKDIR_MAX_BYTES || text.chars().any(char::is_control) {
        return Err(fields.problem(key, Fault::Wanted(WANTED_WORKDIR)));
    }
    match text.strip_prefix('~') {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => {
            Err(fields.problem(key, Fault::OtherHome))
        }
        _ => Ok(Some(text.to_owned())),
    }
}

fn shell(fields: &Fields<'_>) -> Result<Option<ShellProgram>, Problem> {
    let key = "shell";
    fields
        .text(key)?
        .map(ShellProgram::parse)
        .transpose()
        .map_err(|_| fields.problem(key, Fault::Wanted(WANTED_SHELL)))
}

#[cfg(test)]
#[path = "surroundings_tests.rs"]
mod tests;
