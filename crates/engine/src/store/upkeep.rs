//! How many watches there are, and the end of old ones.

use std::time::Duration;

use rusqlite::params;

use super::columns::milliseconds;
use super::jobs::{self, MOST_ROWS};
use super::{JobRow, Store, StoreError};

/// A watch `w` that still has something to do. One whose task is gone, and is not to be resumed, has not.
const GOES_ON: &str = "w.status = 'active' AND NOT coalesce(
    json_extract(w.history, '$.phase.phase') = 'interrupted'
    AND json_extract(w.history, '$.phase.due') IS NULL, 0)";

/// The same, for a job of which the last attempt `a` is over: once that was long ago and nothing is to be resumed, its
/// watch only stands because no watchdog has run since.
const HOLDS: &str = "(a.ended > ?5 OR coalesce(json_extract(w.history, '$.phase.phase'), '') IN ('interrupted', 'resuming'))";

/// How long a watchdog has for telling of a job that is over.
const TOLD_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// After this time nothing is waited for any more.
const HELD_AT_MOST: Duration = Duration::from_secs(180 * 24 * 3600);

/// A watch `w` of which something is still to be told; that needs to know what was wanted of it.
const TELLS: &str = "EXISTS (SELECT 1 FROM events e JOIN deliveries d ON d.event = e.id
    WHERE e.watch = w.id AND d.status = 'pending')";

/// How many watches there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchCounts {
    /// Those that go on.
    pub active: u64,
    /// Those whose task ended.
    pub completed: u64,
    /// Those whose task was resumed as often as allowed.
    pub exhausted: u64,
    /// Those that somebody ended.
    pub cancelled: u64,
    /// Hosts of those that go on which could not be asked at the last look.
    pub unreachable_hosts: u64,
    /// Deliveries that are still tried.
    pub pending_deliveries: u64,
    /// Deliveries that were given up.
    pub dead_deliveries: u64,
}

impl Store {
    /// How many watches and deliveries there are; of everybody when no principal is named.
    pub async fn watch_counts(&self, principal: Option<&str>) -> Result<WatchCounts, StoreError> {
        let principal = principal.map(str::to_owned);
        self.read(move |transaction| {
            let watches = "SELECT count(*) FROM watches WHERE status = ?1
                AND (?2 IS NULL OR principal = ?2)";
            let hosts = "SELECT count(DISTINCT coalesce(entry, sandbox)) FROM watches
                WHERE status = 'active' AND last_state = ?1 AND (?2 IS NULL OR principal = ?2)";
            let deliveries = "SELECT count(*) FROM deliveries d JOIN events e ON e.id = d.event
                WHERE d.status = ?1 AND (?2 IS NULL OR e.principal = ?2)";
            let count = |query: &str, word: &str| {
                let values = params![word, principal];
                let number: i64 = transaction.query_row(query, values, |row| row.get(0))?;
                Ok::<_, rusqlite::Error>(number.unsigned_abs())
            };
            Ok(WatchCounts {
                active: count(watches, "active")?,
                completed: count(watches, "completed")?,
                exhausted: count(watches, "exhausted")?,
                cancelled: count(watches, "cancelled")?,
                unreachable_hosts: count(hosts, "ssh_unreachable")?,
                pending_deliveries: count(deliveries, "pending")?,
                dead_deliveries: count(deliveries, "dead")?,
            })
        })
        .await
    }

    /// Jobs of which the last attempt was over before a time and of which nobody will hear any more, the oldest first;
    /// of everybody when no principal is named.
    pub async fn old_jobs(
        &self,
        principal: Option<&str>,
        sandbox: Option<&str>,
        before: Duration,
        most: usize,
    ) -> Result<Vec<JobRow>, StoreError> {
        let (principal, sandbox) = (principal.map(str::to_owned), sandbox.map(str::to_owned));
        let most = i64::try_from(most).unwrap_or(MOST_ROWS).min(MOST_ROWS);
        self.read(move |transaction| {
            let query = format!(
                "SELECT {} FROM {} WHERE {} AND NOT {} ORDER BY a.ended LIMIT ?4",
                jobs::COLUMNS,
                jobs::ROWS,
                is_over(),
                is_held()
            );
            let mut statement = transaction.prepare(&query)?;
            let [patience, limit] = patience();
            let values = params![
                milliseconds(before),
                principal,
                sandbox,
                most,
                patience,
                limit
            ];
            statement.query_map(values, jobs::read_row)?.collect()
        })
        .await
    }

    /// How many jobs were over by then and stay, because a watch still has something to tell or to do about them.
    pub async fn held_jobs(
        &self,
        principal: &str,
        sandbox: Option<&str>,
        before: Duration,
    ) -> Result<u64, StoreError> {
        let (principal, sandbox) = (principal.to_owned(), sandbox.map(str::to_owned));
        self.read(move |transaction| {
            let query = format!(
                "SELECT count(*) FROM {} WHERE {} AND {}",
                jobs::ROWS,
                is_over(),
                is_held()
            );
            let [patience, limit] = patience();
            let values = params![milliseconds(before), principal, sandbox, 0, patience, limit];
            let count: i64 = transaction.query_row(&query, values, |row| row.get(0))?;
            Ok(count.unsigned_abs())
        })
        .await
    }

    /// Forgets watches that ended before a time or whose task was gone for good by then, and events as old that are not
    /// to be told any more, a bounded number at a time. Gives the numbers of the events, for they have files too.
    pub async fn forget_old_watches(&self, before: Duration) -> Result<Vec<u64>, StoreError> {
        let before = milliseconds(before);
        self.commit(move |transaction| {
            let change = format!(
                "DELETE FROM watches WHERE id IN (SELECT w.id FROM watches w
                WHERE (w.ended <= ?1 OR (w.status = 'active' AND w.interrupted <= ?1 AND NOT ({GOES_ON})))
                AND NOT {TELLS} LIMIT ?2)"
            );
            transaction.execute(&change, params![before, MOST_ROWS])?;
            let query = "SELECT id FROM events e WHERE created <= ?1 AND NOT EXISTS
                (SELECT 1 FROM deliveries d WHERE d.event = e.id AND d.status = 'pending')
                ORDER BY created LIMIT ?2";
            let mut statement = transaction.prepare(query)?;
            let ids = statement.query_map(params![before, MOST_ROWS], |row| row.get(0))?;
            let ids: Vec<i64> = ids.collect::<rusqlite::Result<_>>()?;
            for id in &ids {
                transaction.execute("DELETE FROM deliveries WHERE event = ?1", [id])?;
                transaction.execute("DELETE FROM events WHERE id = ?1", [id])?;
            }
            Ok(ids.into_iter().map(i64::unsigned_abs).collect())
        })
        .await
    }
}

/// The condition for a job that was over by then, of somebody or everybody.
fn is_over() -> &'static str {
    "a.ended <= ?1 AND (?2 IS NULL OR j.principal = ?2) AND (?3 IS NULL OR j.sandbox = ?3)"
}

/// The condition for a job that a watch keeps from being forgotten.
fn is_held() -> String {
    format!(
        "(a.ended > ?6 AND EXISTS (SELECT 1 FROM watches w WHERE w.job = j.id
        AND (({GOES_ON}) AND {HOLDS} OR {TELLS})))"
    )
}

/// Since when a job has to be over so that its watch, and so that nothing at all, is waited for.
fn patience() -> [i64; 2] {
    let now = crate::clock::wall();
    [TOLD_WITHIN, HELD_AT_MOST].map(|time| milliseconds(now.saturating_sub(time)))
}

#[cfg(test)]
#[path = "upkeep_tests.rs"]
mod tests;
