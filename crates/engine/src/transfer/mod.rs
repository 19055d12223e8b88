//! Transfers that go on without their caller, each in a process of its own.
//!
//! The row in the store comes first, then the process; whoever asks later reads the row and looks whether the
//! process that it names is still the same one. A number alone is never signalled.

mod assignment;
mod cancel;
mod check;
mod log;
pub(crate) mod process;
mod start;
mod worker;

use std::path::{Path, PathBuf};

use remote_sandbox_core::config::Environment;
use remote_sandbox_core::failure::{Code, Failure};

pub use assignment::{Assignment, AssignmentError, read_assignment};
pub use cancel::CancelReport;
pub use check::TransferReport;
pub use start::Started;
pub(crate) use worker::Work;

use crate::store::{Store, TransferId, TransferRow};

/// The hidden command that makes this program the worker of one transfer.
pub const WORKER_COMMAND: &str = "transfer-worker";

/// Everything about transfers that outlives one call.
#[derive(Debug)]
pub(crate) struct Transfers {
    store: Store,
    /// Where log files are.
    folder: PathBuf,
    /// What a worker has to be told.
    assignment: Assignment,
    /// The program that workers are, where it is not this one.
    program: Option<PathBuf>,
}

impl Transfers {
    pub(crate) fn new(state: &Path, environment: &Environment) -> Self {
        Transfers {
            store: Store::at(state),
            folder: state.join("transfers"),
            assignment: Assignment::here(environment),
            program: None,
        }
    }

    pub(crate) fn set_config_file(&mut self, file: Option<&Path>) {
        self.assignment.set_config_file(file);
    }

    pub(crate) fn set_working_directory(&mut self, folder: Option<PathBuf>) {
        self.assignment.working_directory = folder;
    }

    pub(crate) fn working_directory(&self) -> Option<&Path> {
        self.assignment.working_directory.as_deref()
    }

    pub(crate) fn set_program(&mut self, program: PathBuf) {
        self.program = Some(program);
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The row of a principal's own transfer.
    async fn find(&self, number: u64, principal: &str) -> Result<TransferRow, Failure> {
        let unknown = || {
            let text = format!("there is no transfer task {number}");
            Failure::new(Code::NotFound, text)
                .hint("use the task_id that the sync returned; finished tasks are kept for 30 days")
        };
        let id = TransferId::new(number).ok_or_else(unknown)?;
        let row = self.store.transfer(id, principal).await?;
        row.ok_or_else(unknown)
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
