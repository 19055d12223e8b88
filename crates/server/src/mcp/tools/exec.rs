//! `exec_bash`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::outcome::{LeftRunning, Outcome};
use remote_sandbox_core::shell::{RunSpec, ScriptError, StdinText};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, ExecReport, ExecRequest, LONGEST_WAIT, USUAL_WAIT};
use remote_sandbox_engine::run::Finished;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Definition, Label, Nature, given};
use crate::mcp::render::{Reply, seconds};

/// A longer run is a job, not something to wait for.
const LONGEST_TIMEOUT_S: i64 = 7 * 24 * 3600;

/// A reply larger than this helps nobody.
const MOST_OUTPUT_CHARS: i64 = 16_000_000;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "exec_bash",
            title: "Run a command",
            description: "Run a bash command in a sandbox and wait for it. After wait_s it goes on and you get status \"running\" with a task_id for check_background_task and stop_background_task.",
            nature: Nature::RUNS,
            core: true,
        }
        .define(exec),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecParams {
    command: String,
    /// Directory: absolute, ~/x or relative to home
    #[serde(default)]
    cwd: Option<String>,
    /// Then the process tree is ended
    #[serde(default = "usual_timeout")]
    timeout_s: i64,
    /// stdout and stderr together
    #[serde(default = "usual_output")]
    max_output_chars: i64,
    /// Default: the active sandbox
    #[serde(default)]
    sandbox_name: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: Option<String>,
    /// At most 280
    #[serde(default = "usual_wait")]
    wait_s: f64,
}

fn usual_timeout() -> i64 {
    120
}

fn usual_output() -> i64 {
    20_000
}

fn usual_wait() -> f64 {
    USUAL_WAIT.as_secs_f64()
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidParams, text)
}

impl ExecParams {
    fn into_request(self) -> Result<ExecRequest, Failure> {
        let refuse = |error: ScriptError| invalid(error.to_string());
        if self.timeout_s <= 0 {
            return Err(invalid("`timeout_s` must be positive"));
        }
        if self.timeout_s > LONGEST_TIMEOUT_S {
            return Err(invalid(format!(
                "`timeout_s` must be at most {LONGEST_TIMEOUT_S}"
            )));
        }
        if self.max_output_chars < 0 {
            return Err(invalid("`max_output_chars` must not be negative"));
        }
        if self.wait_s < 0.0 || self.wait_s.is_nan() {
            return Err(invalid("`wait_s` must not be negative"));
        }
        let mut spec = RunSpec::new(self.command).map_err(refuse)?;
        if let Some(cwd) = self.cwd {
            spec = spec.in_directory(&cwd).map_err(refuse)?;
        }
        for (name, value) in self.env {
            spec = spec.with_variable(&name, value).map_err(refuse)?;
        }
        if let Some(stdin) = self.stdin {
            spec = spec.with_stdin(StdinText::parse(stdin).map_err(refuse)?);
        }
        let shown = self.max_output_chars.min(MOST_OUTPUT_CHARS);
        Ok(ExecRequest {
            sandbox: given(self.sandbox_name),
            spec,
            timeout: Duration::from_secs(self.timeout_s.unsigned_abs()),
            wait: Duration::from_secs_f64(self.wait_s.min(LONGEST_WAIT.as_secs_f64())),
            max_output_chars: usize::try_from(shown).unwrap_or(0),
        })
    }
}

/// One process that outlived its run.
#[derive(Serialize)]
pub(super) struct LeftReply {
    pid: u32,
    name: String,
}

/// Processes that outlived a run: a list, or `"unknown"` when the host did not answer.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum LeftRunningReply {
    Processes(Vec<LeftReply>),
    Unknown(&'static str),
}

pub(super) fn left_running(left: &LeftRunning) -> Option<LeftRunningReply> {
    match left {
        LeftRunning::Nothing => None,
        LeftRunning::Unknown => Some(LeftRunningReply::Unknown("unknown")),
        LeftRunning::Processes(processes) => Some(LeftRunningReply::Processes(
            processes
                .iter()
                .map(|process| LeftReply {
                    pid: process.pid,
                    name: process.name.clone(),
                })
                .collect(),
        )),
    }
}

#[derive(Serialize, Default)]
struct ExecReply {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    exit_code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    connection_error: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_byte: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_running: Option<LeftRunningReply>,
    duration_s: f64,
    sandbox: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    stdout: String,
    stderr: String,
}

async fn exec(
    engine: Arc<Engine>,
    context: CallContext,
    params: ExecParams,
) -> Result<Reply, Failure> {
    let timeout_s = params.timeout_s;
    let report = engine.exec(&context, params.into_request()?).await?;
    render(report, timeout_s)
}

fn render(report: ExecReport, timeout_s: i64) -> Result<Reply, Failure> {
    let mut reply = ExecReply {
        duration_s: seconds(report.elapsed),
        sandbox: report.sandbox,
        stdout: report.output.stdout,
        stderr: report.output.stderr,
        ..ExecReply::default()
    };
    if report.output.omitted_bytes > 0 {
        reply.truncated = true;
        reply.omitted_bytes = Some(report.output.omitted_bytes);
        reply.task_id = Some(report.run.clone());
        reply.hint = Some(format!(
            "all output: check_background_task(task_id=\"{}\", since_byte=0)",
            report.run
        ));
    }
    let verdict = match report.finished {
        None => still_running(&mut reply, report.run, report.bytes),
        Some(Finished {
            result: Err(failure),
            ..
        }) => return Err(failure),
        Some(Finished {
            result: Ok(ended), ..
        }) => {
            reply.exit_code = ended.outcome.exit_code();
            reply.left_running = left_running(&ended.left_running);
            ended_as(
                &mut reply,
                &ended.outcome,
                ended.detail,
                &report.run,
                timeout_s,
            )
        }
    };
    let failed = reply.error.is_some();
    let verdict = format!(
        "{verdict} in {} s (sandbox {})",
        reply.duration_s, reply.sandbox
    );
    let mut body = reply.stdout.clone();
    if !reply.stderr.is_empty() {
        body = format!("{body}\n[stderr]\n{}", reply.stderr);
    }
    if let Some(hint) = &reply.hint {
        body = format!("{body}\n[{hint}]");
    }
    let reply = Reply::new(reply, verdict).body(body);
    Ok(if failed { reply.failed() } else { reply })
}

fn still_running(reply: &mut ExecReply, run: String, bytes: u64) -> String {
    reply.status = Some("running");
    reply.next_byte = Some(bytes);
    reply.hint = Some(format!(
        "it goes on; check_background_task(task_id=\"{run}\", since_byte={bytes}, wait_s=50) reads on, stop_background_task ends it. It ends with this server"
    ));
    reply.task_id = Some(run);
    "still running".to_owned()
}

fn ended_as(
    reply: &mut ExecReply,
    outcome: &Outcome,
    detail: Option<String>,
    run: &str,
    timeout_s: i64,
) -> String {
    match outcome {
        Outcome::Exited(code) => {
            if matches!(reply.left_running, Some(LeftRunningReply::Unknown(_))) {
                reply.task_id = Some(run.to_owned());
            }
            format!("exit {code}")
        }
        Outcome::Signalled(name) => {
            reply.signal = Some(name.clone());
            format!("ended by signal {name}")
        }
        Outcome::TimedOut => {
            reply.timed_out = true;
            let left = match &reply.left_running {
                None => "its processes were ended",
                Some(LeftRunningReply::Processes(_)) => "left_running could not be ended",
                Some(LeftRunningReply::Unknown(_)) => {
                    reply.task_id = Some(run.to_owned());
                    "the host did not confirm that they ended: ask check_background_task later"
                }
            };
            reply
                .hint
                .get_or_insert(format!("timeout_s={timeout_s} passed; {left}"));
            "timed out".to_owned()
        }
        Outcome::Ended(_) => {
            reply.status = Some(outcome.word());
            outcome.word().replace('_', " ")
        }
        Outcome::LinkLost => {
            reply.connection_error = true;
            reply.code = Some(Code::LinkLost);
            reply.left_running = None;
            reply.task_id = Some(run.to_owned());
            let detail = detail.unwrap_or_else(|| "no reason given".to_owned());
            reply.error = Some(format!(
                "sandbox `{}`: the connection was lost while the command ran ({detail}); it may still be running and was not started again",
                reply.sandbox
            ));
            reply.hint = Some(format!(
                "check_background_task(task_id=\"{run}\") asks the host whether it still runs, stop_background_task ends it"
            ));
            "connection lost".to_owned()
        }
    }
}
