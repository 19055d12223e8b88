//! The process inside a sandbox on this machine; started by the program itself, never by people.

use remote_sandbox_engine::local::supervise;

use crate::report::Failed;

/// Run inside a sandbox on this machine and start its shells
#[derive(Debug, clap::Args)]
pub(crate) struct Supervisor {
    /// What to do, as JSON
    plan: String,
}

impl Supervisor {
    pub(crate) fn run(&self) -> Result<(), Failed> {
        Ok(supervise(&self.plan)?)
    }
}
