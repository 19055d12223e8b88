//! How values stand in columns: JSON as text, times in milliseconds, numbers with a sign.

use std::time::Duration;

use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}

pub(super) fn checked<T, S, E>(
    row: &Row<'_>,
    column: &str,
    check: impl FnOnce(S) -> Result<T, E>,
) -> rusqlite::Result<T>
where
    S: rusqlite::types::FromSql,
    E: std::error::Error + Send + Sync + 'static,
{
    check(row.get(column)?).map_err(unreadable)
}

pub(super) fn from_json<T: DeserializeOwned>(
    row: &Row<'_>,
    column: &str,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| serde_json::from_str(&text).map_err(unreadable))
        .transpose()
}

pub(super) fn json<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A time that a column holds; none when it is empty.
pub(super) fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Duration>> {
    let value: Option<i64> = row.get(column)?;
    Ok(value.map(|value| Duration::from_millis(value.unsigned_abs())))
}

/// A count that a column holds; none when it is empty.
pub(super) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<u64>> {
    let value: Option<i64> = row.get(column)?;
    Ok(value.map(i64::unsigned_abs))
}
