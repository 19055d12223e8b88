//! How many watches there are, and the end of old ones.

use std::time::Duration;

use rusqlite::params;

use super::columns::milliseconds;
use super::jobs::MOST_ROWS;
use super::{Store, StoreError};

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

    /// Forgets watches that ended before a time, and events as old that are not to be told any more, a bounded number at
    /// a time. Gives the numbers of the events, for they have files too.
    pub async fn forget_old_watches(&self, before: Duration) -> Result<Vec<u64>, StoreError> {
        let before = milliseconds(before);
        self.commit(move |transaction| {
            let change = "DELETE FROM watches WHERE id IN (SELECT id FROM watches
                WHERE ended <= ?1 ORDER BY ended LIMIT ?2)";
            transaction.execute(change, params![before, MOST_ROWS])?;
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
