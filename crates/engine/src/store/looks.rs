//! What follows from a look at a watched task, written down in one transaction before it has any effect.

use std::time::Duration;

use remote_sandbox_core::job::{AttemptNumber, JobId, Phase, SessionName, WatchHistory};
use rusqlite::{OptionalExtension, Transaction, params};

use super::columns::{checked, json, milliseconds, signed};
use super::events::{self, EventRow, NewEvent};
use super::jobs::{insert_attempt, read_job};
use super::opening::Durability;
use super::watches::{read_task, read_watch};
use super::{
    Fence, JobRow, NewAttempt, Store, StoreError, WatchId, WatchRow, WatchStatus, WatchedTask,
};
use crate::clock;

/// What was seen of a task, as far as it is kept.
#[derive(Debug, Clone, Default)]
pub struct SeenParts {
    /// The end of its log.
    pub log_tail: Option<String>,
    /// The SHA-1 of that.
    pub log_digest: Option<String>,
    /// Its checkpoint; none leaves what was kept.
    pub checkpoint: Option<String>,
    /// The SHA-1 of that.
    pub checkpoint_digest: Option<String>,
    /// When the checkpoint was written.
    pub checkpoint_updated: Option<Duration>,
    /// Up to which byte the log was searched for alarms.
    pub scanned_to: Option<u64>,
}

/// What follows from a look at a task.
#[derive(Debug, Clone)]
pub struct LookNote {
    /// The watch.
    pub watch: WatchId,
    /// All that it remembers from now on.
    pub history: WatchHistory,
    /// Whether it goes on.
    pub status: WatchStatus,
    /// How the task stands, in one word.
    pub state: String,
    /// Why the look failed.
    pub error: Option<String>,
    /// The exit code of the task.
    pub exit_code: Option<u32>,
    /// What was seen; none when the host could not be asked.
    pub seen: Option<SeenParts>,
    /// When to look again.
    pub next_check: Option<Duration>,
    /// What is told.
    pub events: Vec<NewEvent>,
    /// The resume that was decided.
    pub resume: Option<ResumeOrder>,
}

/// A resume that was decided.
#[derive(Debug, Clone)]
pub struct ResumeOrder {
    /// The attempt.
    pub attempt: NewAttempt,
    /// The name of the job that a task of somebody else becomes by it.
    pub job: JobId,
    /// The session of that job.
    pub session: SessionName,
    /// All that is wanted of that job, as JSON.
    pub spec: String,
}

/// What came of writing a look down.
#[derive(Debug)]
pub enum Noted {
    /// It is written down.
    Kept {
        /// What is told.
        events: Vec<EventRow>,
        /// The job with the attempt of the resume, when one was decided.
        resume: Option<Box<JobRow>>,
    },
    /// Nothing was written: the watch ended meanwhile.
    Over,
    /// Nothing was written: the task was to be resumed, and somebody else is doing that.
    AlreadyResuming(AttemptNumber),
}

/// What came of a resume by hand.
#[derive(Debug)]
pub enum BegunResume {
    /// Its attempt is written down.
    Begun(Box<JobRow>),
    /// There is an attempt that is not over.
    AlreadyResuming(AttemptNumber),
    /// There is no such watch.
    Unknown,
}

impl Store {
    /// Writes down what follows from looks, for the holder of a lease, all in one transaction.
    pub async fn note_looks(
        &self,
        fence: &Fence,
        notes: Vec<LookNote>,
    ) -> Result<Vec<Noted>, StoreError> {
        let is_sure = |note: &LookNote| !note.events.is_empty() || note.resume.is_some();
        let durability = if notes.iter().any(is_sure) {
            Durability::Sure
        } else {
            Durability::Usual
        };
        self.commit_fenced(fence, durability, move |transaction| {
            notes.iter().map(|note| keep(transaction, note)).collect()
        })
        .await
    }

    /// Writes down a resume that somebody asked for, surely. A watch that was over goes on.
    pub async fn begin_resume(
        &self,
        watch: WatchId,
        principal: &str,
        order: ResumeOrder,
    ) -> Result<BegunResume, StoreError> {
        let principal = principal.to_owned();
        self.commit_surely(move |transaction| {
            let task = read_task(transaction, watch)?;
            let Some(task) = task.filter(|task| task.watch.principal == principal) else {
                return Ok(BegunResume::Unknown);
            };
            if let Some(number) = open_attempt(transaction, &task.watch)? {
                return Ok(BegunResume::AlreadyResuming(number));
            }
            if task.watch.status != WatchStatus::Active {
                reopen(transaction, &task)?;
            }
            let job = resume(transaction, &task.watch, &order)?;
            Ok(BegunResume::Begun(Box::new(job)))
        })
        .await
    }
}

fn reopen(transaction: &Transaction<'_>, task: &WatchedTask) -> rusqlite::Result<()> {
    let history = WatchHistory {
        phase: Phase::Watching,
        ..task.watch.history.clone()
    };
    let change = "UPDATE watches SET status = 'active', ended = NULL, next_check = ?2, history = ?3
        WHERE id = ?1";
    let now = milliseconds(clock::wall());
    transaction.execute(change, params![task.watch.id.0, now, json(&history)?])?;
    Ok(())
}

fn keep(transaction: &Transaction<'_>, note: &LookNote) -> rusqlite::Result<Noted> {
    let Some(watch) = read_watch(transaction, note.watch).optional()? else {
        return Ok(Noted::Over);
    };
    if watch.status != WatchStatus::Active {
        return Ok(Noted::Over);
    }
    if note.resume.is_some()
        && let Some(number) = open_attempt(transaction, &watch)?
    {
        return Ok(Noted::AlreadyResuming(number));
    }
    let now = clock::wall();
    update(transaction, note, now)?;
    if let Some(seen) = &note.seen {
        update_seen(transaction, note.watch, seen)?;
    }
    let events: rusqlite::Result<Vec<EventRow>> = note
        .events
        .iter()
        .map(|event| events::insert(transaction, &watch, event, now))
        .collect();
    let order = note.resume.as_ref();
    let resume = order.map(|order| resume(transaction, &watch, order));
    Ok(Noted::Kept {
        events: events?,
        resume: resume.transpose()?.map(Box::new),
    })
}

fn update(transaction: &Transaction<'_>, note: &LookNote, now: Duration) -> rusqlite::Result<()> {
    let is_gone = matches!(note.history.phase, Phase::Interrupted { .. });
    let change = "UPDATE watches SET history = ?2, status = ?3, last_state = ?4,
        last_summary = coalesce(?5, last_summary), last_error = ?6,
        last_exit_code = coalesce(?7, last_exit_code), next_check = ?8, last_checked = ?9,
        interrupted = CASE WHEN ?10 THEN coalesce(interrupted, ?9) END,
        last_event = CASE WHEN ?5 IS NULL THEN last_event ELSE ?9 END,
        updated = ?9, ended = CASE WHEN ?3 = 'active' THEN NULL ELSE ?9 END
        WHERE id = ?1";
    let values = params![
        note.watch.0,
        json(&note.history)?,
        note.status.word(),
        note.state,
        note.events.last().map(|event| &event.summary),
        note.error,
        note.exit_code,
        note.next_check.map(milliseconds),
        milliseconds(now),
        is_gone
    ];
    transaction.execute(change, values)?;
    Ok(())
}

fn update_seen(
    transaction: &Transaction<'_>,
    watch: WatchId,
    seen: &SeenParts,
) -> rusqlite::Result<()> {
    let change = "UPDATE watches SET last_log_tail = coalesce(?2, last_log_tail),
        last_log_digest = coalesce(?3, last_log_digest),
        last_checkpoint = coalesce(?4, last_checkpoint),
        last_checkpoint_digest = coalesce(?5, last_checkpoint_digest),
        checkpoint_updated = coalesce(?6, checkpoint_updated),
        scanned_to = coalesce(?7, scanned_to) WHERE id = ?1";
    let values = params![
        watch.0,
        seen.log_tail,
        seen.log_digest,
        seen.checkpoint,
        seen.checkpoint_digest,
        seen.checkpoint_updated.map(milliseconds),
        seen.scanned_to.map(signed)
    ];
    transaction.execute(change, values)?;
    Ok(())
}

/// The attempt of a task that is not over.
fn open_attempt(
    transaction: &Transaction<'_>,
    watch: &WatchRow,
) -> rusqlite::Result<Option<AttemptNumber>> {
    let query = "SELECT number FROM attempts WHERE job = ?1 AND ended IS NULL";
    let Some(job) = &watch.job else {
        return Ok(None);
    };
    let read = |row: &rusqlite::Row<'_>| checked(row, "number", AttemptNumber::new);
    transaction
        .query_row(query, [job.as_str()], read)
        .optional()
}

/// Writes the next attempt of a task down. A task of somebody else becomes a job of ours by that.
fn resume(
    transaction: &Transaction<'_>,
    watch: &WatchRow,
    order: &ResumeOrder,
) -> rusqlite::Result<JobRow> {
    if let Some(job) = &watch.job {
        let query = "SELECT max(number) + 1 AS number FROM attempts WHERE job = ?1";
        let read = |row: &rusqlite::Row<'_>| checked(row, "number", AttemptNumber::new);
        let number = transaction.query_row(query, [job.as_str()], read)?;
        insert_attempt(transaction, job, number, &order.attempt)?;
        return read_job(transaction, job);
    }
    let now = milliseconds(clock::wall());
    let change = "INSERT INTO jobs (id, principal, sandbox, session, log_file, cwd, command, spec,
            metadata, run_id, name, watch_id, created, updated)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13)";
    let values = params![
        order.job.as_str(),
        watch.principal,
        watch.sandbox,
        order.session.as_str(),
        watch.log_file,
        watch.cwd,
        order.attempt.command,
        order.spec,
        watch.metadata,
        watch.run_id,
        watch.name,
        watch.id.0,
        now
    ];
    transaction.execute(change, values)?;
    insert_attempt(
        transaction,
        &order.job,
        AttemptNumber::FIRST,
        &order.attempt,
    )?;
    let change = "UPDATE watches SET job = ?2, session = ?3 WHERE id = ?1";
    let values = params![watch.id.0, order.job.as_str(), order.session.as_str()];
    transaction.execute(change, values)?;
    read_job(transaction, &order.job)
}
