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
pub use reading::{Reading, ReadingPosition, Wanted, read as read_spool};
pub(crate) use reading::{shown, start_of_last_lines};
pub use record::{RecordError, RunRecord};
pub use registry::{Registry, RunOrder};
pub use spool::Spool;
