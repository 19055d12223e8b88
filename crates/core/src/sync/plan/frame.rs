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

impl Frame {
    pub(super) fn new(path: RelPath) -> Self {
        Frame {
            path,
            in_source: false,
            pending: None,
            extra: None,
            replacement: None,
            obstacle: None,
            is_shielded: false,
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
