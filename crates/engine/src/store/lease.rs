//! Leases: who does what only one process may do. Each holder gets a higher fence than the one before it, and whoever
//! writes under a lease names its fence, so that a holder that slept too long changes nothing.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::columns::{milliseconds, signed, time};
use super::opening::Durability;
use super::{ProcessMark, Store, StoreError};
use crate::clock;

/// The proof that this process holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(super) name: &'static str,
    pub(super) number: i64,
}

impl Fence {
    /// Its number, which grows with every holder.
    pub fn number(&self) -> u64 {
        self.number.unsigned_abs()
    }
}

/// A lease as it is written down. Times are since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Who holds it, in words; none when it was given back.
    pub holder: Option<String>,
    /// The number of the fence.
    pub fence: u64,
    /// The process of the holder.
    pub process: Option<ProcessMark>,
    /// When it was taken.
    pub taken: Duration,
    /// When the holder last showed itself.
    pub renewed: Duration,
    /// Until when it holds without another sign.
    pub expires: Duration,
}

impl Store {
    /// The lease of a name, when it was ever taken.
    pub async fn lease(&self, name: &'static str) -> Result<Option<LeaseRow>, StoreError> {
        self.read(move |transaction| read(transaction, name)).await
    }

    /// Takes a lease that still looks as it was seen; none when somebody else was faster. Whether it may be taken is
    /// for the caller to judge.
    pub async fn take_lease(
        &self,
        name: &'static str,
        seen: Option<LeaseRow>,
        holder: &str,
        process: Option<ProcessMark>,
        length: Duration,
    ) -> Result<Option<Fence>, StoreError> {
        let holder = holder.to_owned();
        self.commit_surely(move |transaction| {
            let found = read(transaction, name)?;
            if found != seen {
                return Ok(None);
            }
            let number = found.map_or(1, |lease| signed(lease.fence).saturating_add(1));
            let now = clock::wall();
            let change = "INSERT INTO leases (name, holder, fence, pid, pid_start, boot, taken,
                    renewed, expires)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)
                ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = excluded.fence,
                    pid = excluded.pid, pid_start = excluded.pid_start, boot = excluded.boot,
                    taken = excluded.taken, renewed = excluded.renewed, expires = excluded.expires";
            let values = params![
                name,
                holder,
                number,
                process.as_ref().map(|process| process.pid),
                process.as_ref().map(|process| signed(process.start)),
                process.as_ref().map(|process| &process.boot),
                milliseconds(now),
                milliseconds(now.saturating_add(length))
            ];
            transaction.execute(change, values)?;
            Ok(Some(Fence { name, number }))
        })
        .await
    }

    /// Shows that the holder is still there; false when it is the holder no more.
    pub async fn renew_lease(&self, fence: &Fence, length: Duration) -> Result<bool, StoreError> {
        let fence = fence.clone();
        self.commit(move |transaction| {
            let now = clock::wall();
            // A clock that was set back must not make two signs of life look alike.
            let change =
                "UPDATE leases SET renewed = CASE WHEN renewed = ?3 THEN ?3 + 1 ELSE ?3 END,
                expires = ?4 WHERE name = ?1 AND fence = ?2 AND holder IS NOT NULL";
            let values = params![
                fence.name,
                fence.number,
                milliseconds(now),
                milliseconds(now.saturating_add(length))
            ];
            Ok(transaction.execute(change, values)? == 1)
        })
        .await
    }

    /// Gives a lease back; nothing happens when somebody else has it by now.
    pub async fn release_lease(&self, fence: &Fence) -> Result<(), StoreError> {
        let fence = fence.clone();
        self.commit(move |transaction| {
            let change =
                "UPDATE leases SET holder = NULL, pid = NULL, pid_start = NULL, boot = NULL
                WHERE name = ?1 AND fence = ?2";
            transaction.execute(change, params![fence.name, fence.number])?;
            Ok(())
        })
        .await
    }

    /// Changes the store for the holder of a lease, surely when `durability` says so; `LeaseLost` when it is the
    /// holder no more.
    pub(super) async fn commit_fenced<T, W>(
        &self,
        fence: &Fence,
        durability: Durability,
        work: W,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let held = fence.clone();
        let fenced = move |transaction: &Transaction<'_>| {
            let query = "SELECT fence FROM leases WHERE name = ?1 AND holder IS NOT NULL";
            let found = transaction.query_row(query, [held.name], |row| row.get::<_, i64>(0));
            match found.optional()? {
                Some(number) if number == held.number => work(transaction).map(Some),
                _ => Ok(None),
            }
        };
        let done = match durability {
            Durability::Sure => self.commit_surely(fenced).await?,
            Durability::Usual => self.commit(fenced).await?,
        };
        done.ok_or_else(|| StoreError::LeaseLost(fence.name.to_owned()))
    }
}

fn read(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<Option<LeaseRow>> {
    let query = "SELECT holder, fence, pid, pid_start, boot, taken, renewed, expires FROM leases
        WHERE name = ?1";
    transaction.query_row(query, [name], read_row).optional()
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<LeaseRow> {
    let pid: Option<u32> = row.get("pid")?;
    let start: Option<i64> = row.get("pid_start")?;
    let boot: Option<String> = row.get("boot")?;
    let process = pid.zip(start).zip(boot);
    Ok(LeaseRow {
        holder: row.get("holder")?,
        fence: row.get::<_, i64>("fence")?.unsigned_abs(),
        process: process.map(|((pid, start), boot)| ProcessMark {
            pid,
            start: start.unsigned_abs(),
            boot,
        }),
        taken: time(row, "taken")?.unwrap_or_default(),
        renewed: time(row, "renewed")?.unwrap_or_default(),
        expires: time(row, "expires")?.unwrap_or_default(),
    })
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
