//! The process of one transfer: takes charge of its row, does it, and tells how it goes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::Mask;
use tokio_util::sync::CancellationToken;

use super::log::TransferLog;
use super::process;
use crate::store::{Store, StoreError, TransferEnd, TransferId, TransferRow, TransferStatus};
use crate::sync::{Figures, Phase, Progress, SyncReport, SyncRequest};
use crate::{clock, fsio::FileError};

/// The pause between two notes of how far it is.
const NOTE_EVERY: Duration = Duration::from_millis(500);

/// The pause between two lines of figures in the log.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How long a sync may take to clean up once it was asked to end.
const CLEAN_UP_LIMIT: Duration = Duration::from_millis(1200);

/// How often the end is written down when the store does not take it.
const MOST_ATTEMPTS: u32 = 10;

/// Why a worker could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] FileError),
    #[error("this process cannot find itself among all")]
    Unmarked,
    #[error("the request of the transfer cannot be understood")]
    Request(#[source] serde_json::Error),
}

/// A row that this process has taken charge of.
pub(crate) struct Work {
    store: Store,
    id: TransferId,
    log: TransferLog,
    progress: Arc<Progress>,
    /// What was asked for.
    pub(crate) request: SyncRequest,
}

impl Work {
    /// Takes charge of a row; none when it was cancelled before, or is somebody else's.
    pub(crate) async fn claim(
        store: &Store,
        id: TransferId,
        mask: &Mask,
    ) -> Result<Option<Self>, WorkError> {
        let mark = process::own_mark().ok_or(WorkError::Unmarked)?;
        let Some(row) = store.claim_transfer(id, mark).await? else {
            return Ok(None);
        };
        let begun = Self::begin(store, &row, mask);
        if let Err(error) = &begun {
            let failure = Failure::new(Code::Internal, Failure::chain(error));
            let end = TransferEnd::failed(&failure);
            store.finish_transfer(id, end).await?;
        }
        begun.map(Some)
    }

    fn begin(store: &Store, row: &TransferRow, mask: &Mask) -> Result<Self, WorkError> {
        let request = serde_json::from_str(&row.request).map_err(WorkError::Request)?;
        let log = TransferLog::open(Path::new(&row.log_file), mask.clone())?;
        let (local, remote) = (&row.local_path, &row.remote_path);
        let arrow = if row.direction == "up" { "->" } else { "<-" };
        log.line(&format!(
            "transfer {}: {local} {arrow} {}:{remote}",
            row.id, row.sandbox
        ));
        Ok(Work {
            store: store.clone(),
            id: row.id,
            log,
            progress: Arc::default(),
            request,
        })
    }

    /// Does the sync and writes its end down; `sync` is given where it counts and what ends it.
    pub(crate) async fn run<W>(
        &self,
        stop: CancellationToken,
        sync: impl FnOnce(Arc<Progress>, CancellationToken) -> W,
    ) -> Result<(), WorkError>
    where
        W: Future<Output = Result<SyncReport, Failure>>,
    {
        let syncing = sync(self.progress.clone(), stop.clone());
        let bounded = async {
            tokio::pin!(syncing);
            tokio::select! {
                done = &mut syncing => return done,
                () = stop.cancelled() => {}
            }
            // What is let go of cleans up after itself, too.
            let done = tokio::time::timeout(CLEAN_UP_LIMIT, syncing).await;
            done.unwrap_or_else(|_| Err(Failure::new(Code::Cancelled, "it was cancelled")))
        };
        let done = tokio::select! {
            done = bounded => done,
            never = self.note_all_the_time(&stop) => match never {},
        };
        self.finish(done, stop.is_cancelled()).await
    }

    async fn note_all_the_time(&self, stop: &CancellationToken) -> std::convert::Infallible {
        let (mut phase, mut last_line) = (None, clock::instant());
        loop {
            let figures = self.progress.figures();
            if phase != Some(figures.phase) || last_line.elapsed() >= LINE_EVERY {
                (phase, last_line) = (Some(figures.phase), clock::instant());
                self.log.line(&figures_line(&figures));
            }
            match self.store.note_progress(self.id, json(&figures)).await {
                Ok(true) => {}
                // Somebody has ended the row, so nobody wants this any more.
                Ok(false) => stop.cancel(),
                Err(error) => {
                    let text = Failure::chain(&error);
                    self.log.line(&format!("progress is not noted: {text}"));
                }
            }
            tokio::time::sleep(NOTE_EVERY).await;
        }
    }

    async fn finish(
        &self,
        done: Result<SyncReport, Failure>,
        was_stopped: bool,
    ) -> Result<(), WorkError> {
        let end = match done {
            Ok(report) => {
                self.progress.enter(Phase::Complete);
                for problem in &report.problems {
                    self.log
                        .line(&format!("{}: {}", problem.path, problem.problem));
                }
                TransferEnd {
                    status: TransferStatus::Completed,
                    result: serde_json::to_string(&report).ok(),
                    ..TransferEnd::cancelled()
                }
            }
            Err(failure) if was_stopped || failure.code == Code::Cancelled => {
                self.progress.enter(Phase::Cancelled);
                TransferEnd::cancelled()
            }
            Err(failure) => {
                let failure = failure.masked(self.log.mask());
                self.progress.enter(Phase::Failed);
                self.log.last_line(&format!("failed: {}", failure.message));
                TransferEnd::failed(&failure)
            }
        };
        let figures = self.progress.figures();
        self.log.last_line(&figures_line(&figures));
        let end = TransferEnd {
            progress: Some(json(&figures)),
            ..end
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.store.finish_transfer(self.id, end.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) if attempt >= MOST_ATTEMPTS => return Err(error.into()),
                // A full disk may have room again before long.
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

fn json(figures: &Figures) -> String {
    serde_json::to_string(figures).unwrap_or_else(|_| "null".to_owned())
}

fn figures_line(figures: &Figures) -> String {
    let phase = serde_json::to_value(figures.phase).unwrap_or_default();
    let mut line = format!(
        "{}: {} of {} files, {} of {} bytes, {} bytes/s",
        phase.as_str().unwrap_or_default(),
        figures.files_done,
        figures.files_total,
        figures.bytes_done,
        figures.bytes_total,
        figures.rate_bytes_s
    );
    if let Some(path) = &figures.current_path {
        line.push_str(", at ");
        line.push_str(path);
    }
    line
}
