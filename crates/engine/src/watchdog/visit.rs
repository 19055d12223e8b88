//! One visit to a host: all its due watches, in as few round trips as they fit in.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{JobState, Phase, WatchInput};

use super::looking::{Glimpse, look_at_all};
use super::noting::{Decided, missed_look};
use super::rest::Rest;
use super::{Held, HostKey, Made, Watchdog, locked};
use crate::clock;
use crate::job;
use crate::sandbox::Sandbox;
use crate::store::{Store, WatchId, WatchedTask};

/// Most tasks that one script looks at: what it says must fit into what is kept of an answer.
const MOST_LOOKS: usize = 200;

/// How long one visit may take for each script; what is cut off is found at the next one.
const VISIT_LIMIT: Duration = Duration::from_secs(180);

/// Resumes that are carried out on one host at the same time.
const MOST_RESUMES: usize = 4;

impl Watchdog {
    /// Looks at tasks of one host and does what follows.
    pub(super) async fn visit(&self, held: &Held, key: &HostKey, ids: Vec<WatchId>) {
        let is_doubtful = locked(&self.doubtful)
            .get(key)
            .is_some_and(Rest::is_failing);
        let lane = if is_doubtful {
            &self.doubtful_visits
        } else {
            &self.visits
        };
        let Ok(_permit) = lane.acquire().await else {
            return;
        };
        let mut failed: Option<Failure> = None;
        for ids in ids.chunks(MOST_LOOKS) {
            if held.over.is_cancelled() {
                return;
            }
            let part = self.visit_part(held, key, ids.to_vec(), &mut failed);
            if tokio::time::timeout(VISIT_LIMIT, part).await.is_err() {
                tracing::warn!(sandbox = key.sandbox, "a visit took too long");
            }
        }
        let mut doubtful = locked(&self.doubtful);
        let now = clock::instant();
        if failed.is_some() {
            doubtful.entry(key.clone()).or_default().failed(now);
        } else if doubtful.get_mut(key).is_some_and(|rest| rest.answered(now)) {
            doubtful.remove(key);
        }
    }

    async fn visit_part(
        &self,
        held: &Held,
        key: &HostKey,
        ids: Vec<WatchId>,
        failed: &mut Option<Failure>,
    ) {
        let tasks = match self.store().watched_tasks(ids).await {
            Ok(tasks) => tasks,
            Err(error) => return held.note(&error),
        };
        let sandbox = match self.sandbox(key).await {
            Ok(sandbox) => sandbox,
            Err(failure) => {
                // A keychain that is closed for a while is not a sandbox that nobody knows.
                let input = match missed_look(&failure) {
                    WatchInput::NotLooked => WatchInput::NotLooked,
                    _ => WatchInput::ConfigMissing,
                };
                return self.note_failure(held, &tasks, &input, &failure).await;
            }
        };
        if let Some(failure) = failed {
            // One failed connection speaks for all tasks of the host.
            let input = WatchInput::Unreachable;
            return self.note_failure(held, &tasks, &input, failure).await;
        }
        let store = self.store();
        let (unfinished, tasks): (Vec<_>, Vec<_>) = tasks
            .into_iter()
            .partition(|task| is_unfinished(store, task));
        match look_at_all(store, sandbox.as_ref(), self.engine.mask(), &tasks).await {
            Ok(seen) => self.follow(held, &sandbox, tasks, seen).await,
            Err(failure) => {
                let input = missed_look(&failure);
                self.note_failure(held, &tasks, &input, &failure).await;
                if !tasks.is_empty() {
                    self.note_failure(held, &unfinished, &input, &failure).await;
                    *failed = Some(failure);
                    return;
                }
            }
        }
        if let Some(failure) = self.finish(held, &sandbox, &unfinished).await {
            *failed = Some(failure);
        }
    }

    /// Carries out resumes that somebody left unfinished. A host that cannot be asked for one of them is not asked for
    /// the rest; gives why.
    async fn finish(
        &self,
        held: &Held,
        sandbox: &Arc<dyn Sandbox>,
        unfinished: &[WatchedTask],
    ) -> Option<Failure> {
        let mut failed = None;
        for some in unfinished.chunks(MOST_RESUMES) {
            if let Some(failure) = &failed {
                let input = WatchInput::Unreachable;
                self.note_failure(held, some, &input, failure).await;
                continue;
            }
            let resumes = some.iter().filter_map(|task| {
                let job = task.job.clone()?;
                Some(self.resume(held, sandbox, task.watch.id, job))
            });
            let failures = futures::future::join_all(resumes).await;
            failed = failures.into_iter().flatten().find(speaks_for_host);
        }
        failed
    }

    /// Writes down what follows from what was seen, then resumes what is to be resumed.
    async fn follow(
        &self,
        held: &Held,
        sandbox: &Arc<dyn Sandbox>,
        tasks: Vec<WatchedTask>,
        seen: Vec<Result<Glimpse, Failure>>,
    ) {
        let now = clock::wall().as_secs();
        let decided: Vec<Decided> = tasks
            .iter()
            .zip(&seen)
            .map(|(task, seen)| self.decide(task, seen, now))
            .collect();
        let resumes = self.write(held, &tasks, decided).await;
        let resumes = resumes
            .into_iter()
            .map(|(watch, job)| self.resume(held, sandbox, watch, job));
        run_some(resumes).await;
    }

    /// Writes down that the tasks of a host could not be looked at.
    pub(super) async fn note_failure(
        &self,
        held: &Held,
        tasks: &[WatchedTask],
        input: &WatchInput,
        failure: &Failure,
    ) {
        let now = clock::wall().as_secs();
        let decided = tasks
            .iter()
            .map(|task| self.decide_on_failure(task, input, failure, now))
            .collect();
        self.write(held, tasks, decided).await;
    }

    /// The sandbox of a host: of its kept entry, else as our own configuration has it.
    pub(super) async fn sandbox(&self, key: &HostKey) -> Result<Arc<dyn Sandbox>, Failure> {
        let Some(entry) = &key.entry else {
            return self.engine.masked_sandbox(&key.sandbox).await;
        };
        if let Some(made) = locked(&self.made).get_mut(entry) {
            made.used = clock::instant();
            return Ok(made.sandbox.clone());
        }
        match self.engine.sandbox_of_entry(entry).await {
            Ok(sandbox) if sandbox.description().local.is_some() => Ok(sandbox),
            Ok(sandbox) => {
                let made = Made {
                    sandbox: sandbox.clone(),
                    used: clock::instant(),
                };
                locked(&self.made).insert(entry.clone(), made);
                Ok(sandbox)
            }
            // The same name may mean another host in our own configuration.
            Err(failure) if self.engine.kept_key(&key.sandbox).as_ref() != Some(entry) => {
                Err(failure)
            }
            Err(failure) => {
                let own = self.engine.masked_sandbox(&key.sandbox).await;
                own.map_err(|_| failure)
            }
        }
    }
}

/// Whether a resume was decided and written down by somebody who is not about to carry it out any more: it is sent
/// again, and the host carries out one of the sendings.
fn is_unfinished(store: &Store, task: &WatchedTask) -> bool {
    task.watch.history.phase == Phase::Resuming
        && task.job.as_ref().is_some_and(|job| {
            job.attempt.state == JobState::Starting && job::is_abandoned(store, job)
        })
}

/// Whether a failure is that of the host, and not only of one task there.
fn speaks_for_host(failure: &Failure) -> bool {
    !matches!(
        failure.code,
        Code::Busy | Code::RemoteRefused | Code::Internal
    )
}

async fn run_some(work: impl Iterator<Item = impl Future<Output = Option<Failure>>>) {
    let work = futures::stream::iter(work);
    work.buffer_unordered(MOST_RESUMES)
        .for_each(|_| async {})
        .await;
}

#[cfg(test)]
#[path = "visit_tests.rs"]
mod tests;
