//! Watches that begin later than their task: those that somebody asks for, and those of the Python package.

use std::collections::BTreeSet;
use std::time::Duration;

use remote_sandbox_core::job::{JobId, WatchHistory};
use rusqlite::{OptionalExtension, Transaction, params};

use super::columns::{json, milliseconds, unreadable};
use super::watches::{Fields, insert, read_watch};
use super::{ForeignWatch, Store, StoreError, WatchId, WatchRow};
use crate::clock;

/// Most watches that are looked at sooner because somebody waits.
const MOST_HASTENED: i64 = 100;

/// Where it is written which watches of the package were taken over.
const TAKEN_OVER: &str = "taken_over";

/// A watch that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Registered {
    /// The watch.
    pub row: WatchRow,
    /// Whether the task was watched already, so that only what is wanted of the watch has changed.
    pub was_watched: bool,
}

/// A watch of the Python package.
#[derive(Debug, Clone)]
pub struct TakenWatch {
    /// Its number there, which it keeps where it is free here.
    pub number: i64,
    /// What tells it from all others, also when numbers begin anew there.
    pub mark: String,
    /// How often it was resumed.
    pub resumes: u32,
    /// The watch.
    pub watch: ForeignWatch,
}

impl Store {
    /// Writes down, surely, that a task is to be watched. One that is watched already keeps its watch, which then does
    /// what is wanted now; it is looked at at once.
    pub async fn register_watch(
        &self,
        new: ForeignWatch,
        job: Option<JobId>,
    ) -> Result<Registered, StoreError> {
        self.commit_surely(move |transaction| {
            let job = job.as_ref().map(JobId::as_str);
            let found = watch_of(transaction, &new, job)?;
            let id = match found {
                Some(id) => {
                    change(transaction, id, &new)?;
                    id
                }
                None => insert(
                    transaction,
                    None,
                    &fields(&new, job),
                    &new.watch,
                    Duration::ZERO,
                )?,
            };
            let number = "UPDATE jobs SET watch_id = ?2 WHERE id = ?1";
            transaction.execute(number, params![job, id.0])?;
            Ok(Registered {
                row: read_watch(transaction, id)?,
                was_watched: found.is_some(),
            })
        })
        .await
    }

    /// Has the watchdog look soon at tasks for which somebody waits, but not at those that it was at since `before`,
    /// nor at hosts that did not answer: they have their own pace.
    pub async fn hasten_watches(
        &self,
        principal: &str,
        watch: Option<WatchId>,
        before: Duration,
    ) -> Result<(), StoreError> {
        let principal = principal.to_owned();
        self.commit(move |transaction| {
            let change = "UPDATE watches SET next_check = ?3 WHERE id IN (SELECT id FROM watches
                WHERE principal = ?1 AND (?2 IS NULL OR id = ?2) AND status = 'active'
                AND last_error IS NULL AND next_check > ?3
                AND coalesce(last_checked, created) <= ?4 ORDER BY created DESC LIMIT ?5)";
            let now = milliseconds(clock::wall());
            let watch = watch.map(|watch| watch.0);
            let values = params![principal, watch, now, milliseconds(before), MOST_HASTENED];
            transaction.execute(change, values)?;
            Ok(())
        })
        .await
    }

    /// Writes down watches of the Python package, surely, each once. Gives how many were new.
    pub async fn take_over(&self, watches: Vec<TakenWatch>) -> Result<usize, StoreError> {
        self.commit_surely(move |transaction| {
            let mut taken = taken_marks(transaction)?;
            let before = taken.len();
            for watch in &watches {
                if taken.insert(watch.mark.clone()) {
                    take(transaction, watch)?;
                }
            }
            let keep = "INSERT INTO about (key, value) VALUES (?1, ?2)
                ON CONFLICT (key) DO UPDATE SET value = excluded.value";
            transaction.execute(keep, params![TAKEN_OVER, json(&taken)?])?;
            Ok(taken.len().saturating_sub(before))
        })
        .await
    }

    /// The marks of watches that were taken over from the Python package.
    pub async fn taken_over(&self) -> Result<BTreeSet<String>, StoreError> {
        self.read(taken_marks).await
    }
}

fn fields<'a>(new: &'a ForeignWatch, job: Option<&'a str>) -> Fields<'a> {
    Fields {
        principal: &new.principal,
        job,
        sandbox: &new.sandbox,
        session: &new.session,
        log_file: &new.log_file,
        cwd: new.cwd.as_deref(),
        command: &new.launch_command,
        run_id: new.run_id.as_deref(),
        name: new.name.as_deref(),
        metadata: new.metadata.as_deref(),
    }
}

/// The watch of a job, also one that has ended; of another task only one that goes on.
fn watch_of(
    transaction: &Transaction<'_>,
    new: &ForeignWatch,
    job: Option<&str>,
) -> rusqlite::Result<Option<WatchId>> {
    let query = "SELECT id FROM watches WHERE principal = ?1 AND CASE WHEN ?2 IS NOT NULL
        THEN job = ?2
        ELSE status = 'active' AND sandbox = ?3 AND session = ?4 AND log_file = ?5 END
        ORDER BY created DESC LIMIT 1";
    let values = params![new.principal, job, new.sandbox, new.session, new.log_file];
    let found = transaction.query_row(query, values, |row| row.get(0));
    Ok(found.optional()?.map(WatchId))
}

fn change(transaction: &Transaction<'_>, id: WatchId, new: &ForeignWatch) -> rusqlite::Result<()> {
    let change = "UPDATE watches SET order_json = ?2, entry = coalesce(?3, entry),
        run_id = coalesce(?4, run_id), name = coalesce(?5, name),
        metadata = coalesce(?6, metadata), cwd = coalesce(?7, cwd),
        history = CASE status WHEN 'active' THEN history ELSE ?8 END,
        status = 'active', ended = NULL, next_check = ?9, updated = ?9 WHERE id = ?1";
    let values = params![
        id.0,
        json(&new.watch.order)?,
        new.watch.entry,
        new.run_id,
        new.name,
        new.metadata,
        new.cwd,
        json(&WatchHistory::default())?,
        milliseconds(clock::wall())
    ];
    transaction.execute(change, values)?;
    Ok(())
}

fn take(transaction: &Transaction<'_>, taken: &TakenWatch) -> rusqlite::Result<()> {
    let query = "SELECT count(*) FROM watches WHERE id = ?1";
    let others: i64 = transaction.query_row(query, [taken.number], |row| row.get(0))?;
    let number = u64::try_from(taken.number).ok().and_then(WatchId::new);
    let number = number.filter(|_| others == 0);
    let new = &taken.watch;
    let id = insert(
        transaction,
        number,
        &fields(new, None),
        &new.watch,
        Duration::ZERO,
    )?;
    let history = WatchHistory {
        resumes: taken.resumes,
        ..WatchHistory::default()
    };
    let change = "UPDATE watches SET history = ?2 WHERE id = ?1";
    transaction.execute(change, params![id.0, json(&history)?])?;
    Ok(())
}

fn taken_marks(transaction: &Transaction<'_>) -> rusqlite::Result<BTreeSet<String>> {
    let query = "SELECT value FROM about WHERE key = ?1";
    let text: Option<String> = transaction
        .query_row(query, [TAKEN_OVER], |row| row.get(0))
        .optional()?;
    match text {
        Some(text) => serde_json::from_str(&text).map_err(unreadable),
        None => Ok(BTreeSet::new()),
    }
}

#[cfg(test)]
#[path = "registering_tests.rs"]
mod tests;
