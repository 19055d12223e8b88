//! The one door to SQLite: every connection is made here, and in one way.
#![expect(
    clippy::disallowed_methods,
    reason = "this module is the door to SQLite"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::place::{self, Place};
use super::{StoreError, schema};

/// Before this version two processes could write over each other's pages.
const OLDEST_LIBRARY: i32 = 3_051_003;

/// How long a call waits for another process.
const BUSY_LIMIT: Duration = Duration::from_secs(5);

/// A write-ahead log is cut back to this size once its content is in the store.
const LONGEST_LOG: i64 = 16 * 1024 * 1024;

/// What a commit outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// The end of every process.
    Usual,
    /// A power failure as well.
    Sure,
}

/// A connection with what is known of its file.
#[derive(Debug)]
pub(super) struct Opened {
    connection: Connection,
    path: PathBuf,
    identity: Option<(u64, u64)>,
    has_log: bool,
    /// Tells other processes that the store is in use.
    _user: File,
}

/// Opens the store of a folder, and begins a new one where there is none or where it is damaged.
pub(super) fn open(folder: &Path, is_suspect: bool) -> Result<Opened, StoreError> {
    check_library(rusqlite::version_number())?;
    let place = Place::enter(folder)?;
    if place.has_lost_content()? {
        place.set_aside("the file is empty, but its journal is not")?;
    }
    place.make_sure_of_file()?;
    let is_remote = place::is_remote(&place.path);
    let must_check = is_suspect || place.was_left_open()?;
    let (connection, has_log) = match connect(&place.path, is_remote, must_check) {
        Err(error @ StoreError::Damaged { .. }) => {
            place.set_aside(&remote_sandbox_core::failure::Failure::chain(&error))?;
            place.make_sure_of_file()?;
            connect(&place.path, is_remote, false)?
        }
        connected => connected?,
    };
    Ok(Opened {
        connection,
        path: place.path.clone(),
        identity: place::identity(&place.path),
        has_log,
        _user: place.settle()?,
    })
}

/// A connection to a copy of another program's file, which is thrown away afterwards.
pub(super) fn open_copy(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    // Whatever stands in it is data: no function of ours runs because it says so.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(connection)
}

/// Refuses a library that may damage the file.
pub(super) fn check_library(version: i32) -> Result<(), StoreError> {
    if version < OLDEST_LIBRARY {
        return Err(StoreError::OldLibrary(rusqlite::version()));
    }
    Ok(())
}

/// A connection to a file that is there, and whether it has a write-ahead log.
pub(super) fn connect(
    path: &Path,
    is_remote: bool,
    must_check: bool,
) -> Result<(Connection, bool), StoreError> {
    let failed = |source| StoreError::of(path, source);
    // The file is there: it was made with the right mode, which SQLite would not do.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let has_log = configure(&connection, is_remote).map_err(failed)?;
    if must_check {
        look_through(&connection, path)?;
    }
    schema::bring_up_to_date(&mut connection, path)?;
    keep_log_at_the_end(&connection, false).map_err(failed)?;
    Ok((connection, has_log))
}

/// Sets everything that holds for a connection; true when there is a write-ahead log.
fn configure(connection: &Connection, is_remote: bool) -> rusqlite::Result<bool> {
    connection.busy_timeout(BUSY_LIMIT)?;
    // Until it is known that the file is sound: a damaged one is kept as it was found.
    keep_log_at_the_end(connection, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // A disk that fails under a mapped file is a signal, not an error.
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "journal_size_limit", LONGEST_LOG)?;
    let wanted = if is_remote { "delete" } else { "wal" };
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", wanted, |row| row.get::<_, String>(0))?;
    let has_log = mode == "wal";
    set_durability(connection, has_log, Durability::Usual)?;
    Ok(has_log)
}

/// Whether a write-ahead log stays as it is when the connection ends, or is worked into the file.
fn keep_log_at_the_end(connection: &Connection, keep: bool) -> rusqlite::Result<()> {
    let setting = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(setting, keep).map(|_| ())
}

/// With a log, the usual commit never leaves a damaged file; without one, only a full one does not.
fn set_durability(
    connection: &Connection,
    has_log: bool,
    durability: Durability,
) -> rusqlite::Result<()> {
    let level = match (has_log, durability) {
        (true, Durability::Usual) => "normal",
        (true, Durability::Sure) | (false, Durability::Usual) => "full",
        // The journal's name must be gone from the disk as well, or the commit is taken back.
        (false, Durability::Sure) => "extra",
    };
    connection.pragma_update(None, "synchronous", level)
}

/// Looks at every page; what is found is the damage.
fn look_through(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let words = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .map_err(|source| StoreError::of(path, source))?;
    if words == "ok" {
        return Ok(());
    }
    Err(StoreError::Damaged {
        path: path.to_owned(),
        source: words.into(),
    })
}

impl Opened {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still names the file that is open.
    pub(super) fn is_still_there(&self) -> bool {
        self.identity.is_some() && place::identity(&self.path) == self.identity
    }

    /// Ends the connection to a file that may be damaged, with as little change as possible.
    pub(super) fn abandon(self) {
        // Where even this fails, the file is looked through all the same.
        let _ = keep_log_at_the_end(&self.connection, true);
    }

    /// Works with the connection in such a way that what is committed is as durable as wanted.
    pub(super) fn with_durability<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        if durability == Durability::Usual {
            return work(&mut self.connection);
        }
        set_durability(&self.connection, self.has_log, durability)?;
        let done = work(&mut self.connection);
        // Were this to fail, later commits would only be slower.
        let _ = set_durability(&self.connection, self.has_log, Durability::Usual);
        done
    }
}
