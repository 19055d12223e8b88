//! Reads how long each step of a connection may take.

use std::time::Duration;

use super::fields::Fields;
use super::{Fault, GivenLimits, Problem};

const WANTED_SECONDS: &str = "a number of seconds above 0 and at most 3600";
const WANTED_KEEPALIVE_MAX: &str = "a whole number from 1 to 100";
const SECONDS_MIN: f64 = 0.001;
const SECONDS_MAX: f64 = 3600.0;

/// The limits an entry names, and only those.
pub(super) fn read(fields: &Fields<'_>) -> Result<GivenLimits, Problem> {
    Ok(GivenLimits {
        tcp: seconds(fields, "connect_timeout_s")?,
        banner: seconds(fields, "banner_timeout_s")?,
        key_exchange: seconds(fields, "key_exchange_timeout_s")?,
        authentication: seconds(fields, "auth_timeout_s")?,
        keepalive_interval: seconds(fields, "keepalive_s")?,
        keepalive_max: keepalive_max(fields)?,
    })
}

fn seconds(fields: &Fields<'_>, key: &str) -> Result<Option<Duration>, Problem> {
    match fields.number(key, WANTED_SECONDS)? {
        None => Ok(None),
        Some(number) if (SECONDS_MIN..=SECONDS_MAX).contains(&number) => {
            Ok(Some(Duration::from_secs_f64(number)))
        }
        Some(_) => Err(fields.problem(key, Fault::Wanted(WANTED_SECONDS))),
    }
}

fn keepalive_max(fields: &Fields<'_>) -> Result<Option<u32>, Problem> {
    let key = "keepalive_max";
    let Some(number) = fields.whole(key, WANTED_KEEPALIVE_MAX)? else {
        return Ok(None);
    };
    match u32::try_from(number) {
        Ok(count) if (1..=100).contains(&count) => Ok(Some(count)),
        _ => Err(fields.problem(key, Fault::Wanted(WANTED_KEEPALIVE_MAX))),
    }
}
