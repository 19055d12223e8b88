//! `jobs`: commands that go on without anybody.

use std::sync::Arc;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::clock;
use remote_sandbox_engine::engine::{Engine, JobReport};
use remote_sandbox_server::mcp::job_list;
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::report::{Failed, print, rough, table};

/// Most jobs that are listed.
const MOST: usize = 200;

/// List background jobs and how they stand, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct Jobs {
    /// Only those of this sandbox
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,

    /// Print what the tool list_background_tasks returns
    #[arg(long)]
    pub(crate) json: bool,
}

impl Jobs {
    /// Prints the list.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let text = with_engine(common, |engine, stop| self.text(engine, stop))?;
        print(&text)
    }

    async fn text(&self, engine: Arc<Engine>, stop: CancellationToken) -> Result<String, Failed> {
        let context = CallContext::new(Principal::local(), stop);
        let sandbox = self.sandbox.as_deref();
        let jobs = engine.list_jobs(&context, sandbox, MOST).await?;
        if self.json {
            return Ok(format!("{:#}\n", job_list(&jobs, &[], MOST)));
        }
        let heading = ["ID", "STATUS", "AGE", "SANDBOX", "SESSION", "COMMAND"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(jobs.iter().filter_map(row));
        Ok(table(&rows))
    }
}

fn row(report: &JobReport) -> Option<Vec<String>> {
    let row = report.row.as_ref()?;
    let status = match report.state.exit_code() {
        Some(code) => format!("{} {code}", report.state.word()),
        None => report.state.word().to_owned(),
    };
    let age = clock::wall().saturating_sub(row.created);
    Some(vec![
        row.id.to_string(),
        status,
        rough(age),
        clean_line(&row.sandbox, 64),
        row.session.to_string(),
        clean_line(&row.command, 80),
    ])
}
