//! `check_background_task`, `stop_background_task`, `list_background_tasks`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{FileKind, JobId, JobState, StopReport, UnknownReason};
use remote_sandbox_core::output::{Pattern, PatternError, clean_line};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::clock;
use remote_sandbox_engine::engine::{
    Engine, JobQuery, JobReference, JobReport, JobStopReport, LONGEST_WAIT, TaskRequest,
};
use remote_sandbox_engine::run::{ReadingPosition, RunRecord, Wanted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::runs;
use super::{Definition, Label, Nature, given, positive};
use crate::mcp::render::Reply;

/// Most characters of output in one reply.
const MOST_OUTPUT_CHARS: i64 = 1_000_000;

/// Most tasks in one list.
const MOST_TASKS: i64 = 200;

/// Characters of a command in a list.
const SHOWN_COMMAND: usize = 120;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "check_background_task",
            title: "Read a task",
            description: "Status and output of a task: its last lines, or from since_byte on (pass next_byte to read on). wait_s waits for new output, the end or the pattern wait_for: prefer it to polling.",
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

/// Tools that are shown on request.
pub(super) fn advanced() -> Vec<Definition> {
    vec![
        Label {
            name: "list_background_tasks",
            title: "List tasks",
            description: "Background jobs and handed-over commands, newest first.",
            nature: Nature::READS,
            core: false,
        }
        .define(list),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckParams {
    #[serde(default)]
    task_id: Option<String>,
    /// Instead of task_id: a session, also one that somebody else started
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    tmux_session: String,
    /// Its log, where it is not at the usual place
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    log_file: String,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    watch_id: i64,
    /// Where that session is
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    sandbox_name: String,
    #[serde(default)]
    since_byte: Option<i64>,
    /// At most 280
    #[serde(default)]
    wait_s: f64,
    /// Regex
    #[serde(default)]
    wait_for: Option<String>,
    /// Regex: only its lines
    #[serde(default)]
    grep: Option<String>,
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    #[serde(default)]
    sandbox_name: Option<String>,
    #[serde(default = "usual_tasks")]
    limit: i64,
}

fn usual_tasks() -> i64 {
    20
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidParams, text)
}

fn pattern(field: &'static str, text: Option<String>) -> Result<Option<Pattern>, Failure> {
    let parsed = Pattern::parse(field, text.as_deref().unwrap_or_default());
    parsed.map_err(|error: PatternError| invalid(Failure::chain(&error)))
}

/// What a call is about.
enum Task {
    Run(String),
    Job(JobReference),
}

impl CheckParams {
    fn task(&self) -> Result<Task, Failure> {
        if let Some(task) = given(self.task_id.clone()) {
            return Ok(match JobId::parse(&task) {
                Ok(id) => Task::Job(JobReference::Id(id)),
                Err(_) => Task::Run(task),
            });
        }
        if self.watch_id != 0 {
            let number = u64::try_from(self.watch_id);
            let number = number.map_err(|_| invalid("`watch_id` must be positive"))?;
            return Ok(Task::Job(JobReference::Watch(number)));
        }
        match given(Some(self.tmux_session.clone())) {
            Some(session) => Ok(Task::Job(JobReference::Session {
                session,
                log_file: self.log_file.clone(),
                sandbox: given(Some(self.sandbox_name.clone())),
            })),
            None => Err(invalid(
                "check_background_task needs `task_id`, `tmux_session` or `watch_id`",
            )
            .hint("pass the `task_id` that exec_bash or exec_bash_background returned")),
        }
    }

    fn wanted(&self) -> Result<Wanted, Failure> {
        let lines = positive("last_n_lines", self.last_n_lines, 10_000)?;
        let chars = self.max_output_chars;
        let budget = positive("max_output_chars", chars, MOST_OUTPUT_CHARS)?;
        let since = self.since_byte.map(u64::try_from).transpose();
        let since = since.map_err(|_| invalid("`since_byte` must not be negative"))?;
        Ok(Wanted {
            position: since.map_or(ReadingPosition::LastLines(lines), ReadingPosition::Since),
            // A character has at least one byte.
            budget: budget.max(4),
            grep: pattern("grep", self.grep.clone())?,
        })
    }
}

async fn check(
    engine: Arc<Engine>,
    context: CallContext,
    params: CheckParams,
) -> Result<Reply, Failure> {
    let wanted = params.wanted()?;
    let wait = params.wait_s.clamp(0.0, LONGEST_WAIT.as_secs_f64());
    let wait = Duration::from_secs_f64(if wait.is_nan() { 0.0 } else { wait });
    let task = params.task()?;
    let wait_for = pattern("wait_for", params.wait_for)?;
    match task {
        Task::Run(task) => {
            let request = TaskRequest {
                task,
                wanted,
                wait,
                wait_for,
            };
            Ok(runs::render(engine.check_task(&context, &request).await?))
        }
        Task::Job(job) => {
            let query = JobQuery {
                job,
                wanted,
                wait,
                wait_for,
            };
            Ok(render(&engine.check_job(&context, &query).await?, None))
        }
    }
}

async fn stop(
    engine: Arc<Engine>,
    context: CallContext,
    params: StopParams,
) -> Result<Reply, Failure> {
    match JobId::parse(&params.task_id) {
        Ok(id) => {
            let JobStopReport { report, ended } = engine.stop_job(&context, &id).await?;
            Ok(render(&report, ended.as_ref()))
        }
        Err(_) => {
            let report = engine.stop_task(&context, &params.task_id).await?;
            Ok(runs::render(report))
        }
    }
}

async fn list(
    engine: Arc<Engine>,
    context: CallContext,
    params: ListParams,
) -> Result<Reply, Failure> {
    let most = positive("limit", params.limit, MOST_TASKS)?;
    let sandbox = given(params.sandbox_name);
    if let Some(name) = &sandbox {
        engine.sandbox(Some(name))?;
    }
    let jobs = engine.list_jobs(&context, sandbox.as_deref(), most).await?;
    let runs = engine.list_runs(&context);
    let is_there = |run: &RunRecord| sandbox.as_ref().is_none_or(|name| run.sandbox == *name);
    let runs: Vec<RunRecord> = runs.into_iter().filter(is_there).collect();
    let list = job_list(&jobs, &runs, most);
    let count = list["tasks"].as_array().map_or(0, Vec::len);
    Ok(Reply::new(list, format!("{count} tasks")))
}

#[derive(Serialize)]
struct ProcessReply<'a> {
    pid: u32,
    name: &'a str,
}

#[derive(Serialize, Default)]
struct JobReply<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    connection_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    tmux_session: &'a str,
    status: &'static str,
    /// Null when nobody knows.
    running: Option<bool>,
    exit_code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Vec<ProcessReply<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_running: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch_id: Option<u64>,
    sandbox: &'a str,
    log_file: &'a str,
    since_byte: u64,
    next_byte: u64,
    total_bytes: u64,
    /// Bytes that were asked for but are not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_bytes: Option<u64>,
    log_tail: &'a str,
}

/// What `check_background_task` returns about a job.
pub fn job_status(report: &JobReport) -> Value {
    serde_json::to_value(reply_of(report, None)).unwrap_or_default()
}

fn render(report: &JobReport, ended: Option<&StopReport>) -> Reply {
    let reply = reply_of(report, ended);
    let is_failure = reply.error.is_some();
    let verdict = match reply.exit_code {
        Some(code) => format!(
            "{} with exit code {code} (sandbox {})",
            reply.status, report.sandbox
        ),
        None => format!("{} (sandbox {})", reply.status, report.sandbox),
    };
    let body = reply.log_tail.to_owned();
    let reply = Reply::new(reply, verdict).body(body);
    if is_failure { reply.failed() } else { reply }
}

fn reply_of<'a>(report: &'a JobReport, ended: Option<&'a StopReport>) -> JobReply<'a> {
    let state = &report.state;
    let failure = report.failure.as_ref();
    // A job that is over is over, whether its log can be read now or not.
    let failed = failure.filter(|_| !state.is_terminal());
    let mut reply = JobReply {
        error: failed.map(|failure| failure.message.as_str()),
        code: failed.map(|failure| failure.code),
        hint: failed
            .map(|failure| failure.hint.as_str())
            .filter(|hint| !hint.is_empty()),
        connection_error: failure.is_some(),
        task_id: report.row.as_ref().map(|row| row.id.as_str()),
        tmux_session: &report.session,
        status: state.word(),
        running: is_running(state),
        exit_code: state.exit_code(),
        signal: state.signal_name(),
        reason: state.reason(),
        note: note_of(report),
        watch_id: report
            .row
            .as_ref()
            .and_then(|row| row.watch_id)
            .or(report.watch)
            .map(|watch| watch.number()),
        sandbox: &report.sandbox,
        log_file: &report.log_file,
        ..JobReply::default()
    };
    if let JobState::Unreachable { since } = state {
        reply.unreachable_since = Some(clock::format_timestamp(Duration::from_secs(*since)));
    }
    // Of a task that is not ours nothing else ever tells it.
    if let JobState::Unknown {
        reason: UnknownReason::OnlyTheLogSays(code),
    } = state
    {
        reply.exit_code = Some(*code);
        reply.running = Some(false);
    }
    if let Some(reading) = &report.reading {
        reply.since_byte = reading.from;
        reply.next_byte = reading.next;
        reply.total_bytes = reading.total;
        reply.omitted_bytes = Some(reading.missing).filter(|missing| *missing > 0);
        reply.log_tail = &reading.text;
    }
    if let Some(ended) = ended {
        reply.ended_count = Some(ended.found.saturating_sub(count(ended.survivors.len())));
        reply.ended = Some(processes(&ended.ended));
        reply.left_running = match ended {
            ended if ended.is_blind => Some(json!("unknown")),
            ended if ended.survivors.is_empty() => None,
            ended => Some(json!(processes(&ended.survivors))),
        };
    }
    reply
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn processes(all: &[remote_sandbox_core::shell::Survivor]) -> Vec<ProcessReply<'_>> {
    all.iter()
        .map(|process| ProcessReply {
            pid: process.pid,
            name: &process.name,
        })
        .collect()
}

/// Whether it runs, as far as anybody knows.
fn is_running(state: &JobState) -> Option<bool> {
    match state {
        JobState::Running => Some(true),
        JobState::Starting | JobState::Unreachable { .. } | JobState::Unknown { .. } => None,
        _ => Some(false),
    }
}

fn note_of(report: &JobReport) -> Option<String> {
    let mut notes = Vec::new();
    if report.is_unattended {
        notes.push("the process that would write down its end is gone; it still runs");
    }
    if report.has_left && report.state.is_terminal() {
        notes.push("processes that it started still run; stop_background_task ends them");
    }
    if report.is_log_unbounded {
        notes.push("its log grows past max_log_bytes, and its disk gives nothing back");
    }
    match report.log {
        Some(FileKind::Missing) if report.row.is_none() && report.state.is_terminal() => {
            notes.push("there is no session of that name and no such log");
        }
        Some(FileKind::Missing) => notes.push("its log is not there"),
        Some(FileKind::Unreadable) => notes.push("its log cannot be read"),
        Some(FileKind::NotAFile) => notes.push("its log is not a file"),
        Some(FileKind::File) | None => {}
    }
    if report.failure.is_some() && report.state.is_terminal() {
        notes.push("its log cannot be read now: the host cannot be asked");
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What `list_background_tasks` returns.
pub fn job_list(jobs: &[JobReport], runs: &[RunRecord], most: usize) -> Value {
    let mut tasks: Vec<(f64, Value)> = Vec::with_capacity(jobs.len() + runs.len());
    for report in jobs {
        let Some(row) = &report.row else { continue };
        let mut task = json!({
            "task_id": row.id,
            "kind": "job",
            "status": report.state.word(),
            "running": is_running(&report.state),
            "exit_code": report.state.exit_code(),
            "sandbox": row.sandbox,
            "started_at": clock::format_timestamp(row.created),
            "command": clean_line(&row.command, SHOWN_COMMAND),
            "tmux_session": row.session,
            "log_file": row.log_file,
        });
        let more = [
            ("reason", report.state.reason().map(Value::from)),
            ("name", row.name.clone().map(Value::from)),
            ("run_id", row.run_id.clone().map(Value::from)),
            ("gpus", row.gpus.clone().map(Value::from)),
            ("watch_id", row.watch_id.map(|watch| watch.number().into())),
        ];
        if let Some(task) = task.as_object_mut() {
            task.extend(
                more.into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?))),
            );
        }
        tasks.push((row.created.as_secs_f64(), task));
    }
    for run in runs {
        let started = Duration::from_secs_f64(run.started_at_s.max(0.0));
        let task = json!({
            "task_id": run.id,
            "kind": "run",
            "status": run.outcome,
            "running": run.outcome == RunRecord::RUNNING,
            "exit_code": run.exit_code,
            "sandbox": run.sandbox,
            "started_at": clock::format_timestamp(started),
            "command": clean_line(&run.command, SHOWN_COMMAND),
        });
        tasks.push((run.started_at_s, task));
    }
    tasks.sort_by(|one, two| two.0.total_cmp(&one.0));
    let tasks: Vec<Value> = tasks.into_iter().take(most).map(|(_, task)| task).collect();
    json!({ "tasks": tasks })
}
