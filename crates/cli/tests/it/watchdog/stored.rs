//! What stands in the store of a server, read past its program.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

/// Opens a store; none when there is nothing in it yet.
pub(super) fn open(path: &Path) -> Option<Connection> {
    if !path.exists() {
        return None;
    }
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    // A process that was killed at its very first write leaves a file without tables.
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('jobs', 'watches')";
    let count: i64 = connection.query_row(tables, [], |row| row.get(0)).unwrap();
    (count == 2).then_some(connection)
}

/// The rows of a query whose columns are all text.
pub(super) fn rows(connection: &Connection, query: &str) -> Vec<Vec<String>> {
    let mut statement = connection.prepare(query).unwrap();
    let columns = statement.column_count();
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
    let rows = statement.query_map([], read).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The same of the server with this home.
pub(super) fn rows_of(home: &Path, query: &str) -> Vec<Vec<String>> {
    let path = home.join(".local/state/remote-sandbox-mcp/store.sqlite3");
    open(&path).map_or_else(Vec::new, |connection| rows(&connection, query))
}
