//! The table of sandboxes as the watchdog finds them, which does not know the surroundings of the servers.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};

use super::columns::milliseconds;
use super::jobs::MOST_ROWS;
use super::{Store, StoreError};
use crate::clock;

/// An entry of a sandbox that some watch needs. Its secrets are kept elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedSandbox {
    /// The SHA-256 of the entry.
    pub key: String,
    /// The name of the sandbox.
    pub name: String,
    /// The entry as JSON.
    pub entry: String,
}

impl Store {
    /// Keeps an entry, surely; one that is kept already stays.
    pub async fn keep_sandbox(&self, sandbox: WatchedSandbox) -> Result<(), StoreError> {
        self.commit_surely(move |transaction| {
            let change = "INSERT INTO watched_sandboxes (key, name, entry, created)
                VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO NOTHING";
            let now = milliseconds(clock::wall());
            let values = params![sandbox.key, sandbox.name, sandbox.entry, now];
            transaction.execute(change, values)?;
            Ok(())
        })
        .await
    }

    /// The entry of a key.
    pub async fn watched_sandbox(&self, key: &str) -> Result<Option<WatchedSandbox>, StoreError> {
        let key = key.to_owned();
        self.read(move |transaction| {
            let query = "SELECT key, name, entry FROM watched_sandboxes WHERE key = ?1";
            transaction.query_row(query, [key], read_row).optional()
        })
        .await
    }

    /// Forgets an entry that no watch needs, and gives it, for it has secrets too.
    pub async fn forget_unused_sandbox(
        &self,
        key: &str,
    ) -> Result<Option<WatchedSandbox>, StoreError> {
        let key = key.to_owned();
        self.commit(move |transaction| {
            let change = "DELETE FROM watched_sandboxes WHERE key = ?1
                AND NOT EXISTS (SELECT 1 FROM watches WHERE entry = ?1)
                RETURNING key, name, entry";
            transaction.query_row(change, [key], read_row).optional()
        })
        .await
    }

    /// Forgets entries from before a time that no watch needs any more, and gives them, for they have secrets too.
    pub async fn forget_unused_sandboxes(
        &self,
        before: Duration,
    ) -> Result<Vec<WatchedSandbox>, StoreError> {
        self.commit(move |transaction| {
            let query = "SELECT key, name, entry FROM watched_sandboxes s WHERE created <= ?1
                AND NOT EXISTS (SELECT 1 FROM watches w WHERE w.entry = s.key) LIMIT ?2";
            let mut statement = transaction.prepare(query)?;
            let values = params![milliseconds(before), MOST_ROWS];
            let unused: Vec<WatchedSandbox> = statement
                .query_map(values, read_row)?
                .collect::<rusqlite::Result<_>>()?;
            for sandbox in &unused {
                let change = "DELETE FROM watched_sandboxes WHERE key = ?1";
                transaction.execute(change, [&sandbox.key])?;
            }
            Ok(unused)
        })
        .await
    }
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<WatchedSandbox> {
    Ok(WatchedSandbox {
        key: row.get("key")?,
        name: row.get("name")?,
        entry: row.get("entry")?,
    })
}
