//! Forgets jobs that are over, here and on their hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::{JobId, MOST_PRUNED, parse_prune, prune_script};

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
    /// Sandboxes that could not be asked, and why; their jobs stay.
    pub failed: Vec<(String, Failure)>,
    /// How many stay because a watch still has something to tell or to do about them.
    pub held: u64,
}

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
        let mut by_sandbox: BTreeMap<String, Vec<JobRow>> = BTreeMap::new();
        for row in rows.await? {
            by_sandbox.entry(row.sandbox.clone()).or_default().push(row);
        }
        let held = self
            .store()
            .held_jobs(context.principal.as_str(), sandbox, before);
        let mut report = PruneReport {
            held: held.await?,
            ..PruneReport::default()
        };
        for (name, rows) in by_sandbox {
            let pruned = match self.sandbox(Some(&name)) {
                Ok(sandbox) => prune(self.store(), sandbox.as_ref(), &rows).await,
                Err(failure) => Err(failure),
            };
            match pruned {
                Ok(gone) => report.forgotten.extend(gone),
                Err(failure) => report.failed.push((name, failure.masked(&self.mask))),
            }
        }
        forget_old_watches(self.store(), &self.events_folder()).await?;
        Ok(report)
    }

    /// Forgets in the background what was over long ago; it is no matter when that fails.
    pub(super) fn forget_old_jobs(&self, sandbox: std::sync::Arc<dyn Sandbox>) {
        let store = self.store().clone();
        let events = self.events_folder();
        tokio::spawn(async move {
            let now = clock::wall();
            let _ = forget_old_watches(&store, &events).await;
            let name = sandbox.description().name.to_string();
            let before = now.saturating_sub(KEPT_FOR);
            let rows = store.old_jobs(None, Some(&name), before, MOST_PRUNED);
            if let Ok(rows) = rows.await
                && !rows.is_empty()
            {
                let _ = prune(&store, sandbox.as_ref(), &rows).await;
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
