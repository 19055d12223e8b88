//! Starts jobs, looks at them and ends them.

use std::collections::BTreeMap;
use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    AttemptNumber, JobId, JobSpec, JobSpecError, JobState, LogPart, Nonce, StopReport, StopVerdict,
};
use remote_sandbox_core::watch::PolicyRefusal;

use super::Engine;
use super::job_place::{HERE, place_of};
use super::job_reports::{Found, JobReport};
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::job::{self, CarriedOut, Destination, JobRequest};
use crate::run::{ReadingPosition, Wanted};
use crate::sandbox::Sandbox;
use crate::store::JobRow;

/// Most jobs of a deleted sandbox that are noted; the newest, for older ones are over.
const MOST_DELETED: usize = 1000;

/// What ends a job on this machine.
const LIVES_HERE: &str = "the job goes on without this server; deleting its sandbox, or the end of this machine's session, ends it";

/// A job that was started.
#[derive(Debug)]
pub struct JobStartReport {
    /// The job.
    pub row: JobRow,
    /// Whether the first answer of the host was lost, and the job found running.
    pub is_recovered: bool,
    /// Whether there is a tmux session to attach to.
    pub has_viewer: Option<bool>,
    /// What the caller should know.
    pub notes: Vec<String>,
    /// What will not work while nobody waits for it.
    pub warnings: Vec<String>,
    /// Why nobody looks after it.
    pub watchdog_warning: Option<String>,
}

/// A start that the host has carried out.
struct Launched {
    carried_out: CarriedOut,
    /// The key of the entry that was kept for the watchdog.
    entry: Option<String>,
    /// Why none was.
    warning: Option<String>,
}

/// What came of ending a job.
#[derive(Debug)]
pub struct JobStopReport {
    /// How it stands now.
    pub report: JobReport,
    /// What was ended and what was not, when something of it was running.
    pub ended: Option<StopReport>,
}

impl Engine {
    /// Starts a job that goes on without the caller.
    pub async fn start_job(
        &self,
        context: &CallContext,
        mut request: JobRequest,
    ) -> Result<JobStartReport, Failure> {
        let sandbox = self.sandbox(request.sandbox.as_deref())?;
        let name = sandbox.description().name.to_string();
        if let Some(order) = &request.watch {
            self.check_events(order).await?;
        }
        request.run = request.run.within(sandbox.surroundings());
        self.kept.learn().await;
        let spec = job_spec(&request).map_err(|error| invalid(&error))?;
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool: "exec_bash_background",
            sandbox: &name,
            run: spec.job().as_str(),
            command: request.run.command(),
            cwd: request.run.cwd(),
        })?;
        let (store, principal) = (self.store(), context.principal.as_str());
        let launched = self.launch(&sandbox, principal, &request, &spec).await;
        let (row, done) = launched.map_err(|failure| failure.masked(&self.mask))?;
        let (entry, warning) = (done.entry, done.warning);
        let done = done.carried_out;
        self.forget_old_jobs(sandbox.clone());
        let unwritten = done.unwritten.map(|failure| unwritten(&row, &failure));
        // What runs is answered as such, also when the store has failed since.
        let row = match store.job(&row.id, principal).await {
            Ok(Some(noted)) if unwritten.is_none() => noted,
            _ => job::as_started(row, &done.started),
        };
        let ensure = request.watch.as_ref().map(|order| order.ensure_watchdog);
        let (login, watchdog_warning) = tokio::join!(
            self.login_warning(&name, entry.as_deref()),
            self.ensure_watchdog(ensure.unwrap_or(false))
        );
        let session = request.session.and_then(|session| session.note);
        let mut notes: Vec<String> = session.into_iter().collect();
        if sandbox.description().local.is_some() {
            notes.push(LIVES_HERE.to_owned());
        }
        if done.started.has_viewer == Some(false) {
            notes
                .push("there is no tmux session to attach to; the job runs without one".to_owned());
        }
        Ok(JobStartReport {
            row,
            is_recovered: done.is_recovered,
            has_viewer: done.started.has_viewer,
            notes,
            warnings: unwritten.into_iter().chain(warning).chain(login).collect(),
            watchdog_warning,
        })
    }

    /// Writes a job down and has the host carry it out. Where it is certain that nothing came of it, nothing that was
    /// kept for it stays.
    async fn launch(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        principal: &str,
        request: &JobRequest,
        spec: &JobSpec,
    ) -> Result<(JobRow, Launched), Failure> {
        let (store, name) = (self.store(), sandbox.description().name.as_str());
        let was_kept = self.is_entry_kept(name).await?;
        let (entry, warning) = match &request.watch {
            Some(_) => self.kept_for_watchdog(name).await,
            None => (None, None),
        };
        let launching = async {
            let destination = Destination {
                sandbox: name.to_owned(),
                place: self.place(name),
                entry: entry.clone(),
            };
            let begun = job::begin(store, request, spec, destination, principal, &self.mask);
            let row = begun.await?;
            // Another start that failed just now may have taken the entry for its own.
            if entry.is_some() {
                self.kept_for_watchdog(name).await;
            }
            let done = job::carry_out(store, sandbox.as_ref(), &row, spec).await?;
            Ok::<_, Failure>((row, done))
        };
        match launching.await {
            Ok((row, carried_out)) => {
                let launched = Launched {
                    carried_out,
                    entry,
                    warning,
                };
                Ok((row, launched))
            }
            Err(failure) => {
                if let Some(key) = entry.as_deref().filter(|_| !was_kept) {
                    self.forget_entry(name, key).await;
                }
                Err(failure)
            }
        }
    }

    /// Ends a job with everything it started.
    pub async fn stop_job(
        &self,
        context: &CallContext,
        id: &JobId,
    ) -> Result<JobStopReport, Failure> {
        let principal = context.principal.as_str();
        let row = self.store().job(id, principal).await?;
        let mut row = row.ok_or_else(|| unknown(id.as_str()))?;
        let sandbox = self.sandbox_of_job(&row).await?;
        let wanted = Wanted {
            position: ReadingPosition::LastLines(20),
            budget: 4000,
            grep: None,
        };
        self.end_resumes(&row).await?;
        let never_began =
            row.attempt.state == JobState::NotStarted && row.attempt.process.is_none();
        let ended = match never_began {
            true => None,
            false => self.end_processes(context, &sandbox, &mut row).await?,
        };
        let found = Found::Ours(Box::new(row));
        let report = self
            .look_at_task_in(&sandbox, &found, &wanted, None)
            .await?;
        Ok(JobStopReport { report, ended })
    }

    /// Ends what runs of a job, also what one that is over has left; what cannot be asked then is no failure.
    async fn end_processes(
        &self,
        context: &CallContext,
        sandbox: &Arc<dyn Sandbox>,
        row: &mut JobRow,
    ) -> Result<Option<StopReport>, Failure> {
        let is_over = row.attempt.state.is_terminal();
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool: "stop_background_task",
            sandbox: &row.sandbox,
            run: row.id.as_str(),
            command: "",
            cwd: None,
        })?;
        let stopped = job::stop(self.store(), sandbox.as_ref(), row).await;
        let verdict = match stopped {
            Ok(verdict) => verdict,
            Err(_) if is_over => return Ok(None),
            Err(failure) => return Err(failure.masked(&self.mask)),
        };
        match verdict {
            StopVerdict::FolderMissing(report) if !is_over => Ok(Some(report)),
            StopVerdict::Ended(report) if !is_over => Ok(Some(report)),
            StopVerdict::Ended(report)
            | StopVerdict::LeftoversEnded(report)
            | StopVerdict::FolderMissing(report) => Ok((report.found > 0).then_some(report)),
            StopVerdict::AlreadyOver | StopVerdict::NeverBegan => Ok(None),
            _ if is_over => Ok(None),
            StopVerdict::Elsewhere { node, here } => {
                Err(elsewhere(row, node.as_str(), here.as_str()))
            }
            StopVerdict::NotOurs | StopVerdict::Unwritable => Err(not_its_records(row)),
        }
    }

    /// Has the watchdog not resume what somebody wants to be over.
    async fn end_resumes(&self, row: &JobRow) -> Result<(), Failure> {
        let may_come_back = matches!(
            row.attempt.state,
            JobState::Lost { .. } | JobState::NotStarted | JobState::Starting
        );
        if let Some(watch) = row.watch_id.filter(|_| may_come_back) {
            self.store().cancel_watch(watch, &row.principal).await?;
        }
        Ok(())
    }

    /// Writes down that the jobs of a sandbox on this machine ended with it.
    pub(super) async fn note_jobs_deleted(&self, name: &str, principal: &str) {
        let rows = self.store().jobs(principal, Some(name), MOST_DELETED).await;
        for row in rows.unwrap_or_default() {
            let is_there = place_of(&row).as_deref() == Some(HERE);
            if row.attempt.state.is_terminal() || !is_there {
                continue;
            }
            let (id, number) = (&row.id, row.attempt.number);
            let noted = self
                .store()
                .note_job_state(id, number, JobState::Stopped, None);
            if let Err(error) = noted.await {
                tracing::warn!(%error, job = %row.id, "the end of a job could not be noted");
            }
            if let Some(watch) = row.watch_id
                && let Err(error) = self.store().cancel_watch(watch, principal).await
            {
                tracing::warn!(%error, job = %row.id, "its watch could not be ended");
            }
        }
    }

    /// How the jobs of this principal stand, the newest first, at most so many. Those that are not over are looked
    /// at, each sandbox in one round trip.
    pub async fn list_jobs(
        &self,
        context: &CallContext,
        sandbox: Option<&str>,
        most: usize,
    ) -> Result<Vec<JobReport>, Failure> {
        let principal = context.principal.as_str();
        let rows = self.store().jobs(principal, sandbox, most).await?;
        let mut order = Vec::with_capacity(rows.len());
        let mut open: BTreeMap<(String, Option<String>), Vec<JobRow>> = BTreeMap::new();
        let mut reports: BTreeMap<JobId, JobReport> = BTreeMap::new();
        for row in rows {
            order.push(row.id.clone());
            if row.attempt.state.is_terminal() {
                reports.insert(row.id.clone(), plain_report(row, None));
            } else {
                let place = (row.sandbox.clone(), place_of(&row));
                open.entry(place).or_default().push(row);
            }
        }
        let looks = open.into_values().map(|rows| self.glance_at(rows));
        for reported in futures::future::join_all(looks).await {
            for report in reported? {
                if let Some(row) = &report.row {
                    reports.insert(row.id.clone(), report);
                }
            }
        }
        Ok(order.iter().filter_map(|id| reports.remove(id)).collect())
    }

    /// Looks at jobs of one place.
    async fn glance_at(&self, rows: Vec<JobRow>) -> Result<Vec<JobReport>, Failure> {
        // One that is watched may have its entry kept.
        let watched = rows.iter().find(|row| row.watch_id.is_some());
        let Some(one) = watched.or(rows.first()) else {
            return Ok(Vec::new());
        };
        let sandbox = match self.sandbox_of_job(one).await {
            Ok(sandbox) => sandbox,
            Err(failure) => {
                let reports = rows.into_iter();
                return Ok(reports
                    .map(|row| plain_report(row, Some(failure.clone())))
                    .collect());
            }
        };
        let seen = job::glance(self.store(), sandbox.as_ref(), rows, LogPart::Nothing).await?;
        Ok(seen
            .into_iter()
            .map(|seen| self.report_of(seen, None))
            .collect())
    }
}

pub(super) fn plain_report(row: JobRow, failure: Option<Failure>) -> JobReport {
    JobReport {
        sandbox: row.sandbox.clone(),
        session: row.session.to_string(),
        log_file: row.log_file.clone(),
        state: row.attempt.state.clone(),
        hearsay_code: None,
        is_unattended: false,
        has_left: false,
        is_log_unbounded: false,
        log: None,
        reading: None,
        searched: None,
        has_pattern: false,
        failure,
        watch: None,
        row: Some(row),
    }
}

fn job_spec(request: &JobRequest) -> Result<JobSpec, JobSpecError> {
    let id = JobId::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes());
    let nonce = Nonce::from_bytes(uuid::Uuid::now_v7().into_bytes());
    let spec = JobSpec::new(request.run.clone(), id, AttemptNumber::FIRST, nonce)?
        .with_log_file(&request.log_file)?
        .with_max_log_bytes(request.max_log_bytes)?
        .with_gpus(request.gpus);
    Ok(match &request.session {
        Some(session) => spec.in_session(session.name.clone()),
        None => spec,
    })
}

/// What a caller is told who wants something done at events that the user does not allow.
pub(super) fn refused(refusal: &PolicyRefusal) -> Failure {
    Failure::new(Code::PolicyDenied, refusal.to_string()).hint(refusal.hint())
}

/// The warning about a job that runs, which the store does not know yet.
fn unwritten(row: &JobRow, failure: &Failure) -> String {
    format!(
        "job `{}` runs, but that could not be written down here ({}); do not start it again: \
         check_background_task finds it once the store can be written",
        row.id, failure.message
    )
}

fn elsewhere(row: &JobRow, node: &str, here: &str) -> Failure {
    let text = format!(
        "sandbox `{}`: job `{}` began on node `{node}`, and the node that answered is `{here}`; nothing was ended",
        row.sandbox, row.id
    );
    Failure::new(Code::RemoteRefused, text).hint(
        "call again until the login comes to that node, or configure that node as a sandbox of its own",
    )
}

fn not_its_records(row: &JobRow) -> Failure {
    let text = format!(
        "sandbox `{}`: the records of job `{}` there are not those of the job; nothing was ended",
        row.sandbox, row.id
    );
    Failure::new(Code::RemoteRefused, text).hint("look for its processes with exec_bash")
}

pub(super) fn invalid(error: &JobSpecError) -> Failure {
    Failure::new(Code::InvalidParams, error.to_string())
}

pub(super) fn unknown(task: &str) -> Failure {
    Failure::new(Code::NotFound, format!("no job is named `{task}`")).hint(
        "pass the `task_id` that exec_bash_background returned; jobs that are over are kept for 30 days",
    )
}
