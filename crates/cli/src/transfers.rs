//! `transfers`: syncs that go on in the background.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::clock;
use remote_sandbox_engine::engine::Engine;
use remote_sandbox_engine::transfer::TransferReport;
use remote_sandbox_server::mcp::{transfer_status, transfer_statuses};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::{UnderWay, print_through, with_engine};
use crate::report::{Failed, print, rough, table};

/// Lines of the log that are shown of one transfer.
const LINES: usize = 50;

/// How long a transfer may take to end by itself once it was cancelled.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said when somebody interrupts the cancelling of a transfer.
const CANCEL: UnderWay = UnderWay {
    waiting: "the transfer is being cancelled, and its end is waited for",
    leaving: "`remote-sandbox-mcp transfers` shows whether the transfer has ended",
};

/// List background transfers, look at one, or cancel one
#[derive(Debug, clap::Args)]
pub(crate) struct Transfers {
    /// Number of the transfer to look at
    #[arg(value_name = "ID", conflicts_with = "cancel")]
    id: Option<u64>,

    /// Print what the tool check_file_transfer_task returns
    #[arg(long)]
    pub(crate) json: bool,

    /// End this transfer; what is complete stays, and no file is half. Of a large one the part that came stays
    /// hidden beside it for up to a day, so that the next sync goes on from there
    #[arg(long, value_name = "ID")]
    cancel: Option<u64>,
}

impl Transfers {
    /// Prints the list, or one.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        if self.cancel.is_some() {
            return print_through(common, CANCEL, |engine, _| {
                self.text(engine, CancellationToken::new())
            });
        }
        let text = with_engine(common, |engine, stop| self.text(engine, stop))?;
        print(&text)
    }

    async fn text(&self, engine: Arc<Engine>, stop: CancellationToken) -> Result<String, Failed> {
        let context = CallContext::new(Principal::local(), stop);
        if let Some(task) = self.cancel {
            let done = engine.cancel_transfer(&context, task, PATIENCE).await?;
            if done.already_finished && !self.json {
                return Ok(format!("{task} had ended before: {}\n", done.status.name()));
            }
        }
        if let Some(task) = self.id.or(self.cancel) {
            let report = engine.check_transfer(&context, task, LINES).await?;
            return Ok(match self.json {
                true => format!("{:#}\n", transfer_status(&report)),
                false => page(&report),
            });
        }
        let reports = engine.list_transfers(&context).await?;
        if self.json {
            return Ok(format!("{:#}\n", transfer_statuses(&reports)));
        }
        let heading = ["ID", "STATUS", "DONE", "AGE", "SANDBOX", "TRANSFER"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(reports.iter().map(row));
        Ok(table(&rows))
    }
}

fn status(report: &TransferReport) -> &'static str {
    if report.is_stale {
        "stale"
    } else {
        report.status.name()
    }
}

fn row(report: &TransferReport) -> Vec<String> {
    let age = clock::wall().saturating_sub(report.created);
    vec![
        report.task_id.to_string(),
        status(report).to_owned(),
        share(report),
        rough(age),
        clean_line(&report.sandbox, 64),
        route(report),
    ]
}

fn route(report: &TransferReport) -> String {
    let arrow = if report.direction == "up" { "->" } else { "<-" };
    let (local, remote) = (&report.local_path, &report.remote_path);
    clean_line(&format!("{local} {arrow} {remote}"), 160)
}

/// How much of the bytes is done; a dash where that is not known.
fn share(report: &TransferReport) -> String {
    let figure = |name: &str| report.progress[name].as_u64();
    match (figure("bytes_done"), figure("bytes_total")) {
        (Some(done), Some(total)) if total > 0 => format!("{}%", done.min(total) * 100 / total),
        _ => "-".to_owned(),
    }
}

fn page(report: &TransferReport) -> String {
    let mut text = format!(
        "{}  {}  {}  {}\n",
        report.task_id,
        status(report),
        clean_line(&report.sandbox, 64),
        route(report)
    );
    if let Some(why) = report.error["error"].as_str() {
        text.push_str(&format!("{}\n", clean_line(why, 1000)));
    }
    text.push_str(&format!("log: {}\n", report.log_file));
    if !report.log_tail.is_empty() {
        text.push_str(&report.log_tail);
        text.push('\n');
    }
    text
}
