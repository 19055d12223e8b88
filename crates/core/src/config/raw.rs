//! One small value type for both languages, so that every rule is written once.

use serde_json::Value as JsonValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Fault, Format};
use crate::secret::Secret;

/// A value and the line it is written on, where the language tells.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: Option<usize>,
    pub(super) value: Value,
}

/// What somebody wrote; texts are secrets until a rule says otherwise.
#[derive(Debug)]
pub(super) enum Value {
    Nothing,
    Flag(bool),
    Whole(i64),
    Fraction(f64),
    Text(Secret<String>),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
    /// A value no rule ever wants, such as a date.
    Foreign,
}

/// Reads a text in the given language.
pub(super) fn parse(text: &[u8], format: Format) -> Result<Node, Fault> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = std::str::from_utf8(text).map_err(|error| {
        let good = text.get(..error.valid_up_to()).unwrap_or_default();
        Fault::NotUtf8 {
            line: Lines::new(good).position(good.len()).0,
        }
    })?;
    match format {
        Format::Json => parse_json(text),
        Format::Toml => parse_toml(text),
    }
}

fn parse_json(text: &str) -> Result<Node, Fault> {
    // Only the position is taken from the error: its message may quote the text.
    let value: JsonValue = serde_json::from_str(text).map_err(|error| Fault::Syntax {
        format: Format::Json,
        line: error.line(),
        column: error.column(),
    })?;
    Ok(from_json(value))
}

/// Depth is bounded by the parser, so the recursion is too.
fn from_json(value: JsonValue) -> Node {
    let value = match value {
        JsonValue::Null => Value::Nothing,
        JsonValue::Bool(flag) => Value::Flag(flag),
        JsonValue::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::Whole(whole),
            (None, Some(fraction)) => Value::Fraction(fraction),
            (None, None) => Value::Foreign,
        },
        JsonValue::String(text) => Value::Text(Secret::new(text)),
        JsonValue::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        JsonValue::Object(members) => Value::Table(
            members
                .into_iter()
                .map(|(key, value)| (key, from_json(value)))
                .collect(),
        ),
    };
    Node { line: None, value }
}

fn parse_toml(text: &str) -> Result<Node, Fault> {
    let lines = Lines::new(text.as_bytes());
    match DeTable::parse(text) {
        Ok(table) => Ok(Node {
            line: Some(1),
            value: from_toml_table(table.get_ref(), &lines),
        }),
        Err(error) => {
            let (line, column) = lines.position(error.span().map_or(0, |span| span.start));
            Err(Fault::Syntax {
                format: Format::Toml,
                line,
                column,
            })
        }
    }
}

fn from_toml_table(table: &DeTable<'_>, lines: &Lines) -> Value {
    let members = table.iter().map(|(key, value)| {
        let node = Node {
            line: Some(lines.position(key.span().start).0),
            value: from_toml(value, lines).value,
        };
        (key.get_ref().to_string(), node)
    });
    Value::Table(members.collect())
}

/// Depth is bounded by the parser, so the recursion is too.
fn from_toml(value: &Spanned<DeValue<'_>>, lines: &Lines) -> Node {
    let line = Some(lines.position(value.span().start).0);
    let value = match value.get_ref() {
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Foreign, Value::Whole),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or(Value::Foreign, Value::Fraction),
        DeValue::String(text) => Value::Text(Secret::new(text.to_string())),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| from_toml(item, lines)).collect())
        }
        DeValue::Table(table) => from_toml_table(table, lines),
        DeValue::Datetime(_) => Value::Foreign,
    };
    Node { line, value }
}

/// The places where lines begin, to tell a position without reading the text again each time.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &[u8]) -> Self {
        let breaks = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        Self(breaks.map(|(index, _)| index + 1).collect())
    }

    /// Line and column, both counted from one; the column in bytes.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.0.partition_point(|start| *start <= offset);
        let start = before
            .checked_sub(1)
            .and_then(|index| self.0.get(index))
            .copied()
            .unwrap_or(0);
        (before + 1, offset - start + 1)
    }
}
