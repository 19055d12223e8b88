//! Sandboxes on this machine: how they are walled off, and how one speaks with what runs in them.

mod bubblewrap;
mod level;
mod name;
mod plan;
mod record;
mod seatbelt;
mod view;
mod walls;
mod walls_table;
pub mod wire;

pub use bubblewrap::bubblewrap_arguments;
pub use level::{Isolation, Level, Network, NoLevel, Reachable, choose_level};
pub use name::{LocalName, LocalNameError};
pub use plan::{Limits, SupervisorPlan, mark_of, terms_of};
pub use record::{LocalRecord, RecordError};
pub use seatbelt::seatbelt_profile;
pub use view::{Grant, Hidden, SystemPath, View, readable_grants};
pub use walls::{Bound, Wall, WallName, bounds, walls};
pub use walls_table::walls_table;

/// The name of the sandbox that is there when nothing is configured.
pub const DEFAULT_NAME: &str = "local";

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
