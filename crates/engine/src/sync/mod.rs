//! Makes a tree on one side like a tree on the other.
//!
//! Both sides are scanned at the same time, `core::sync` decides, and what it decides is carried out here: small
//! files as one tar stream, large ones by parts, deletions last. Whatever happens on the way, a name is
//! always the complete old file or the complete new one.

mod progress;
mod report;
mod request;

pub use progress::{Figures, Phase, Progress};
pub use report::{Problem, SyncReport};
pub use request::{SyncRequest, Way};
