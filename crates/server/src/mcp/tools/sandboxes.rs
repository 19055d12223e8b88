//! `list_sandboxes`, `select_sandbox`, `get_active_sandbox`.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::probe::{Chosen, Resources, Wanted};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, Listed, Probed, Selected};
use remote_sandbox_engine::sandbox::LocalFacts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Definition, Label, Nature, given};
use crate::mcp::render::Reply;

/// A list longer than this loses processes of GPUs.
const LONGEST_LIST: usize = 10_000;

/// How many processes of one GPU are left in a list that is too long, first try first.
const PROCESSES_SHOWN: [usize; 3] = [3, 1, 0];

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
            description: "Make a sandbox the active one; calls without sandbox_name use it. \"auto\" takes the idlest and says why; the other parameters go with it.",
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
    #[serde(default)]
    check_resources: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SelectParams {
    /// A name, or "auto"
    sandbox_name: String,
    /// GPUs no other user holds
    min_free_gpus: Option<u32>,
    /// Free memory on each of them
    min_gpu_free_mb: Option<u64>,
    tag: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ActiveParams {}

#[derive(Serialize)]
struct SandboxReply {
    name: String,
    kind: &'static str,
    host: String,
    port: Option<u16>,
    user: String,
    is_active: bool,
    connection_alive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(flatten)]
    local: Option<LocalReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ResourcesReply>,
}

/// What only sandboxes on this machine have.
#[derive(Serialize)]
pub(super) struct LocalReply {
    isolation: Option<&'static str>,
    network: &'static str,
    workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    limits: Map<String, Value>,
    /// What the wall does not keep apart.
    not_walled_off: Vec<&'static str>,
}

impl LocalReply {
    pub(super) fn new(facts: LocalFacts) -> Self {
        let limits = facts.bounds.into_iter();
        LocalReply {
            isolation: facts.isolation,
            network: facts.network.word(),
            workspace: facts.workspace,
            created_at: Some(facts.created_at),
            limits: limits
                .map(|bound| (bound.name.to_owned(), Value::String(bound.text)))
                .collect(),
            not_walled_off: facts.open,
        }
    }

    /// The same for a reply that has the date elsewhere.
    pub(super) fn without_date(facts: LocalFacts) -> Self {
        LocalReply {
            created_at: None,
            ..LocalReply::new(facts)
        }
    }
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

#[derive(Serialize)]
struct SelectReply {
    active_sandbox: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(flatten)]
    chosen: Option<Chosen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<Vec<String>>,
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
        tags: description.tags,
        warnings: description.warnings,
        local: description.local.map(LocalReply::new),
        resources: probed.resources.map(|resources| match resources {
            Ok(resources) => ResourcesReply::Known(Box::new(resources)),
            Err(failure) => ResourcesReply::Unknown {
                error: failure.message,
            },
        }),
    }
}

async fn list(engine: Arc<Engine>, _: CallContext, params: ListParams) -> Result<Reply, Failure> {
    let reply = list_reply(&engine, params.check_resources).await;
    let verdict = format!("{} sandboxes", reply.sandboxes.len());
    Ok(Reply::new(fitted(json!(reply)), verdict))
}

/// What `list_sandboxes` replies, for another way in.
pub async fn sandbox_list(engine: &Engine, check_resources: bool) -> serde_json::Value {
    json!(list_reply(engine, check_resources).await)
}

async fn list_reply(engine: &Engine, check_resources: bool) -> ListReply {
    let listed = engine.list(check_resources).await;
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
    ListReply {
        active_sandbox: active,
        error: nothing.as_ref().map(|failure| failure.message.clone()),
        hint: nothing.map(|failure| failure.hint),
        problems: engine.problems().to_vec(),
        sandboxes,
    }
}

/// Leaves out processes of GPUs, never figures, until the reply is of a usual size.
fn fitted(mut reply: Value) -> Value {
    for most in PROCESSES_SHOWN {
        if reply.to_string().len() <= LONGEST_LIST {
            break;
        }
        let lines = reply.get_mut("sandboxes").and_then(Value::as_array_mut);
        for line in lines.into_iter().flatten() {
            let gpus = line.pointer_mut("/resources/gpu");
            for gpu in gpus.and_then(Value::as_array_mut).into_iter().flatten() {
                shorten_processes(gpu, most);
                let parts = gpu.get_mut("mig").and_then(Value::as_array_mut);
                for part in parts.into_iter().flatten() {
                    shorten_processes(part, most);
                }
            }
        }
    }
    reply
}

/// A count stands for the processes that are left out.
fn shorten_processes(device: &mut Value, most: usize) {
    let Some(device) = device.as_object_mut() else {
        return;
    };
    let list = device.get_mut("processes").and_then(Value::as_array_mut);
    let Some(list) = list.filter(|list| list.len() > most) else {
        return;
    };
    let count = list.len();
    list.truncate(most);
    device
        .entry("process_count")
        .or_insert_with(|| json!(count));
}

async fn select(
    engine: Arc<Engine>,
    _: CallContext,
    params: SelectParams,
) -> Result<Reply, Failure> {
    let wanted = Wanted {
        min_free_gpus: params.min_free_gpus,
        min_gpu_free_mb: params.min_gpu_free_mb,
        tag: given(params.tag),
    };
    let selected = engine.select_wanted(&params.sandbox_name, &wanted).await?;
    let (name, chosen, others, note) = match selected {
        Selected::Named {
            name,
            is_called_auto,
        } => {
            let note = "a sandbox has this name, so nothing was compared";
            (name, None, None, is_called_auto.then_some(note))
        }
        Selected::Idlest { chosen, others } => {
            (chosen.name.clone(), Some(chosen), Some(others), None)
        }
    };
    let verdict = format!("selected {name}");
    let reply = SelectReply {
        active_sandbox: name,
        status: "selected",
        note,
        chosen,
        others,
    };
    Ok(Reply::new(reply, verdict))
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

#[cfg(test)]
#[path = "sandboxes_tests.rs"]
mod tests;
