//! The table of watches.

use std::time::Duration;

use remote_sandbox_core::job::{JobId, WatchHistory, WatchOrder};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::columns::{checked, count, from_json, json, milliseconds, time};
use super::jobs::{LARGEST_ID, MOST_ROWS, read_job};
use super::{JobRow, NewJob, Store, StoreError, WatchId};
use crate::clock;

pub(super) const COLUMNS: &str = "id, principal, job, sandbox, session, log_file, cwd, launch_command, \
    order_json, run_id, name, metadata, entry, status, history, last_state, last_summary, last_error, \
    last_exit_code, last_log_tail, last_log_digest, last_checkpoint, last_checkpoint_digest, \
    checkpoint_updated, scanned_to, interrupted, next_check, last_checked, last_event, created, updated, ended";

/// A task that was looked at so far in the future has a clock that was set back since.
const CLOCK_SET_BACK: Duration = Duration::from_secs(5);

/// Whether a watch goes on, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStatus {
    /// It goes on.
    Active,
    /// The task ended.
    Completed,
    /// The task is gone and was resumed as often as allowed.
    Exhausted,
    /// Somebody ended the watch.
    Cancelled,
}

impl WatchStatus {
    /// All of them.
    pub const ALL: [WatchStatus; 4] = [
        WatchStatus::Active,
        WatchStatus::Completed,
        WatchStatus::Exhausted,
        WatchStatus::Cancelled,
    ];

    /// Its word, in the store and in replies.
    pub fn word(self) -> &'static str {
        match self {
            WatchStatus::Active => "active",
            WatchStatus::Completed => "completed",
            WatchStatus::Exhausted => "exhausted",
            WatchStatus::Cancelled => "cancelled",
        }
    }

    /// The status of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }
}

/// How a job is watched, written down with the job.
#[derive(Debug, Clone)]
pub struct NewWatch {
    /// What is wanted.
    pub order: WatchOrder,
    /// The kept entry of its sandbox, where there is one.
    pub entry: Option<String>,
}

/// A task of somebody else that is to be watched.
#[derive(Debug, Clone)]
pub struct ForeignWatch {
    /// Whose watch it is.
    pub principal: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// The session of the task.
    pub session: String,
    /// Its log.
    pub log_file: String,
    /// Its working directory, where that is known.
    pub cwd: Option<String>,
    /// The command that started it, where that is known.
    pub launch_command: String,
    /// The caller's own name for it.
    pub run_id: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// What the caller wants to be kept with it, as JSON.
    pub metadata: Option<String>,
    /// How it is watched.
    pub watch: NewWatch,
}

/// A watch as it is written down. Times are since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchRow {
    /// Its number.
    pub id: WatchId,
    /// Whose it is.
    pub principal: String,
    /// The job, where the task is one of ours.
    pub job: Option<JobId>,
    /// The sandbox, by name.
    pub sandbox: String,
    /// The session of the task.
    pub session: String,
    /// Its log.
    pub log_file: String,
    /// Its working directory.
    pub cwd: Option<String>,
    /// The command that started it.
    pub launch_command: String,
    /// What is wanted.
    pub order: WatchOrder,
    /// The caller's own name for it.
    pub run_id: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// What the caller wants to be kept with it, as JSON.
    pub metadata: Option<String>,
    /// The kept entry of its sandbox.
    pub entry: Option<String>,
    /// Whether it goes on.
    pub status: WatchStatus,
    /// All that it remembers.
    pub history: WatchHistory,
    /// How the task stood at the last look, in one word.
    pub last_state: String,
    /// The last thing that was told.
    pub last_summary: Option<String>,
    /// Why the last look failed.
    pub last_error: Option<String>,
    /// The exit code of the task.
    pub last_exit_code: Option<u32>,
    /// The end of its log.
    pub last_log_tail: Option<String>,
    /// The SHA-1 of that.
    pub last_log_digest: Option<String>,
    /// Its checkpoint.
    pub last_checkpoint: Option<String>,
    /// The SHA-1 of that.
    pub last_checkpoint_digest: Option<String>,
    /// When the checkpoint was written.
    pub checkpoint_updated: Option<Duration>,
    /// Up to which byte the log was searched for alarms.
    pub scanned_to: Option<u64>,
    /// Since when the task is gone.
    pub interrupted: Option<Duration>,
    /// When it is looked at next.
    pub next_check: Option<Duration>,
    /// When it was looked at last.
    pub last_checked: Option<Duration>,
    /// When something was told last.
    pub last_event: Option<Duration>,
    /// When it was written down.
    pub created: Duration,
    /// When it was changed last.
    pub updated: Duration,
    /// When it ended.
    pub ended: Option<Duration>,
}

/// A watch that is to be looked at, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueWatch {
    /// Its number.
    pub id: WatchId,
    /// The sandbox, by name.
    pub sandbox: String,
    /// The kept entry of the sandbox.
    pub entry: Option<String>,
}

/// A watch with its job.
#[derive(Debug, Clone)]
pub struct WatchedTask {
    /// The watch.
    pub watch: WatchRow,
    /// The job, where the task is one of ours.
    pub job: Option<JobRow>,
}

impl Store {
    /// Writes down a watch of a task that is not ours, surely; it is looked at at once.
    pub async fn add_watch(&self, new: ForeignWatch) -> Result<WatchRow, StoreError> {
        self.commit_surely(move |transaction| {
            let fields = Fields {
                principal: &new.principal,
                job: None,
                sandbox: &new.sandbox,
                session: &new.session,
                log_file: &new.log_file,
                cwd: new.cwd.as_deref(),
                command: &new.launch_command,
                run_id: new.run_id.as_deref(),
                name: new.name.as_deref(),
                metadata: new.metadata.as_deref(),
            };
            let id = insert(transaction, None, &fields, &new.watch, Duration::ZERO)?;
            read_watch(transaction, id)
        })
        .await
    }

    /// A watch of this principal.
    pub async fn watch(
        &self,
        id: WatchId,
        principal: &str,
    ) -> Result<Option<WatchRow>, StoreError> {
        let principal = principal.to_owned();
        self.read(move |transaction| {
            let query = format!("SELECT {COLUMNS} FROM watches WHERE id = ?1 AND principal = ?2");
            let values = params![id.0, principal];
            transaction.query_row(&query, values, read_row).optional()
        })
        .await
    }

    /// The watches of this principal, the newest first, at most so many.
    pub async fn watches(
        &self,
        principal: &str,
        status: Option<WatchStatus>,
        most: usize,
    ) -> Result<Vec<WatchRow>, StoreError> {
        let principal = principal.to_owned();
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        self.read(move |transaction| {
            let query = format!(
                "SELECT {COLUMNS} FROM watches WHERE principal = ?1 AND (?2 IS NULL OR status = ?2)
                ORDER BY created DESC, id DESC LIMIT ?3"
            );
            let mut statement = transaction.prepare(&query)?;
            let values = params![principal, status.map(WatchStatus::word), most];
            statement.query_map(values, read_row)?.collect()
        })
        .await
    }

    /// Which watches of all principals are to be looked at now, those that wait longest first.
    pub async fn due_watches(
        &self,
        now: Duration,
        most: usize,
    ) -> Result<Vec<DueWatch>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let future = milliseconds(now.saturating_add(CLOCK_SET_BACK));
        self.read(move |transaction| {
            // A clock that was set back must not leave tasks alone until it is that time again.
            let query = "SELECT id, sandbox, entry FROM watches WHERE status = 'active'
                AND (next_check IS NULL OR next_check <= ?1 OR coalesce(last_checked, created) > ?2)
                ORDER BY next_check LIMIT ?3";
            let mut statement = transaction.prepare(query)?;
            let read = |row: &Row<'_>| {
                Ok(DueWatch {
                    id: WatchId(row.get("id")?),
                    sandbox: row.get("sandbox")?,
                    entry: row.get("entry")?,
                })
            };
            let values = params![milliseconds(now), future, most];
            statement.query_map(values, read)?.collect()
        })
        .await
    }

    /// The watches of these numbers that still go on, with their jobs. One that cannot be read is left out.
    pub async fn watched_tasks(&self, ids: Vec<WatchId>) -> Result<Vec<WatchedTask>, StoreError> {
        self.read(move |transaction| {
            let mut tasks = Vec::with_capacity(ids.len());
            for id in ids {
                match read_task(transaction, id) {
                    Ok(Some(task)) if task.watch.status == WatchStatus::Active => tasks.push(task),
                    Ok(_) => {}
                    Err(rusqlite::Error::FromSqlConversionFailure(_, _, error)) => {
                        tracing::error!(watch = id.0, %error, "a watch cannot be read");
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(tasks)
        })
        .await
    }

    /// Ends a watch, surely; the task itself goes on. None when there is no such watch.
    pub async fn cancel_watch(
        &self,
        id: WatchId,
        principal: &str,
    ) -> Result<Option<WatchRow>, StoreError> {
        let principal = principal.to_owned();
        self.commit_surely(move |transaction| {
            let now = milliseconds(clock::wall());
            let change = "UPDATE watches SET status = 'cancelled', next_check = NULL, updated = ?3,
                ended = ?3 WHERE id = ?1 AND principal = ?2 AND status = 'active'";
            transaction.execute(change, params![id.0, principal, now])?;
            let query = format!("SELECT {COLUMNS} FROM watches WHERE id = ?1 AND principal = ?2");
            let values = params![id.0, principal];
            transaction.query_row(&query, values, read_row).optional()
        })
        .await
    }
}

/// What is written down of a new watch besides its order.
pub(super) struct Fields<'a> {
    pub(super) principal: &'a str,
    pub(super) job: Option<&'a str>,
    pub(super) sandbox: &'a str,
    pub(super) session: &'a str,
    pub(super) log_file: &'a str,
    pub(super) cwd: Option<&'a str>,
    pub(super) command: &'a str,
    pub(super) run_id: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) metadata: Option<&'a str>,
}

/// Writes down the watch of a job that is being written down.
pub(super) fn insert_for_job(
    transaction: &Transaction<'_>,
    id: WatchId,
    job: &NewJob,
    watch: &NewWatch,
) -> rusqlite::Result<()> {
    let fields = Fields {
        principal: &job.principal,
        job: Some(job.id.as_str()),
        sandbox: &job.sandbox,
        session: job.session.as_str(),
        log_file: &job.log_file,
        cwd: job.cwd.as_deref(),
        command: &job.command,
        run_id: job.run_id.as_deref(),
        name: job.name.as_deref(),
        metadata: job.metadata.as_deref(),
    };
    let first = Duration::from_secs(watch.order.policy.interval_s);
    insert(transaction, Some(id), &fields, watch, first)?;
    Ok(())
}

pub(super) fn insert(
    transaction: &Transaction<'_>,
    id: Option<WatchId>,
    fields: &Fields<'_>,
    watch: &NewWatch,
    first: Duration,
) -> rusqlite::Result<WatchId> {
    let now = clock::wall();
    let change = format!(
        "INSERT INTO watches (id, principal, job, sandbox, session, log_file, cwd, launch_command,
            order_json, run_id, name, metadata, entry, status, history, last_state, next_check,
            created, updated)
        VALUES (coalesce(?1, random() & {LARGEST_ID}), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
            ?12, ?13, 'active', ?14, 'unknown', ?15, ?16, ?16)"
    );
    let values = params![
        id.map(|id| id.0),
        fields.principal,
        fields.job,
        fields.sandbox,
        fields.session,
        fields.log_file,
        fields.cwd,
        fields.command,
        json(&watch.order)?,
        fields.run_id,
        fields.name,
        fields.metadata,
        watch.entry,
        json(&WatchHistory::default())?,
        milliseconds(now.saturating_add(first)),
        milliseconds(now)
    ];
    transaction.execute(&change, values)?;
    Ok(WatchId(transaction.last_insert_rowid()))
}

pub(super) fn read_watch(transaction: &Transaction<'_>, id: WatchId) -> rusqlite::Result<WatchRow> {
    let query = format!("SELECT {COLUMNS} FROM watches WHERE id = ?1");
    transaction.query_row(&query, [id.0], read_row)
}

/// A watch with its job; none when it is gone, or its job is.
pub(super) fn read_task(
    transaction: &Transaction<'_>,
    id: WatchId,
) -> rusqlite::Result<Option<WatchedTask>> {
    let Some(watch) = read_watch(transaction, id).optional()? else {
        return Ok(None);
    };
    let job = match &watch.job {
        Some(job) => match read_job(transaction, job).optional()? {
            Some(job) => Some(job),
            None => return Ok(None),
        },
        None => None,
    };
    Ok(Some(WatchedTask { watch, job }))
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<WatchRow> {
    let job: Option<String> = row.get("job")?;
    let job = job.map(|_| checked(row, "job", |text: String| JobId::parse(&text)));
    let status: String = row.get("status")?;
    let order = from_json(row, "order_json")?;
    Ok(WatchRow {
        id: WatchId(row.get("id")?),
        principal: row.get("principal")?,
        job: job.transpose()?,
        sandbox: row.get("sandbox")?,
        session: row.get("session")?,
        log_file: row.get("log_file")?,
        cwd: row.get("cwd")?,
        launch_command: row.get("launch_command")?,
        order: order.ok_or(rusqlite::Error::InvalidQuery)?,
        run_id: row.get("run_id")?,
        name: row.get("name")?,
        metadata: row.get("metadata")?,
        entry: row.get("entry")?,
        status: WatchStatus::parse(&status).ok_or(rusqlite::Error::InvalidQuery)?,
        history: from_json(row, "history")?.unwrap_or_default(),
        last_state: row.get("last_state")?,
        last_summary: row.get("last_summary")?,
        last_error: row.get("last_error")?,
        last_exit_code: row.get("last_exit_code")?,
        last_log_tail: row.get("last_log_tail")?,
        last_log_digest: row.get("last_log_digest")?,
        last_checkpoint: row.get("last_checkpoint")?,
        last_checkpoint_digest: row.get("last_checkpoint_digest")?,
        checkpoint_updated: time(row, "checkpoint_updated")?,
        scanned_to: count(row, "scanned_to")?,
        interrupted: time(row, "interrupted")?,
        next_check: time(row, "next_check")?,
        last_checked: time(row, "last_checked")?,
        last_event: time(row, "last_event")?,
        created: time(row, "created")?.unwrap_or_default(),
        updated: time(row, "updated")?.unwrap_or_default(),
        ended: time(row, "ended")?,
    })
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
