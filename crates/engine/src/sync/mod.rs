//! Makes a tree on one side like a tree on the other.
//!
//! Both sides are scanned at the same time, `core::sync` decides, and what it decides is carried out here: small
//! files as one tar stream, large ones by parts, deletions last. Whatever happens on the way, a name is
//! always the complete old file or the complete new one.

mod arrived;
mod compare;
mod decide;
mod digest_list;
mod digests;
mod dirlinks;
mod down;
mod far;
mod far_files;
mod far_scan;
mod far_ways;
mod fetch;
mod forget;
mod gauge;
mod gitignores;
mod large;
mod local_side;
mod local_work;
mod lock;
mod lone;
mod outcome;
mod pack;
mod pairs;
mod progress;
mod refusals;
mod remember;
mod report;
mod request;
mod room;
mod roots;
mod rules;
mod run;
mod send;
mod send_files;
mod sides;
mod standing;
mod tidy;
mod token;
mod up;

pub use progress::{Figures, Phase, Progress};
pub use report::{PlanReport, PlannedActions, Problem, SyncReport};
pub use request::{SyncRequest, USUAL_MIRROR, Way};
pub use roots::{LocalPaths, Resolved};
pub(crate) use run::{Prepared, Purpose};
