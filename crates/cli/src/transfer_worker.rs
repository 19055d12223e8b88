//! The process of one background transfer; started by the program itself, never by people.

use std::io;
use std::sync::Arc;

use remote_sandbox_engine::engine::{Engine, load_config};
use remote_sandbox_engine::transfer::read_assignment;

use crate::engine::with;
use crate::report::Failed;

/// Do one transfer in the background
#[derive(Debug, clap::Args)]
pub(crate) struct TransferWorker {
    /// The number of the transfer
    #[arg(long)]
    task_id: u64,
}

impl TransferWorker {
    /// Does it to its end.
    pub(crate) fn run(&self) -> Result<(), Failed> {
        let assignment = read_assignment(io::stdin().lock())?;
        let file = assignment.config_file.as_deref();
        let config = load_config(file, assignment.environment.clone())?;
        let engine = Engine::new(&config, &assignment.environment)?
            .with_config_file(file)
            .with_working_directory(assignment.working_directory.clone());
        with(Arc::new(engine), |engine, stop| async move {
            Ok(engine.work_on_transfer(self.task_id, stop).await?)
        })
    }
}
