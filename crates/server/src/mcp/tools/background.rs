//! `exec_bash_background`.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    GpuWish, SessionName, USUAL_MAX_LOG_BYTES, WatchOrder, WatchPolicy, WatchWish,
};
use remote_sandbox_core::shell::RunSpec;
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, JobStartReport};
use remote_sandbox_engine::job::JobRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Definition, Label, Nature, given};
use crate::mcp::render::Reply;

/// Longest name that a caller gives a job.
const LONGEST_NAME: usize = 200;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "exec_bash_background",
            title: "Start a background job",
            description: "Start a long command that outlives this call, server and connection. Returns a task_id for check_background_task and stop_background_task.",
            nature: Nature::RUNS,
            core: false,
        }
        .define(start),
    ]
}

/// Tools that are shown on request.
pub(super) fn advanced() -> Vec<Definition> {
    vec![
        Label {
            name: "exec_bash_background_watch",
            title: "Start a watched job",
            description: "The older name of exec_bash_background.",
            nature: Nature::RUNS,
            core: false,
        }
        .define(start_watched),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartParams {
    command: String,
    #[serde(default)]
    session_name: Option<String>,
    /// Default: .codex_logs/SESSION.log in cwd
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    log_file: String,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    sandbox_name: Option<String>,
    /// How many for itself, or "auto"
    #[serde(default)]
    #[schemars(extend("number_too" = true))]
    gpus: Option<String>,
    #[serde(default = "yes")]
    #[schemars(extend("unlisted" = true))]
    watch: bool,
    #[serde(default = "yes")]
    #[schemars(extend("unlisted" = true))]
    ensure_watchdog: bool,
    /// Your own name for it, kept with it
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    run_id: String,
    /// A name for people
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    watch_name: String,
    /// Run when it was interrupted
    #[serde(default)]
    resume_command: Option<String>,
    /// JSON object with `resume_command`, `checkpoint_path` and what else you want to keep
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    resume_plan_json: String,
    /// A file in which it tells how far it is
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    checkpoint_path: String,
    /// `text` or `json`
    #[serde(default = "text")]
    #[schemars(extend("unlisted" = true))]
    checkpoint_format: String,
    /// Prints the checkpoint instead
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    checkpoint_command: String,
    #[serde(default = "usual_interval")]
    #[schemars(extend("unlisted" = true))]
    interval_s: i64,
    /// Lines of log in an event
    #[serde(default = "usual_lines")]
    #[schemars(extend("unlisted" = true))]
    max_log_lines: i64,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    webhook_url: String,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    event_command: String,
    /// Run resume_command by itself
    #[serde(default)]
    auto_resume: bool,
    #[serde(default = "one")]
    #[schemars(extend("unlisted" = true))]
    max_resume_attempts: i64,
    /// JSON object, kept with it
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    metadata_json: String,
    #[serde(default = "yes")]
    #[schemars(extend("unlisted" = true))]
    notify_local: bool,
    #[serde(default = "usual_failures")]
    #[schemars(extend("unlisted" = true))]
    alert_after_failures: i64,
    #[serde(default = "usual_delay")]
    #[schemars(extend("unlisted" = true))]
    resume_delay_s: i64,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    codex_wakeup: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    codex_command: String,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    claude_wakeup: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    claude_command: String,
    /// Past this the middle of the log is given back to the disk; 0 for no bound
    #[serde(default = "usual_log_bytes")]
    #[schemars(extend("unlisted" = true))]
    max_log_bytes: i64,
    /// Tell when the log has not grown for so long; 0 for never
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    stall_after_s: i64,
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn one() -> i64 {
    1
}

pub(super) fn text() -> String {
    "text".to_owned()
}

pub(super) fn usual_interval() -> i64 {
    signed(WatchPolicy::default().interval_s)
}

pub(super) fn usual_delay() -> i64 {
    signed(WatchPolicy::default().resume_delay_s)
}

pub(super) fn usual_failures() -> i64 {
    i64::from(WatchPolicy::default().alert_after_failures)
}

pub(super) fn usual_lines() -> i64 {
    80
}

fn usual_log_bytes() -> i64 {
    signed(USUAL_MAX_LOG_BYTES)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn invalid(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(Code::InvalidParams, Failure::chain(error)).hint("nothing was started")
}

/// What parameters say about watching; both tools that take them have the same names for them.
macro_rules! wish_of {
    ($params:expr) => {
        WatchWish {
            ensure_watchdog: $params.ensure_watchdog,
            resume_command: $params.resume_command.unwrap_or_default(),
            resume_plan_json: $params.resume_plan_json,
            checkpoint_path: $params.checkpoint_path,
            checkpoint_format: $params.checkpoint_format,
            checkpoint_command: $params.checkpoint_command,
            interval_s: $params.interval_s,
            max_log_lines: $params.max_log_lines,
            webhook_url: $params.webhook_url,
            event_command: $params.event_command,
            auto_resume: $params.auto_resume,
            max_resume_attempts: $params.max_resume_attempts,
            notify_local: $params.notify_local,
            alert_after_failures: $params.alert_after_failures,
            resume_delay_s: $params.resume_delay_s,
            codex_wakeup: $params.codex_wakeup,
            codex_command: $params.codex_command,
            claude_wakeup: $params.claude_wakeup,
            claude_command: $params.claude_command,
            stall_after_s: $params.stall_after_s,
        }
    };
}
pub(super) use wish_of;

impl StartParams {
    fn into_request(self) -> Result<JobRequest, Failure> {
        let mut run = RunSpec::new(self.command.clone()).map_err(|error| invalid(&error))?;
        if let Some(cwd) = given(self.cwd.clone()) {
            run = run.in_directory(&cwd).map_err(|error| invalid(&error))?;
        }
        let session = given(self.session_name.clone())
            .map(|name| SessionName::from_wish(&name))
            .transpose();
        let gpus = GpuWish::parse(self.gpus.as_deref().unwrap_or_default());
        let metadata = WatchOrder::metadata(&self.metadata_json);
        Ok(JobRequest {
            sandbox: given(self.sandbox_name.clone()),
            run,
            session: session.map_err(|error| invalid(&error))?,
            log_file: self.log_file.clone(),
            gpus: gpus.map_err(|error| invalid(&error))?,
            max_log_bytes: u64::try_from(self.max_log_bytes).map_err(|_| {
                Failure::new(Code::InvalidParams, "`max_log_bytes` must not be negative")
            })?,
            run_id: given_name("run_id", &self.run_id)?,
            name: given_name("watch_name", &self.watch_name)?,
            metadata: metadata.map_err(|error| invalid(&error))?,
            watch: self.watch()?,
        })
    }

    /// What is wrong in it is told also when nobody is to watch.
    fn watch(self) -> Result<Option<WatchOrder>, Failure> {
        let is_wanted = self.watch;
        let wish = wish_of!(self);
        let order = wish.check().map_err(|error| invalid(&error))?;
        Ok(is_wanted.then_some(order))
    }
}

/// A name that a caller gives a job or a watch; none when it is empty.
pub fn given_name(field: &str, text: &str) -> Result<Option<String>, Failure> {
    if text.chars().count() > LONGEST_NAME || text.chars().any(char::is_control) {
        let text =
            format!("`{field}` has at most {LONGEST_NAME} characters and no control characters");
        return Err(Failure::new(Code::InvalidParams, text));
    }
    Ok(given(Some(text.to_owned())))
}

#[derive(Serialize)]
struct StartReply<'a> {
    status: &'static str,
    task_id: &'a str,
    tmux_session: &'a str,
    log_file: &'a str,
    sandbox: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch_id: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    launch_recovered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watchdog_warning: Option<&'a str>,
}

async fn start(
    engine: Arc<Engine>,
    context: CallContext,
    params: StartParams,
) -> Result<Reply, Failure> {
    let report = engine.start_job(&context, params.into_request()?).await?;
    let verdict = format!("started {} (sandbox {})", report.row.id, report.row.sandbox);
    Ok(Reply::new(job_started(&report), verdict))
}

async fn start_watched(
    engine: Arc<Engine>,
    context: CallContext,
    mut params: StartParams,
) -> Result<Reply, Failure> {
    params.watch = true;
    start(engine, context, params).await
}

/// What `exec_bash_background` returns.
pub fn job_started(report: &JobStartReport) -> Value {
    let row = &report.row;
    let reply = StartReply {
        status: "started",
        task_id: row.id.as_str(),
        tmux_session: row.session.as_str(),
        log_file: &row.log_file,
        sandbox: &row.sandbox,
        watch_id: row.watch_id.map(|watch| watch.number()),
        launch_recovered: report.is_recovered,
        gpus: row.gpus.as_deref(),
        cwd: row.cwd.as_deref(),
        pid: row.attempt.process.as_ref().map(|process| process.pid),
        note: (!report.notes.is_empty()).then(|| report.notes.join("; ")),
        warning: (!report.warnings.is_empty()).then(|| report.warnings.join("; ")),
        watchdog_warning: report.watchdog_warning.as_deref(),
    };
    serde_json::to_value(reply).unwrap_or_default()
}
