//! All runs of this server, and the way back to those of earlier ones.

use std::collections::HashMap;
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::{RunId, RunToken};
use remote_sandbox_core::outcome::{Outcome, StopReason};
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::shell::RunSpec;
use tokio::time::Instant;

use super::follow::Tap;
use super::live::{Birth, Finished, Run};
use super::record::{RunRecord, hold_life_mark, owner_lives};
use super::spool::Spool;
use crate::audit::{Audit, EndRow};
use crate::call::Principal;
use crate::clock;
use crate::fsio;
use crate::mark::new_mark;
use crate::sandbox::{Ended, Order, Sandbox, Sink};

/// Most runs that may go on at the same time.
const MOST_LIVE: usize = 256;

/// Ended runs that stay in memory for readers.
const MOST_REMEMBERED: usize = 64;

/// Runs that stay on disk.
const MOST_ON_DISK: usize = 200;

/// Bytes that runs may take on disk.
const MOST_BYTES_ON_DISK: u64 = 2 << 30;

/// A command to be started for somebody.
#[derive(Debug)]
pub struct RunOrder {
    /// For whom.
    pub principal: Principal,
    /// What to run.
    pub spec: RunSpec,
    /// When it is ended at the latest, from now.
    pub timeout: Duration,
    /// How many bytes of each stream a reply may show.
    pub shown_bytes: usize,
    /// Who sees its output while it comes.
    pub tap: Option<Tap>,
}

/// All runs.
#[derive(Debug)]
pub struct Registry {
    folder: PathBuf,
    mask: Mask,
    audit: Arc<Audit>,
    runs: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    runs: HashMap<RunId, Arc<Run>>,
    /// Runs that were handed over to their caller by name, with their mark of life.
    handed_over: HashMap<RunId, Option<File>>,
    /// Set when the server goes down; nothing starts any more then.
    closing: bool,
}

impl Registry {
    /// A registry that keeps what it must in the state folder.
    pub fn new(state: &Path, mask: Mask, audit: Arc<Audit>) -> Self {
        Registry {
            folder: state.join("runs"),
            mask,
            audit,
            runs: Mutex::new(Known::default()),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder_of(&self, id: &RunId) -> PathBuf {
        self.folder.join(id.as_str())
    }

    /// An id and a token for a run that is about to start.
    pub fn new_names() -> (RunId, RunToken) {
        let id = RunId::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes());
        (id, new_mark())
    }

    /// Starts a run; it goes on by itself from here.
    pub fn start(
        self: &Arc<Self>,
        (id, token): (RunId, RunToken),
        order: RunOrder,
        sandbox: Arc<dyn Sandbox>,
    ) -> Result<Arc<Run>, Failure> {
        let deadline = clock::instant() + order.timeout;
        let run = Run::new(Birth {
            folder: self.folder_of(&id),
            id: id.clone(),
            token: token.clone(),
            sandbox: sandbox.description().name.clone(),
            principal: order.principal,
            command: order.spec.command().to_owned(),
            shown_bytes: order.shown_bytes,
            mask: self.mask.clone(),
            tap: order.tap.map(|tap| (tap, deadline)),
        });
        self.admit(&run)?;
        let order = Order {
            spec: order.spec,
            token,
            deadline,
            timeout: order.timeout,
            stop: run.stop_signal(),
        };
        let listener = run.clone();
        let sink: Sink = Arc::new(move |event| listener.take(event));
        let (registry, running) = (self.clone(), run.clone());
        tokio::spawn(async move {
            let work = AssertUnwindSafe(sandbox.run(order, sink)).catch_unwind();
            let result = work.await.unwrap_or_else(|_| {
                Err(Failure::new(
                    Code::Internal,
                    format!("the run `{}` broke this program", running.id),
                ))
            });
            let finished = Finished {
                result: registry.masked(result),
                duration: running.elapsed(),
            };
            // The row comes before anybody can be told of the end.
            registry.note_end(&running, &finished);
            running.finish(finished);
            registry.write_down_if_handed_over(running.clone()).await;
            running.settled();
        });
        Ok(run)
    }

    fn admit(&self, run: &Arc<Run>) -> Result<(), Failure> {
        let mut known = self.known();
        if known.closing {
            return Err(Failure::new(Code::Cancelled, "the server is going down"));
        }
        known.forget_oldest();
        if known
            .runs
            .values()
            .filter(|run| run.finished().is_none())
            .count()
            >= MOST_LIVE
        {
            let text = format!("{MOST_LIVE} commands are running already");
            return Err(Failure::new(Code::Busy, text)
                .hint("wait for one to end, or stop one")
                .retry());
        }
        known.runs.insert(run.id.clone(), run.clone());
        Ok(())
    }

    fn note_end(&self, run: &Run, finished: &Finished) {
        let (outcome, exit_code) = match &finished.result {
            Ok(ended) => (ended.outcome.word(), ended.outcome.exit_code()),
            Err(failure) => (failure.code.name(), None),
        };
        let row = EndRow {
            run: run.id.as_str(),
            sandbox: run.sandbox.as_str(),
            outcome,
            exit_code,
            duration_s: finished.duration.as_secs_f64(),
        };
        if let Err(error) = self.audit.end(&row) {
            tracing::error!(%error, "the end of a run could not be recorded");
        }
    }

    /// The words of a host go into errors too, and a host may repeat a secret.
    fn masked(&self, result: Result<Ended, Failure>) -> Result<Ended, Failure> {
        match result {
            Ok(mut ended) => {
                let hide = |text: String| self.mask.mask_text(&text).into_owned();
                ended.detail = ended.detail.map(hide);
                Ok(ended)
            }
            Err(failure) => Err(failure.masked(&self.mask)),
        }
    }

    async fn write_down_if_handed_over(self: &Arc<Self>, run: Arc<Run>) {
        if !self.known().handed_over.contains_key(&run.id) {
            return;
        }
        let registry = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            registry.write_down(&run);
            registry.known().handed_over.insert(run.id.clone(), None);
        });
        if let Err(error) = writing.await {
            tracing::error!(%error, "a run could not be written down");
        }
    }

    /// Writes a run down, because its caller has its name now.
    pub async fn hand_over(self: &Arc<Self>, run: &Arc<Run>) {
        {
            let mut known = self.known();
            if known.handed_over.contains_key(&run.id) {
                return;
            }
            known.handed_over.insert(run.id.clone(), None);
        }
        let (registry, run) = (self.clone(), run.clone());
        let writing = tokio::task::spawn_blocking(move || {
            registry.write_down(&run);
            if run.finished().is_none() {
                let mark = hold_life_mark(&registry.folder_of(&run.id));
                registry.known().handed_over.insert(run.id.clone(), mark);
            }
            // It may have ended while it was written down as running.
            if run.finished().is_some() {
                registry.write_down(&run);
                registry.known().handed_over.insert(run.id.clone(), None);
            }
            registry.prune();
        });
        if let Err(error) = writing.await {
            tracing::error!(%error, "a run could not be written down");
        }
    }

    fn write_down(&self, run: &Run) {
        let folder = self.folder_of(&run.id);
        let saved = run
            .settle()
            .map_err(|error| error.to_string())
            .and_then(|sizes| {
                record_of(run, sizes)
                    .save(&folder)
                    .map_err(|error| error.to_string())
            });
        if let Err(error) = saved {
            tracing::warn!(%error, run = run.id.as_str(), "a run could not be written down");
        }
    }

    /// Lets go of a run whose caller has seen all of it.
    pub fn forget(&self, run: &Run) {
        self.known().runs.remove(&run.id);
        if run.is_on_disk() {
            self.remove(&self.folder_of(&run.id));
        }
    }

    fn remove(&self, folder: &Path) {
        if let Err(error) = fsio::remove_directory(folder) {
            tracing::warn!(%error, "what is left of a run could not be removed");
        }
    }

    /// A run of this server.
    pub fn find(&self, principal: &Principal, id: &RunId) -> Option<Arc<Run>> {
        self.known()
            .runs
            .get(id)
            .filter(|run| run.principal == *principal)
            .cloned()
    }

    /// A run of an earlier or another server, with its output and whether its server still lives.
    pub fn recall(&self, principal: &Principal, id: &RunId) -> Option<(RunRecord, Spool, bool)> {
        let record = match RunRecord::load(&self.folder, id) {
            Ok(record) => record?,
            Err(error) => {
                tracing::warn!(%error, "a record of a run could not be read");
                return None;
            }
        };
        if record.principal != principal.as_str() {
            return None;
        }
        let folder = self.folder_of(id);
        let spool = if record.outcome == RunRecord::RUNNING {
            Spool::reopen_unfinished(&folder)
        } else {
            Spool::reopen(&folder, record.kept_bytes, record.total_bytes)
        };
        let spool = spool.ok()?;
        let lives = owner_lives(&folder);
        Some((record, spool, lives))
    }

    /// What is written down about runs of all servers, and whether the server of each still lives.
    pub fn records(&self) -> Vec<(RunRecord, bool)> {
        let recorded = |name: &String| {
            let id = RunId::parse(name).ok()?;
            let record = RunRecord::load(&self.folder, &id).ok()??;
            Some((record, owner_lives(&self.folder_of(&id))))
        };
        self.names_on_disk().iter().filter_map(recorded).collect()
    }

    /// Ends everything that still goes on and waits for it, but not longer than `limit`.
    pub async fn shut_down(&self, limit: Duration) {
        let live: Vec<Arc<Run>> = {
            let mut known = self.known();
            known.closing = true;
            let runs = known.runs.values();
            runs.filter(|run| run.finished().is_none())
                .cloned()
                .collect()
        };
        for run in &live {
            run.stop(StopReason::Shutdown);
        }
        let until: Instant = clock::instant() + limit;
        futures::future::join_all(live.iter().map(|run| run.wait_until_settled(until))).await;
    }

    /// Removes what is left of the oldest runs; ids sort by age.
    pub fn prune(&self) {
        let names = self.names_on_disk();
        let (mut kept, mut bytes) = (0, 0);
        for name in names.iter().rev() {
            let folder = self.folder.join(name);
            kept += 1;
            bytes += fsio::bytes_in(&folder);
            if (kept > MOST_ON_DISK || bytes > MOST_BYTES_ON_DISK) && !owner_lives(&folder) {
                self.remove(&folder);
            }
        }
    }

    fn names_on_disk(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let mut names: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| RunId::parse(name).is_ok())
            .collect();
        names.sort_unstable();
        names
    }
}

impl Known {
    /// Memory is for the living and the newest of the ended.
    fn forget_oldest(&mut self) {
        let mut ended: Vec<RunId> = self
            .runs
            .values()
            .filter(|run| run.finished().is_some())
            .map(|run| run.id.clone())
            .collect();
        if ended.len() > MOST_REMEMBERED {
            ended.sort_unstable();
            for id in ended.iter().take(ended.len() - MOST_REMEMBERED) {
                self.runs.remove(id);
                self.handed_over.remove(id);
            }
        }
    }
}

fn record_of(run: &Run, (kept_bytes, total_bytes): (u64, u64)) -> RunRecord {
    let finished: Option<Finished> = run.finished();
    let outcome = finished.as_ref().map(|finished| &finished.result);
    let (word, exit_code, signal) = match outcome {
        None => (RunRecord::RUNNING, None, None),
        Some(Err(failure)) => (failure.code.name(), None, None),
        Some(Ok(ended)) => {
            let signal = match &ended.outcome {
                Outcome::Signalled(name) => Some(name.clone()),
                _ => None,
            };
            (ended.outcome.word(), ended.outcome.exit_code(), signal)
        }
    };
    RunRecord {
        id: run.id.to_string(),
        principal: run.principal.as_str().to_owned(),
        sandbox: run.sandbox.to_string(),
        command: RunRecord::cut_command(&run.command),
        token: run.token.to_string(),
        started_at_s: run.started_at.as_secs_f64(),
        outcome: word.to_owned(),
        exit_code,
        signal,
        duration_s: finished.map(|finished| finished.duration.as_secs_f64()),
        kept_bytes,
        total_bytes,
    }
}
