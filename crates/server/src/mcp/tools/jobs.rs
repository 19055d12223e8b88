//! `check_background_task`, `stop_background_task`.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, LONGEST_WAIT, Liveness, TaskReport, TaskRequest};
use remote_sandbox_engine::run::ReadingPosition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exec::{LeftRunningReply, left_running};
use super::{Definition, Label, Nature, positive};
use crate::mcp::render::{Reply, seconds};

/// Most characters of output in one reply.
const MOST_OUTPUT_CHARS: i64 = 1_000_000;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "check_background_task",
            title: "Read a task",
            description: "Status and output of a task that exec_bash handed back. Without since_byte the last lines; with it, output from that byte on (pass next_byte to read on). wait_s waits for new output or the end: prefer it to polling.",
            nature: Nature::READS,
            core: true,
        }
        .define(check),
        Label {
            name: "stop_background_task",
            title: "Stop a task",
            description: "End a task's whole process tree (TERM, then KILL) and say what is left of it.",
            nature: Nature::ENDS,
            core: false,
        }
        .define(stop),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckParams {
    task_id: String,
    /// Read from this byte on
    #[serde(default)]
    since_byte: Option<i64>,
    /// Seconds to wait for news, at most 280
    #[serde(default)]
    wait_s: f64,
    #[serde(default = "usual_lines")]
    last_n_lines: i64,
    #[serde(default = "usual_output")]
    max_output_chars: i64,
}

fn usual_lines() -> i64 {
    50
}

fn usual_output() -> i64 {
    8000
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StopParams {
    task_id: String,
}

#[derive(Serialize)]
struct TaskReply {
    task_id: String,
    status: String,
    running: bool,
    exit_code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// Only the host could tell, and this is what it told.
    #[serde(skip_serializing_if = "Option::is_none")]
    still_running: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_running: Option<LeftRunningReply>,
    sandbox: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_s: Option<f64>,
    since_byte: u64,
    next_byte: u64,
    total_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_bytes: Option<u64>,
    log_tail: String,
}

async fn check(
    engine: Arc<Engine>,
    context: CallContext,
    params: CheckParams,
) -> Result<Reply, Failure> {
    let lines = positive("last_n_lines", params.last_n_lines, 10_000)?;
    let budget = positive(
        "max_output_chars",
        params.max_output_chars,
        MOST_OUTPUT_CHARS,
    )?;
    let position =
        match params.since_byte {
            None => ReadingPosition::LastLines(lines),
            Some(since) => ReadingPosition::Since(u64::try_from(since).map_err(|_| {
                Failure::new(Code::InvalidParams, "`since_byte` must not be negative")
            })?),
        };
    let wait = params.wait_s.clamp(0.0, LONGEST_WAIT.as_secs_f64());
    let request = TaskRequest {
        task: params.task_id,
        position,
        wait: Duration::from_secs_f64(if wait.is_nan() { 0.0 } else { wait }),
        // A character has at least one byte.
        budget: budget.max(4),
    };
    Ok(render(engine.check_task(&context, &request).await?))
}

async fn stop(
    engine: Arc<Engine>,
    context: CallContext,
    params: StopParams,
) -> Result<Reply, Failure> {
    Ok(render(engine.stop_task(&context, &params.task_id).await?))
}

fn render(report: TaskReport) -> Reply {
    let running = report.status == "running";
    let mut left = left_running(&report.left_running);
    let (still_running, mut note) = match &report.liveness {
        None => (None, None),
        Some(Liveness::Gone) => {
            left = None;
            let note = "the host says that none of its processes is left";
            (Some(false), Some(note.to_owned()))
        }
        Some(Liveness::StillRunning(processes)) => {
            left = left_running(processes);
            (
                Some(true),
                Some("the host says that it still runs".to_owned()),
            )
        }
        Some(Liveness::Unknown(reason)) => (
            None,
            Some(format!("whether it still runs is not known: {reason}")),
        ),
    };
    if let Some(failure) = &report.failure {
        note = Some(failure.message.clone());
    }
    let verdict = match report.exit_code {
        Some(code) => format!(
            "{} with exit code {code} (sandbox {})",
            report.status, report.sandbox
        ),
        None => format!("{} (sandbox {})", report.status, report.sandbox),
    };
    let reading = report.reading;
    let body = reading.text.clone();
    let reply = TaskReply {
        task_id: report.run,
        status: report.status,
        running,
        exit_code: report.exit_code,
        signal: report.signal,
        still_running,
        note,
        left_running: left,
        sandbox: report.sandbox,
        duration_s: report.elapsed.map(seconds),
        since_byte: reading.from,
        next_byte: reading.next,
        total_bytes: reading.total,
        omitted_bytes: (reading.missing > 0).then_some(reading.missing),
        log_tail: reading.text,
    };
    Reply::new(reply, verdict).body(body)
}
