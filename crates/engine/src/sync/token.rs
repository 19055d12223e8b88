//! By what the work of this installation is recognised.

use std::path::Path;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::temporary::temporary_owner;

use crate::fsio;

/// Whether a name is one of a sync of this installation to the same target as this mark.
pub(super) fn is_left_by_us(name: &[u8], own: &RunToken) -> bool {
    let half = |token: &RunToken| token.as_str().get(..16).map(str::to_owned);
    temporary_owner(name).is_some_and(|owner| half(&owner) == half(own))
}

/// What tells this installation from every other one.
pub(super) fn installation(state: &Path) -> Result<Vec<u8>, Failure> {
    let unavailable = |error: fsio::FileError| {
        Failure::new(Code::StoreUnavailable, Failure::chain(&error))
            .hint("the state folder must be writable; nothing was synced")
    };
    let path = state.join("installation");
    if let Some(known) = fsio::read_sealed(&path, 64).map_err(unavailable)? {
        return Ok(known);
    }
    let lot = uuid::Uuid::now_v7().simple().to_string();
    fsio::private_directory(state).map_err(unavailable)?;
    fsio::create_atomically(&path, lot.as_bytes()).map_err(unavailable)?;
    let read = fsio::read_sealed(&path, 64).map_err(unavailable)?;
    Ok(read.unwrap_or_default())
}
