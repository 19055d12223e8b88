//! What has to be done so that one tree becomes like another.
//!
//! Two scans and what is remembered of the last sync go in as sorted streams, actions come out one by one; besides
//! the directories that are open at the moment nothing is kept. A directory is made before what comes into it and
//! deleted after what was in it, so the actions can be carried out in the order they come.

mod action;
mod compare;
mod frame;
mod merge;
mod summary;

pub use action::{Action, BaseEntry, Difference, Obstacle, SkipReason};
pub use merge::{Direction, PlanError, PlanOptions, Planner, Seen, Side};
pub use summary::{Count, Summary, Word};

#[cfg(test)]
#[path = "model_tests.rs"]
mod model_tests;
#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
