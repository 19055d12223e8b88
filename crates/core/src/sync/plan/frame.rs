//! The directories that are open while two trees are merged.

use crate::sync::entry::Entry;
use crate::sync::path::RelPath;

use super::action::Obstacle;

/// A directory that the merge is in, on one side or on both.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) path: RelPath,
    /// Whether the source has it as a directory.
    pub(super) in_source: bool,
    /// To be made as soon as something comes into it.
    pub(super) pending: Option<Entry>,
    /// A directory of the target that goes when nothing in it stays.
    pub(super) extra: Option<Entry>,
    /// What comes in the place of `extra`.
    pub(super) replacement: Option<Entry>,
    /// Why nothing can come into it.
    pub(super) obstacle: Option<Obstacle>,
    /// Whether nothing in it may be deleted.
    pub(super) is_shielded: bool,
    /// Whether something in it stays.
    pub(super) holds: bool,
}

/// Directories in which jobs keep their logs and their records. Nobody misses them in a source, and without them a job
/// that runs is lost: so nothing in them is ever superfluous.
const OF_JOBS: [&[u8]; 2] = [b".codex_logs", b".remote-sandbox-mcp"];

impl Frame {
    pub(super) fn new(path: RelPath) -> Self {
        Frame {
            is_shielded: OF_JOBS.contains(&path.name()),
            path,
            in_source: false,
            pending: None,
            extra: None,
            replacement: None,
            obstacle: None,
            holds: false,
        }
    }

    /// A directory of the source.
    pub(super) fn of_source(path: RelPath) -> Self {
        Frame {
            in_source: true,
            ..Frame::new(path)
        }
    }
}
