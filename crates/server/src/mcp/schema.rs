//! Input schemas as small as they can be: a model reads every byte of them in every session.

use std::sync::Arc;

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// The slimmed schema of a parameter type.
pub(super) fn schema_of<T: JsonSchema>() -> Arc<Map<String, Value>> {
    let mut schema = Value::from(schemars::schema_for!(T));
    slim(&mut schema);
    match schema {
        Value::Object(mut object) => {
            object.shift_remove("description");
            object
                .entry("properties")
                .or_insert_with(|| Value::Object(Map::new()));
            Arc::new(object)
        }
        _ => Arc::new(Map::new()),
    }
}

/// The mark of a parameter that is taken but not told of.
pub(super) const UNLISTED: &str = "unlisted";

/// The mark of a text that may also come as a number.
pub(super) const NUMBER_TOO: &str = "number_too";

/// What clients are told of a schema.
pub(super) fn listed(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.clone();
    let mut is_whole = true;
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let all = properties.len();
        properties.retain(|_, property| property.get(UNLISTED).is_none());
        is_whole = properties.len() == all;
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            property.shift_remove(NUMBER_TOO);
        }
    }
    // A client that checks calls itself must let through what is taken.
    if !is_whole {
        schema.shift_remove("additionalProperties");
    }
    schema
}

/// Drops what no model needs: titles, formats, bounds of machine integers, null alternatives.
fn slim(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for key in ["$schema", "title", "format", "minimum"] {
                if object.get(key).is_some_and(|found| !found.is_object()) {
                    object.shift_remove(key);
                }
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.shift_remove("default");
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            object.values_mut().for_each(slim);
        }
        Value::Array(items) => items.iter_mut().for_each(slim),
        _ => {}
    }
}
