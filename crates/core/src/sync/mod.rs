//! The deciding half of a sync: what a tree holds, what is left out, what has to be done, and what must not be.
//!
//! Nothing here touches a file or a host. Scans of both sides come in as sorted [`Entry`] values, and actions come out.

pub mod chores;
pub mod entry;
pub mod ignore;
pub mod list;
mod packed;
pub mod packing;
pub mod path;
pub mod plan;
pub mod receive;
pub mod recheck;
pub mod remembered;
pub mod revision;
pub mod roots;
pub mod safety;
#[cfg(test)]
pub(crate) mod samples;
pub mod scan;
pub mod spool;
pub mod squeezed;
pub mod staging;
pub mod temporary;
pub mod within;
pub mod written;

pub use entry::{Entry, Identity, Kind, LinkEnd, Mtime, Special, Stamp};
pub use ignore::{Filter, FilterError, Glob, GlobError, Judge, Prune, Verdict};
pub use list::{EntryList, ListError, Misplaced, SortedEntries};
pub use path::{PathError, PathFault, RelPath, Shown};
pub use written::WrittenPath;
