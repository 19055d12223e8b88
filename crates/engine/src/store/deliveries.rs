//! The table of deliveries: by which ways events are still to be told.

use std::time::Duration;

use remote_sandbox_core::job::WatchOrder;
use rusqlite::{OptionalExtension as _, Row, params};

use super::columns::{from_json, milliseconds, signed};
use super::events::{COLUMNS, read_row};
use super::jobs::MOST_ROWS;
use super::opening::Durability;
use super::{EventRow, Fence, Store, StoreError};

/// No pause between two tries is longer; what waits longer has a clock that was set back.
const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 3600);

/// An event that is to be told by one way now.
#[derive(Debug, Clone)]
pub struct DueDelivery {
    /// The event.
    pub event: EventRow,
    /// The word of the way.
    pub channel: String,
    /// How often it was tried.
    pub tries: u32,
    /// What is wanted of the watch; none when that is gone.
    pub order: Option<WatchOrder>,
}

/// What came of a try.
#[derive(Debug, Clone)]
pub enum DeliveryOutcome {
    /// It was told.
    Done,
    /// It was not, and is tried again.
    Again {
        /// When.
        at: Duration,
        /// Why it was not.
        error: String,
    },
    /// It cannot be told by this way here, and nobody has to do anything about it.
    Impossible {
        /// Why not.
        error: String,
    },
    /// It was not, and is given up.
    Dead {
        /// Why it was not.
        error: String,
    },
}

/// An event that could not be told by one way.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The event.
    pub event: EventRow,
    /// The word of the way.
    pub channel: String,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last try failed.
    pub error: Option<String>,
}

/// How long a delivery may take: those that take long must not stand in the way of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A post or a notice.
    Quick = 0,
    /// A command of the user.
    Command = 1,
    /// An agent that is woken.
    Agent = 2,
}

impl Pace {
    /// All of them.
    pub const ALL: [Pace; 3] = [Pace::Quick, Pace::Command, Pace::Agent];
}

impl Store {
    /// What is to be told now, of all principals, the oldest first, at most so many.
    pub async fn due_deliveries(
        &self,
        now: Duration,
        pace: Pace,
        most: usize,
    ) -> Result<Vec<DueDelivery>, StoreError> {
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        let future = milliseconds(now.saturating_add(LONGEST_PAUSE));
        self.read(move |transaction| {
            let query = format!(
                "SELECT {COLUMNS}, d.channel, d.tries, w.order_json FROM deliveries d
                JOIN events e ON e.id = d.event LEFT JOIN watches w ON w.id = e.watch
                WHERE d.status = 'pending' AND (d.next_try <= ?1 OR d.next_try > ?2)
                AND CASE WHEN d.channel IN ('codex', 'claude') THEN 2 WHEN d.channel = 'command' THEN 1 ELSE 0 END = ?4
                ORDER BY d.next_try, d.event LIMIT ?3"
            );
            let mut statement = transaction.prepare(&query)?;
            let values = params![milliseconds(now), future, most, pace as i64];
            statement.query_map(values, read_due)?.collect()
        })
        .await
    }

    /// Writes down what came of a try, for the holder of a lease.
    pub async fn note_delivery(
        &self,
        fence: &Fence,
        event: u64,
        channel: &str,
        outcome: DeliveryOutcome,
    ) -> Result<(), StoreError> {
        let channel = channel.to_owned();
        self.commit_fenced(fence, Durability::Usual, move |transaction| {
            let (status, next, error) = match outcome {
                DeliveryOutcome::Done => ("done", None, None),
                DeliveryOutcome::Again { at, error } => {
                    ("pending", Some(milliseconds(at)), Some(error))
                }
                DeliveryOutcome::Impossible { error } => ("done", None, Some(error)),
                DeliveryOutcome::Dead { error } => ("dead", None, Some(error)),
            };
            let change = "UPDATE deliveries SET status = ?3, tries = tries + 1,
                next_try = coalesce(?4, next_try), last_error = ?5
                WHERE event = ?1 AND channel = ?2 AND status = 'pending'";
            let values = params![signed(event), channel, status, next, error];
            transaction.execute(change, values)?;
            Ok(())
        })
        .await
    }

    /// Why the last notification could not be shown on this machine; none when it was.
    pub async fn unshown_notice(&self) -> Result<Option<String>, StoreError> {
        self.read(move |transaction| {
            let query =
                "SELECT last_error FROM deliveries WHERE channel = 'local' AND status = 'done'
                ORDER BY event DESC LIMIT 1";
            let last = transaction.query_row(query, [], |row| row.get(0));
            Ok(last.optional()?.flatten())
        })
        .await
    }

    /// What could not be told, the newest first; of everybody when no principal is named.
    pub async fn dead_letters(
        &self,
        principal: Option<&str>,
        most: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let principal = principal.map(str::to_owned);
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        self.read(move |transaction| {
            let query = format!(
                "SELECT {COLUMNS}, d.channel, d.tries, d.last_error FROM deliveries d
                JOIN events e ON e.id = d.event
                WHERE d.status = 'dead' AND (?1 IS NULL OR e.principal = ?1)
                ORDER BY d.event DESC LIMIT ?2"
            );
            let mut statement = transaction.prepare(&query)?;
            let read = |row: &Row<'_>| {
                Ok(DeadLetter {
                    event: read_row(row)?,
                    channel: row.get("channel")?,
                    tries: row.get("tries")?,
                    error: row.get("last_error")?,
                })
            };
            statement
                .query_map(params![principal, most], read)?
                .collect()
        })
        .await
    }
}

fn read_due(row: &Row<'_>) -> rusqlite::Result<DueDelivery> {
    Ok(DueDelivery {
        event: read_row(row)?,
        channel: row.get("channel")?,
        tries: row.get("tries")?,
        order: from_json(row, "order_json")?,
    })
}
