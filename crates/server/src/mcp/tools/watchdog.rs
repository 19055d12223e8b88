//! The tools about the watchdog itself.

use std::sync::Arc;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, ServiceChange};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::background::yes;
use super::watch_row::{dead_letter_json, watchdog_status};
use super::{Definition, Label, Nature};
use crate::mcp::render::Reply;

/// What is told where nothing was done.
const TURNED_OFF: &str =
    "the watchdog is turned off by REMOTE_SANDBOX_WATCHDOG or the configuration; nothing was done";

/// What is told where nothing can be set up for later.
const NOTHING_AHEAD: &str = "without a service manager there is nothing to set up ahead; start_now=true starts the watchdog as a process of its own";

/// Most events that could not be told in a status; the command `events --dead` shows more.
const MOST_DEAD_LETTERS: usize = 10;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "get_watchdog_status",
            title: "Show the watchdog",
            description: "Whether the watchdog runs, what keeps it running, and how many watches there are.",
            nature: Nature::READS,
            core: false,
        }
        .define(status),
        Label {
            name: "install_macos_watchdog",
            title: "Set up the watchdog",
            description: "Set up what keeps the watchdog running: launchd on macOS, systemd on Linux, else a process of its own. exec_bash_background does it by itself.",
            nature: Nature::SETS,
            core: false,
        }
        .define(install),
        Label {
            name: "uninstall_macos_watchdog",
            title: "Remove the watchdog",
            description: "End the watchdog and take its service away; watches and jobs stay.",
            nature: Nature::ENDS,
            core: false,
        }
        .define(uninstall),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InstallParams {
    #[serde(default = "yes")]
    start_now: bool,
    /// Keep the entries of all sandboxes for it
    #[serde(default = "yes")]
    persist_current_sandboxes: bool,
}

async fn status(engine: Arc<Engine>, context: CallContext, _: NoParams) -> Result<Reply, Failure> {
    let report = engine.watchdog_report(&context, true).await?;
    let verdict = match report.is_stale {
        true => "the watchdog does not run",
        false => "the watchdog runs",
    };
    let mut reply = watchdog_status(&report);
    if report.counts.dead_deliveries > 0 {
        let letters = engine.dead_letters(&context, MOST_DEAD_LETTERS).await?;
        reply["dead_letters"] = letters.iter().map(dead_letter_json).collect();
    }
    Ok(Reply::new(reply, verdict))
}

async fn install(
    engine: Arc<Engine>,
    context: CallContext,
    params: InstallParams,
) -> Result<Reply, Failure> {
    let keep = params.persist_current_sandboxes;
    let change = engine.install_watchdog(params.start_now, keep).await?;
    let mut reply = changed(&change, "installed");
    let report = engine.watchdog_report(&context, true).await?;
    reply["persisted_sandboxes"] =
        json!({ "config_path": report.store, "sandbox_count": change.kept_entries });
    reply["status"] = watchdog_status(&report);
    let is_there = reply["status"]["service"]["installed"] != json!(false);
    if change.done.is_some() && !is_there {
        reply["installed"] = json!(false);
        reply["note"] = json!(NOTHING_AHEAD);
        return Ok(Reply::new(reply, "nothing was installed"));
    }
    Ok(Reply::new(reply, verdict(&change, "installed")))
}

async fn uninstall(
    engine: Arc<Engine>,
    context: CallContext,
    _: NoParams,
) -> Result<Reply, Failure> {
    let change = engine.uninstall_watchdog().await?;
    let mut reply = changed(&change, "uninstalled");
    let report = engine.watchdog_report(&context, true).await?;
    reply["status"] = watchdog_status(&report);
    Ok(Reply::new(reply, verdict(&change, "uninstalled")))
}

fn verdict(change: &ServiceChange, done: &'static str) -> &'static str {
    match change.done {
        Some(_) => done,
        None => "nothing was done",
    }
}

fn changed(change: &ServiceChange, what: &str) -> Value {
    let mut reply = json!({ what: change.done.is_some() });
    match &change.done {
        Some(done) => reply["service"] = done.clone(),
        None => reply["note"] = json!(TURNED_OFF),
    }
    if !change.warnings.is_empty() {
        reply["warning"] = json!(change.warnings.join("; "));
    }
    reply
}
