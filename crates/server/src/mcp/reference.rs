//! The reference page of all tools, made from what clients are told.

use std::fmt::Write as _;

use remote_sandbox_core::failure::Code;
use serde_json::Value;

use super::schema::UNLISTED;
use super::tools;

/// `docs/reference/tools.md`.
pub fn tools_markdown() -> String {
    let mut page = String::from(
        "# Tools\n\nMade from the code; a test compares it. Names, parameters, defaults and result fields of the older Python server are kept; `docs/reference/migration.md` lists what differs. Parameters marked \"not listed\" are taken, but left out of what clients are told, to keep that short.\n",
    );
    for definition in tools::all() {
        let tool = &definition.tool;
        let _ = write!(
            page,
            "\n## `{}`\n\n{}\n\n",
            tool.name,
            tool.description.as_deref().unwrap_or_default()
        );
        if let Some(hints) = &tool.annotations {
            let _ = writeln!(
                page,
                "Hints: readOnly {}, destructive {}, idempotent {}, openWorld {}.\n",
                hints.read_only_hint.unwrap_or(false),
                hints.destructive_hint.unwrap_or(true),
                hints.idempotent_hint.unwrap_or(false),
                hints.open_world_hint.unwrap_or(true),
            );
        }
        push_parameters(&mut page, &definition.schema);
    }
    push_errors(&mut page);
    page
}

fn push_parameters(page: &mut String, schema: &serde_json::Map<String, Value>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        page.push_str("No parameters.\n");
        return;
    };
    let required: Vec<&Value> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    page.push_str("| parameter | type | default | meaning |\n|---|---|---|---|\n");
    for (name, property) in properties {
        let kind = property
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("any");
        let default = match property.get("default") {
            Some(default) => format!("`{default}`"),
            None if required.iter().any(|required| *required == name) => "required".to_owned(),
            None => "-".to_owned(),
        };
        let meaning = property
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or("");
        let unlisted = match property.get(UNLISTED) {
            Some(_) => " (not listed)",
            None => "",
        };
        let _ = writeln!(
            page,
            "| `{name}`{unlisted} | {kind} | {default} | {meaning} |"
        );
    }
}

fn push_errors(page: &mut String) {
    page.push_str(
        "\n## Errors\n\nA failed call has `isError: true` and one JSON object: `error` (what happened to what), `code`, `hint` (the next step), `retry: true` when the same call may work later, `available` with the valid names.\n\n| code | meaning |\n|---|---|\n",
    );
    for code in Code::ALL {
        let _ = writeln!(page, "| `{}` | {} |", code.name(), code.meaning());
    }
}
