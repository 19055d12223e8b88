//! The table of transfers that go on without their caller.

use std::fmt;
use std::time::Duration;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{Store, StoreError};
use crate::clock;

/// A number in JSON is exact below this.
const LARGEST_ID: i64 = (1 << 53) - 1;

/// How long a finished transfer can be asked for.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Most rows that one call removes or lists.
const MOST_ROWS: i64 = 1000;

/// How often a number is drawn again that is taken.
const MOST_DRAWS: usize = 8;

const COLUMNS: &str = "id, principal, sandbox, direction, local_path, remote_path, request, status, \
    pid, pid_start, boot_id, log_file, progress, result, error, created, updated, finished";

/// The number of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(i64);

impl TransferId {
    /// A number that can be one of ours.
    pub fn new(number: u64) -> Option<Self> {
        let number = i64::try_from(number).ok()?;
        (1..=LARGEST_ID)
            .contains(&number)
            .then_some(TransferId(number))
    }

    /// The number itself.
    pub fn number(self) -> u64 {
        self.0.unsigned_abs()
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferStatus {
    /// Written down; its process has not begun.
    Queued,
    /// Its process works.
    Running,
    /// Done.
    Completed,
    /// It did not work.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

impl TransferStatus {
    const ALL: [TransferStatus; 5] = [
        TransferStatus::Queued,
        TransferStatus::Running,
        TransferStatus::Completed,
        TransferStatus::Failed,
        TransferStatus::Cancelled,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            TransferStatus::Queued => "queued",
            TransferStatus::Running => "running",
            TransferStatus::Completed => "completed",
            TransferStatus::Failed => "failed",
            TransferStatus::Cancelled => "cancelled",
        }
    }

    /// Whether it can still change.
    pub fn is_open(self) -> bool {
        matches!(self, TransferStatus::Queued | TransferStatus::Running)
    }
}

impl ToSql for TransferStatus {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.name()))
    }
}

impl FromSql for TransferStatus {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let name = value.as_str()?;
        let found = Self::ALL.into_iter().find(|status| status.name() == name);
        found.ok_or(FromSqlError::InvalidType)
    }
}

/// One process among all that ever had its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMark {
    /// Its number.
    pub pid: u32,
    /// When it began, as its system counts.
    pub start: u64,
    /// In which life of the machine.
    pub boot: String,
}

/// A transfer that is to be written down.
#[derive(Debug, Clone)]
pub struct NewTransfer {
    /// Whose it is.
    pub principal: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// `up` or `down`.
    pub direction: String,
    /// The path on this machine.
    pub local_path: String,
    /// The path in the sandbox.
    pub remote_path: String,
    /// All that was asked for, as JSON.
    pub request: String,
    /// What makes two transfers the same.
    pub pair_key: String,
    /// The folder of log files.
    pub log_folder: String,
}

/// A transfer as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferRow {
    /// Its number.
    pub id: TransferId,
    /// Whose it is.
    pub principal: String,
    /// The sandbox, by name.
    pub sandbox: String,
    /// `up` or `down`.
    pub direction: String,
    /// The path on this machine.
    pub local_path: String,
    /// The path in the sandbox.
    pub remote_path: String,
    /// All that was asked for, as JSON.
    pub request: String,
    /// How far it is.
    pub status: TransferStatus,
    /// The process that does it.
    pub worker: Option<ProcessMark>,
    /// Where that process tells what it does.
    pub log_file: String,
    /// The last figures, as JSON.
    pub progress: Option<String>,
    /// What it said at its end, as JSON.
    pub result: Option<String>,
    /// Why it did not work, as JSON.
    pub error: Option<String>,
    /// When it was written down, since the Unix epoch.
    pub created: Duration,
    /// When it last changed.
    pub updated: Duration,
    /// When it ended.
    pub finished: Option<Duration>,
}

/// How a transfer ends.
#[derive(Debug, Clone)]
pub struct TransferEnd {
    /// The last status.
    pub status: TransferStatus,
    /// The last figures, as JSON; those before stay where there are none.
    pub progress: Option<String>,
    /// What it said, as JSON.
    pub result: Option<String>,
    /// Why it did not work, as JSON.
    pub error: Option<String>,
}

/// What has come of the wish to begin a transfer.
#[derive(Debug, Clone)]
pub enum Begun {
    /// It is written down; its process may be started.
    New(TransferRow),
    /// The same one is under way.
    Same(TransferRow),
}

impl Store {
    /// Writes a transfer down, surely, unless the same one is under way.
    pub async fn begin_transfer(&self, new: NewTransfer) -> Result<Begun, StoreError> {
        self.commit_surely(move |transaction| {
            match open_row(transaction, &new.principal, &new.pair_key)? {
                Some(row) => Ok(Begun::Same(row)),
                None => insert(transaction, &new).map(Begun::New),
            }
        })
        .await
    }

    /// The transfer of this principal and this pair that has not ended.
    pub async fn open_transfer(
        &self,
        principal: &str,
        pair_key: &str,
    ) -> Result<Option<TransferRow>, StoreError> {
        let (principal, pair) = (principal.to_owned(), pair_key.to_owned());
        self.read(move |transaction| open_row(transaction, &principal, &pair))
            .await
    }

    /// A transfer of this principal.
    pub async fn transfer(
        &self,
        id: TransferId,
        principal: &str,
    ) -> Result<Option<TransferRow>, StoreError> {
        let principal = principal.to_owned();
        self.read(move |transaction| {
            let query = format!("SELECT {COLUMNS} FROM transfers WHERE id = ?1 AND principal = ?2");
            transaction
                .query_row(&query, params![id.0, principal], read_row)
                .optional()
        })
        .await
    }

    /// The transfers of this principal, the newest first.
    pub async fn transfers(&self, principal: &str) -> Result<Vec<TransferRow>, StoreError> {
        let principal = principal.to_owned();
        self.read(move |transaction| {
            let query = format!(
                "SELECT {COLUMNS} FROM transfers WHERE principal = ?1
                ORDER BY created DESC, id LIMIT {MOST_ROWS}"
            );
            let mut statement = transaction.prepare(&query)?;
            statement.query_map([principal], read_row)?.collect()
        })
        .await
    }

    /// Notes which process was started for a transfer; false when the transfer has ended meanwhile.
    pub async fn note_worker(
        &self,
        id: TransferId,
        worker: ProcessMark,
    ) -> Result<bool, StoreError> {
        let change = "UPDATE transfers SET pid = ?2, pid_start = ?3, boot_id = ?4, updated = ?5
            WHERE id = ?1 AND status = 'queued'";
        self.commit(move |transaction| {
            let values = params![
                id.0,
                worker.pid,
                signed(worker.start),
                worker.boot,
                milliseconds(clock::wall())
            ];
            Ok(transaction.execute(change, values)? == 1)
        })
        .await
    }

    /// Takes charge of a queued transfer; none when it is not queued any more.
    pub async fn claim_transfer(
        &self,
        id: TransferId,
        worker: ProcessMark,
    ) -> Result<Option<TransferRow>, StoreError> {
        self.commit_surely(move |transaction| {
            let change = format!(
                "UPDATE transfers SET status = 'running', pid = ?2, pid_start = ?3, boot_id = ?4,
                updated = ?5 WHERE id = ?1 AND status = 'queued' RETURNING {COLUMNS}"
            );
            let values = params![
                id.0,
                worker.pid,
                signed(worker.start),
                worker.boot,
                milliseconds(clock::wall())
            ];
            transaction.query_row(&change, values, read_row).optional()
        })
        .await
    }

    /// Writes the figures of a running transfer down; false when it is not running any more.
    pub async fn note_progress(
        &self,
        id: TransferId,
        progress: String,
    ) -> Result<bool, StoreError> {
        let change = "UPDATE transfers SET progress = ?2, updated = ?3
            WHERE id = ?1 AND status = 'running'";
        self.commit(move |transaction| {
            let values = params![id.0, progress, milliseconds(clock::wall())];
            Ok(transaction.execute(change, values)? == 1)
        })
        .await
    }

    /// Ends a transfer, surely; false when it had ended before, for an end never changes.
    pub async fn finish_transfer(
        &self,
        id: TransferId,
        end: TransferEnd,
    ) -> Result<bool, StoreError> {
        let change = "UPDATE transfers SET status = ?2, progress = coalesce(?3, progress),
            result = ?4, error = ?5, updated = ?6, finished = ?6
            WHERE id = ?1 AND status IN ('queued', 'running')";
        self.commit_surely(move |transaction| {
            let values = params![
                id.0,
                end.status,
                end.progress,
                end.result,
                end.error,
                milliseconds(clock::wall())
            ];
            Ok(transaction.execute(change, values)? == 1)
        })
        .await
    }

    /// Forgets transfers that ended long ago; gives their log files.
    pub async fn prune_transfers(&self) -> Result<Vec<String>, StoreError> {
        self.commit(|transaction| {
            let before = milliseconds(clock::wall().saturating_sub(KEPT_FOR));
            let change = format!(
                "DELETE FROM transfers WHERE id IN (SELECT id FROM transfers
                WHERE finished < ?1 ORDER BY finished LIMIT {MOST_ROWS}) RETURNING log_file"
            );
            let mut statement = transaction.prepare(&change)?;
            statement.query_map([before], |row| row.get(0))?.collect()
        })
        .await
    }
}

/// The transfer of a pair that has not ended.
fn open_row(
    transaction: &Transaction<'_>,
    principal: &str,
    pair_key: &str,
) -> rusqlite::Result<Option<TransferRow>> {
    let query = format!(
        "SELECT {COLUMNS} FROM transfers
        WHERE principal = ?1 AND pair_key = ?2 AND status IN ('queued', 'running')"
    );
    transaction
        .query_row(&query, params![principal, pair_key], read_row)
        .optional()
}

fn insert(transaction: &Transaction<'_>, new: &NewTransfer) -> rusqlite::Result<TransferRow> {
    let change = format!(
        "INSERT INTO transfers (id, principal, sandbox, direction, local_path, remote_path, request,
            pair_key, status, log_file, created, updated)
        SELECT number, ?1, ?2, ?3, ?4, ?5, ?6, ?7, 'queued',
            ?8 || '/transfer-' || number || '.log', ?9, ?9
        FROM (SELECT (random() & {LARGEST_ID}) AS number)
        WHERE number > 0 AND number NOT IN (SELECT id FROM transfers)
        RETURNING {COLUMNS}"
    );
    let mut row = None;
    for _ in 0..MOST_DRAWS {
        let values = params![
            new.principal,
            new.sandbox,
            new.direction,
            new.local_path,
            new.remote_path,
            new.request,
            new.pair_key,
            new.log_folder,
            milliseconds(clock::wall())
        ];
        row = transaction
            .query_row(&change, values, read_row)
            .optional()?;
        if row.is_some() {
            break;
        }
    }
    row.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<TransferRow> {
    let pid: Option<u32> = row.get("pid")?;
    let start: Option<i64> = row.get("pid_start")?;
    let boot: Option<String> = row.get("boot_id")?;
    let worker = pid
        .zip(start)
        .zip(boot)
        .map(|((pid, start), boot)| ProcessMark {
            pid,
            start: start.unsigned_abs(),
            boot,
        });
    let time = |name: &str| row.get::<_, Option<i64>>(name);
    let duration = |value: i64| Duration::from_millis(value.unsigned_abs());
    Ok(TransferRow {
        id: TransferId(row.get("id")?),
        principal: row.get("principal")?,
        sandbox: row.get("sandbox")?,
        direction: row.get("direction")?,
        local_path: row.get("local_path")?,
        remote_path: row.get("remote_path")?,
        request: row.get("request")?,
        status: row.get("status")?,
        worker,
        log_file: row.get("log_file")?,
        progress: row.get("progress")?,
        result: row.get("result")?,
        error: row.get("error")?,
        created: time("created")?.map_or(Duration::ZERO, duration),
        updated: time("updated")?.map_or(Duration::ZERO, duration),
        finished: time("finished")?.map(duration),
    })
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
