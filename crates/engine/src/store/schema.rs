//! The tables, and how an older file gets those that it has not yet.
//!
//! Steps only add: a program that knows fewer steps can go on using the file, unless one of them says otherwise.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::StoreError;

/// Marks a file as a store of ours.
const APPLICATION_ID: i32 = 0x5253_4d43;

/// The version of this program, for people who open the file with another one.
const OURS: &str = env!("CARGO_PKG_VERSION");

/// One numbered change; a file counts the ones that it has.
struct Step {
    statements: &'static str,
    /// A program that knows fewer steps than this may not use a file with this one.
    minimum_reader: i64,
}

/// All steps; what has been released is never changed, only added to.
const STEPS: [Step; 3] = [
    Step {
        minimum_reader: 1,
        statements: "
        CREATE TABLE about (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE transfers (
            id INTEGER PRIMARY KEY CHECK (id > 0),
            principal TEXT NOT NULL,
            sandbox TEXT NOT NULL,
            direction TEXT NOT NULL,
            local_path TEXT NOT NULL,
            remote_path TEXT NOT NULL,
            request TEXT NOT NULL,
            pair_key TEXT NOT NULL,
            status TEXT NOT NULL
                CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
            pid INTEGER,
            pid_start INTEGER,
            boot_id TEXT,
            log_file TEXT NOT NULL,
            progress TEXT,
            result TEXT,
            error TEXT,
            created INTEGER NOT NULL,
            updated INTEGER NOT NULL,
            finished INTEGER
        ) STRICT;
        CREATE UNIQUE INDEX transfers_one_per_pair ON transfers (principal, pair_key)
            WHERE status IN ('queued', 'running');
        CREATE INDEX transfers_by_end ON transfers (finished) WHERE finished IS NOT NULL;
        CREATE INDEX transfers_by_principal ON transfers (principal, created);",
    },
    Step {
        minimum_reader: 1,
        statements: "
        CREATE TABLE jobs (
            id TEXT PRIMARY KEY,
            principal TEXT NOT NULL,
            sandbox TEXT NOT NULL,
            session TEXT NOT NULL,
            log_file TEXT NOT NULL,
            cwd TEXT,
            command TEXT NOT NULL,
            spec TEXT NOT NULL,
            metadata TEXT,
            run_id TEXT,
            name TEXT,
            gpus TEXT,
            watch_id INTEGER UNIQUE CHECK (watch_id > 0),
            created INTEGER NOT NULL,
            updated INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX jobs_by_principal ON jobs (principal, created);
        CREATE INDEX jobs_by_session ON jobs (principal, sandbox, session, created);
        CREATE TABLE attempts (
            job TEXT NOT NULL,
            number INTEGER NOT NULL CHECK (number > 0),
            nonce TEXT NOT NULL UNIQUE,
            command TEXT NOT NULL,
            state TEXT NOT NULL,
            process TEXT,
            log_offset INTEGER,
            is_stop_asked INTEGER NOT NULL DEFAULT 0,
            starter_pid INTEGER,
            starter_start INTEGER,
            starter_boot TEXT,
            created INTEGER NOT NULL,
            started INTEGER,
            ended INTEGER,
            PRIMARY KEY (job, number)
        ) STRICT;
        CREATE UNIQUE INDEX attempts_one_open ON attempts (job) WHERE ended IS NULL;
        CREATE INDEX attempts_by_end ON attempts (ended) WHERE ended IS NOT NULL;",
    },
    Step {
        minimum_reader: 1,
        statements: "
        CREATE TABLE watches (
            id INTEGER PRIMARY KEY CHECK (id > 0),
            principal TEXT NOT NULL,
            job TEXT UNIQUE,
            sandbox TEXT NOT NULL,
            session TEXT NOT NULL,
            log_file TEXT NOT NULL,
            cwd TEXT,
            launch_command TEXT NOT NULL,
            order_json TEXT NOT NULL,
            run_id TEXT,
            name TEXT,
            metadata TEXT,
            entry TEXT,
            status TEXT NOT NULL
                CHECK (status IN ('active', 'completed', 'exhausted', 'cancelled')),
            history TEXT NOT NULL,
            last_state TEXT NOT NULL,
            last_summary TEXT,
            last_error TEXT,
            last_exit_code INTEGER,
            last_log_tail TEXT,
            last_log_digest TEXT,
            last_checkpoint TEXT,
            last_checkpoint_digest TEXT,
            checkpoint_updated INTEGER,
            scanned_to INTEGER,
            interrupted INTEGER,
            next_check INTEGER,
            last_checked INTEGER,
            last_event INTEGER,
            created INTEGER NOT NULL,
            updated INTEGER NOT NULL,
            ended INTEGER
        ) STRICT;
        CREATE INDEX watches_due ON watches (status, next_check);
        CREATE INDEX watches_by_principal ON watches (principal, created);
        CREATE INDEX watches_by_end ON watches (ended) WHERE ended IS NOT NULL;
        CREATE TABLE events (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            watch INTEGER NOT NULL,
            principal TEXT NOT NULL,
            sandbox TEXT NOT NULL,
            type TEXT NOT NULL,
            summary TEXT NOT NULL,
            payload TEXT NOT NULL,
            created INTEGER NOT NULL
        ) STRICT;
        CREATE INDEX events_by_principal ON events (principal, id);
        CREATE INDEX events_by_watch ON events (watch, id);
        CREATE INDEX events_by_age ON events (created);
        CREATE TABLE deliveries (
            event INTEGER NOT NULL,
            channel TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('pending', 'done', 'dead')),
            tries INTEGER NOT NULL DEFAULT 0,
            next_try INTEGER NOT NULL,
            last_error TEXT,
            PRIMARY KEY (event, channel)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX deliveries_due ON deliveries (status, next_try);
        CREATE TABLE leases (
            name TEXT PRIMARY KEY,
            holder TEXT,
            fence INTEGER NOT NULL,
            pid INTEGER,
            pid_start INTEGER,
            boot TEXT,
            taken INTEGER NOT NULL,
            renewed INTEGER NOT NULL,
            expires INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE watched_sandboxes (
            key TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            entry TEXT NOT NULL,
            created INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID;",
    },
];

const SCHEMA: i64 = STEPS.len() as i64;

/// Adds what the file lacks, and refuses a file that is not for this version.
pub(super) fn bring_up_to_date(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::of(path, source);
    // Nothing is locked where nothing is to be done.
    match found_version(connection, path)? {
        Some(version) if version < SCHEMA => {}
        _ => return Ok(()),
    }
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Another process may have been faster.
    let Some(version) = found_version(&transaction, path)? else {
        return Ok(());
    };
    for (number, step) in (1..).zip(&STEPS) {
        if number > version {
            add_step(&transaction, number, step).map_err(failed)?;
        }
    }
    transaction.commit().map_err(failed)
}

/// How many steps a file has that may need more; none when it has more than we know and may be used so.
fn found_version(connection: &Connection, path: &Path) -> Result<Option<i64>, StoreError> {
    let failed = |source| StoreError::of(path, source);
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = number("user_version").map_err(failed)?;
    let application = number("application_id").map_err(failed)?;
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    });
    let is_empty = tables.map_err(failed)? == 0;
    if !(is_empty && version == 0) && application != i64::from(APPLICATION_ID) {
        return Err(StoreError::Refused {
            path: path.to_owned(),
            problem: "it is a database of another program",
        });
    }
    if version <= SCHEMA {
        return Ok(Some(version));
    }
    let minimum = about::<i64>(connection, "minimum_reader").map_err(failed)?;
    if minimum.is_some_and(|minimum| minimum <= SCHEMA) {
        return Ok(None);
    }
    let written_by = about::<String>(connection, "written_by").map_err(failed)?;
    Err(StoreError::Newer {
        path: path.to_owned(),
        written_by: written_by.unwrap_or_else(|| "unknown".to_owned()),
        ours: OURS,
    })
}

fn about<T: rusqlite::types::FromSql>(
    connection: &Connection,
    key: &str,
) -> rusqlite::Result<Option<T>> {
    connection
        .query_row("SELECT value FROM about WHERE key = ?1", [key], |row| {
            row.get(0)
        })
        .optional()
}

fn add_step(transaction: &Transaction<'_>, number: i64, step: &Step) -> rusqlite::Result<()> {
    transaction.execute_batch(step.statements)?;
    let keep = "INSERT INTO about (key, value) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    let known = about::<i64>(transaction, "minimum_reader")?.unwrap_or(0);
    transaction.execute(keep, ("minimum_reader", known.max(step.minimum_reader)))?;
    transaction.execute(keep, ("written_by", OURS))?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", number)
}
