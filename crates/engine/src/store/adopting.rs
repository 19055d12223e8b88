//! Attempts of a job that somebody else began: another store, copied from this one, may know the same job.

use remote_sandbox_core::job::{AttemptNumber, JobId, JobState, Nonce};
use rusqlite::{OptionalExtension, Transaction, params};

use super::columns::{json, milliseconds};
use super::{Store, StoreError};
use crate::clock;

impl Store {
    /// Makes the attempt that the host has the last one of a job, surely, in place of `ours`, which never began and never
    /// will. False when it cannot be, because this store knows that attempt to be over, or a later one that began.
    pub async fn adopt_attempt(
        &self,
        id: &JobId,
        ours: AttemptNumber,
        theirs: AttemptNumber,
        nonce: Nonce,
    ) -> Result<bool, StoreError> {
        let id = id.to_string();
        self.commit_surely(move |transaction| {
            let asked = Adoption {
                job: &id,
                ours: ours.get(),
                theirs: theirs.get(),
                nonce: nonce.as_str(),
                now: milliseconds(clock::wall()),
            };
            asked.carry_out(transaction)
        })
        .await
    }
}

struct Adoption<'a> {
    job: &'a str,
    ours: u32,
    theirs: u32,
    nonce: &'a str,
    now: i64,
}

/// What this store has under the number of the attempt that the host has.
enum Under {
    /// Nothing, or an attempt that never began.
    Nothing,
    /// That very attempt.
    Same { is_over: bool },
    /// Another one that began.
    Another,
}

impl Adoption<'_> {
    fn carry_out(&self, transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
        let is_adopted = match self.under(transaction)? {
            Under::Same { is_over } => !is_over,
            Under::Another => false,
            Under::Nothing if self.is_followed(transaction)? => false,
            Under::Nothing => {
                self.put_in_place(transaction)?;
                return Ok(true);
            }
        };
        self.end_ours(transaction)?;
        Ok(is_adopted)
    }

    fn under(&self, transaction: &Transaction<'_>) -> rusqlite::Result<Under> {
        let query = "SELECT nonce, process IS NOT NULL, ended IS NOT NULL FROM attempts
            WHERE job = ?1 AND number = ?2";
        let read = |row: &rusqlite::Row<'_>| {
            let (nonce, has_begun): (String, bool) = (row.get(0)?, row.get(1)?);
            Ok(match has_begun {
                _ if nonce == self.nonce => Under::Same {
                    is_over: row.get(2)?,
                },
                true => Under::Another,
                false => Under::Nothing,
            })
        };
        let found = transaction.query_row(query, params![self.job, self.theirs], read);
        Ok(found.optional()?.unwrap_or(Under::Nothing))
    }

    /// Whether there is a later attempt that began, or that somebody is about to start.
    fn is_followed(&self, transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
        let query = "SELECT EXISTS (SELECT 1 FROM attempts WHERE job = ?1 AND number > ?2
            AND number <> ?3 AND (process IS NOT NULL OR ended IS NULL))";
        transaction.query_row(query, params![self.job, self.theirs, self.ours], |row| {
            row.get(0)
        })
    }

    fn end_ours(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let change = "UPDATE attempts SET state = ?3, ended = ?4
            WHERE job = ?1 AND number = ?2 AND ended IS NULL";
        let never = json(&JobState::NotStarted)?;
        transaction.execute(change, params![self.job, self.ours, never, self.now])?;
        Ok(())
    }

    fn put_in_place(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let query = "SELECT command FROM attempts WHERE job = ?1 AND number = ?2";
        let command: Option<String> = transaction
            .query_row(query, params![self.job, self.ours], |row| row.get(0))
            .optional()?;
        self.end_ours(transaction)?;
        // The last attempt is the one with the highest number, and none of these ever began.
        let change = "DELETE FROM attempts WHERE job = ?1 AND number > ?2";
        transaction.execute(change, params![self.job, self.theirs])?;
        // Without a starter of this machine, and from now on: its own starter has all the time that any has.
        let change = "INSERT INTO attempts (job, number, nonce, command, state, created)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT (job, number) DO UPDATE SET nonce = excluded.nonce, state = excluded.state,
                created = excluded.created, process = NULL, log_offset = NULL, is_stop_asked = 0,
                starter_pid = NULL, starter_start = NULL, starter_boot = NULL, started = NULL,
                ended = NULL";
        let starting = json(&JobState::Starting)?;
        let values = params![
            self.job,
            self.theirs,
            self.nonce,
            command.unwrap_or_default(),
            starting,
            self.now
        ];
        transaction.execute(change, values)?;
        let change = "UPDATE jobs SET updated = ?2 WHERE id = ?1";
        transaction.execute(change, params![self.job, self.now])?;
        Ok(())
    }
}

#[cfg(test)]
#[path = "adopting_tests.rs"]
mod tests;
