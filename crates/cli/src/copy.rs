//! `push` and `pull`: files and directories to a sandbox and back.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use remote_sandbox_core::sync::WrittenPath;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, SyncAnswer, Where};
use remote_sandbox_engine::sync::{Figures, PlanReport, Progress, SyncReport, SyncRequest, Way};
use remote_sandbox_server::mcp::{sync_plan, sync_result};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::remote::Remote;
use crate::report::{Failed, notice, print};
use crate::wording;

/// The exit code when something could not be copied and the rest was.
const INCOMPLETE: u8 = 1;

/// How often the figures on a terminal change.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// How often a line is written where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What both directions have in common.
#[derive(Debug, clap::Args)]
struct Options {
    /// Delete what the source does not have; asks for --confirm-delete where that is much
    #[arg(long)]
    delete_extras: bool,

    /// The number of deletions you agree to, as the plan tells it
    #[arg(long, value_name = "N")]
    confirm_delete: Option<u64>,

    /// Leave out what matches, as in .gitignore; `!` takes back, the last match wins
    #[arg(short = 'x', long = "exclude", value_name = "PATTERN")]
    excludes: Vec<String>,

    /// A file with more of these patterns
    #[arg(long, value_name = "FILE")]
    exclude_file: Option<OsString>,

    /// Leave out what the .gitignore files of the source name
    #[arg(long)]
    use_gitignore: bool,

    /// Compare files of the same size by content
    #[arg(long)]
    checksum: bool,

    /// Copy what links lead to instead of the links
    #[arg(long)]
    follow_links: bool,

    /// Show what would be done, and do nothing
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print what the tool returns
    #[arg(long)]
    json: bool,
}

/// Copy a file or directory to a sandbox: only what changed, every file whole or not at all
///
/// Exit codes: 1 something could not be copied and the rest was, 125 nothing could be copied, 130 interrupted,
/// 255 connection lost. A second push goes on where the first one stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Push {
    /// The file or directory on this machine
    local: OsString,

    /// Where it goes; a slash at the end means a directory
    #[arg(value_name = "NAME:REMOTE")]
    remote: OsString,

    /// Copy through links to directories in the target instead of reporting them
    #[arg(long)]
    keep_dirlinks: bool,

    #[command(flatten)]
    options: Options,
}

/// Copy a file or directory of a sandbox to this machine: only what changed, every file whole or not at all
///
/// Files that were edited here are kept and reported. Exit codes: 1 something could not be copied and the rest was,
/// 125 nothing could be copied, 130 interrupted, 255 connection lost. A second pull goes on where the first one stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Pull {
    /// The file or directory in the sandbox
    #[arg(value_name = "NAME:REMOTE")]
    remote: OsString,

    /// Where it goes; a slash at the end means a directory
    local: OsString,

    /// Replace files that were edited here
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    options: Options,
}

impl Push {
    /// Whether the result is wanted as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        self.options.json
    }

    /// Copies.
    pub(crate) fn run(&self, common: &Common) -> Result<u8, Failed> {
        let set = |request: &mut SyncRequest| request.keep_dirlinks = self.keep_dirlinks;
        copy(
            common,
            Way::Up,
            &self.local,
            &self.remote,
            &self.options,
            set,
        )
    }
}

impl Pull {
    /// Whether the result is wanted as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        self.options.json
    }

    /// Copies.
    pub(crate) fn run(&self, common: &Common) -> Result<u8, Failed> {
        let set = |request: &mut SyncRequest| request.overwrite = self.overwrite;
        copy(
            common,
            Way::Down,
            &self.local,
            &self.remote,
            &self.options,
            set,
        )
    }
}

fn copy(
    common: &Common,
    way: Way,
    local: &OsString,
    remote: &OsString,
    options: &Options,
    set: impl Fn(&mut SyncRequest),
) -> Result<u8, Failed> {
    with_engine(common, |engine, stop| async move {
        let remote = Remote::parse(remote, &engine)?;
        let path = remote.path_or_start();
        let request = SyncRequest::new(&remote.name, way, local.as_bytes(), path);
        let mut request = options.request(request);
        set(&mut request);
        options.sync(&engine, stop, request).await
    })
}

impl Options {
    fn request(&self, request: SyncRequest) -> SyncRequest {
        SyncRequest {
            delete_extras: self.delete_extras,
            confirm_delete: self.confirm_delete,
            excludes: self.excludes.clone(),
            exclude_file: self.exclude_file.as_ref().map(written),
            use_gitignore: self.use_gitignore,
            checksum: self.checksum,
            follow_links: self.follow_links,
            ..request
        }
    }

    async fn sync(
        &self,
        engine: &Arc<Engine>,
        stop: CancellationToken,
        request: SyncRequest,
    ) -> Result<u8, Failed> {
        let context = CallContext::new(Principal::local(), stop);
        let place = match self.dry_run {
            true => Where::Nowhere,
            false => Where::Here,
        };
        let (way, sandbox) = (request.way, request.sandbox.clone());
        let progress = Arc::new(Progress::default());
        let drawing = Drawing::new(self.json);
        let work = engine.sync(&context, request, place, &progress);
        let answer = drawing.beside(work, &progress).await?;
        match answer {
            SyncAnswer::Planned(plan) if self.json => {
                print(&format!("{:#}\n", sync_plan(&plan, &sandbox)))?;
                Ok(0)
            }
            SyncAnswer::Planned(plan) => {
                print(&plan_page(&plan))?;
                Ok(0)
            }
            SyncAnswer::Done(report) => {
                let text = match self.json {
                    true => format!("{:#}\n", sync_result("inline", way, &report, &sandbox)),
                    false => report_line(way, &report),
                };
                print(&text)?;
                Ok(self.verdict(&report))
            }
            SyncAnswer::Background(started) => {
                print(&format!(
                    "task {} goes on in the background\n",
                    started.task_id
                ))?;
                Ok(0)
            }
        }
    }

    /// Tells what did not go as wanted, and what the program ends with.
    fn verdict(&self, report: &SyncReport) -> u8 {
        if !self.json {
            for problem in &report.problems {
                notice(&format!("{}: {}", problem.path, problem.problem));
            }
            let more = report
                .problem_count
                .saturating_sub(report.problems.len() as u64);
            if more > 0 {
                notice(&format!("and {more} more"));
            }
        }
        match report.problem_count {
            0 => 0,
            _ => INCOMPLETE,
        }
    }
}

fn written(path: &OsString) -> WrittenPath {
    WrittenPath::from(path.as_bytes())
}

fn report_line(way: Way, report: &SyncReport) -> String {
    let word = match way {
        Way::Up => "pushed",
        Way::Down => "pulled",
    };
    let deleted = match report.deleted_files + report.deleted_dirs {
        0 => String::new(),
        count => format!(", {count} deleted"),
    };
    format!(
        "{word} {} files, {} in {:.1} s ({}/s); {} unchanged{deleted}\n",
        report.sent_files,
        HumanBytes(report.sent_bytes),
        report.duration_s,
        HumanBytes(report.rate_bytes_s),
        report.unchanged_files
    )
}

fn plan_page(plan: &PlanReport) -> String {
    let mut page = format!("{} <-> {}\n", plan.local_path, plan.remote_path);
    for actions in &plan.actions {
        let (action, count) = (&actions.action, actions.count);
        page.push_str(&format!(
            "{action}: {count}, {}\n",
            HumanBytes(actions.bytes)
        ));
        for path in &actions.first {
            page.push_str(&format!("  {path}\n"));
        }
        if count > actions.first.len() as u64 && !actions.first.is_empty() {
            page.push_str("  ...\n");
        }
    }
    if let Some(refusal) = &plan.delete_refused {
        page.push_str(&format!(
            "without --confirm-delete {}: {}\n",
            plan.deletes,
            wording::message(refusal)
        ));
    }
    for problem in &plan.problems {
        page.push_str(&format!("{}: {}\n", problem.path, problem.problem));
    }
    page
}

/// Shows how far it has come: a bar on a terminal, a line now and then elsewhere.
struct Drawing {
    bar: Option<ProgressBar>,
    is_quiet: bool,
}

impl Drawing {
    fn new(is_quiet: bool) -> Self {
        let bar = (std::io::stderr().is_terminal() && !is_quiet).then(|| {
            let bar = ProgressBar::new(0);
            let template = "{prefix} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        Drawing { bar, is_quiet }
    }

    async fn beside<T>(&self, work: impl Future<Output = T>, progress: &Progress) -> T {
        tokio::pin!(work);
        let every = match self.bar {
            Some(_) => DRAW_EVERY,
            None => TELL_EVERY,
        };
        let mut tick = tokio::time::interval(every);
        // The first one is at once.
        tick.tick().await;
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = tick.tick() => self.draw(&progress.figures()),
            }
        };
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        done
    }

    fn draw(&self, figures: &Figures) {
        let phase = format!("{:?}", figures.phase).to_lowercase();
        match &self.bar {
            Some(bar) => {
                bar.set_length(figures.bytes_total);
                bar.set_position(figures.bytes_done);
                bar.set_prefix(format!(
                    "{phase} {}/{}",
                    figures.files_done, figures.files_total
                ));
                bar.set_message(figures.current_path.clone().unwrap_or_default());
            }
            None if self.is_quiet => {}
            None => notice(&format!(
                "{phase}: {} of {} files, {} of {}, {}/s",
                figures.files_done,
                figures.files_total,
                HumanBytes(figures.bytes_done),
                HumanBytes(figures.bytes_total),
                HumanBytes(figures.rate_bytes_s)
            )),
        }
    }
}
