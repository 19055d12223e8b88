//! The tables of jobs and their attempts.

use std::time::Duration;

use remote_sandbox_core::job::{
    AttemptNumber, JobId, JobState, Nonce, ProcessIdentity, SessionName,
};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::columns::{checked, from_json, json, milliseconds, signed};
use super::watches::{self, NewWatch};
use super::{ProcessMark, Store, StoreError};
use crate::clock;

/// A number in JSON is exact below this.
pub(super) const LARGEST_ID: i64 = (1 << 53) - 1;

/// Most rows that one call removes or lists.
pub(super) const MOST_ROWS: i64 = 1000;

pub(super) const COLUMNS: &str = "j.id, j.principal, j.sandbox, j.session, j.log_file, j.cwd, j.command, j.spec, \
    j.metadata, j.run_id, j.name, j.gpus, j.watch_id, j.created, a.number, a.nonce, a.state, a.process, \
    a.log_offset, a.is_stop_asked, a.starter_pid, a.starter_start, a.starter_boot, a.created AS begun, \
    a.started, a.ended,
    (SELECT min(log_offset) FROM attempts WHERE job = j.id) AS log_begin";

/// Each job with its last attempt.
pub(super) const ROWS: &str = "jobs j JOIN attempts a ON a.job = j.id
    AND a.number = (SELECT max(number) FROM attempts WHERE job = j.id)";

/// The number of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub(super) i64);

impl WatchId {
    /// A number that can be one of ours.
    pub fn new(number: u64) -> Option<Self> {
        let number = i64::try_from(number).ok()?;
        (1..=LARGEST_ID)
            .contains(&number)
            .then_some(WatchId(number))
    }

    /// The number itself.
    pub fn number(self) -> u64 {
        self.0.unsigned_abs()
    }
}

/// A job that is to be written down, with its first attempt.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// Its name.
    pub id: JobId,
    /// Whose it is.
    pub principal: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// The session.
    pub session: SessionName,
    /// Where its log will be, as far as that is known.
    pub log_file: String,
    /// The working directory, as far as that is known.
    pub cwd: Option<String>,
    /// The command, secrets masked.
    pub command: String,
    /// All that was asked for, as JSON.
    pub spec: String,
    /// What the caller wants to be kept with it, as JSON.
    pub metadata: Option<String>,
    /// The caller's own name for it.
    pub run_id: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// How it is watched, where it is; the watch is written down with it.
    pub watch: Option<NewWatch>,
    /// The word of its first attempt.
    pub nonce: Nonce,
    /// The process that starts it.
    pub starter: Option<ProcessMark>,
}

/// An attempt that is to be written down.
#[derive(Debug, Clone)]
pub struct NewAttempt {
    /// Its word.
    pub nonce: Nonce,
    /// Its command, secrets masked.
    pub command: String,
    /// The process that starts it.
    pub starter: Option<ProcessMark>,
}

/// The last attempt of a job as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRow {
    /// Which one.
    pub number: AttemptNumber,
    /// Its word.
    pub nonce: Nonce,
    /// How it stands.
    pub state: JobState,
    /// Its process, once the host has told.
    pub process: Option<ProcessIdentity>,
    /// Where in the log it begins.
    pub log_offset: Option<u64>,
    /// Whether somebody has asked to end it.
    pub is_stop_asked: bool,
    /// The process that started it.
    pub starter: Option<ProcessMark>,
    /// When it was written down, since the Unix epoch.
    pub created: Duration,
    /// When the host said that it runs.
    pub started: Option<Duration>,
    /// When it was seen to be over.
    pub ended: Option<Duration>,
}

/// A job as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Its name.
    pub id: JobId,
    /// Whose it is.
    pub principal: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// The session.
    pub session: SessionName,
    /// Its log.
    pub log_file: String,
    /// Where in the log its first attempt begins; before that stands what others wrote.
    pub log_begin: Option<u64>,
    /// The working directory.
    pub cwd: Option<String>,
    /// The command, secrets masked.
    pub command: String,
    /// All that was asked for, as JSON.
    pub spec: String,
    /// What the caller wants to be kept with it, as JSON.
    pub metadata: Option<String>,
    /// The caller's own name for it.
    pub run_id: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// The GPUs it has for itself: vendor, then indices.
    pub gpus: Option<String>,
    /// The number of its watch.
    pub watch_id: Option<WatchId>,
    /// When it was written down, since the Unix epoch.
    pub created: Duration,
    /// Its last attempt.
    pub attempt: AttemptRow,
}

/// What the host said about an attempt that runs.
#[derive(Debug, Clone)]
pub struct StartedJob {
    /// Its process.
    pub process: ProcessIdentity,
    /// Its log, as an absolute path.
    pub log_file: String,
    /// Where in the log it begins.
    pub log_offset: u64,
    /// The working directory, as an absolute path.
    pub cwd: String,
    /// The GPUs it has for itself: vendor, then indices.
    pub gpus: Option<String>,
}

impl Store {
    /// Writes a job and its first attempt down, surely.
    pub async fn begin_job(&self, new: NewJob) -> Result<JobRow, StoreError> {
        self.commit_surely(move |transaction| insert(transaction, &new))
            .await
    }

    /// A job of this principal.
    pub async fn job(&self, id: &JobId, principal: &str) -> Result<Option<JobRow>, StoreError> {
        self.one_job("j.id = ?2", principal, id.to_string()).await
    }

    /// The job of this principal that a watch is about.
    pub async fn job_of_watch(
        &self,
        watch: WatchId,
        principal: &str,
    ) -> Result<Option<JobRow>, StoreError> {
        self.one_job("j.watch_id = ?2", principal, watch.0).await
    }

    /// The newest job of this principal with exactly this session in a sandbox.
    pub async fn job_in_session(
        &self,
        sandbox: &str,
        session: &str,
        principal: &str,
    ) -> Result<Option<JobRow>, StoreError> {
        let value = format!("{sandbox}\n{session}");
        let condition = "j.sandbox || char(10) || j.session = ?2";
        self.one_job(condition, principal, value).await
    }

    async fn one_job(
        &self,
        condition: &'static str,
        principal: &str,
        value: impl rusqlite::ToSql + Send + 'static,
    ) -> Result<Option<JobRow>, StoreError> {
        let principal = principal.to_owned();
        self.read(move |transaction| {
            let query = format!(
                "SELECT {COLUMNS} FROM {ROWS} WHERE j.principal = ?1 AND {condition}
                ORDER BY j.created DESC, j.id DESC LIMIT 1"
            );
            transaction
                .query_row(&query, params![principal, value], read_row)
                .optional()
        })
        .await
    }

    /// The jobs of this principal, the newest first, at most so many.
    pub async fn jobs(
        &self,
        principal: &str,
        sandbox: Option<&str>,
        most: usize,
    ) -> Result<Vec<JobRow>, StoreError> {
        let (principal, sandbox) = (principal.to_owned(), sandbox.map(str::to_owned));
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        self.read(move |transaction| {
            let query = format!(
                "SELECT {COLUMNS} FROM {ROWS} WHERE j.principal = ?1 AND (?2 IS NULL OR j.sandbox = ?2)
                ORDER BY j.created DESC, j.id DESC LIMIT ?3"
            );
            let mut statement = transaction.prepare(&query)?;
            statement
                .query_map(params![principal, sandbox, most], read_row)?
                .collect()
        })
        .await
    }

    /// Notes that an attempt runs; false when it is over already. Where this is lost, its nonce finds it again.
    pub async fn note_job_started(
        &self,
        id: &JobId,
        number: AttemptNumber,
        started: StartedJob,
    ) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.commit(move |transaction| {
            let now = milliseconds(clock::wall());
            let change = "UPDATE attempts SET state = ?3, process = ?4, log_offset = ?5,
                started = coalesce(started, ?6) WHERE job = ?1 AND number = ?2 AND ended IS NULL";
            let state = json(&JobState::Running)?;
            let process = json(&started.process)?;
            let offset = signed(started.log_offset);
            let values = params![id, number.get(), state, process, offset, now];
            let is_open = transaction.execute(change, values)? == 1;
            let change =
                "UPDATE jobs SET log_file = ?2, cwd = ?3, gpus = ?4, updated = ?5 WHERE id = ?1";
            let values = params![id, started.log_file, started.cwd, started.gpus, now];
            transaction.execute(change, values)?;
            let change = "UPDATE watches SET log_file = ?2, cwd = ?3 WHERE job = ?1";
            let values = params![id, started.log_file, started.cwd];
            transaction.execute(change, values)?;
            Ok(is_open)
        })
        .await
    }

    /// Writes down how an attempt stands, and its process where none was known. False when it was over before,
    /// for an end never changes.
    pub async fn note_job_state(
        &self,
        id: &JobId,
        number: AttemptNumber,
        state: JobState,
        process: Option<ProcessIdentity>,
    ) -> Result<bool, StoreError> {
        let id = id.to_string();
        let work = move |transaction: &Transaction<'_>| {
            let now = milliseconds(clock::wall());
            let change = "UPDATE attempts SET state = ?3, process = coalesce(process, ?4),
                ended = CASE WHEN ?5 THEN ?6 END,
                started = CASE WHEN ?4 IS NULL THEN started ELSE coalesce(started, ?6) END
                WHERE job = ?1 AND number = ?2 AND ended IS NULL";
            let process = process.as_ref().map(json).transpose()?;
            let over = state.is_terminal();
            let values = params![id, number.get(), json(&state)?, process, over, now];
            let is_open = transaction.execute(change, values)? == 1;
            let change = "UPDATE jobs SET updated = ?2 WHERE id = ?1";
            transaction.execute(change, params![id, now])?;
            Ok(is_open)
        };
        self.commit_surely(work).await
    }

    /// Notes that somebody wants an attempt to end, surely and before anything is done about it.
    pub async fn note_stop_asked(
        &self,
        id: &JobId,
        number: AttemptNumber,
    ) -> Result<bool, StoreError> {
        let id = id.to_string();
        let change = "UPDATE attempts SET is_stop_asked = 1
            WHERE job = ?1 AND number = ?2 AND ended IS NULL";
        self.commit_surely(move |transaction| {
            Ok(transaction.execute(change, params![id, number.get()])? == 1)
        })
        .await
    }

    /// Notes that the wish to end an attempt has come to nothing, for certain.
    pub async fn note_stop_withdrawn(
        &self,
        id: &JobId,
        number: AttemptNumber,
    ) -> Result<(), StoreError> {
        let id = id.to_string();
        let change = "UPDATE attempts SET is_stop_asked = 0
            WHERE job = ?1 AND number = ?2 AND ended IS NULL";
        self.commit(move |transaction| {
            transaction.execute(change, params![id, number.get()])?;
            Ok(())
        })
        .await
    }

    /// Notes that nobody is about to carry out a start any more.
    pub async fn note_starter_gone(
        &self,
        id: &JobId,
        number: AttemptNumber,
    ) -> Result<(), StoreError> {
        let id = id.to_string();
        let change = "UPDATE attempts SET starter_pid = 0, starter_start = 0, starter_boot = ''
            WHERE job = ?1 AND number = ?2";
        self.commit(move |transaction| {
            transaction.execute(change, params![id, number.get()])?;
            Ok(())
        })
        .await
    }

    /// Forgets a job with its attempts and its watch.
    pub async fn forget_job(&self, id: &JobId) -> Result<(), StoreError> {
        let id = id.to_string();
        self.commit(move |transaction| {
            transaction.execute("DELETE FROM attempts WHERE job = ?1", [&id])?;
            transaction.execute("DELETE FROM jobs WHERE id = ?1", [&id])?;
            transaction.execute("DELETE FROM watches WHERE job = ?1", [&id])?;
            Ok(())
        })
        .await
    }

    /// Whether the watchdog has decided to resume a job and its outcome is not known.
    pub async fn is_resuming(&self, id: &JobId) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.read(move |transaction| {
            let query = "SELECT EXISTS (SELECT 1 FROM watches WHERE job = ?1 AND status = 'active'
                AND json_extract(history, '$.phase.phase') = 'resuming')";
            transaction.query_row(query, [&id], |row| row.get(0))
        })
        .await
    }
}

fn insert(transaction: &Transaction<'_>, new: &NewJob) -> rusqlite::Result<JobRow> {
    let now = milliseconds(clock::wall());
    let id = new.id.as_str();
    // One of 2^53; the rare number that is taken, or 0, fails the start before anything was done.
    let change = format!(
        "INSERT INTO jobs (id, principal, sandbox, session, log_file, cwd, command, spec, metadata,
            run_id, name, watch_id, created, updated)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
            CASE WHEN ?12 THEN random() & {LARGEST_ID} END, ?13, ?13)"
    );
    let values = params![
        id,
        new.principal,
        new.sandbox,
        new.session.as_str(),
        new.log_file,
        new.cwd,
        new.command,
        new.spec,
        new.metadata,
        new.run_id,
        new.name,
        new.watch.is_some(),
        now
    ];
    transaction.execute(&change, values)?;
    let attempt = NewAttempt {
        nonce: new.nonce.clone(),
        command: new.command.clone(),
        starter: new.starter.clone(),
    };
    insert_attempt(transaction, &new.id, AttemptNumber::FIRST, &attempt)?;
    let row = read_job(transaction, &new.id)?;
    if let (Some(watch), Some(id)) = (&new.watch, row.watch_id) {
        watches::insert_for_job(transaction, id, new, watch)?;
    }
    Ok(row)
}

/// Writes an attempt down; SQLite itself refuses a second one that is open.
pub(super) fn insert_attempt(
    transaction: &Transaction<'_>,
    job: &JobId,
    number: AttemptNumber,
    attempt: &NewAttempt,
) -> rusqlite::Result<()> {
    let change =
        "INSERT INTO attempts (job, number, nonce, command, state, starter_pid, starter_start,
            starter_boot, created)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let starter = attempt.starter.as_ref();
    let values = params![
        job.as_str(),
        number.get(),
        attempt.nonce.as_str(),
        attempt.command,
        json(&JobState::Starting)?,
        starter.map(|starter| starter.pid),
        starter.map(|starter| signed(starter.start)),
        starter.map(|starter| &starter.boot),
        milliseconds(clock::wall())
    ];
    transaction.execute(change, values)?;
    Ok(())
}

/// A job with its last attempt, whosever it is.
pub(super) fn read_job(transaction: &Transaction<'_>, id: &JobId) -> rusqlite::Result<JobRow> {
    let query = format!("SELECT {COLUMNS} FROM {ROWS} WHERE j.id = ?1");
    transaction.query_row(&query, [id.as_str()], read_row)
}

pub(super) fn read_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let number = |name: &str| row.get::<_, Option<i64>>(name);
    let duration = |value: i64| Duration::from_millis(value.unsigned_abs());
    let pid: Option<u32> = row.get("starter_pid")?;
    let start: Option<i64> = row.get("starter_start")?;
    let boot: Option<String> = row.get("starter_boot")?;
    let starter = pid.zip(start).zip(boot);
    let attempt = AttemptRow {
        number: checked(row, "number", |number: u32| AttemptNumber::new(number))?,
        nonce: checked(row, "nonce", |text: String| Nonce::parse(&text))?,
        state: from_json(row, "state")?.unwrap_or(JobState::Starting),
        process: from_json(row, "process")?,
        log_offset: number("log_offset")?.map(i64::unsigned_abs),
        is_stop_asked: row.get("is_stop_asked")?,
        starter: starter.map(|((pid, start), boot)| ProcessMark {
            pid,
            start: start.unsigned_abs(),
            boot,
        }),
        created: number("begun")?.map_or(Duration::ZERO, duration),
        started: number("started")?.map(duration),
        ended: number("ended")?.map(duration),
    };
    Ok(JobRow {
        id: checked(row, "id", |text: String| JobId::parse(&text))?,
        principal: row.get("principal")?,
        sandbox: row.get("sandbox")?,
        session: checked(row, "session", |text: String| SessionName::parse(&text))?,
        log_file: row.get("log_file")?,
        log_begin: number("log_begin")?.map(i64::unsigned_abs),
        cwd: row.get("cwd")?,
        command: row.get("command")?,
        spec: row.get("spec")?,
        metadata: row.get("metadata")?,
        run_id: row.get("run_id")?,
        name: row.get("name")?,
        gpus: row.get("gpus")?,
        watch_id: row.get::<_, Option<i64>>("watch_id")?.map(WatchId),
        created: number("created")?.map_or(Duration::ZERO, duration),
        attempt,
    })
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
