//! Finds jobs, and makes a report of what is seen of one.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    FileKind, Hole, JobId, JobState, LogPart, MOST_LOG_BYTES, Observation, SessionName,
};
use remote_sandbox_core::output::{Pattern, clean_text};

use super::Engine;
use super::jobs::{plain_report, unknown};
use crate::call::CallContext;
use crate::clock;
use crate::job::{self, Seen};
use crate::run::{Reading, ReadingPosition, Wanted, shown};
use crate::sandbox::Sandbox;
use crate::store::{JobRow, WatchId};

/// How much of a log is searched for what is waited for.
const SEARCHED: u64 = 256 * 1024;

/// A line that is longer may be searched in two pieces.
const LONGEST_LINE: usize = 64 * 1024;

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
    /// How far the log was searched for what is waited for.
    pub searched: Option<Searched>,
    /// Whether what was waited for stands in the log.
    pub has_pattern: bool,
    /// Why the host could not be asked.
    pub failure: Option<Failure>,
    /// The watch that a task which is not ours was found by.
    pub watch: Option<WatchId>,
}

/// How far a log was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Searched {
    /// From where to search on: the beginning of a line, where lines are not very long.
    pub next: u64,
    /// Whether that was all there is for now.
    pub is_all: bool,
}

/// The part of a log that a look has brought.
struct Brought<'a> {
    from: u64,
    /// How many bytes the log has in all.
    total: u64,
    bytes: &'a [u8],
    /// The part of the log that is not kept any more.
    hole: Option<Hole>,
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
        self.kept.learn().await;
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
            Found::Ours(row) => match self.sandbox_of_job(row).await {
                // How it ended is written down, whether its sandbox is still there or not.
                Err(failure) if row.attempt.state.is_terminal() => {
                    let failure = Some(failure.masked(&self.mask));
                    return Ok(plain_report((**row).clone(), failure));
                }
                sandbox => sandbox?,
            },
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
                let mut report = JobReport {
                    row: None,
                    sandbox: name.clone(),
                    session: session.clone(),
                    log_file: log_file.clone(),
                    state: JobState::Unreachable {
                        since: clock::wall().as_secs(),
                    },
                    hearsay_code: None,
                    is_unattended: false,
                    has_left: false,
                    is_log_unbounded: false,
                    log: None,
                    searched: None,
                    has_pattern: false,
                    reading: None,
                    failure: None,
                    watch: *watch,
                };
                let (state, observation) = match looked.await {
                    Ok(looked) => looked,
                    Err(failure) if failure.code == Code::InvalidParams => return Err(failure),
                    // As with a job of ours, a host that cannot be asked is what is to be told of the task.
                    Err(failure) => {
                        report.failure = Some(failure.masked(&self.mask));
                        report.reading = unread(wanted);
                        return Ok(report);
                    }
                };
                (report.searched, report.has_pattern) =
                    self.search(&observation, wanted, wait_for, 0);
                report.state = state;
                report.hearsay_code = observation.hearsay_exit_code();
                report.log = Some(observation.log.kind);
                report.reading = Some(self.reading(&observation, wanted, wait_for, 0));
                Ok(report)
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
        let begin = seen.row.log_begin.unwrap_or(0);
        let reading = match looked {
            Some((seen, (wanted, wait_for))) => Some(self.reading(seen, wanted, wait_for, begin)),
            None => wanted.and_then(|(wanted, _)| unread(wanted)),
        };
        let (searched, has_pattern) = looked.map_or((None, false), |(seen, (wanted, wait_for))| {
            self.search(seen, wanted, wait_for, begin)
        });
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
            searched,
            has_pattern,
            failure: seen.failure.map(|failure| failure.masked(&self.mask)),
            watch: None,
            row: Some(seen.row),
        }
    }

    /// Searches what a look has brought, but for what stood in the log before the task began.
    fn search(
        &self,
        observation: &Observation,
        wanted: &Wanted,
        wait_for: Option<&Pattern>,
        begin: u64,
    ) -> (Option<Searched>, bool) {
        let Some(pattern) = wait_for else {
            return (None, false);
        };
        let brought = brought(observation, wanted, wait_for).since(begin);
        let text = clean_text(&self.mask.mask_bytes(brought.bytes));
        (Some(brought.searched()), pattern.is_in(&text))
    }

    fn reading(
        &self,
        observation: &Observation,
        wanted: &Wanted,
        wait_for: Option<&Pattern>,
        begin: u64,
    ) -> Reading {
        let mut brought = brought(observation, wanted, wait_for);
        // Who names a byte means that byte; the last lines are those of this task.
        if let ReadingPosition::LastLines(_) = wanted.position {
            brought = brought.since(begin);
        }
        let (bytes, total) = (brought.bytes, brought.total);
        let mut reading = shown(bytes, brought.from, total, wanted, &self.mask);
        reading.missing = match (brought.hole, wanted.position) {
            (None, _) => 0,
            (Some(hole), ReadingPosition::Since(byte)) => hole.swallowed(byte, brought.from),
            // There may be more of the lines that were asked for, but before it.
            (Some(hole), _) if reading.from == hole.to() => hole.swallowed(begin, hole.to()),
            (Some(_), _) => 0,
        };
        reading
    }
}

/// What is told of a log that nobody could look at: whoever reads on does so where they were.
fn unread(wanted: &Wanted) -> Option<Reading> {
    let ReadingPosition::Since(byte) = wanted.position else {
        return None;
    };
    Some(Reading {
        from: byte,
        next: byte,
        total: byte,
        missing: 0,
        text: String::new(),
    })
}

fn brought<'a>(
    observation: &'a Observation,
    wanted: &Wanted,
    wait_for: Option<&Pattern>,
) -> Brought<'a> {
    let log = &observation.log;
    let size = log.size_bytes.unwrap_or(0);
    let asked = match wanted.position {
        ReadingPosition::Since(byte) => byte,
        ReadingPosition::LastLines(_) => size.saturating_sub(window(wanted, wait_for)),
    };
    let from = log.begins_at.unwrap_or(asked);
    // It may have grown while it was read.
    let read = log.text.len() as u64;
    let total = if read > 0 {
        size.max(from + read)
    } else {
        size
    };
    Brought {
        from,
        total,
        bytes: &log.text,
        hole: log.hole,
    }
}

impl Brought<'_> {
    /// Without what lies before a byte; a log that ends before it was begun anew.
    fn since(mut self, begin: u64) -> Self {
        if begin <= self.total {
            let skip = usize::try_from(begin.saturating_sub(self.from)).unwrap_or(usize::MAX);
            let skip = skip.min(self.bytes.len());
            self.bytes = self.bytes.get(skip..).unwrap_or_default();
            self.from += skip as u64;
        }
        self
    }

    /// How far it is searched when all of it is. The last line may not be whole, and is searched again.
    fn searched(&self) -> Searched {
        let end = self.from + self.bytes.len() as u64;
        let line = self.bytes.iter().rposition(|&byte| byte == b'\n');
        let line = line.map_or(0, |at| at + 1);
        let next = match self.hole {
            // The rest of that line is gone.
            Some(hole) if hole.from() == end => hole.to(),
            _ if self.bytes.len() - line <= LONGEST_LINE => self.from + line as u64,
            _ => end,
        };
        Searched {
            // What is left of a log that was begun anew is searched from its beginning.
            next: if end > self.total { 0 } else { next },
            is_all: end >= self.total,
        }
    }
}

/// How much of the log is looked at.
pub(super) fn window(wanted: &Wanted, wait_for: Option<&Pattern>) -> u64 {
    let least = if wait_for.is_some() { SEARCHED } else { 0 };
    wanted.window().max(least).min(MOST_LOG_BYTES)
}
