//! The table of events: what was told about watches.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde_json::Value;

use super::columns::{from_json, milliseconds, signed, time};
use super::jobs::MOST_ROWS;
use super::{Store, StoreError, WatchId, WatchRow};

pub(super) const COLUMNS: &str =
    "e.id, e.watch, e.principal, e.sandbox, e.type, e.summary, e.payload, e.created";

/// Something that is to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Its type.
    pub event_type: &'static str,
    /// What happened, in one sentence.
    pub summary: String,
    /// All that goes with it.
    pub payload: Value,
    /// By which ways it is told, as their words.
    pub channels: Vec<String>,
}

/// Something that was told. Times are since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Its number, which grows.
    pub id: u64,
    /// The watch it is about.
    pub watch: WatchId,
    /// Whose it is.
    pub principal: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// Its type.
    pub event_type: String,
    /// What happened, in one sentence.
    pub summary: String,
    /// All that goes with it.
    pub payload: Value,
    /// When it happened.
    pub created: Duration,
}

impl Store {
    /// Events of this principal, at most so many: those after a number in their order, or the newest first.
    pub async fn events(
        &self,
        principal: &str,
        watch: Option<WatchId>,
        after: Option<u64>,
        most: usize,
    ) -> Result<Vec<EventRow>, StoreError> {
        let principal = principal.to_owned();
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        self.read(move |transaction| {
            let order = if after.is_some() { "ASC" } else { "DESC" };
            let query = format!(
                "SELECT {COLUMNS} FROM events e WHERE e.principal = ?1
                AND (?2 IS NULL OR e.watch = ?2) AND e.id > ?3 ORDER BY e.id {order} LIMIT ?4"
            );
            let mut statement = transaction.prepare(&query)?;
            let watch = watch.map(|watch| watch.0);
            let values = params![principal, watch, signed(after.unwrap_or(0)), most];
            statement.query_map(values, read_row)?.collect()
        })
        .await
    }

    /// An event of this principal.
    pub async fn event(&self, id: u64, principal: &str) -> Result<Option<EventRow>, StoreError> {
        let principal = principal.to_owned();
        self.read(move |transaction| {
            let query =
                format!("SELECT {COLUMNS} FROM events e WHERE e.id = ?1 AND e.principal = ?2");
            let values = params![signed(id), principal];
            transaction.query_row(&query, values, read_row).optional()
        })
        .await
    }

    /// The newest events of everybody.
    pub async fn newest_events(&self, most: usize) -> Result<Vec<EventRow>, StoreError> {
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        self.read(move |transaction| {
            let query = format!("SELECT {COLUMNS} FROM events e ORDER BY e.id DESC LIMIT ?1");
            let mut statement = transaction.prepare(&query)?;
            statement.query_map([most], read_row)?.collect()
        })
        .await
    }

    /// The number of the newest event of this principal; 0 when there is none.
    pub async fn last_event(&self, principal: &str) -> Result<u64, StoreError> {
        let principal = principal.to_owned();
        self.read(move |transaction| {
            let query = "SELECT coalesce(max(id), 0) FROM events WHERE principal = ?1";
            let last: i64 = transaction.query_row(query, [principal], |row| row.get(0))?;
            Ok(last.unsigned_abs())
        })
        .await
    }
}

/// Writes down an event and by which ways it is to be told.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    watch: &WatchRow,
    event: &NewEvent,
    now: Duration,
) -> rusqlite::Result<EventRow> {
    let now_ms = milliseconds(now);
    let change = "INSERT INTO events (watch, principal, sandbox, type, summary, payload, created)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![
        watch.id.0,
        watch.principal,
        watch.sandbox,
        event.event_type,
        event.summary,
        event.payload.to_string(),
        now_ms
    ];
    transaction.execute(change, values)?;
    let id = transaction.last_insert_rowid();
    let change = "INSERT OR IGNORE INTO deliveries (event, channel, status, next_try)
        VALUES (?1, ?2, 'pending', ?3)";
    for channel in &event.channels {
        transaction.execute(change, params![id, channel, now_ms])?;
    }
    Ok(EventRow {
        id: id.unsigned_abs(),
        watch: watch.id,
        principal: watch.principal.clone(),
        sandbox: watch.sandbox.clone(),
        event_type: event.event_type.to_owned(),
        summary: event.summary.clone(),
        payload: event.payload.clone(),
        created: now,
    })
}

pub(super) fn read_row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        id: row.get::<_, i64>("id")?.unsigned_abs(),
        watch: WatchId(row.get("watch")?),
        principal: row.get("principal")?,
        sandbox: row.get("sandbox")?,
        event_type: row.get("type")?,
        summary: row.get("summary")?,
        payload: from_json(row, "payload")?.unwrap_or_default(),
        created: time(row, "created")?.unwrap_or_default(),
    })
}
