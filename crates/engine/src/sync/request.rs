//! What a caller wants to be synced.

use remote_sandbox_core::sync::WrittenPath;
use remote_sandbox_core::sync::plan::{Direction, PlanOptions};
use serde::{Deserialize, Serialize};

/// Where a download goes when nobody says: always a directory, also for a single file.
pub const USUAL_MIRROR: &str = "./remote_mirror";

/// Which way files go, as a record keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From this machine to a sandbox.
    Up,
    /// From a sandbox to this machine.
    Down,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::Up => Direction::Up,
            Way::Down => Direction::Down,
        }
    }
}

/// A sync as it was asked for; a record of it is enough to do it in another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRequest {
    /// The sandbox, by its name.
    pub sandbox: String,
    /// Which way files go.
    pub way: Way,
    /// The path on this machine, as it was written.
    pub local_path: WrittenPath,
    /// The path in the sandbox, as it was written.
    pub remote_path: WrittenPath,
    /// Whether what only the target has is deleted.
    pub delete_extras: bool,
    /// The number of deletions that the caller has agreed to.
    pub confirm_delete: Option<u64>,
    /// Rules about what is left alone.
    pub excludes: Vec<String>,
    /// A file on this machine with more of these.
    pub exclude_file: Option<WrittenPath>,
    /// Whether `.gitignore` files of the source count as well.
    pub use_gitignore: bool,
    /// Whether files of the same size are compared by content.
    pub checksum: bool,
    /// Whether links are sent as what they lead to.
    pub follow_links: bool,
    /// Whether files go through links to directories in the target.
    pub keep_dirlinks: bool,
    /// Whether edits in the target of a download may be lost.
    pub overwrite: bool,
}

impl SyncRequest {
    /// The usual request for two paths.
    pub fn new(
        sandbox: &str,
        way: Way,
        local_path: impl Into<WrittenPath>,
        remote_path: impl Into<WrittenPath>,
    ) -> Self {
        SyncRequest {
            sandbox: sandbox.to_owned(),
            way,
            local_path: local_path.into(),
            remote_path: remote_path.into(),
            delete_extras: false,
            confirm_delete: None,
            excludes: Vec::new(),
            exclude_file: None,
            use_gitignore: false,
            checksum: false,
            follow_links: false,
            keep_dirlinks: false,
            overwrite: false,
        }
    }

    /// What the plan has to follow.
    pub fn plan_options(&self) -> PlanOptions {
        PlanOptions {
            direction: self.way.into(),
            delete_extras: self.delete_extras,
            checksum: self.checksum,
            keep_dirlinks: self.keep_dirlinks,
            follow_links: self.follow_links,
            overwrite: self.overwrite,
        }
    }
}
