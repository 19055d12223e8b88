//! Forgets jobs that are over, here and on their hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::{JobId, MOST_PRUNED, parse_prune, prune_script};

use super::job_place::place_of;
use super::{Engine, forget_old_watches};
use crate::call::CallContext;
use crate::clock;
use crate::mark::new_mark;
use crate::sandbox::Sandbox;
use crate::store::{JobRow, Store};

/// How long removing may take.
const PRUNE_LIMIT: Duration = Duration::from_secs(30);

/// How long a job that is over can be asked for.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long what cannot be removed from its host is kept here.
const KEPT_AT_MOST: Duration = Duration::from_secs(180 * 24 * 3600);

/// What was forgotten and what was not.
#[derive(Debug, Default)]
pub struct PruneReport {
    /// Jobs of which nothing is left but the log.
    pub forgotten: Vec<JobId>,
    /// Jobs that stay because their host could not be asked, or is another one than the name means here.
    pub failed: Vec<Unpruned>,
    /// How many stay because a watch still has something to tell or to do about them.
    pub held: u64,
}

/// Jobs of one host that stay.
#[derive(Debug)]
pub struct Unpruned {
    /// The name of their sandbox.
    pub sandbox: String,
    /// How many they are.
    pub count: usize,
    /// Why they stay.
    pub failure: Failure,
}

/// What tells apart the hosts that jobs of one sandbox name were started on: the place that was written down then, and
/// the kept entry of their watch.
type Origin = (String, Option<String>, Option<String>);

impl Engine {
    /// Forgets the jobs of this principal that were over at least so long ago. Their logs stay.
    pub async fn prune_jobs(
        &self,
        context: &CallContext,
        sandbox: Option<&str>,
        age: Duration,
    ) -> Result<PruneReport, Failure> {
        let before = clock::wall().saturating_sub(age);
        let principal = Some(context.principal.as_str());
        let rows = self
            .store()
            .old_jobs(principal, sandbox, before, MOST_PRUNED);
        let mut by_origin: BTreeMap<Origin, Vec<JobRow>> = BTreeMap::new();
        for row in rows.await? {
            let origin = origin(self.store(), &row).await?;
            by_origin.entry(origin).or_default().push(row);
        }
        let held = self
            .store()
            .held_jobs(context.principal.as_str(), sandbox, before);
        let mut report = PruneReport {
            held: held.await?,
            ..PruneReport::default()
        };
        for ((name, ..), rows) in by_origin {
            match self.prune_of_origin(&rows).await {
                Ok(gone) => report.forgotten.extend(gone),
                Err(failure) => report.failed.push(Unpruned {
                    sandbox: name,
                    count: rows.len(),
                    failure: failure.masked(&self.mask),
                }),
            }
        }
        forget_old_watches(self.store(), &self.events_folder()).await?;
        Ok(report)
    }

    /// Forgets jobs that were started on the same host; where the first of them is, the others are.
    async fn prune_of_origin(&self, rows: &[JobRow]) -> Result<Vec<JobId>, Failure> {
        let Some(first) = rows.first() else {
            return Ok(Vec::new());
        };
        let sandbox = self.sandbox_of_job(first).await?;
        prune(self.store(), sandbox.as_ref(), rows).await
    }

    /// Forgets in the background what was over long ago; it is no matter when that fails.
    pub(super) fn forget_old_jobs(&self, sandbox: std::sync::Arc<dyn Sandbox>) {
        let store = self.store().clone();
        let events = self.events_folder();
        let name = sandbox.description().name.to_string();
        let (place, entry) = (self.place(&name), self.kept_key(&name));
        tokio::spawn(async move {
            let now = clock::wall();
            let _ = forget_old_watches(&store, &events).await;
            let before = now.saturating_sub(KEPT_FOR);
            let rows = store.old_jobs(None, Some(&name), before, MOST_PRUNED);
            let mut here = Vec::new();
            for row in rows.await.unwrap_or_default() {
                // A host that never had a job says that nothing is left of it.
                match origin(&store, &row).await {
                    Ok((_, Some(then), _)) if Some(&then) == place.as_ref() => here.push(row),
                    Ok((_, None, then)) if then.is_none() || then == entry => here.push(row),
                    _ => {}
                }
            }
            if !here.is_empty() {
                let _ = prune(&store, sandbox.as_ref(), &here).await;
            }
            let before = now.saturating_sub(KEPT_AT_MOST);
            for row in store
                .old_jobs(None, None, before, MOST_PRUNED)
                .await
                .unwrap_or_default()
            {
                let _ = store.forget_job(&row.id).await;
            }
        });
    }
}

/// Where a job was started, as far as that is written down.
async fn origin(store: &Store, row: &JobRow) -> Result<Origin, Failure> {
    let watch = match row.watch_id {
        Some(watch) => store.watch(watch, &row.principal).await?,
        None => None,
    };
    let entry = watch.and_then(|watch| watch.entry);
    Ok((row.sandbox.clone(), place_of(row), entry))
}

/// Removes what is left of jobs on their host, then here.
async fn prune(
    store: &Store,
    sandbox: &dyn Sandbox,
    rows: &[JobRow],
) -> Result<Vec<JobId>, Failure> {
    let mark = new_mark();
    let jobs: Vec<JobId> = rows.iter().map(|row| row.id.clone()).collect();
    let answer = sandbox.ask(prune_script(&jobs, &mark), PRUNE_LIMIT).await?;
    let mut gone = parse_prune(&mark, &answer);
    // Only what was asked for: the answer is a host's.
    gone.retain(|job| jobs.contains(job));
    for job in &gone {
        store.forget_job(job).await?;
    }
    Ok(gone)
}
