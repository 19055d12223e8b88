//! `check_file_transfer_task`, `cancel_file_transfer_task`.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::Engine;
use remote_sandbox_engine::store::TransferStatus;
use remote_sandbox_engine::sync::{SyncReport, Way};
use remote_sandbox_engine::transfer::{CancelReport, TransferReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::sync::sync_result;
use super::{Definition, Label, Nature, positive};
use crate::mcp::render::Reply;

/// Most lines of a log in one reply.
const MOST_LINES: i64 = 2000;

/// Longest time that a worker gets to end by itself.
const MOST_PATIENCE_S: f64 = 60.0;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "check_file_transfer_task",
            title: "Check a transfer",
            description: "Progress or result of a background sync (stale: sync again).",
            nature: Nature::READS,
            core: false,
        }
        .define(check),
        Label {
            name: "cancel_file_transfer_task",
            title: "Cancel a transfer",
            description: "End a background sync; syncing again continues.",
            nature: Nature::ENDS,
            core: false,
        }
        .define(cancel),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckParams {
    task_id: i64,
    #[serde(default = "usual_lines")]
    #[schemars(extend("unlisted" = true))]
    last_n_lines: i64,
}

fn usual_lines() -> i64 {
    50
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CancelParams {
    task_id: i64,
    #[serde(default = "usual_patience")]
    #[schemars(extend("unlisted" = true))]
    force_kill_after_s: f64,
}

fn usual_patience() -> f64 {
    5.0
}

#[derive(Serialize)]
struct CheckReply {
    task_id: u64,
    status: &'static str,
    running: bool,
    pending: bool,
    stale: bool,
    sandbox: String,
    progress: Map<String, Value>,
    result: Option<Value>,
    /// The sentence alone, as the old server has it.
    error: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Value>,
    log_file: String,
    log_tail: String,
}

#[derive(Serialize)]
struct CancelReply {
    task_id: u64,
    status: &'static str,
    terminated: bool,
    force_killed: bool,
    already_finished: bool,
}

fn task(id: i64) -> Result<u64, Failure> {
    match u64::try_from(id) {
        Ok(id) if id > 0 => Ok(id),
        _ => Err(Failure::new(
            Code::InvalidParams,
            "`task_id` must be positive",
        )),
    }
}

async fn check(
    engine: Arc<Engine>,
    context: CallContext,
    params: CheckParams,
) -> Result<Reply, Failure> {
    let lines = positive("last_n_lines", params.last_n_lines, MOST_LINES)?;
    let id = task(params.task_id)?;
    let report = engine.check_transfer(&context, id, lines).await?;
    let reply = status_reply(&report);
    let verdict = format!("transfer {id}: {}", reply.status);
    let body = reply.log_tail.clone();
    Ok(Reply::new(reply, verdict).body(body))
}

async fn cancel(
    engine: Arc<Engine>,
    context: CallContext,
    params: CancelParams,
) -> Result<Reply, Failure> {
    let patience = params.force_kill_after_s;
    if patience.is_nan() || patience < 0.0 {
        let text = "`force_kill_after_s` must not be negative";
        return Err(Failure::new(Code::InvalidParams, text));
    }
    let patience = Duration::from_secs_f64(patience.min(MOST_PATIENCE_S));
    let id = task(params.task_id)?;
    let done: CancelReport = engine.cancel_transfer(&context, id, patience).await?;
    let reply = CancelReply {
        task_id: done.task_id,
        status: done.status.name(),
        terminated: done.terminated,
        force_killed: done.force_killed,
        already_finished: done.already_finished,
    };
    let verdict = format!("transfer {id}: {}", reply.status);
    Ok(Reply::new(reply, verdict))
}

/// What `check_file_transfer_task` returns.
pub fn transfer_status(report: &TransferReport) -> Value {
    serde_json::to_value(status_reply(report)).unwrap_or_default()
}

/// The same of many, without their logs.
pub fn transfer_statuses(reports: &[TransferReport]) -> Value {
    let all: Vec<Value> = reports
        .iter()
        .map(|report| {
            let mut status = transfer_status(report);
            if let Some(status) = status.as_object_mut() {
                status.remove("log_tail");
                status.insert("direction".to_owned(), json!(report.direction));
                status.insert("local_path".to_owned(), json!(report.local_path));
                status.insert("remote_path".to_owned(), json!(report.remote_path));
            }
            status
        })
        .collect();
    json!({ "transfers": all })
}

fn status_reply(report: &TransferReport) -> CheckReply {
    let is_up = report.direction == "up";
    let part = |name: &str| report.error.get(name).cloned();
    let lost = || json!("its process is gone and did not say why");
    CheckReply {
        task_id: report.task_id,
        status: report.status.name(),
        running: report.status == TransferStatus::Running && !report.is_stale,
        pending: report.status == TransferStatus::Queued && !report.is_stale,
        stale: report.is_stale,
        sandbox: report.sandbox.clone(),
        progress: progress(report, is_up),
        result: report.result.as_ref().map(|result| {
            let way = if is_up { Way::Up } else { Way::Down };
            sync_result("background", way, result, &report.sandbox)
        }),
        error: part("error").or_else(|| report.is_stale.then(lost)),
        code: part("code"),
        hint: part("hint"),
        log_file: report.log_file.clone(),
        log_tail: report.log_tail.clone(),
    }
}

/// The figures under our names, and those of the old server beside them.
fn progress(report: &TransferReport, is_up: bool) -> Map<String, Value> {
    let mut progress = report.progress.as_object().cloned().unwrap_or_default();
    progress
        .entry("phase")
        .or_insert_with(|| json!(report.status.name()));
    let sent = if is_up { "uploaded" } else { "downloaded" };
    for (old, ours) in [("files", "files_done"), ("bytes", "bytes_done")] {
        if let Some(figure) = progress.get(ours).cloned() {
            progress.insert(format!("{sent}_{old}"), figure);
        }
    }
    if let Some(result) = &report.result {
        let counts = counts_of(result, is_up);
        progress.extend(counts.into_iter().filter(|(_, count)| *count != json!(0)));
    }
    progress
}

/// What was counted, under the names of the old server.
fn counts_of(result: &SyncReport, is_up: bool) -> Map<String, Value> {
    let (directories, files) = if is_up {
        ("uploaded_dirs", "uploaded_files")
    } else {
        ("created_dirs", "downloaded_files")
    };
    let counts = [
        (directories, result.made_dirs),
        (files, result.sent_files),
        ("skipped_files", result.unchanged_files),
        ("deleted_dirs", result.deleted_dirs),
        ("deleted_files", result.deleted_files),
    ];
    let counts = counts.into_iter();
    counts
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect()
}
