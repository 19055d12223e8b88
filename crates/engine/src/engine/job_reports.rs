//! Finds jobs, and makes a report of what is seen of one.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::{
    FileKind, JobId, JobState, LogPart, MOST_LOG_BYTES, Observation, SessionName,
};
use remote_sandbox_core::output::{Pattern, clean_text};

use super::Engine;
use super::jobs::unknown;
use crate::call::CallContext;
use crate::job::{self, Seen};
use crate::run::{Reading, ReadingPosition, Wanted, shown};
use crate::sandbox::Sandbox;
use crate::store::{JobRow, WatchId};

/// How much of a log is searched for what is waited for.
const SEARCHED: u64 = 256 * 1024;

/// Which task is meant.
#[derive(Debug, Clone)]
pub enum JobReference {
    /// One of our jobs, by its id.
    Id(JobId),
    /// The job that a watch is about.
    Watch(u64),
    /// Whatever runs in a session of a sandbox, ours or not.
    Session {
        /// The name of the session.
        session: String,
        /// Its log; the usual place when empty.
        log_file: String,
        /// The sandbox; the active one when not said.
        sandbox: Option<String>,
    },
}

/// What somebody wants to know about a job.
#[derive(Debug)]
pub struct JobQuery {
    /// Which one.
    pub job: JobReference,
    /// What to read of its log.
    pub wanted: Wanted,
    /// How long to wait for news.
    pub wait: Duration,
    /// What the news must have; any output is news where nothing is said.
    pub wait_for: Option<Pattern>,
}

/// How a job stands.
#[derive(Debug)]
pub struct JobReport {
    /// The job, where it is one of ours.
    pub row: Option<JobRow>,
    /// The sandbox, by name.
    pub sandbox: String,
    /// Its session.
    pub session: String,
    /// Its log.
    pub log_file: String,
    /// How it stands.
    pub state: JobState,
    /// The exit code that only a line in its log tells.
    pub hearsay_code: Option<u32>,
    /// Whether the command runs without the runner that would write down its end.
    pub is_unattended: bool,
    /// Whether it has ended and processes are left that it started.
    pub has_left: bool,
    /// Whether its log grew past its bound where nothing can be given back.
    pub is_log_unbounded: bool,
    /// Whether there is a log; nothing when it was not looked for.
    pub log: Option<FileKind>,
    /// The part of the log that was wanted.
    pub reading: Option<Reading>,
    /// Whether what was waited for stands in the log.
    pub has_pattern: bool,
    /// Why the host could not be asked.
    pub failure: Option<Failure>,
    /// The watch that a task which is not ours was found by.
    pub watch: Option<WatchId>,
}

/// A task that is looked at.
pub(super) enum Found {
    Ours(Box<JobRow>),
    Foreign {
        sandbox: String,
        session: String,
        log_file: String,
        /// The watch that it was found by.
        watch: Option<WatchId>,
    },
}

impl Engine {
    pub(super) async fn find_task(
        &self,
        context: &CallContext,
        reference: &JobReference,
    ) -> Result<Found, Failure> {
        let principal = context.principal.as_str();
        let ours = |row: Option<JobRow>, shown: &str| {
            let row = row.ok_or_else(|| unknown(shown))?;
            Ok(Found::Ours(Box::new(row)))
        };
        match reference {
            JobReference::Id(id) => ours(self.store().job(id, principal).await?, id.as_str()),
            JobReference::Watch(number) => {
                let row = match WatchId::new(*number) {
                    Some(watch) => self.store().job_of_watch(watch, principal).await?,
                    None => None,
                };
                match row {
                    Some(row) => Ok(Found::Ours(Box::new(row))),
                    None => {
                        let watch = self.find_watch(context, *number).await?;
                        self.task_found(&watch).await
                    }
                }
            }
            JobReference::Session {
                session,
                log_file,
                sandbox,
            } => {
                let found = self.sandbox(sandbox.as_deref())?;
                let name = found.description().name.to_string();
                let is_it = |row: &JobRow| log_file.is_empty() || row.log_file == *log_file;
                // As the caller wished for it, or as it was called then.
                let named = SessionName::from_wish(session).map(|named| named.name.to_string());
                for name_of_it in named.iter().chain([session]) {
                    let row = self.store().job_in_session(&name, name_of_it, principal);
                    if let Some(row) = row.await?.filter(is_it) {
                        return Ok(Found::Ours(Box::new(row)));
                    }
                }
                let log_file = match log_file.as_str() {
                    "" => format!("~/.codex_logs/{session}.log"),
                    given => given.to_owned(),
                };
                Ok(Found::Foreign {
                    sandbox: name,
                    session: session.clone(),
                    log_file,
                    watch: None,
                })
            }
        }
    }

    /// One look at a task.
    pub(super) async fn look_at_task(
        &self,
        found: &Found,
        wanted: &Wanted,
        wait_for: Option<&Pattern>,
    ) -> Result<JobReport, Failure> {
        let sandbox = match found {
            Found::Ours(row) => self.sandbox_of_job(row).await?,
            Found::Foreign { sandbox, .. } => self.sandbox(Some(sandbox))?,
        };
        self.look_at_task_in(&sandbox, found, wanted, wait_for)
            .await
    }

    /// The same in a sandbox that is there already.
    pub(super) async fn look_at_task_in(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        found: &Found,
        wanted: &Wanted,
        wait_for: Option<&Pattern>,
    ) -> Result<JobReport, Failure> {
        let most = window(wanted, wait_for);
        let part = match wanted.position {
            ReadingPosition::Since(byte) => LogPart::Since { byte, most },
            ReadingPosition::LastLines(_) => LogPart::Last(most),
        };
        match found {
            Found::Ours(row) => {
                let row = (**row).clone();
                // Read anew: another look may have changed it.
                let now = self.store().job(&row.id, &row.principal).await?;
                let row = now.unwrap_or(row);
                let seen = job::look_at(self.store(), sandbox.as_ref(), row, part).await?;
                Ok(self.report_of(seen, Some((wanted, wait_for))))
            }
            Found::Foreign {
                sandbox: name,
                session,
                log_file,
                watch,
            } => {
                let looked = job::look_at_foreign(sandbox.as_ref(), session, log_file, part);
                let looked = looked.await.map_err(|failure| failure.masked(&self.mask))?;
                let (state, observation) = looked;
                Ok(JobReport {
                    row: None,
                    sandbox: name.clone(),
                    session: session.clone(),
                    log_file: log_file.clone(),
                    state,
                    hearsay_code: observation.hearsay_exit_code(),
                    is_unattended: false,
                    has_left: false,
                    is_log_unbounded: false,
                    log: Some(observation.log.kind),
                    has_pattern: self.has(wait_for, &observation),
                    reading: Some(self.reading(&observation, wanted, wait_for)),
                    failure: None,
                    watch: *watch,
                })
            }
        }
    }

    pub(super) fn report_of(
        &self,
        seen: Seen,
        wanted: Option<(&Wanted, Option<&Pattern>)>,
    ) -> JobReport {
        let observation = seen.observation.as_ref();
        let looked = observation.zip(wanted);
        let reading = looked.map(|(seen, (wanted, wait_for))| self.reading(seen, wanted, wait_for));
        let has_pattern = looked.is_some_and(|(seen, (_, wait_for))| self.has(wait_for, seen));
        JobReport {
            sandbox: seen.row.sandbox.clone(),
            session: seen.row.session.to_string(),
            log_file: seen.row.log_file.clone(),
            state: seen.state,
            hearsay_code: seen.hearsay_code,
            is_unattended: seen.is_unattended,
            has_left: observation.is_some_and(|seen| seen.has_left),
            is_log_unbounded: observation.is_some_and(|seen| seen.log_is_unbounded),
            log: observation.map(|seen| seen.log.kind),
            reading,
            has_pattern,
            failure: seen.failure.map(|failure| failure.masked(&self.mask)),
            watch: None,
            row: Some(seen.row),
        }
    }

    fn has(&self, wait_for: Option<&Pattern>, observation: &Observation) -> bool {
        wait_for.is_some_and(|pattern| {
            let text = self.mask.mask_bytes(&observation.log.text);
            pattern.is_in(&clean_text(&text))
        })
    }

    fn reading(
        &self,
        observation: &Observation,
        wanted: &Wanted,
        wait_for: Option<&Pattern>,
    ) -> Reading {
        let log = &observation.log;
        let size = log.size_bytes.unwrap_or(0);
        let from = match wanted.position {
            ReadingPosition::Since(byte) => byte,
            ReadingPosition::LastLines(_) => size.saturating_sub(window(wanted, wait_for)),
        };
        // It may have grown while it was read.
        let read = log.text.len() as u64;
        let total = if read > 0 {
            size.max(from + read)
        } else {
            size
        };
        shown(&log.text, from, total, wanted, &self.mask)
    }
}

/// How much of the log is looked at.
pub(super) fn window(wanted: &Wanted, wait_for: Option<&Pattern>) -> u64 {
    let least = if wait_for.is_some() { SEARCHED } else { 0 };
    wanted.window().max(least).min(MOST_LOG_BYTES)
}
