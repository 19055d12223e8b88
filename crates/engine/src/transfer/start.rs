//! Starts a transfer: the row first, then the process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::WrittenPath;

use super::check::is_stale;
use super::{Transfers, WORKER_COMMAND, log, process};
use crate::proc::{self, Background};
use crate::store::{
    Begun, NewTransfer, ProcessMark, TransferEnd, TransferId, TransferRow, TransferStatus,
};
use crate::sync::{Phase, SyncRequest, USUAL_MIRROR, Way};

/// How long a worker may take to read what it is told.
const TELL_LIMIT: Duration = Duration::from_secs(10);

/// How often a dead transfer of the same pair is put away.
const MOST_ATTEMPTS: usize = 3;

/// A transfer that goes on by itself.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its number.
    pub task_id: u64,
    /// How far it is: `queued`, or as the one under way is.
    pub status: &'static str,
    /// The number of its process.
    pub pid: Option<u32>,
    /// Where it tells what it does.
    pub log_file: String,
    /// Whether the same transfer was under way already.
    pub was_running: bool,
}

impl Started {
    fn of(row: &TransferRow, worker: Option<&ProcessMark>, was_running: bool) -> Self {
        Started {
            task_id: row.id.number(),
            status: row.status.name(),
            pid: worker.map(|worker| worker.pid),
            log_file: row.log_file.clone(),
            was_running,
        }
    }
}

impl Transfers {
    /// Starts a transfer, or finds the same one under way.
    pub(crate) async fn start(
        &self,
        request: SyncRequest,
        principal: &str,
    ) -> Result<Started, Failure> {
        let request = self.for_another_process(request);
        self.forget_old().await;
        for _ in 0..MOST_ATTEMPTS {
            let new = self.row_of(&request, principal)?;
            match self.store.begin_transfer(new).await? {
                Begun::New(row) => return self.launch(&row).await,
                Begun::Same(row) if is_stale(&row) => self.put_away(row.id).await?,
                Begun::Same(row) if !self.is_same_request(&row, &request) => {
                    return Err(other_request(&row));
                }
                Begun::Same(row) => return Ok(Started::of(&row, row.worker.as_ref(), true)),
            }
        }
        let text = "the same transfer is started and lost again and again";
        Err(Failure::new(Code::Busy, text).retry())
    }

    /// The same transfer, where one is under way; busy when one with other options is.
    pub(crate) async fn under_way(
        &self,
        request: &SyncRequest,
        principal: &str,
    ) -> Result<Option<Started>, Failure> {
        let request = self.for_another_process(request.clone());
        let new = self.row_of(&request, principal)?;
        let row = self.store.open_transfer(principal, &new.pair_key).await?;
        match row.filter(|row| !is_stale(row)) {
            None => Ok(None),
            Some(row) if !self.is_same_request(&row, &request) => Err(other_request(&row)),
            Some(row) => Ok(Some(Started::of(&row, row.worker.as_ref(), true))),
        }
    }

    /// Whether a transfer under way does what is wanted now.
    fn is_same_request(&self, row: &TransferRow, request: &SyncRequest) -> bool {
        // At the end of what is read a slash means nothing, and at the end of what is written only where it says that a file
        // goes into a directory.
        let local = self.place(&request.local_path);
        let is_tree = match request.way {
            Way::Up => !local.is_file(),
            Way::Down => local.is_dir(),
        };
        let plain = |mut request: SyncRequest| {
            let [read, written] = match request.way {
                Way::Up => [&mut request.local_path, &mut request.remote_path],
                Way::Down => [&mut request.remote_path, &mut request.local_path],
            };
            *read = WrittenPath::from(read.without_end_slashes());
            if is_tree {
                *written = WrittenPath::from(written.without_end_slashes());
            }
            request
        };
        serde_json::from_str::<SyncRequest>(&row.request)
            .is_ok_and(|other| plain(other) == plain(request.clone()))
    }

    /// Where a local path is found that was written absolutely or from the home.
    fn place(&self, path: &WrittenPath) -> PathBuf {
        let home = self.assignment.environment.get("HOME");
        match (path.as_bytes().strip_prefix(b"~/"), home) {
            (Some(rest), Some(home)) => Path::new(home).join(OsStr::from_bytes(rest)),
            _ => PathBuf::from(OsStr::from_bytes(path.as_bytes())),
        }
    }

    /// A request as a process understands it that was started elsewhere.
    fn for_another_process(&self, mut request: SyncRequest) -> SyncRequest {
        request.local_path = self.written_absolutely(&request.local_path);
        let file = request.exclude_file.take();
        request.exclude_file = file.map(|file| self.written_absolutely(&file));
        request
    }

    /// A local path as a process finds it that was started elsewhere; `~` means the same everywhere.
    fn written_absolutely(&self, path: &WrittenPath) -> WrittenPath {
        let bytes = path.as_bytes();
        if bytes == b"~" || bytes.starts_with(b"~/") {
            return path.clone();
        }
        let absolute = self
            .assignment
            .absolute(Path::new(OsStr::from_bytes(bytes)));
        let absolute = WrittenPath::from(absolute.as_os_str().as_bytes());
        match bytes == USUAL_MIRROR.as_bytes() {
            // Elsewhere it is not known any more that nobody named it, and that it is a directory.
            true => WrittenPath::from([absolute.as_bytes(), b"/"].concat().as_slice()),
            false => absolute,
        }
    }

    fn row_of(&self, request: &SyncRequest, principal: &str) -> Result<NewTransfer, Failure> {
        let direction = match request.way {
            Way::Up => "up",
            Way::Down => "down",
        };
        let [local, remote] = [&request.local_path, &request.remote_path]
            .map(|path| WrittenPath::from(path.without_end_slashes()));
        let pair = (direction, &request.sandbox, local, remote);
        let written = |value: serde_json::Result<String>| {
            value.map_err(|error| Failure::new(Code::Internal, error.to_string()))
        };
        Ok(NewTransfer {
            principal: principal.to_owned(),
            sandbox: request.sandbox.clone(),
            direction: direction.to_owned(),
            local_path: request.local_path.shown().text,
            remote_path: request.remote_path.shown().text,
            request: written(serde_json::to_string(request))?,
            pair_key: written(serde_json::to_string(&pair))?,
            log_folder: self.folder.to_string_lossy().into_owned(),
        })
    }

    /// Starts the process of a row; where that fails the row says so.
    async fn launch(&self, row: &TransferRow) -> Result<Started, Failure> {
        match self.spawn(row).await {
            Ok(worker) => {
                // The worker may be faster and have said so itself.
                if let Some(worker) = &worker {
                    self.store.note_worker(row.id, worker.clone()).await?;
                }
                Ok(Started::of(row, worker.as_ref(), false))
            }
            Err(failure) => {
                let end = TransferEnd::failed(&failure);
                self.store.finish_transfer(row.id, end).await?;
                Err(failure)
            }
        }
    }

    async fn spawn(&self, row: &TransferRow) -> Result<Option<ProcessMark>, Failure> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            let text = format!(
                "the process of transfer {} cannot be started: {}",
                row.id,
                Failure::chain(error)
            );
            Failure::new(Code::Internal, text)
                .hint("nothing was transferred; call again")
                .retry()
        };
        let log = log::open(Path::new(&row.log_file)).map_err(|error| {
            Failure::new(Code::StoreUnavailable, Failure::chain(&error))
                .hint("nothing was transferred; free some space or correct the access rights")
        })?;
        let words = self.assignment.to_bytes().map_err(|error| failed(&error))?;
        let number = row.id.to_string();
        let arguments = [WORKER_COMMAND, "--task-id", &number];
        let variables = self.assignment.variables();
        let program = self.program.as_deref();
        let started = proc::in_background(program, &arguments, &variables, log.into());
        let mut worker: Background = started.map_err(|error| failed(&error))?;
        let mark = process::mark_of(worker.pid());
        let told = tokio::time::timeout(TELL_LIMIT, worker.tell(&words)).await;
        match told.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
            Ok(()) => Ok(mark),
            Err(error) => {
                worker.end();
                Err(failed(&error))
            }
        }
    }

    /// Ends the row of a process that is gone.
    pub(super) async fn put_away(&self, id: TransferId) -> Result<(), Failure> {
        let failure = Failure::new(Code::Internal, "its process ended without a word");
        let end = TransferEnd::failed(&failure);
        self.store.finish_transfer(id, end).await?;
        Ok(())
    }

    /// Forgets what ended long ago, logs included; it is no matter when that fails.
    async fn forget_old(&self) {
        let Ok(logs) = self.store.prune_transfers().await else {
            return;
        };
        for log in logs.into_iter().map(PathBuf::from) {
            if log.starts_with(&self.folder) {
                let _ = crate::fsio::remove_file(&log);
            }
        }
    }
}

impl TransferEnd {
    /// The end of a transfer that did not work.
    pub(super) fn failed(failure: &Failure) -> Self {
        TransferEnd {
            status: TransferStatus::Failed,
            progress: Some(only_phase(Phase::Failed)),
            result: None,
            error: serde_json::to_string(failure).ok(),
        }
    }

    /// The end of a transfer that somebody did not want any more.
    pub(super) fn cancelled() -> Self {
        TransferEnd {
            status: TransferStatus::Cancelled,
            progress: None,
            result: None,
            error: None,
        }
    }
}

fn other_request(row: &TransferRow) -> Failure {
    let text = format!(
        "transfer task {} of the same two paths is under way with other options",
        row.id
    );
    Failure::new(Code::Busy, text)
        .hint("wait for it, or end it with cancel_file_transfer_task")
        .retry()
}

/// Figures of a transfer that never had any.
fn only_phase(phase: Phase) -> String {
    serde_json::json!({ "phase": phase }).to_string()
}
