//! Transfers that go on without their caller.

use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use tokio_util::sync::CancellationToken;

use super::Engine;
use crate::call::CallContext;
use crate::store::{Store, TransferId};
use crate::sync::SyncRequest;
use crate::transfer::{CancelReport, Started, TransferReport, Work};

impl Engine {
    /// Says which configuration file the command line named, for processes that this one starts.
    #[must_use]
    pub fn with_config_file(mut self, file: Option<&Path>) -> Self {
        self.transfers.set_config_file(file);
        self.config_file = file.map(Path::to_owned);
        if let Some(file) = file {
            self.paths = self.paths.with_config_file(file);
        }
        self
    }

    /// Says where relative paths begin, when that is not where this process was started.
    #[must_use]
    pub fn with_working_directory(mut self, folder: Option<PathBuf>) -> Self {
        self.paths = self.paths.from_directory(folder.clone());
        self.transfers.set_working_directory(folder);
        self
    }

    /// Says which program does background work, when it is not this one.
    #[must_use]
    pub fn with_worker_program(mut self, program: PathBuf) -> Self {
        self.transfers.set_program(program);
        self
    }

    /// Where relative paths begin.
    pub fn working_directory(&self) -> Option<&Path> {
        self.transfers.working_directory()
    }

    /// What outlives this process.
    pub fn store(&self) -> &Store {
        self.transfers.store()
    }

    /// Starts a sync that goes on without the caller, or finds the same one under way.
    pub async fn start_transfer(
        &self,
        context: &CallContext,
        request: SyncRequest,
    ) -> Result<Started, Failure> {
        // A name that is wrong is told now, not in a log.
        let request = self.written_plainly(request)?;
        let principal = context.principal.as_str();
        self.transfers.start(request, principal).await
    }

    /// The same sync, where it goes on in the background already.
    pub(super) async fn transfer_under_way(
        &self,
        context: &CallContext,
        request: &SyncRequest,
    ) -> Result<Option<Started>, Failure> {
        let request = self.written_plainly(request.clone())?;
        let principal = context.principal.as_str();
        self.transfers.under_way(&request, principal).await
    }

    /// The request with one spelling for a path that lies in the home there, so that the same pair is known again.
    fn written_plainly(&self, mut request: SyncRequest) -> Result<SyncRequest, Failure> {
        let sandbox = self.sandbox(Some(&request.sandbox))?;
        // With a folder of its own, a relative path is not one from the home.
        if sandbox.surroundings().workdir.is_none() {
            request.remote_path = request.remote_path.from_home();
        }
        Ok(request)
    }

    /// How a transfer stands, with the last lines of its log.
    pub async fn check_transfer(
        &self,
        context: &CallContext,
        task: u64,
        lines: usize,
    ) -> Result<TransferReport, Failure> {
        let principal = context.principal.as_str();
        self.transfers.check(task, principal, lines).await
    }

    /// Ends a transfer; its process is ended by force when it has not ended after `patience`.
    pub async fn cancel_transfer(
        &self,
        context: &CallContext,
        task: u64,
        patience: Duration,
    ) -> Result<CancelReport, Failure> {
        let principal = context.principal.as_str();
        self.transfers.cancel(task, principal, patience).await
    }

    /// How all transfers of this principal stand, the newest first.
    pub async fn list_transfers(
        &self,
        context: &CallContext,
    ) -> Result<Vec<TransferReport>, Failure> {
        self.transfers.list(context.principal.as_str()).await
    }

    /// Does a transfer as its own process, until it is done or `stop` is set.
    pub async fn work_on_transfer(
        &self,
        task: u64,
        stop: CancellationToken,
    ) -> Result<(), Failure> {
        let internal = |error: &(dyn std::error::Error + 'static)| {
            Failure::new(Code::Internal, Failure::chain(error))
        };
        let unknown = || Failure::new(Code::NotFound, format!("there is no transfer task {task}"));
        let id = TransferId::new(task).ok_or_else(unknown)?;
        let work = Work::claim(self.store(), id, &self.mask).await;
        let Some(work) = work.map_err(|error| internal(&error))? else {
            return Ok(());
        };
        let done = work.run(stop, |progress, cancel| {
            self.sync_now(&work.request, progress, cancel)
        });
        done.await.map_err(|error| internal(&error))
    }
}
