//! `list_sandboxes`, `select_sandbox`, `get_active_sandbox`.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::probe::Resources;
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, Listed, Probed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Definition, Label, Nature};
use crate::mcp::render::Reply;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "list_sandboxes",
            title: "List sandboxes",
            description: "List all sandboxes with their connection state. With check_resources also CPU, memory, disk and GPU load and idle_score (0 busy, 1 idle): run work where it is highest.",
            nature: Nature::READS,
            core: true,
        }
        .define(list),
        Label {
            name: "select_sandbox",
            title: "Select sandbox",
            description: "Make a sandbox the active one; calls without sandbox_name use it from then on.",
            nature: Nature::SETS,
            core: false,
        }
        .define(select),
        Label {
            name: "get_active_sandbox",
            title: "Active sandbox",
            description: "Show the active sandbox and ask it for a sign of life.",
            nature: Nature::READS,
            core: false,
        }
        .define(active),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// Also measure load and compute idle_score
    #[serde(default)]
    check_resources: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SelectParams {
    sandbox_name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ActiveParams {}

#[derive(Serialize)]
struct SandboxReply {
    name: String,
    kind: &'static str,
    host: String,
    port: u16,
    user: String,
    is_active: bool,
    connection_alive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourcesReply>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResourcesReply {
    Known(Box<Resources>),
    Unknown { error: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum LineReply {
    Ready(Box<SandboxReply>),
    Disabled {
        name: String,
        is_active: bool,
        connection_alive: bool,
        disabled: bool,
        error: String,
    },
}

#[derive(Serialize)]
struct ListReply {
    active_sandbox: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    sandboxes: Vec<LineReply>,
}

fn ready(probed: Probed, active: Option<&str>) -> SandboxReply {
    let description = probed.description;
    let (connection_error, code) = match &probed.alive {
        Ok(()) => (None, None),
        Err(failure) => (Some(failure.message.clone()), Some(failure.code)),
    };
    SandboxReply {
        is_active: active == Some(description.name.as_str()),
        name: description.name.to_string(),
        kind: description.kind,
        host: description.host,
        port: description.port,
        user: description.user,
        connection_alive: probed.alive.is_ok(),
        connection_error,
        code,
        warnings: description.warnings,
        resources: probed.resources.map(|resources| match resources {
            Ok(resources) => ResourcesReply::Known(Box::new(resources)),
            Err(failure) => ResourcesReply::Unknown {
                error: failure.message,
            },
        }),
    }
}

async fn list(engine: Arc<Engine>, _: CallContext, params: ListParams) -> Result<Reply, Failure> {
    let listed = engine.list(params.check_resources).await;
    let active = engine.active();
    let sandboxes: Vec<LineReply> = listed
        .into_iter()
        .map(|line| match line {
            Listed::Ready(probed) => LineReply::Ready(Box::new(ready(probed, active.as_deref()))),
            Listed::Disabled { name, reason } => LineReply::Disabled {
                name: clean_line(&name, 80),
                is_active: false,
                connection_alive: false,
                disabled: true,
                error: reason,
            },
        })
        .collect();
    let nothing = engine.sandbox(None).err().filter(|_| active.is_none());
    let verdict = format!("{} sandboxes", sandboxes.len());
    let reply = ListReply {
        active_sandbox: active,
        error: nothing.as_ref().map(|failure| failure.message.clone()),
        hint: nothing.map(|failure| failure.hint),
        problems: engine.problems().to_vec(),
        sandboxes,
    };
    Ok(Reply::new(reply, verdict))
}

async fn select(
    engine: Arc<Engine>,
    _: CallContext,
    params: SelectParams,
) -> Result<Reply, Failure> {
    engine.select(&params.sandbox_name)?;
    let verdict = format!("selected {}", params.sandbox_name);
    Ok(Reply::new(
        json!({"active_sandbox": params.sandbox_name, "status": "selected"}),
        verdict,
    ))
}

async fn active(engine: Arc<Engine>, _: CallContext, _: ActiveParams) -> Result<Reply, Failure> {
    let Some(name) = engine.active() else {
        // Nothing being active is an answer, not a failure of the question.
        let failure = match engine.sandbox(None) {
            Err(failure) => failure,
            Ok(_) => Failure::new(Code::NotConfigured, "no sandbox is active"),
        };
        let facts = json!({"active_sandbox": null, "error": failure.message, "hint": failure.hint});
        return Ok(Reply::new(facts, "no sandbox is active"));
    };
    let probed = engine.look(Some(&name)).await?;
    let line = ready(probed, Some(&name));
    let verdict = format!(
        "{name} is {}",
        if line.connection_alive {
            "alive"
        } else {
            "not reachable"
        }
    );
    let mut facts = json!({
        "active_sandbox": line.name,
        "host": line.host,
        "port": line.port,
        "user": line.user,
        "connection_alive": line.connection_alive,
    });
    if let (Some(object), Some(error)) = (facts.as_object_mut(), line.connection_error) {
        object.insert("connection_error".to_owned(), error.into());
        object.insert("code".to_owned(), json!(line.code));
    }
    Ok(Reply::new(facts, verdict))
}
