//! The actions of a plan.

use crate::sync::entry::{Entry, Stamp};
use crate::sync::path::RelPath;

/// What is remembered of a file or link since the last sync of the same two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseEntry {
    /// Where it lies.
    pub path: RelPath,
    /// How it looked on this machine when the sync was done.
    pub local: Stamp,
    /// How it looked on the host.
    pub remote: Stamp,
    /// Whether it was written down before a download that was about to put it here: it counts where that has come,
    /// however the download ended.
    pub is_intended: bool,
}

impl BaseEntry {
    /// Of all records of one path, the older ones first, the one that counts for what is on this machine.
    pub fn fitting(
        records: impl IntoIterator<Item = BaseEntry>,
        here: Option<&Entry>,
    ) -> Option<BaseEntry> {
        let here = here.filter(|entry| entry.kind.is_content());
        let fits =
            |record: &BaseEntry| here.is_some_and(|entry| record.local.agrees(entry.remembered()));
        let mut found: Option<BaseEntry> = None;
        for record in records {
            let counts = match record.is_intended {
                false => true,
                true => fits(&record) && !found.as_ref().is_some_and(fits),
            };
            if counts {
                found = Some(BaseEntry {
                    is_intended: false,
                    ..record
                });
            }
        }
        found
    }
}

/// Why a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// There is nothing of that path.
    Missing,
    /// There is something of another kind.
    Kind,
    /// The size differs.
    Size,
    /// The size is the same and the time differs.
    Time,
}

/// Why something that differs is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It was edited there since the last sync, and not here.
    #[error("it was changed in the target since the last sync, and not in the source")]
    ChangedInTarget,
    /// It was edited on both sides since the last sync.
    #[error("it was changed on both sides since the last sync")]
    ChangedOnBoth,
    /// Nothing is remembered of it, and the target's is the newer one.
    #[error("the target's is newer, and there was no sync of it before")]
    NewerInTarget,
    /// A directory that holds something is in the place of a file or link.
    #[error("a directory that is not empty is in its place")]
    DirectoryInTheWay,
    /// A device, pipe or socket is in its place.
    #[error("a special file is in its place")]
    SpecialInTheWay,
    /// A link to a directory is in the place of a directory.
    #[error("a link to a directory is in its place")]
    DirectoryLink,
    /// What is in its place is excluded.
    #[error("what is in its place is excluded")]
    ExcludedInTarget,
    /// Something above it is left as it is.
    #[error("a directory above it could not be made")]
    Above,
}

/// Why an entry of the source is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// It is a device, pipe or socket.
    #[error("it is a special file")]
    Special,
    /// It is a device, pipe or socket of the target, which would be deleted otherwise.
    #[error("it is a special file, which is never deleted")]
    SpecialStays,
    /// It is a link that leads nowhere, and links are followed.
    #[error("it is a link that leads nowhere")]
    DanglingLink,
    /// It lies in no directory that was listed.
    #[error("it lies in no directory that was listed")]
    Orphan,
}

/// One thing to be done, or to be told.
///
/// `replaces` and `target` are what the scan saw there; whoever acts looks once more before anything is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make a directory, in the place of a file or link if there is one.
    MakeDirectory {
        /// The directory of the source.
        entry: Entry,
        /// What gives way.
        replaces: Option<Entry>,
    },
    /// Send a file.
    SendFile {
        /// The file of the source.
        entry: Entry,
        /// What gives way; a directory is empty by then.
        replaces: Option<Entry>,
        /// Why it is sent.
        difference: Difference,
    },
    /// Compare the content of two files of the same size.
    CompareContent {
        /// The file of the source.
        entry: Entry,
        /// The file of the target.
        target: Entry,
        /// Why the target's stays when the content differs; none when the source's is sent then.
        obstacle: Option<Obstacle>,
    },
    /// Make a link.
    SendLink {
        /// The link of the source.
        entry: Entry,
        /// What gives way; a directory is empty by then.
        replaces: Option<Entry>,
    },
    /// Set permissions and time of something whose content is right.
    SetAttributes {
        /// How it should look.
        entry: Entry,
        /// How it looks.
        target: Entry,
    },
    /// Delete something that the source does not have; a directory is empty by then.
    Delete {
        /// What goes.
        target: Entry,
    },
    /// Nothing is to be done.
    Keep {
        /// The entry of the source.
        entry: Entry,
    },
    /// Both sides stay as they are, and somebody has to decide.
    Conflict {
        /// Where.
        path: RelPath,
        /// Why.
        obstacle: Obstacle,
    },
    /// The entry is not transferred.
    Skip {
        /// The entry of the source.
        entry: Entry,
        /// Why.
        reason: SkipReason,
    },
}

impl Action {
    /// The path it is about.
    pub fn path(&self) -> &RelPath {
        match self {
            Action::MakeDirectory { entry, .. }
            | Action::SendFile { entry, .. }
            | Action::CompareContent { entry, .. }
            | Action::SendLink { entry, .. }
            | Action::SetAttributes { entry, .. }
            | Action::Keep { entry }
            | Action::Skip { entry, .. } => &entry.path,
            Action::Delete { target } => &target.path,
            Action::Conflict { path, .. } => path,
        }
    }
}
