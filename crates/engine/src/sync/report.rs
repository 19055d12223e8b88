//! What a sync says when it is over.

use serde::{Deserialize, Serialize};

/// Something that did not go as wanted, by its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where, escaped where it is no plain text.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// What happened, under the names of the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncReport {
    /// The path on this machine, absolute.
    pub local_path: String,
    /// The path in the sandbox, absolute where it is known.
    pub remote_path: String,
    /// `file` or `directory`.
    pub synced_type: String,
    /// Directories that were made.
    pub made_dirs: u64,
    /// Files and links that were sent.
    pub sent_files: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Files and links that were the same on both sides.
    pub unchanged_files: u64,
    /// Entries whose permissions were set.
    pub changed_modes: u64,
    /// Files and links that were deleted.
    pub deleted_files: u64,
    /// Directories that were deleted.
    pub deleted_dirs: u64,
    /// Whether deletions were asked for.
    pub delete_extras: bool,
    /// Special files and links that were passed over.
    pub skipped: u64,
    /// Files that stay as they are because somebody has to decide.
    pub conflicts: u64,
    /// The first of what was passed over, kept or failed, by path.
    pub problems: Vec<Problem>,
    /// How many of these there are in all.
    pub problem_count: u64,
    /// The name of exactly what was synced; none where not all of it could be.
    pub revision: Option<String>,
    /// Seconds from the first look to the last change.
    pub duration_s: f64,
    /// Bytes per second.
    pub rate_bytes_s: u64,
}

/// What a sync would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanReport {
    /// The path on this machine, absolute.
    pub local_path: String,
    /// The path in the sandbox, absolute where it is known.
    pub remote_path: String,
    /// Each kind of action that occurs.
    pub actions: Vec<PlannedActions>,
    /// How many entries would be deleted: the number for `confirm_delete`.
    pub deletes: u64,
    /// Why nothing would be deleted without that number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_refused: Option<String>,
    /// What could not be looked at, in all.
    pub scan_problems: u64,
    /// The first of these.
    pub problems: Vec<Problem>,
}

/// One kind of action in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedActions {
    /// Which kind.
    pub action: String,
    /// How often it occurs.
    pub count: u64,
    /// The bytes of the files in it.
    pub bytes: u64,
    /// The first paths.
    pub first: Vec<String>,
}
