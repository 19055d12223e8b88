//! How a transfer stands.

use std::path::Path;
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use serde_json::Value;

use super::{Transfers, log, process};
use crate::clock;
use crate::store::{TransferRow, TransferStatus};
use crate::sync::SyncReport;

/// How long a row may wait for a process that is not known.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How a transfer stands.
#[derive(Debug, Clone)]
pub struct TransferReport {
    /// Its number.
    pub task_id: u64,
    /// `queued`, `running`, `completed`, `failed` or `cancelled`.
    pub status: TransferStatus,
    /// Whether it is open although its process is gone.
    pub is_stale: bool,
    /// `up` or `down`.
    pub direction: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// The path on this machine.
    pub local_path: String,
    /// The path in the sandbox.
    pub remote_path: String,
    /// The number of its process, as long as that is known.
    pub pid: Option<u32>,
    /// Where it tells what it does.
    pub log_file: String,
    /// The last figures; null before the first ones.
    pub progress: Value,
    /// What it said at its end.
    pub result: Option<SyncReport>,
    /// Why it did not work, as the failure of a call is told.
    pub error: Value,
    /// The last lines of its log.
    pub log_tail: String,
    /// When it was asked for, since the Unix epoch.
    pub created: Duration,
    /// When it ended.
    pub finished: Option<Duration>,
}

/// Whether a row waits for a process that will never say anything again.
pub(super) fn is_stale(row: &TransferRow) -> bool {
    if !row.status.is_open() {
        return false;
    }
    match &row.worker {
        Some(worker) => !process::is_alive(worker),
        None => clock::wall().saturating_sub(row.updated) > START_LIMIT,
    }
}

fn report(row: TransferRow, is_stale: bool, lines: usize) -> TransferReport {
    let parse = |text: Option<&String>| {
        let value = text.and_then(|text| serde_json::from_str(text).ok());
        value.unwrap_or(Value::Null)
    };
    TransferReport {
        task_id: row.id.number(),
        status: row.status,
        is_stale,
        progress: parse(row.progress.as_ref()),
        result: row
            .result
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok()),
        error: parse(row.error.as_ref()),
        log_tail: match lines {
            0 => String::new(),
            lines => log::tail(Path::new(&row.log_file), lines),
        },
        pid: row.worker.map(|worker| worker.pid),
        direction: row.direction,
        sandbox: row.sandbox,
        local_path: row.local_path,
        remote_path: row.remote_path,
        log_file: row.log_file,
        created: row.created,
        finished: row.finished,
    }
}

impl Transfers {
    /// How one transfer stands.
    pub(crate) async fn check(
        &self,
        number: u64,
        principal: &str,
        lines: usize,
    ) -> Result<TransferReport, Failure> {
        let mut row = self.find(number, principal).await?;
        let mut is_lost = is_stale(&row);
        if is_lost {
            // It may have ended properly between the two looks. What is read after its process was seen to be gone
            // does not change any more, so this is looked at no third time.
            row = self.find(number, principal).await?;
            is_lost = is_stale(&row);
        }
        Ok(report(row, is_lost, lines))
    }

    /// How all transfers stand, the newest first, without their logs.
    pub(crate) async fn list(&self, principal: &str) -> Result<Vec<TransferReport>, Failure> {
        let rows = self.store.transfers(principal).await?;
        let told = rows.into_iter().map(|row| {
            let is_lost = is_stale(&row);
            report(row, is_lost, 0)
        });
        Ok(told.collect())
    }
}
