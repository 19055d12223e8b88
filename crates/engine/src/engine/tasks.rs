//! Reads on in a run that was handed over, and ends it.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunId;
use remote_sandbox_core::outcome::{LeftRunning, Outcome, StopReason};
use remote_sandbox_core::output::Pattern;
use remote_sandbox_core::shell::{Purpose, Target};

use super::Engine;
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::clock;
use crate::questions;
use crate::run::{Finished, Reading, ReadingPosition, Run, RunRecord, Wanted};

/// How long a stop may take.
const STOP_LIMIT: Duration = Duration::from_millis(3500);

/// What somebody wants to know about a run.
#[derive(Debug)]
pub struct TaskRequest {
    /// Its name as the caller wrote it.
    pub task: String,
    /// What to read.
    pub wanted: Wanted,
    /// How long to wait for news.
    pub wait: Duration,
    /// What the news must have; any output is news where nothing is said.
    pub wait_for: Option<Pattern>,
}

/// Whether processes of a run live, when only the host can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// The host says that these still run.
    StillRunning(LeftRunning),
    /// The host says that none is left.
    Gone,
    /// The host could not be asked.
    Unknown(String),
}

/// What is known about a run.
#[derive(Debug)]
pub struct TaskReport {
    /// Its name.
    pub run: String,
    /// Where it ran.
    pub sandbox: String,
    /// In one word how it stands: `running`, or how it ended.
    pub status: String,
    /// Its exit code, when it has one.
    pub exit_code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Why it never started.
    pub failure: Option<Failure>,
    /// Processes that outlived it.
    pub left_running: LeftRunning,
    /// What the host says, when the link was lost.
    pub liveness: Option<Liveness>,
    /// How long it took or has been going.
    pub elapsed: Option<Duration>,
    /// The output.
    pub reading: Reading,
}

impl Engine {
    /// Reads on in a run.
    pub async fn check_task(
        &self,
        context: &CallContext,
        request: &TaskRequest,
    ) -> Result<TaskReport, Failure> {
        let id = parse_id(&request.task)?;
        if let Some(run) = self.registry.find(&context.principal, &id) {
            if request.wait > Duration::ZERO {
                tokio::select! {
                    () = wait_for_news(&run, request) => {}
                    () = context.cancel.cancelled() => {
                        return Err(Failure::new(Code::Cancelled, "the call was cancelled"));
                    }
                }
            }
            return self.report(&run, request).await;
        }
        self.report_from_disk(context, &id, request).await
    }

    async fn report(&self, run: &Run, request: &TaskRequest) -> Result<TaskReport, Failure> {
        // The end is looked at first, so that output which comes with it is in the reading.
        let finished = run.finished();
        let reading = run
            .read(&request.wanted)
            .map_err(|error| unreadable(run.id.as_str(), &error))?;
        let liveness = match &finished {
            Some(Finished {
                result: Ok(ended), ..
            }) if !ended.is_certain() => Some(
                self.ask_host(run.sandbox.as_str(), &run.target(), Purpose::Look)
                    .await,
            ),
            _ => None,
        };
        let mut report = TaskReport {
            run: run.id.to_string(),
            sandbox: run.sandbox.to_string(),
            status: RunRecord::RUNNING.to_owned(),
            exit_code: None,
            signal: None,
            failure: None,
            left_running: LeftRunning::Nothing,
            liveness,
            elapsed: Some(run.elapsed()),
            reading,
        };
        if let Some(finished) = finished {
            report.elapsed = Some(finished.duration);
            match finished.result {
                Ok(ended) => {
                    report.status = ended.outcome.word().to_owned();
                    report.exit_code = ended.outcome.exit_code();
                    report.left_running = ended.left_running;
                    if let Outcome::Signalled(name) = ended.outcome {
                        report.signal = Some(name);
                    }
                }
                Err(failure) => {
                    report.status = failure.code.name().to_owned();
                    report.failure = Some(failure);
                }
            }
        }
        Ok(report)
    }

    /// A run of an earlier server, or of another one that still lives.
    async fn report_from_disk(
        &self,
        context: &CallContext,
        id: &RunId,
        request: &TaskRequest,
    ) -> Result<TaskReport, Failure> {
        let Some((record, spool, lives)) = self.registry.recall(&context.principal, id) else {
            return Err(unknown(id.as_str()));
        };
        let reading = crate::run::read_spool(&spool, &request.wanted)
            .map_err(|error| unreadable(id.as_str(), &error))?;
        let unfinished = record.outcome == RunRecord::RUNNING;
        let status = if unfinished && !lives {
            "abandoned"
        } else {
            record.outcome.as_str()
        };
        let ask = status == "abandoned" || status == Outcome::LinkLost.word();
        let liveness = match record.target().filter(|_| ask) {
            Some(target) => Some(self.ask_host(&record.sandbox, &target, Purpose::Look).await),
            None => None,
        };
        Ok(TaskReport {
            run: id.to_string(),
            status: status.to_owned(),
            exit_code: record.exit_code,
            signal: record.signal.clone(),
            failure: None,
            left_running: LeftRunning::Nothing,
            liveness,
            elapsed: record.duration_s.map(Duration::from_secs_f64),
            sandbox: record.sandbox,
            reading,
        })
    }

    /// The runs of this principal that were handed over, the newest first.
    pub fn list_runs(&self, context: &CallContext) -> Vec<RunRecord> {
        let mut records: Vec<RunRecord> = self
            .registry
            .records()
            .into_iter()
            .filter(|(record, _)| record.principal == context.principal.as_str())
            .map(|(mut record, lives)| {
                if record.outcome == RunRecord::RUNNING && !lives {
                    record.outcome = "abandoned".to_owned();
                }
                record
            })
            .collect();
        records.sort_by(|one, two| two.started_at_s.total_cmp(&one.started_at_s));
        records
    }

    /// Ends a run and says what is left of it.
    pub async fn stop_task(
        &self,
        context: &CallContext,
        task: &str,
    ) -> Result<TaskReport, Failure> {
        let id = parse_id(task)?;
        let request = TaskRequest {
            task: task.to_owned(),
            wanted: Wanted {
                position: ReadingPosition::LastLines(20),
                budget: 4000,
                grep: None,
            },
            wait: Duration::ZERO,
            wait_for: None,
        };
        let run = self.registry.find(&context.principal, &id);
        let (sandbox, target) = match &run {
            Some(run) => (run.sandbox.to_string(), Some(run.target())),
            None => {
                let (record, ..) = self
                    .registry
                    .recall(&context.principal, &id)
                    .ok_or_else(|| unknown(id.as_str()))?;
                (record.sandbox.clone(), record.target())
            }
        };
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool: "stop_background_task",
            sandbox: &sandbox,
            run: id.as_str(),
            command: "",
            cwd: None,
        })?;
        if let Some(run) = &run
            && run.finished().is_none()
        {
            run.stop(StopReason::Stopped);
            run.wait_until(clock::instant() + STOP_LIMIT).await;
            return self.report(run, &request).await;
        }
        let mut report = self.check_task(context, &request).await?;
        // A run of another server that still lives is ended from here, too.
        if (report.liveness.is_some() || report.status == RunRecord::RUNNING)
            && let Some(target) = target
        {
            report.liveness = Some(self.ask_host(&sandbox, &target, Purpose::End).await);
        }
        Ok(report)
    }

    async fn ask_host(&self, sandbox: &str, target: &Target, purpose: Purpose) -> Liveness {
        let answer = match self.sandbox(Some(sandbox)) {
            Ok(sandbox) => questions::processes(sandbox.as_ref(), target, purpose).await,
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(LeftRunning::Nothing) => Liveness::Gone,
            Ok(LeftRunning::Unknown) => Liveness::Unknown("the host gave no answer".to_owned()),
            Ok(left) => Liveness::StillRunning(left),
            Err(failure) => Liveness::Unknown(failure.masked(&self.mask).message),
        }
    }
}

/// Output in which a pattern is looked for at once.
const SEARCHED: u64 = 256 * 1024;

/// A line that came in two pieces is seen whole when it is shorter.
const OVERLAP: u64 = 4096;

/// How long new output is left to grow before it is searched.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);

/// Waits for output past what the caller has seen, or for the end.
async fn wait_for_news(run: &Run, request: &TaskRequest) {
    let until = clock::instant() + request.wait;
    let bytes = || run.watch().borrow().bytes;
    let origin = match (request.wanted.position, &request.wait_for) {
        (ReadingPosition::Since(since), _) => since,
        // What is waited for may have come before the caller asked.
        (ReadingPosition::LastLines(_), Some(_)) => bytes().saturating_sub(SEARCHED),
        (ReadingPosition::LastLines(_), None) => bytes(),
    };
    let mut seen = origin;
    loop {
        run.wait_for_output(seen, until).await;
        let Some(pattern) = &request.wait_for else {
            return;
        };
        let is_over = run.finished().is_some() || clock::instant() >= until;
        loop {
            let from = seen.saturating_sub(OVERLAP).max(origin);
            let wanted = Wanted {
                position: ReadingPosition::Since(from),
                budget: usize::try_from(SEARCHED).unwrap_or(usize::MAX),
                grep: None,
            };
            match run.read(&wanted) {
                Ok(piece) if pattern.is_in(&piece.text) => return,
                Ok(piece) if piece.next > seen => seen = piece.next,
                _ => break,
            }
        }
        if is_over {
            return;
        }
        tokio::time::sleep(SEARCH_PAUSE).await;
    }
}

fn parse_id(task: &str) -> Result<RunId, Failure> {
    RunId::parse(task).map_err(|_| unknown(task))
}

fn unknown(task: &str) -> Failure {
    let shown: String = task.chars().take(60).flat_map(char::escape_debug).collect();
    Failure::new(Code::NotFound, format!("no task is named `{shown}`")).hint(
        "pass the `task_id` that exec_bash returned; a short command that was answered whole has none",
    )
}

fn unreadable(task: &str, error: &std::io::Error) -> Failure {
    let text = format!("the kept output of `{task}` cannot be read: {error}");
    Failure::new(Code::StoreUnavailable, text).hint("run the command again")
}
