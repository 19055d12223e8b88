//! Runs: commands that somebody waits for, and what is kept of them afterwards.

mod backlog;
mod follow;
mod live;
mod reading;
mod record;
mod registry;
mod spool;

pub use follow::{Follower, Tap, follow};
pub use live::{Finished, Run, Status};
pub use reading::{Reading, ReadingPosition, read as read_spool};
pub use record::{RecordError, RunRecord};
pub use registry::{Registry, RunOrder};
pub use spool::Spool;
