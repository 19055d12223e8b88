//! `list`: all sandboxes, and how busy each is.

use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::probe::Resources;
use remote_sandbox_engine::engine::{Engine, Listed, Probed};
use remote_sandbox_server::mcp::sandbox_list;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::report::{Failed, notice, print, table};

/// List all sandboxes with their state and load
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print what the tool list_sandboxes returns
    #[arg(long)]
    pub(crate) json: bool,
}

impl List {
    /// Prints the list.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let text = with_engine(common, |engine, stop| async move {
            tokio::select! {
                text = self.text(&engine) => Ok(text),
                () = stop.cancelled() => Ok(String::new()),
            }
        })?;
        print(&text)
    }

    async fn text(&self, engine: &Engine) -> String {
        if self.json {
            let list = sandbox_list(engine, true).await;
            return format!("{list:#}\n");
        }
        let listed = engine.list(true).await;
        if listed.is_empty()
            && let Err(failure) = engine.sandbox(None)
        {
            notice(&failure.message);
            notice(&format!("hint: {}", failure.hint));
        }
        let heading = ["NAME", "STATE", "CPU", "MEMORY", "GPUS", "SCORE", ""];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(listed.iter().map(row));
        table(&rows)
    }
}

fn row(listed: &Listed) -> Vec<String> {
    match listed {
        Listed::Disabled { name, reason } => {
            let dash = || "-".to_owned();
            let name = clean_line(name, 64);
            let reason = clean_line(reason, 120);
            vec![
                name,
                "disabled".to_owned(),
                dash(),
                dash(),
                dash(),
                dash(),
                reason,
            ]
        }
        Listed::Ready(probed) => ready_row(probed),
    }
}

fn ready_row(probed: &Probed) -> Vec<String> {
    let name = clean_line(probed.description.name.as_str(), 64);
    let (state, resources, remark) = match (&probed.alive, &probed.resources) {
        (Err(failure), _) => (failure.code.name(), None, failure.message.as_str()),
        (Ok(()), Some(Err(failure))) => ("alive", None, failure.message.as_str()),
        (Ok(()), Some(Ok(resources))) => {
            let remark = resources.gpu_error.as_deref().unwrap_or_default();
            ("alive", Some(resources), remark)
        }
        (Ok(()), None) => ("alive", None, ""),
    };
    let mut row = vec![name, state.to_owned()];
    row.extend(figures(resources));
    row.push(clean_line(remark, 120));
    row
}

/// A figure that is not known is a dash, never a zero.
fn figures(resources: Option<&Resources>) -> [String; 4] {
    let dash = || "-".to_owned();
    let Some(resources) = resources else {
        return [dash(), dash(), dash(), dash()];
    };
    let cpu = match (resources.cpu.util_pct, resources.cpu.count) {
        (Some(used), Some(count)) => format!("{used:.0}% of {count}"),
        (Some(used), None) => format!("{used:.0}%"),
        (None, Some(count)) => format!("? of {count}"),
        (None, None) => dash(),
    };
    let memory = match (resources.memory.used_mb, resources.memory.total_mb) {
        (Some(used), Some(total)) => format!("{}/{} GiB", gib(used), gib(total)),
        _ => dash(),
    };
    let gpus = match (resources.gpu.len(), &resources.gpu_error) {
        (0, Some(_)) => "?".to_owned(),
        (count, _) => count.to_string(),
    };
    let score = resources.idle_score;
    let score = score.map_or_else(dash, |score| format!("{score:.2}"));
    [cpu, memory, gpus, score]
}

/// Mebibytes as gibibytes with one digit.
pub(crate) fn gib(mebibytes: u64) -> String {
    format!("{:.1}", mebibytes as f64 / 1024.0)
}
