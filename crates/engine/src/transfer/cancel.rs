//! Ends a transfer that nobody wants any more.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use rustix::process::Signal;

use super::{Transfers, process};
use crate::clock;
use crate::store::{ProcessMark, TransferEnd, TransferStatus};

/// The pause between two looks at a process that is ending.
const POLL: Duration = Duration::from_millis(20);

/// How long a process may take to end that cannot refuse.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// What has come of it.
#[derive(Debug, Clone)]
pub struct CancelReport {
    /// The number of the transfer.
    pub task_id: u64,
    /// How it stands now.
    pub status: TransferStatus,
    /// Whether its process was asked to end.
    pub terminated: bool,
    /// Whether its process had to be ended by force.
    pub force_killed: bool,
    /// Whether it had ended before.
    pub already_finished: bool,
}

/// How a process was ended.
struct Ending {
    terminated: bool,
    force_killed: bool,
}

impl Transfers {
    /// Ends a transfer: asks its process to end, and ends it by force when it does not.
    pub(crate) async fn cancel(
        &self,
        number: u64,
        principal: &str,
        patience: Duration,
    ) -> Result<CancelReport, Failure> {
        let row = self.find(number, principal).await?;
        let mut report = CancelReport {
            task_id: number,
            status: row.status,
            terminated: false,
            force_killed: false,
            already_finished: !row.status.is_open(),
        };
        if report.already_finished {
            return Ok(report);
        }
        if row.status == TransferStatus::Queued {
            // From here on no process can take charge of it.
            let end = TransferEnd::cancelled();
            self.store.finish_transfer(row.id, end).await?;
        }
        // A process that took charge meanwhile has its mark in the row by now.
        let row = self.find(number, principal).await?;
        if let Some(worker) = &row.worker {
            let ending = end_process(worker, patience).await.ok_or_else(|| {
                let text = format!(
                    "the process {} of transfer {number} does not end",
                    worker.pid
                );
                Failure::new(Code::Busy, text)
                    .hint("it waits for a disk; call again")
                    .retry()
            })?;
            report.terminated = ending.terminated;
            report.force_killed = ending.force_killed;
        }
        let end = TransferEnd::cancelled();
        self.store.finish_transfer(row.id, end).await?;
        // It may have been done at the very last moment.
        report.status = self.find(number, principal).await?.status;
        report.already_finished = report.status != TransferStatus::Cancelled;
        Ok(report)
    }
}

/// Ends the very process that was marked; none when even force does not help.
async fn end_process(worker: &ProcessMark, patience: Duration) -> Option<Ending> {
    let mut ending = Ending {
        terminated: process::signal(worker, Signal::TERM),
        force_killed: false,
    };
    // One that was stopped takes no notice of anything else until it goes on.
    process::signal(worker, Signal::CONT);
    if is_gone_within(worker, patience).await {
        return Some(ending);
    }
    ending.force_killed = process::signal(worker, Signal::KILL);
    is_gone_within(worker, KILL_LIMIT).await.then_some(ending)
}

async fn is_gone_within(worker: &ProcessMark, limit: Duration) -> bool {
    let end = clock::instant() + limit;
    while process::is_alive(worker) {
        if clock::instant() >= end {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}
