//! The tools that read logs and checkpoints of watched tasks.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::MOST_CHECKPOINT_BYTES;
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{CheckpointReport, CheckpointSource, Engine, LiveReport};
use remote_sandbox_engine::run::{ReadingPosition, Wanted};
use remote_sandbox_engine::store::WatchRow;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::background::{usual_lines, yes};
use super::jobs::job_status;
use super::watch::number;
use super::watch_row::{checkpoint_json, watch_json};
use super::{Definition, Label, Nature, positive};
use crate::mcp::render::Reply;

/// Bytes of log in one reply.
const LOG_BYTES: usize = 64 * 1024;

/// Most lines that are asked for.
const MOST_LINES: i64 = 10_000;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "get_background_watch_progress",
            title: "Show progress",
            description: "How far a watched task is: what the watchdog last saw, and, unless refresh_live is false, its log and checkpoint now.",
            nature: Nature::READS,
            core: false,
        }
        .define(progress),
        Label {
            name: "read_background_watch_log",
            title: "Read a watched log",
            description: "The end of the log of a watched task.",
            nature: Nature::READS,
            core: false,
        }
        .define(read_log),
        Label {
            name: "read_background_watch_checkpoint",
            title: "Read a checkpoint",
            description: "The checkpoint of a watched task.",
            nature: Nature::READS,
            core: false,
        }
        .define(read_checkpoint),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgressParams {
    watch_id: i64,
    #[serde(default = "yes")]
    refresh_live: bool,
    #[serde(default = "usual_lines")]
    log_lines: i64,
    #[serde(default = "usual_bytes")]
    checkpoint_max_bytes: i64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogParams {
    watch_id: i64,
    #[serde(default = "usual_log_lines")]
    last_n_lines: i64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckpointParams {
    watch_id: i64,
    #[serde(default = "usual_bytes")]
    max_bytes: i64,
}

fn usual_log_lines() -> i64 {
    200
}

fn usual_bytes() -> i64 {
    20_000
}

fn bytes(field: &str, given: i64) -> Result<u64, Failure> {
    let most = i64::try_from(MOST_CHECKPOINT_BYTES).unwrap_or(i64::MAX);
    let bytes = positive(field, given, most)?;
    u64::try_from(bytes).map_err(|error| Failure::new(Code::Internal, error.to_string()))
}

fn last(lines: usize) -> Wanted {
    Wanted {
        position: ReadingPosition::LastLines(lines),
        budget: LOG_BYTES,
        grep: None,
    }
}

async fn progress(
    engine: Arc<Engine>,
    context: CallContext,
    params: ProgressParams,
) -> Result<Reply, Failure> {
    let id = number(params.watch_id)?;
    let wanted = last(positive("log_lines", params.log_lines, MOST_LINES)?);
    let most = bytes("checkpoint_max_bytes", params.checkpoint_max_bytes)?;
    let row = engine.watch(&context, id).await?;
    let live = match params.refresh_live {
        true => Some(engine.watch_live(&context, id, &wanted, most).await?),
        false => None,
    };
    let verdict = format!("watch {id}: {}, {}", row.status.word(), row.last_state);
    Ok(Reply::new(watch_progress(&row, live.as_ref()), verdict))
}

/// What `get_background_watch_progress` returns.
pub fn watch_progress(row: &WatchRow, live: Option<&LiveReport>) -> Value {
    let checkpoint = row.last_checkpoint.as_deref();
    let format = row.order.checkpoint_format;
    json!({
        "watch": without_texts(row),
        "stored": {
            "last_state": row.last_state,
            "last_summary": row.last_summary,
            "last_error": row.last_error,
            "checkpoint": checkpoint.map(|text| checkpoint_json(text, format)),
            "last_log_tail": row.last_log_tail,
        },
        "live": live.map(live_json),
    })
}

fn live_json(live: &LiveReport) -> Value {
    let mut errors = Vec::new();
    let mut error = |kind: &str, failure: &Failure| {
        errors.push(json!({ "kind": kind, "error": failure.message, "code": failure.code }));
        Value::Null
    };
    let checkpoint = match &live.checkpoint {
        None => Value::Null,
        Some(Ok(report)) => checkpoint_json(&report.text, report.format),
        Some(Err(failure)) => error("checkpoint", failure),
    };
    let task = match &live.task {
        Ok(report) => {
            if let Some(failure) = &report.failure {
                error("task", failure);
            }
            job_status(report)
        }
        Err(failure) => error("task", failure),
    };
    json!({ "errors": errors, "checkpoint": checkpoint, "task": task })
}

async fn read_log(
    engine: Arc<Engine>,
    context: CallContext,
    params: LogParams,
) -> Result<Reply, Failure> {
    let id = number(params.watch_id)?;
    let wanted = last(positive("last_n_lines", params.last_n_lines, MOST_LINES)?);
    let row = engine.watch(&context, id).await?;
    let report = engine.watch_log(&context, id, &wanted).await?;
    let reply = json!({ "watch": without_texts(&row), "log": job_status(&report) });
    Ok(Reply::new(reply, format!("log of watch {id}")))
}

async fn read_checkpoint(
    engine: Arc<Engine>,
    context: CallContext,
    params: CheckpointParams,
) -> Result<Reply, Failure> {
    let id = number(params.watch_id)?;
    let most = bytes("max_bytes", params.max_bytes)?;
    let row = engine.watch(&context, id).await?;
    let report = engine.watch_checkpoint(&context, id, most).await?;
    let mut reply = json!({ "watch": without_texts(&row) });
    let (field, source) = source_json(&report);
    reply[field] = source;
    reply["checkpoint"] = checkpoint_json(&report.text, report.format);
    Ok(Reply::new(reply, format!("checkpoint of watch {id}")))
}

/// A watch beside the very texts that it would repeat.
fn without_texts(row: &WatchRow) -> Value {
    let mut watch = watch_json(row);
    if let Some(watch) = watch.as_object_mut() {
        watch.shift_remove("last_log_tail");
        watch.shift_remove("last_checkpoint_text");
    }
    watch
}

fn source_json(report: &CheckpointReport) -> (&'static str, Value) {
    match &report.source {
        CheckpointSource::File {
            path,
            size,
            is_truncated,
            age_s,
        } => (
            "file_result",
            json!({ "path": path, "size": size, "truncated": is_truncated, "age_s": age_s }),
        ),
        CheckpointSource::Command {
            exit_code,
            is_truncated,
        } => (
            "command_result",
            json!({ "exit_code": exit_code, "truncated": is_truncated }),
        ),
    }
}
