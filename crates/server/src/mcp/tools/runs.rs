//! What `check_background_task` and `stop_background_task` say about runs.

use remote_sandbox_engine::engine::{Liveness, TaskReport};
use serde::Serialize;

use super::exec::{LeftRunningReply, left_running};
use crate::mcp::render::{Reply, seconds};

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

/// The reply about a run.
pub(super) fn render(report: TaskReport) -> Reply {
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
