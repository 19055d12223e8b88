//! `create_sandbox` and `delete_sandbox`.

use std::collections::BTreeMap;
use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::local::Network;
use remote_sandbox_core::shell::EnvironmentName;
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, NewSandbox};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sandboxes::LocalReply;
use super::{Definition, Label, Nature};
use crate::mcp::render::Reply;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "create_sandbox",
            title: "Create sandbox",
            description: "Make a new isolated sandbox on this machine, with its own home, files and processes. Use its name as sandbox_name from then on. It stays until delete_sandbox.",
            nature: Nature::MAKES,
            core: false,
        }
        .define(create),
        Label {
            name: "delete_sandbox",
            title: "Delete sandbox",
            description: "End everything in a sandbox made by create_sandbox and delete its files for good.",
            nature: Nature::ENDS,
            core: false,
        }
        .define(delete),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateParams {
    /// Letters, digits, `.`, `_`, `-`
    name: String,
    /// Not used: a local sandbox has no lease
    timeout: Option<u64>,
    /// Environment of every command
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// "on" or "off"
    network: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeleteParams {
    sandbox_id: String,
}

#[derive(Serialize)]
struct CreateReply {
    sandbox_id: String,
    status: &'static str,
    created_at: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(flatten)]
    local: Option<LocalReply>,
}

async fn create(
    engine: Arc<Engine>,
    context: CallContext,
    params: CreateParams,
) -> Result<Reply, Failure> {
    let invalid = |text: String| Failure::new(Code::InvalidParams, text).hint("nothing was made");
    let network = match params.network.as_deref() {
        None | Some("") => None,
        Some(word) => Some(
            Network::parse(word)
                .ok_or_else(|| invalid("`network` must be \"on\" or \"off\"".to_owned()))?,
        ),
    };
    let variables = params.env.into_iter().map(|(name, value)| {
        let name = EnvironmentName::parse(&name);
        let name = name.map_err(|error| invalid(format!("`env`: {error}")))?;
        Ok((name, value))
    });
    let new = NewSandbox {
        name: params.name,
        variables: variables.collect::<Result<_, Failure>>()?,
        network,
    };
    let mut made = engine.create_sandbox(&context, new).await?.description;
    let local = made.local.take();
    let verdict = format!("created {}", made.name);
    let reply = CreateReply {
        sandbox_id: made.name.to_string(),
        status: "running",
        created_at: local
            .as_ref()
            .map(|facts| facts.created_at.clone())
            .unwrap_or_default(),
        kind: made.kind,
        note: params.timeout.map(
            |_| "timeout is not used: a local sandbox has no lease and stays until it is deleted",
        ),
        warnings: made.warnings,
        local: local.map(LocalReply::without_date),
    };
    Ok(Reply::new(reply, verdict))
}

async fn delete(
    engine: Arc<Engine>,
    context: CallContext,
    params: DeleteParams,
) -> Result<Reply, Failure> {
    engine.delete_sandbox(&context, &params.sandbox_id).await?;
    let verdict = format!("deleted {}", params.sandbox_id);
    let facts = json!({"sandbox_id": params.sandbox_id, "status": "deleted"});
    Ok(Reply::new(facts, verdict))
}
