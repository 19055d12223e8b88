//! Runs a command and waits for it, but not for ever.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::outcome::StopReason;
use remote_sandbox_core::output::Shaped;
use remote_sandbox_core::shell::RunSpec;

use super::Engine;
use crate::audit::BeginRow;
use crate::call::{CallContext, Progress};
use crate::clock;
use crate::run::{Finished, Registry, Run, RunOrder, Tap};

/// How long a call waits when it does not say.
pub const USUAL_WAIT: Duration = Duration::from_secs(50);

/// How long a call may wait; some clients give up after 300 s whatever happens.
pub const LONGEST_WAIT: Duration = Duration::from_secs(280);

/// How long a cancelled call waits for its processes to end.
const CANCEL_LIMIT: Duration = Duration::from_millis(3500);

/// How often the last line is looked up for people who watch.
const NOTE_INTERVAL: Duration = Duration::from_millis(200);

/// Memory that a reply's text may take per stream.
const MOST_SHOWN_BYTES: usize = 64 * 1024 * 1024;

/// A command to run.
#[derive(Debug)]
pub struct ExecRequest {
    /// Where; the active sandbox when not said.
    pub sandbox: Option<String>,
    /// What.
    pub spec: RunSpec,
    /// When it is ended at the latest.
    pub timeout: Duration,
    /// How long the call waits for it.
    pub wait: Duration,
    /// How many characters of both streams the reply may hold.
    pub max_output_chars: usize,
}

/// What became of it.
#[derive(Debug)]
pub struct ExecReport {
    /// The run's name.
    pub run: String,
    /// Where it ran.
    pub sandbox: String,
    /// How it ended; nothing while it still runs.
    pub finished: Option<Finished>,
    /// Its output, cut to size.
    pub output: Shaped,
    /// How many bytes of output there are so far.
    pub bytes: u64,
    /// How long it has been going.
    pub elapsed: Duration,
}

impl Engine {
    /// Runs a command; returns when it has ended or the caller has waited long enough.
    pub async fn exec(
        &self,
        context: &CallContext,
        request: ExecRequest,
    ) -> Result<ExecReport, Failure> {
        self.start_and_wait(context, request, None).await
    }

    /// Runs a command whose output somebody sees while it comes. What a slow reader has not taken waits
    /// on disk; only where that is full does the command wait, until its deadline.
    pub async fn exec_followed(
        &self,
        context: &CallContext,
        request: ExecRequest,
        tap: Tap,
    ) -> Result<ExecReport, Failure> {
        self.start_and_wait(context, request, Some(tap)).await
    }

    async fn start_and_wait(
        &self,
        context: &CallContext,
        request: ExecRequest,
        tap: Option<Tap>,
    ) -> Result<ExecReport, Failure> {
        let followed = tap.is_some();
        let sandbox = self.sandbox(request.sandbox.as_deref())?.clone();
        let spec = request.spec.within(sandbox.surroundings());
        self.kept.learn().await;
        let names = Registry::new_names();
        let name = sandbox.description().name.to_string();
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool: "exec_bash",
            sandbox: &name,
            run: names.0.as_str(),
            command: spec.command(),
            cwd: spec.cwd(),
        })?;
        let order = RunOrder {
            principal: context.principal.clone(),
            spec,
            timeout: request.timeout,
            shown_bytes: request
                .max_output_chars
                .saturating_mul(4)
                .clamp(4096, MOST_SHOWN_BYTES),
            tap,
        };
        let run = self.registry.start(names, order, sandbox)?;
        let finished = match wait(context, &run, request.wait).await {
            Ok(finished) => finished,
            Err(failure) => {
                // Nobody has its name, so nobody will ask for what is left of it.
                run.forget_shown();
                self.registry.forget(&run);
                return Err(failure);
            }
        };
        let (output, bytes) = run.shape(request.max_output_chars);
        let report = ExecReport {
            run: run.id.to_string(),
            sandbox: name,
            output,
            bytes,
            elapsed: finished
                .as_ref()
                .map_or_else(|| run.elapsed(), |finished| finished.duration),
            finished,
        };
        let all_seen = followed || report.output.omitted_bytes == 0;
        match &report.finished {
            Some(Finished { result: Err(_), .. }) => self.registry.forget(&run),
            Some(Finished {
                result: Ok(ended), ..
            }) if all_seen && ended.is_certain() => {
                self.registry.forget(&run);
            }
            _ => self.registry.hand_over(&run).await,
        }
        run.forget_shown();
        Ok(report)
    }

    /// Writes down what is about to happen; without that it does not happen.
    pub(super) fn record(&self, row: &BeginRow<'_>) -> Result<(), Failure> {
        self.audit.begin(row).map_err(|error| {
            Failure::new(Code::StoreUnavailable, Failure::chain(&error))
                .hint(
                    "nothing was done; free space or correct the access rights of the state folder",
                )
                .retry()
        })
    }
}

async fn wait(
    context: &CallContext,
    run: &Run,
    wait: Duration,
) -> Result<Option<Finished>, Failure> {
    let until = clock::instant() + wait;
    let mut next_note = clock::instant();
    let mut status = run.watch();
    loop {
        let (bytes, finished) = {
            let now = status.borrow_and_update();
            (now.bytes, now.finished.clone())
        };
        if let Some(finished) = finished {
            return Ok(Some(finished));
        }
        if bytes > 0 && clock::instant() >= next_note {
            next_note = clock::instant() + NOTE_INTERVAL;
            let message = run.last_line();
            context.progress.send_replace(Progress { message, bytes });
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return Ok(run.finished()) },
            () = tokio::time::sleep_until(until) => return Ok(run.finished()),
            () = context.cancel.cancelled() => {
                run.stop(StopReason::Cancelled);
                run.wait_until(clock::instant() + CANCEL_LIMIT).await;
                return Err(Failure::new(Code::Cancelled, "the call was cancelled"));
            }
        }
    }
}
