//! Reads typed values out of one table and says exactly where something is wrong.

use std::path::PathBuf;

use super::paths::{self, HomeError};
use super::problem::shown;
use super::raw::{Node, Value};
use super::reference::{self, KeyPlace};
use super::{Environment, Fault, Place, Problem};

pub(super) const WANTED_TEXT: &str = "text in quotes";
const WANTED_FLAG: &str = "true or false";
const UNKNOWN_KEYS_NOTED: usize = 20;

/// One table, the place it stands at, and what is needed to understand its values.
pub(super) struct Fields<'a> {
    pub(super) place: Place,
    pub(super) members: &'a [(String, Node)],
    pub(super) environment: &'a Environment,
    /// What to call a key in a message, where its name alone would not tell.
    pub(super) label: Option<fn(&str) -> String>,
}

impl<'a> Fields<'a> {
    /// Makes a problem with a key, at the line of the key where known.
    pub(super) fn problem(&self, key: &str, fault: Fault) -> Problem {
        let mut place = self.place.clone();
        place.key = Some(
            self.label
                .map_or_else(|| key.to_owned(), |label| label(key)),
        );
        if let Some(line) = self.node(key).and_then(|node| node.line) {
            place.line = Some(line);
        }
        Problem {
            place: Box::new(place),
            fault,
        }
    }

    /// Makes a problem with the table as a whole.
    pub(super) fn problem_here(&self, fault: Fault) -> Problem {
        Problem {
            place: Box::new(self.place.clone()),
            fault,
        }
    }

    fn node(&self, key: &str) -> Option<&'a Node> {
        // Nothing and empty text count as absent, as they do for variables.
        self.members
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
            .filter(|node| match &node.value {
                Value::Nothing => false,
                Value::Text(text) => !text.expose().is_empty(),
                _ => true,
            })
    }

    /// The value of a key, when it is present.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.node(key).map(|node| &node.value)
    }

    /// The table of a key, when it is present; `label` says what its keys are called in messages.
    pub(super) fn table(
        &self,
        key: &str,
        label: fn(&str) -> String,
        wanted: &'static str,
    ) -> Result<Option<Fields<'a>>, Problem> {
        match self.node(key) {
            None => Ok(None),
            Some(Node {
                line,
                value: Value::Table(members),
            }) => Ok(Some(Fields {
                place: Place {
                    line: line.or(self.place.line),
                    key: Some(key.to_owned()),
                    ..self.place.clone()
                },
                members,
                environment: self.environment,
                label: Some(label),
            })),
            Some(_) => Err(self.problem(key, Fault::Wanted(wanted))),
        }
    }

    /// A problem for each key that nobody reads, up to a bound.
    pub(super) fn unknown_keys(&self, place: KeyPlace) -> Vec<Problem> {
        let unknown = self
            .members
            .iter()
            .filter(|(key, _)| !reference::is_known(place, key));
        unknown
            .take(UNKNOWN_KEYS_NOTED)
            .map(|(key, node)| {
                let mut problem = self.problem_here(Fault::UnknownKey {
                    key: shown(key),
                    known: reference::known_keys(place),
                });
                problem.place.line = node.line.or(problem.place.line);
                problem
            })
            .collect()
    }

    /// The text of a key.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Problem> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.expose())),
            Some(_) => Err(self.problem(key, Fault::Wanted(WANTED_TEXT))),
        }
    }

    /// The text of a key that must be there.
    pub(super) fn required_text(&self, key: &str) -> Result<&'a str, Problem> {
        self.text(key)?
            .ok_or_else(|| self.problem(key, Fault::Required))
    }

    /// One text or a list of texts, none of them empty; none when the key is absent.
    pub(super) fn texts(
        &self,
        key: &str,
        wanted: &'static str,
    ) -> Result<Option<Vec<&'a str>>, Problem> {
        let items = match self.value(key) {
            None => return Ok(None),
            Some(Value::Text(text)) => return Ok(Some(vec![text.expose()])),
            Some(Value::List(items)) => items.as_slice(),
            Some(_) => return Err(self.problem(key, Fault::Wanted(wanted))),
        };
        let texts: Option<Vec<_>> = items
            .iter()
            .map(|item| match &item.value {
                Value::Text(text) if !text.expose().is_empty() => Some(text.expose().as_str()),
                _ => None,
            })
            .collect();
        match texts {
            Some(texts) => Ok(Some(texts)),
            None => Err(self.problem(key, Fault::Wanted(wanted))),
        }
    }

    /// True or false.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.problem(key, Fault::Wanted(WANTED_FLAG))),
        }
    }

    /// A whole number, also when it is written as text.
    pub(super) fn whole(&self, key: &str, wanted: &'static str) -> Result<Option<i64>, Problem> {
        let number = match self.value(key) {
            None => return Ok(None),
            Some(Value::Whole(number)) => Some(*number),
            Some(Value::Text(text)) => text.expose().trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.problem(key, Fault::Wanted(wanted))),
        }
    }

    /// A number that may have a fraction, also when it is written as text.
    pub(super) fn number(&self, key: &str, wanted: &'static str) -> Result<Option<f64>, Problem> {
        let number = match self.value(key) {
            None => return Ok(None),
            Some(Value::Whole(number)) => Some(*number as f64),
            Some(Value::Fraction(number)) => Some(*number),
            Some(Value::Text(text)) => text.expose().trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.problem(key, Fault::Wanted(wanted))),
        }
    }

    /// A path, made absolute with the home directory.
    pub(super) fn path(&self, key: &str) -> Result<Option<PathBuf>, Problem> {
        self.text(key)?
            .map(|text| self.absolute(key, text))
            .transpose()
    }

    /// One path or a list of paths.
    pub(super) fn paths(&self, key: &str) -> Result<Vec<PathBuf>, Problem> {
        let wanted = || self.problem(key, Fault::Wanted("a path or a list of paths"));
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(Value::Text(text)) => Ok(vec![self.absolute(key, text.expose())?]),
            Some(Value::List(items)) => items
                .iter()
                .map(|item| match &item.value {
                    Value::Text(text) if !text.expose().is_empty() => {
                        self.absolute(key, text.expose())
                    }
                    _ => Err(wanted()),
                })
                .collect(),
            Some(_) => Err(wanted()),
        }
    }

    fn absolute(&self, key: &str, text: &str) -> Result<PathBuf, Problem> {
        if text.chars().any(char::is_control) {
            return Err(self.problem(key, Fault::Wanted("a path without control characters")));
        }
        paths::absolute(text, self.environment).map_err(|error| {
            let fault = match error {
                HomeError::Unknown => Fault::NoHome,
                HomeError::OtherUser => Fault::OtherHome,
            };
            self.problem(key, fault)
        })
    }
}
