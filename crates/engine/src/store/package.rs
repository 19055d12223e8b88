//! Reads the database that the Python package left in the state folder. The file itself is never opened: SQLite would
//! change what lies beside it.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::Value;

use super::opening::open_copy;
use crate::fsio::{self, FileError};

/// The name of its file.
const FILE_NAME: &str = "watchdog.sqlite3";

/// A larger file is left alone.
const LARGEST: u64 = 64 << 20;

/// Most watches that are read.
const MOST_WATCHES: i64 = 10_000;

/// Why the watches of the package are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackageError {
    /// A file is at fault.
    #[error("the database of the Python package cannot be copied")]
    File(#[from] FileError),
    /// It was written while it was copied.
    #[error("`{}` is in use", .0.display())]
    InUse(PathBuf),
    /// It is not what it should be.
    #[error("`{}` cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
}

/// What the database says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackageStore {
    /// When its watchdog last said that it lives.
    pub(crate) heartbeat: Option<Duration>,
    /// Its watches that go on.
    pub(crate) watches: Vec<OldWatch>,
}

/// A watch as the package has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct OldWatch {
    pub(crate) id: i64,
    pub(crate) created: i64,
    pub(crate) run_id: String,
    pub(crate) name: String,
    pub(crate) sandbox: String,
    pub(crate) session: String,
    pub(crate) log_file: String,
    pub(crate) cwd: String,
    pub(crate) launch_command: String,
    pub(crate) resume_command: String,
    pub(crate) resume_plan_json: String,
    pub(crate) checkpoint_path: String,
    pub(crate) checkpoint_format: String,
    pub(crate) checkpoint_command: String,
    pub(crate) metadata_json: String,
    pub(crate) webhook_url: String,
    pub(crate) event_command: String,
    pub(crate) interval_s: Option<i64>,
    pub(crate) max_log_lines: Option<i64>,
    pub(crate) auto_resume: Option<i64>,
    pub(crate) resume_attempts: Option<i64>,
    pub(crate) max_resume_attempts: Option<i64>,
    pub(crate) alert_after_failures: Option<i64>,
    pub(crate) notify_local: Option<i64>,
    pub(crate) resume_delay_s: Option<i64>,
}

/// Reads a copy of the package's database; none when there is no such file.
pub(crate) fn read_package_store(folder: &Path) -> Result<Option<PackageStore>, PackageError> {
    let path = folder.join(FILE_NAME);
    let log = folder.join(format!("{FILE_NAME}-wal"));
    let seen = [shape(&path), shape(&log)];
    let Some(content) = fsio::read_bounded(&path, LARGEST)? else {
        return Ok(None);
    };
    let more = fsio::read_bounded(&log, LARGEST)?;
    if seen != [shape(&path), shape(&log)] {
        return Err(PackageError::InUse(path));
    }
    let copy = fsio::fresh_directory(folder, "package-")?;
    let read = read_copy(&copy, &content, more.as_deref());
    let removed = fsio::remove_directory(&copy);
    let store = read.map_err(|error| match error {
        CopyError::File(error) => PackageError::File(error),
        CopyError::Sqlite(source) => PackageError::Unreadable { path, source },
    })?;
    removed?;
    Ok(Some(store))
}

/// What shows whether a file was written meanwhile.
fn shape(path: &Path) -> Option<(u64, Duration)> {
    let about = path.metadata().ok()?;
    let changed = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((about.len(), changed))
}

enum CopyError {
    File(FileError),
    Sqlite(rusqlite::Error),
}

impl From<FileError> for CopyError {
    fn from(error: FileError) -> Self {
        CopyError::File(error)
    }
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        CopyError::Sqlite(error)
    }
}

fn read_copy(folder: &Path, content: &[u8], log: Option<&[u8]>) -> Result<PackageStore, CopyError> {
    let path = folder.join(FILE_NAME);
    fsio::write_atomically(&path, content)?;
    if let Some(log) = log {
        fsio::write_atomically(&folder.join(format!("{FILE_NAME}-wal")), log)?;
    }
    let connection = open_copy(&path)?;
    Ok(PackageStore {
        heartbeat: heartbeat(&connection)?,
        watches: watches(&connection)?,
    })
}

fn heartbeat(connection: &Connection) -> rusqlite::Result<Option<Duration>> {
    let query = "SELECT value, updated_ts FROM daemon_meta WHERE key = 'heartbeat'";
    let read = |row: &Row<'_>| Ok((text(row, "value"), number(row, "updated_ts")));
    let Some((value, updated)) = connection.query_row(query, [], read).optional()? else {
        return Ok(None);
    };
    let said: Option<Value> = serde_json::from_str(&value).ok();
    let said = said.and_then(|said| said.get("ts")?.as_f64());
    let said = said.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let updated = updated.and_then(|seconds| u64::try_from(seconds).ok());
    let times = [
        said.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        updated.map(Duration::from_secs),
    ];
    Ok(times.into_iter().flatten().max())
}

fn watches(connection: &Connection) -> rusqlite::Result<Vec<OldWatch>> {
    let query = "SELECT * FROM watches WHERE status = 'active' ORDER BY id LIMIT ?1";
    let mut statement = connection.prepare(query)?;
    let read = |row: &Row<'_>| {
        Ok(OldWatch {
            id: row.get("id")?,
            created: number(row, "created_ts").unwrap_or(0),
            run_id: text(row, "run_id"),
            name: text(row, "name"),
            sandbox: text(row, "sandbox_name"),
            session: text(row, "tmux_session"),
            log_file: text(row, "log_file"),
            cwd: text(row, "cwd"),
            launch_command: text(row, "launch_command"),
            resume_command: text(row, "resume_command"),
            resume_plan_json: text(row, "resume_plan_json"),
            checkpoint_path: text(row, "checkpoint_path"),
            checkpoint_format: text(row, "checkpoint_format"),
            checkpoint_command: text(row, "checkpoint_command"),
            metadata_json: text(row, "metadata_json"),
            webhook_url: text(row, "webhook_url"),
            event_command: text(row, "event_command"),
            interval_s: number(row, "interval_s"),
            max_log_lines: number(row, "max_log_lines"),
            auto_resume: number(row, "auto_resume"),
            resume_attempts: number(row, "resume_attempts"),
            max_resume_attempts: number(row, "max_resume_attempts"),
            alert_after_failures: number(row, "alert_after_failures"),
            notify_local: number(row, "notify_local"),
            resume_delay_s: number(row, "resume_delay_s"),
        })
    };
    statement.query_map([MOST_WATCHES], read)?.collect()
}

/// A text; empty where there is none, or no such column in this version of the package.
fn text(row: &Row<'_>, column: &str) -> String {
    let text: rusqlite::Result<Option<String>> = row.get(column);
    text.ok().flatten().unwrap_or_default()
}

/// A whole number; times may have a fraction.
fn number(row: &Row<'_>, column: &str) -> Option<i64> {
    if let Ok(number) = row.get::<_, Option<i64>>(column) {
        return number;
    }
    let number: f64 = row.get(column).ok()?;
    let number = Duration::try_from_secs_f64(number).ok()?;
    i64::try_from(number.as_secs()).ok()
}
