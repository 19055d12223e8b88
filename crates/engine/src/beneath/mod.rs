//! Local trees, touched only beneath an open directory.
//!
//! Every path is relative to a [`Tree`] and is walked by the kernel without going through a link, so that whoever plants
//! one while a sync runs gains nothing: the place that was judged is the place that is read or written. This room
//! knows directories, files and the rules of `core::sync`; it knows nothing of hosts or tools.

mod attributes;
mod error;
mod listing;
mod new_file;
mod old;
mod open;
mod prefetch;
mod remove;
mod scan;
mod stat;
mod tree;
mod walk;

pub use error::BeneathError;
pub use new_file::{LastDirectory, NewFile, ParkedFile};
pub use remove::Removed;
pub use scan::{LocalScan, LocalScanOptions, scan};
pub use stat::stamp_of;
pub use tree::Tree;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
#[path = "hostile_tests.rs"]
mod hostile_tests;
#[cfg(test)]
#[path = "scan_tests.rs"]
mod scan_tests;
#[cfg(test)]
#[path = "tree_tests.rs"]
mod tree_tests;
