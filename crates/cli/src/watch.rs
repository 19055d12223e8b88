//! `watch`: tasks that the watchdog looks after.

use std::sync::Arc;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::clock;
use remote_sandbox_engine::engine::{Engine, LiveReport, WatchRequest};
use remote_sandbox_engine::store::WatchRow;
use remote_sandbox_server::mcp::{
    given_name, status_of, watch_added, watch_json, watch_list, watch_progress,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::{UnderWay, print_through, with_engine};
use crate::job::end_of_log;
use crate::report::{Failed, notice, print, rough, table};
use crate::watch_options::WatchOptions;

/// Most watches that are listed.
const MOST: usize = 500;

/// Bytes of a checkpoint that are shown.
const CHECKPOINT: u64 = 20_000;

/// What is said when somebody interrupts a change.
const CHANGE: UnderWay = UnderWay {
    waiting: "the watch is being written down, and that is waited for",
    leaving: "`remote-sandbox-mcp watch list` shows what is watched",
};

/// List, show, add or end watches: tasks that the watchdog looks after
#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Watches, the newest first
    List {
        /// Only those that are active, completed, exhausted or cancelled
        #[arg(
            long,
            value_name = "STATUS",
            default_value = "",
            hide_default_value = true
        )]
        status: String,
        /// Print them as the tool list_background_watches returns them
        #[arg(long)]
        json: bool,
    },
    /// One watch
    Show {
        /// Its number
        id: u64,
        /// Print it as the tool get_background_watch returns it
        #[arg(long)]
        json: bool,
    },
    /// End a watch; its task goes on
    Cancel {
        /// Its number
        id: u64,
        /// Print it as the tool get_background_watch returns it
        #[arg(long)]
        json: bool,
    },
    /// Have a task watched that runs already
    Add(Box<Add>),
    /// How far a watched task is: its log and its checkpoint now
    Progress {
        /// The number of its watch
        id: u64,
        /// Only what the watchdog last saw
        #[arg(long)]
        stored: bool,
        /// Print what the tool get_background_watch_progress returns
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Name of the sandbox
    sandbox: String,
    /// Its tmux session
    session: String,
    /// Its log there
    log_file: String,
    /// Directory of the task, from which checkpoints are found and a resume runs
    #[arg(long, value_name = "D")]
    cwd: Option<String>,
    /// A name for people
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    name: String,
    /// Print what the tool watch_background_task returns
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: WatchOptions,
}

impl Watch {
    /// Whether the result is wanted as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.action {
            Action::Add(add) => add.json,
            Action::List { json, .. }
            | Action::Show { json, .. }
            | Action::Cancel { json, .. }
            | Action::Progress { json, .. } => *json,
        }
    }

    /// Does it, and prints what came of it.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        if let Action::Add(_) | Action::Cancel { .. } = self.action {
            return print_through(common, CHANGE, |engine, _| {
                text(engine, CancellationToken::new(), &self.action)
            });
        }
        let text = with_engine(common, |engine, stop| text(engine, stop, &self.action))?;
        print(&text)
    }
}

async fn text(
    engine: Arc<Engine>,
    stop: CancellationToken,
    action: &Action,
) -> Result<String, Failed> {
    let context = CallContext::new(Principal::local(), stop);
    match action {
        Action::List { status, json } => {
            let rows = engine.watches(&context, status_of(status)?, MOST).await?;
            Ok(match json {
                true => format!("{:#}\n", watch_list(&rows)),
                false => list(&rows),
            })
        }
        Action::Show { id, json } => Ok(shown(&engine.watch(&context, *id).await?, *json)),
        Action::Cancel { id, json } => Ok(shown(&engine.cancel_watch(&context, *id).await?, *json)),
        Action::Add(add) => add.text(&engine, &context).await,
        Action::Progress { id, stored, json } => {
            let row = engine.watch(&context, *id).await?;
            let wanted = end_of_log();
            let live = match stored {
                true => None,
                false => Some(
                    engine
                        .watch_live(&context, *id, &wanted, CHECKPOINT)
                        .await?,
                ),
            };
            Ok(match json {
                true => format!("{:#}\n", watch_progress(&row, live.as_ref())),
                false => format!("{}{}", page(&row), progress(&row, live.as_ref())),
            })
        }
    }
}

impl Add {
    async fn text(&self, engine: &Engine, context: &CallContext) -> Result<String, Failed> {
        let request = WatchRequest {
            sandbox: Some(self.sandbox.clone()),
            session: self.session.clone(),
            log_file: self.log_file.clone(),
            cwd: self.cwd.clone(),
            launch_command: String::new(),
            run_id: None,
            name: given_name("name", &self.name)?,
            metadata: None,
            order: self.options.order()?,
        };
        let report = engine.add_watch(context, request).await?;
        for warning in report.warnings.iter().chain(&report.watchdog_warning) {
            notice(warning);
        }
        Ok(match self.json {
            true => format!("{:#}\n", watch_added(&report)),
            false => format!("watch {}\n", report.row.id.number()),
        })
    }
}

fn list(rows: &[WatchRow]) -> String {
    let heading = ["ID", "STATUS", "STATE", "AGE", "SANDBOX", "SESSION", "NAME"];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        let age = clock::wall().saturating_sub(row.created);
        let name = row.name.as_deref().unwrap_or_default();
        vec![
            row.id.number().to_string(),
            row.status.word().to_owned(),
            row.last_state.clone(),
            rough(age),
            clean_line(&row.sandbox, 64),
            clean_line(&row.session, 64),
            clean_line(name, 80),
        ]
    }));
    table(&lines)
}

fn shown(row: &WatchRow, as_json: bool) -> String {
    match as_json {
        true => format!("{:#}\n", json!({ "watch": watch_json(row) })),
        false => page(row),
    }
}

fn page(row: &WatchRow) -> String {
    let mut text = format!(
        "watch {}  {}  {}  {}  {}\nlog: {}\n",
        row.id.number(),
        row.status.word(),
        row.last_state,
        clean_line(&row.sandbox, 64),
        clean_line(&row.session, 64),
        clean_line(&row.log_file, 1000),
    );
    let resumes = row.order.policy.max_resume_attempts;
    let lines = [
        ("job", row.job.as_ref().map(ToString::to_string)),
        ("name", row.name.clone()),
        ("resume", row.order.resume.command.clone()),
        ("checkpoint", row.order.checkpoint_path.clone()),
        ("last", row.last_summary.clone()),
        ("error", row.last_error.clone()),
    ];
    for (name, line) in lines {
        if let Some(line) = line {
            text.push_str(&format!("{name}: {}\n", clean_line(&line, 1000)));
        }
    }
    if row.order.policy.auto_resume {
        let done = row.history.resumes;
        text.push_str(&format!("resumed: {done} of at most {resumes} times\n"));
    }
    text
}

fn progress(row: &WatchRow, live: Option<&LiveReport>) -> String {
    let mut text = String::new();
    let mut part = |name: &str, words: &str| {
        text.push_str(&format!("{name}:\n{}\n", words.trim_end_matches('\n')));
    };
    let Some(live) = live else {
        part("checkpoint", row.last_checkpoint.as_deref().unwrap_or(""));
        part("log", row.last_log_tail.as_deref().unwrap_or(""));
        return text;
    };
    match &live.checkpoint {
        None => {}
        Some(Ok(report)) => part("checkpoint", &report.text),
        Some(Err(failure)) => part("checkpoint", &clean_line(&failure.message, 1000)),
    }
    match &live.task {
        Err(failure) => part("log", &clean_line(&failure.message, 1000)),
        Ok(report) => {
            let state = report.state.word();
            let words = report.reading.as_ref().map(|reading| reading.text.as_str());
            part(&format!("log ({state})"), words.unwrap_or_default());
        }
    }
    text
}
