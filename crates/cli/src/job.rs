//! `job`: one command that goes on without anybody.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    GpuWish, JobId, JobState, SessionName, USUAL_MAX_LOG_BYTES, WatchOrder,
};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::shell::RunSpec;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{
    Engine, FollowFrom, FollowPiece, JobQuery, JobReference, JobReport, JobStartReport, PruneReport,
};
use remote_sandbox_engine::job::JobRequest;
use remote_sandbox_engine::proc;
use remote_sandbox_engine::run::{ReadingPosition, Wanted};
use remote_sandbox_engine::store::JobRow;
use remote_sandbox_server::mcp::{given_name, job_started, job_status};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::{UnderWay, build, print_through, with, with_engine};
use crate::exec::shell_line;
use crate::report::{Failed, notice, print};
use crate::watch_options::WatchOptions;

/// Lines of the log that `show` shows.
const LINES: usize = 20;

/// Start, look at, follow, end or attach to a background job
#[derive(Debug, clap::Args)]
pub(crate) struct Job {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Start a command that goes on without this program and the connection
    Start(Box<Start>),
    /// How a job stands, with the end of its log
    Show {
        /// The job
        id: String,
        /// Print what the tool check_background_task returns
        #[arg(long)]
        json: bool,
    },
    /// Print the log of a job, byte by byte
    Logs {
        /// The job
        id: String,
        /// Go on until the job ends, also when the connection breaks
        #[arg(short, long)]
        follow: bool,
        /// Begin at the last lines
        #[arg(short = 'n', long, value_name = "N")]
        lines: Option<usize>,
    },
    /// End a job with everything it started
    Stop {
        /// The job
        id: String,
    },
    /// Run the resume command of a job that is over, in its session and with its log
    Resume {
        /// The job
        id: String,
    },
    /// Attach to the tmux session of a job; without one, follow its log
    Attach {
        /// The job
        id: String,
    },
    /// Forget jobs that are over and remove their folders from the hosts; logs stay
    Prune {
        /// Only those of this sandbox
        #[arg(long, value_name = "NAME")]
        sandbox: Option<String>,
        /// Only those that were over this many days ago
        #[arg(long, value_name = "DAYS", default_value_t = 0)]
        older_than: u64,
    },
}

#[derive(Debug, clap::Args)]
struct Start {
    /// Name of the sandbox
    name: String,
    /// Name of the session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Directory to run in: absolute, ~/x or relative to the home there
    #[arg(long, value_name = "D")]
    cwd: Option<String>,
    /// Where the log goes
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    log_file: String,
    /// How many GPUs it has for itself, or "auto"
    #[arg(long, value_name = "N", default_value = "", hide_default_value = true)]
    gpus: String,
    /// Have nobody look after it: no events, no resume
    #[arg(long)]
    no_watch: bool,
    /// A name for people
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    watch_name: String,
    /// Your own name for it, kept with it
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    run_id: String,
    /// JSON object, kept with it
    #[arg(
        long,
        value_name = "JSON",
        default_value = "",
        hide_default_value = true
    )]
    metadata_json: String,
    /// Give back the middle of a log that grows past this; 0 for no bound
    #[arg(long, value_name = "BYTES", default_value_t = USUAL_MAX_LOG_BYTES)]
    max_log_bytes: u64,
    /// Print what the tool exec_bash_background returns
    #[arg(long)]
    json: bool,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
    #[command(flatten)]
    watch: WatchOptions,
}

impl Job {
    /// Whether the result is wanted as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.action {
            Action::Start(start) => start.json,
            Action::Show { json, .. } => *json,
            _ => false,
        }
    }

    /// Does it, and prints what came of it.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        match &self.action {
            Action::Logs { id, follow, lines } => {
                let id = parse(id)?;
                with_engine(common, |engine, stop| {
                    logs(engine, stop, id, *follow, *lines)
                })
            }
            Action::Attach { id } => attach(common, &parse(id)?),
            action => match action.under_way() {
                Some(said) => print_through(common, said, |engine, signalled| {
                    text(engine, CancellationToken::new(), action, signalled)
                }),
                None => {
                    let work =
                        |engine, stop: CancellationToken| text(engine, stop.clone(), action, stop);
                    print(&with_engine(common, work)?)
                }
            },
        }
    }
}

impl Action {
    /// What is said to somebody who interrupts it, where it has an effect that is not taken back.
    fn under_way(&self) -> Option<UnderWay> {
        let (waiting, leaving) = match self {
            Action::Start(_) => (
                "the start is under way and is waited for",
                "`remote-sandbox-mcp jobs` shows whether the job runs",
            ),
            Action::Stop { .. } => (
                "the job is being ended, and that is waited for",
                "`remote-sandbox-mcp jobs` shows whether the job still runs",
            ),
            Action::Resume { .. } => (
                "the resume is under way and is waited for",
                "`remote-sandbox-mcp jobs` shows whether the job runs",
            ),
            Action::Prune { .. } => (
                "jobs are being forgotten, and that is waited for",
                "`remote-sandbox-mcp jobs` shows what is left",
            ),
            Action::Show { .. } | Action::Logs { .. } | Action::Attach { .. } => return None,
        };
        Some(UnderWay { waiting, leaving })
    }
}

/// What an action prints. `signalled` tells that somebody wanted to go meanwhile.
async fn text(
    engine: Arc<Engine>,
    stop: CancellationToken,
    action: &Action,
    signalled: CancellationToken,
) -> Result<String, Failed> {
    let context = CallContext::new(Principal::local(), stop);
    match action {
        Action::Start(start) => {
            let report = engine.start_job(&context, start.request()?).await?;
            let warnings = report.warnings.iter().chain(&report.watchdog_warning);
            for note in report.notes.iter().chain(warnings) {
                notice(note);
            }
            tell_of_running(&report.row, &signalled);
            Ok(match start.json {
                true => format!("{:#}\n", job_started(&report)),
                false => started(&report),
            })
        }
        Action::Show { id, json } => {
            let report = engine.check_job(&context, &last_lines(parse(id)?)).await?;
            Ok(match json {
                true => format!("{:#}\n", job_status(&report)),
                false => page(&report),
            })
        }
        Action::Stop { id } => {
            let done = engine.stop_job(&context, &parse(id)?).await?;
            let mut text = page(&done.report);
            if let Some(ended) = done.ended {
                let left = ended.survivors.len();
                text = format!("{} processes ended, {left} left\n{text}", ended.ended.len());
            }
            Ok(text)
        }
        Action::Resume { id } => {
            let row = engine.resume_job(&context, &parse(id)?).await?;
            tell_of_running(&row, &signalled);
            Ok(format!(
                "{} resumed, attempt {}\n",
                row.id, row.attempt.number
            ))
        }
        Action::Prune {
            sandbox,
            older_than,
        } => {
            let age = Duration::from_secs(older_than.saturating_mul(24 * 3600));
            let done = engine.prune_jobs(&context, sandbox.as_deref(), age).await?;
            Ok(pruned(&done))
        }
        Action::Logs { .. } | Action::Attach { .. } => Ok(String::new()),
    }
}

/// Somebody who interrupted a start may not want it any more.
fn tell_of_running(row: &JobRow, signalled: &CancellationToken) {
    if signalled.is_cancelled() {
        let id = &row.id;
        notice(&format!(
            "{id} runs all the same; `remote-sandbox-mcp job stop {id}` ends it"
        ));
    }
}

fn pruned(done: &PruneReport) -> String {
    for stay in &done.failed {
        let (count, sandbox) = (stay.count, clean_line(&stay.sandbox, 64));
        notice(&format!(
            "{count} jobs of {sandbox} stay: {}",
            stay.failure.message
        ));
    }
    if done.held > 0 {
        notice(&format!(
            "{} jobs stay: their watches have not told of their end yet, or resume them; \
             `remote-sandbox-mcp watchdog status` shows whether the watchdog runs",
            done.held
        ));
    }
    format!("{} jobs forgotten\n", done.forgotten.len())
}

fn parse(id: &str) -> Result<JobId, Failed> {
    let unknown = |error| {
        Failure::new(Code::InvalidParams, format!("{error}"))
            .hint("`remote-sandbox-mcp jobs` shows the ids")
    };
    Ok(JobId::parse(id).map_err(unknown)?)
}

/// The end of a log, as people want to see it.
pub(crate) fn end_of_log() -> Wanted {
    Wanted {
        position: ReadingPosition::LastLines(LINES),
        budget: 64 * 1024,
        grep: None,
    }
}

fn last_lines(id: JobId) -> JobQuery {
    JobQuery {
        job: JobReference::Id(id),
        wanted: end_of_log(),
        wait: Duration::ZERO,
        wait_for: None,
    }
}

impl Start {
    fn request(&self) -> Result<JobRequest, Failed> {
        let wrong = |text: String| Failed::from(Failure::new(Code::InvalidParams, text));
        let mut run = RunSpec::new(shell_line(&self.command))?;
        if let Some(cwd) = &self.cwd {
            run = run.in_directory(cwd)?;
        }
        let session = self.session.as_deref().map(SessionName::from_wish);
        let gpus = GpuWish::parse(&self.gpus);
        // What is wrong in it is told also when nobody is to watch.
        let watch = self.watch.order()?;
        let metadata = WatchOrder::metadata(&self.metadata_json);
        Ok(JobRequest {
            sandbox: Some(self.name.clone()),
            run,
            session: session
                .transpose()
                .map_err(|error| wrong(error.to_string()))?,
            log_file: self.log_file.clone(),
            gpus: gpus.map_err(|error| wrong(error.to_string()))?,
            max_log_bytes: self.max_log_bytes,
            watch: (!self.no_watch).then_some(watch),
            run_id: given_name("run-id", &self.run_id)?,
            name: given_name("watch-name", &self.watch_name)?,
            metadata: metadata.map_err(|error| wrong(error.to_string()))?,
        })
    }
}

fn started(report: &JobStartReport) -> String {
    let row = &report.row;
    let watch = row.watch_id.map(|watch| watch.number());
    let watch = watch.map_or_else(String::new, |number| format!("watch: {number}\n"));
    format!("{}\nlog: {}\n{watch}", row.id, row.log_file)
}

fn page(report: &JobReport) -> String {
    let id = report.row.as_ref().map_or("", |row| row.id.as_str());
    let mut text = format!("{id}  {}", describe(&report.state));
    text.push_str(&format!(
        "  {}  {}\n",
        clean_line(&report.sandbox, 64),
        report.session
    ));
    if let Some(row) = &report.row {
        text.push_str(&format!("command: {}\n", clean_line(&row.command, 1000)));
        if let Some(cwd) = &row.cwd {
            text.push_str(&format!("cwd: {}\n", clean_line(cwd, 1000)));
        }
        if let Some(gpus) = &row.gpus {
            text.push_str(&format!("gpus: {gpus}\n"));
        }
    }
    if let Some(failure) = &report.failure {
        text.push_str(&format!("{}\n", clean_line(&failure.message, 1000)));
    }
    text.push_str(&format!("log: {}\n", clean_line(&report.log_file, 1000)));
    if let Some(reading) = &report.reading {
        text.push_str(&reading.text);
    }
    text
}

fn describe(state: &JobState) -> String {
    let word = match state.exit_code() {
        Some(code) => format!("{} {code}", state.word()),
        None => state.word().to_owned(),
    };
    match state.reason() {
        Some(reason) => format!("{word} ({reason})"),
        None => word,
    }
}

/// Writes the log as it is; ends with the job when it follows, else with what is there.
async fn logs(
    engine: Arc<Engine>,
    stop: CancellationToken,
    id: JobId,
    follow: bool,
    lines: Option<usize>,
) -> Result<(), Failed> {
    let context = CallContext::new(Principal::local(), stop.clone());
    let from = lines.map_or(FollowFrom::Start, FollowFrom::LastLines);
    let mut follower = engine.follow_job(&context, &id, from).await?;
    let mut told = "";
    loop {
        let piece = tokio::select! {
            piece = follower.next_piece() => piece?,
            () = stop.cancelled() => return Ok(()),
        };
        match piece {
            FollowPiece::Bytes(bytes) => {
                told = "";
                write(&bytes)?;
                continue;
            }
            FollowPiece::Omitted { rest, bytes } => {
                told = "";
                write(&rest)?;
                notice(&format!(
                    "{id}: {bytes} bytes of the log are not kept any more and are left out here"
                ));
                continue;
            }
            FollowPiece::Silent(failure) if !follow => return Err(failure.into()),
            FollowPiece::Silent(failure) => {
                let text = format!("{}; it is tried again", failure.message);
                tell_once(&mut told, "silent", &text);
            }
            FollowPiece::Interrupted(state) if follow => {
                let text = format!("{id}: {}; the watchdog is to resume it", describe(&state));
                tell_once(&mut told, "interrupted", &text);
            }
            FollowPiece::Nothing if follow => {}
            FollowPiece::Nothing | FollowPiece::Interrupted(_) => return write(&follower.rest()),
            FollowPiece::End(state) => {
                write(&follower.rest())?;
                if follow {
                    notice(&format!("{id}: {}", describe(&state)));
                }
                return Ok(());
            }
        }
        tokio::select! {
            () = follower.pause() => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Tells why there is nothing, once for each kind of reason until there is something again.
fn tell_once(told: &mut &'static str, kind: &'static str, text: &str) {
    if *told != kind {
        notice(text);
    }
    *told = kind;
}

fn write(bytes: &[u8]) -> Result<(), Failed> {
    let mut output = io::stdout().lock();
    output
        .write_all(bytes)
        .and_then(|()| output.flush())
        .map_err(Failed::Output)
}

/// Becomes a terminal in the session of the job where there can be one; follows the log otherwise.
fn attach(common: &Common, id: &JobId) -> Result<(), Failed> {
    let engine = build(common)?;
    let looked = with(engine.clone(), |engine, stop| async move {
        let context = CallContext::new(Principal::local(), stop);
        Ok(engine.check_job(&context, &last_lines(id.clone())).await?)
    })?;
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let words = engine.terminal_words(&looked.sandbox);
    match words.filter(|_| is_terminal && looked.state == JobState::Running) {
        Some(mut words) => {
            words.push(attach_line(&looked));
            Err(Failed::Attach(proc::become_program(&words)))
        }
        None => {
            let id = id.clone();
            with_engine(common, |engine, stop| {
                logs(engine, stop, id, true, Some(LINES))
            })
        }
    }
}

/// What the shell there runs: the session where there is one, else the log.
fn attach_line(report: &JobReport) -> String {
    let quote = remote_sandbox_core::shell::quote;
    let session = quote(&format!("={}", report.session));
    let log = quote(&report.log_file);
    format!("exec sh -c 'tmux attach -t \"$1\" || exec tail -n 100 -F \"$2\"' sh {session} {log}")
}
