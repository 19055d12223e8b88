//! Decodes a call's arguments; every error names the field and what it should be.

use remote_sandbox_core::failure::{Code, Failure};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::schema::{NUMBER_TOO, UNLISTED};

/// Decodes arguments against a schema, taking numbers and booleans that came as text.
pub(super) fn decode<T: DeserializeOwned>(
    tool: &str,
    schema: &Map<String, Value>,
    mut arguments: Map<String, Value>,
) -> Result<T, Failure> {
    let known = schema.get("properties").and_then(Value::as_object);
    let names: Vec<String> = known
        .map(|known| known.keys().cloned().collect())
        .unwrap_or_default();
    for (name, value) in &mut arguments {
        let Some(property) = known.and_then(|known| known.get(name)) else {
            return Err(unknown_field(tool, name, names));
        };
        if let Some(wanted) = property.get("type").and_then(Value::as_str) {
            if property.get(NUMBER_TOO).is_some() && value.is_number() {
                *value = Value::String(value.to_string());
            }
            coerce(wanted, value);
            check_type(tool, name, wanted, value, usage(tool, schema))?;
        }
    }
    // A null stands for "not given".
    arguments.retain(|_, value| !value.is_null());
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if name
            .as_str()
            .is_some_and(|name| !arguments.contains_key(name))
        {
            let text = format!(
                "{tool} needs the field `{}`",
                name.as_str().unwrap_or_default()
            );
            return Err(Failure::new(Code::InvalidParams, text).hint(usage(tool, schema)));
        }
    }
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner().to_string());
        let text = format!(
            "{tool}: the field `{}` is wrong: {}",
            clip(&path),
            clip(&inner)
        );
        Failure::new(Code::InvalidParams, text).hint(usage(tool, schema))
    })
}

fn unknown_field(tool: &str, name: &str, known: Vec<String>) -> Failure {
    let text = format!("{tool} has no field `{}`", clip(name));
    let hint = if known.is_empty() {
        "it takes no arguments".to_owned()
    } else {
        format!("its fields are: {}", known.join(", "))
    };
    Failure::new(Code::InvalidParams, text)
        .hint(hint)
        .available(known)
}

fn coerce(wanted: &str, value: &mut Value) {
    let Some(text) = value.as_str().map(str::trim) else {
        // 5.0 is an integer to every client but to JSON.
        if wanted == "integer"
            && let Some(number) = value.as_f64()
            && number.fract() == 0.0
            && number.abs() < 9e15
            && !value.is_i64()
        {
            *value = Value::from(number as i64);
        }
        return;
    };
    let better = match wanted {
        "integer" => text.parse::<i64>().ok().map(Value::from),
        "number" => text
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .map(Value::from),
        "boolean" => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(Value::Bool(true)),
            "false" | "0" | "no" | "off" => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    };
    if let Some(better) = better {
        *value = better;
    }
}

fn check_type(
    tool: &str,
    name: &str,
    wanted: &str,
    value: &Value,
    usage: String,
) -> Result<(), Failure> {
    let right = match wanted {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => true,
    };
    if right || value.is_null() {
        return Ok(());
    }
    let given = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let text = format!("{tool}: the field `{name}` must be of type {wanted}, it is {given}");
    Err(Failure::new(Code::InvalidParams, text).hint(usage))
}

/// The tool's fields in one line.
fn usage(tool: &str, schema: &Map<String, Value>) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields: Vec<String> = fields
        .into_iter()
        .flatten()
        .filter(|(_, property)| property.get(UNLISTED).is_none())
        .map(|(name, property)| {
            let kind = property
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or("any");
            let mark = if required.contains(&name.as_str()) {
                ""
            } else {
                "?"
            };
            format!("{name}{mark}: {kind}")
        })
        .collect();
    format!("usage: {tool}({})", fields.join(", "))
}

fn clip(text: &str) -> String {
    text.chars()
        .take(120)
        .flat_map(char::escape_debug)
        .collect()
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
