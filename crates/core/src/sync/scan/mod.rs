//! One script that lists a whole tree of a host, and the reader of what it says.
//!
//! **Form.** Every scanner writes the same records, `PATH//FIELDS//TARGET` and a NUL. No path holds `//`, so the fields
//! need no escaping, and because the path comes first a host can sort records as they are. Where only `stat` is
//! there, which cannot write a NUL, a record ends in `//`, the mark of this scan and a newline instead.
//! A record with an empty path is a word of the script about itself: `//root d`, `//unreadable PATH`, `//end 0`.
//!
//! **Sorting.** Both sides are merged as sorted streams. Python and Perl walk each directory in order, so their
//! streams are sorted as they come. `find` is faster but knows no order. Its records go into an
//! [`EntryList`](super::EntryList) and are sorted here, because that costs milliseconds and about 75 bytes per entry,
//! while `sort` on the host would hold back the first record until the last one is known. A tree that does not fit into
//! the list is scanned again with [`SortedBy::Host`]: `sort` there spills to disk, and the stream is used as it comes.
//! So memory is bounded for every tree, and the small ones, which are nearly all, do not pay for it.
//!
//! **No program.** Where a host has none of them, its shell still says what and where the root is, and the entries are made
//! of what the file protocol lists.

mod host_path;
mod listed;
mod probe;
mod read;
mod record;
mod script;

pub(crate) use host_path::assignment;
pub use host_path::{HostPath, HostPathError};
pub use listed::{is_passed_over, listed_entry};
pub use probe::{Scanners, parse_scanners, scanners_script};
pub use read::{Found, RootKind, ScanError, ScanProblem, ScanReader, ScanSummary};
pub(super) use record::time;
pub use script::{LoneFile, ScanDepth, ScanRequest, Scanner, SortedBy, scan_script};

#[cfg(test)]
mod testing;

#[cfg(test)]
#[path = "listed_tests.rs"]
mod listed_tests;
#[cfg(test)]
#[path = "read_tests.rs"]
mod read_tests;
#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
