//! Words drawn by lot, by which the answer to one script is told from all other text.

use remote_sandbox_core::ids::RunToken;

/// A word that nobody has used before.
pub(crate) fn new_mark() -> RunToken {
    RunToken::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes())
}
