//! The rounds: which hosts are visited when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::package::NextLook;
use super::{Held, HostKey, Watchdog, WatchdogError, locked};
use crate::clock;
use crate::engine::{WATCHES_KEPT_FOR, forget_old_watches};
use crate::service::keep_log_short;
use crate::store::{StoreError, WatchId};

/// Most watches of one round; the rest comes in the next one.
const MOST_DUE: usize = 20_000;

/// How long visits that are under way may take when the process is to end.
const FAREWELL: Duration = Duration::from_secs(3);

/// How often old things are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(3600);

/// How long a sandbox stays made that nobody needs.
const UNUSED_FOR: Duration = Duration::from_secs(3600);

/// The visits that one round began; tells how long they took when the last of them is over.
struct Tick {
    began: Instant,
    watches: usize,
    hosts: usize,
}

impl Drop for Tick {
    fn drop(&mut self) {
        let seconds = clock::instant()
            .saturating_duration_since(self.began)
            .as_secs_f64();
        let (watches, hosts) = (self.watches, self.hosts);
        tracing::info!(watches, hosts, seconds, "tick");
    }
}

impl Watchdog {
    /// Works until it is told to stop; waits for the lease before, and again when it was lost.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), WatchdogError> {
        let mut package = NextLook::At(clock::instant());
        while !stop.is_cancelled() {
            let fence = match self.acquire(&stop).await {
                Ok(Some(fence)) => fence,
                Ok(None) => break,
                Err(error @ WatchdogError::Held(_)) => return Err(error),
                Err(error) if self.options.is_once => return Err(error),
                Err(WatchdogError::Store(error)) => {
                    self.store_failed(&error, &stop).await;
                    continue;
                }
            };
            tracing::info!(fence = fence.number(), "the watchdog works");
            let held = Held {
                fence,
                over: stop.child_token(),
            };
            let keeper = tokio::spawn({
                let (watchdog, held) = (self.clone(), held.clone());
                async move { watchdog.keep(&held).await }
            });
            self.work(&held, &mut package).await;
            held.over.cancel();
            let _ = keeper.await;
            if let Err(error) = self.store().release_lease(&held.fence).await {
                tracing::warn!(%error, "the lease cannot be given back");
            }
            if self.options.is_once {
                break;
            }
        }
        self.let_go().await;
        Ok(())
    }

    async fn store_failed(&self, error: &StoreError, stop: &CancellationToken) {
        let words = remote_sandbox_core::failure::Failure::chain(error);
        tracing::error!("the watchdog cannot use its store: {words}");
        tokio::select! {
            () = tokio::time::sleep(self.options.loop_sleep.max(Duration::from_secs(1))) => {}
            () = stop.cancelled() => {}
        }
    }

    /// Round after round until the lease is over.
    async fn work(self: &Arc<Self>, held: &Held, package: &mut NextLook) {
        self.write_missing_files().await;
        let mut visits = JoinSet::new();
        let deliveries = tokio::spawn({
            let (watchdog, held) = (self.clone(), held.clone());
            async move {
                if !watchdog.options.is_once {
                    watchdog.deliver_all(&held).await;
                }
            }
        });
        let mut forgotten = None;
        loop {
            package.take_over(&self.engine, clock::instant()).await;
            self.round(held, &mut visits).await;
            while let Some(done) = visits.try_join_next() {
                if let Err(error) = done {
                    tracing::error!(%error, "a visit broke off");
                }
            }
            let is_time = forgotten.is_none_or(|at| clock::instant() >= at + FORGET_EVERY);
            if is_time {
                forgotten = Some(clock::instant());
                self.forget().await;
            }
            if self.options.is_once {
                while visits.join_next().await.is_some() {}
                self.deliver_due(held).await;
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(self.options.loop_sleep) => {}
                () = held.over.cancelled() => break,
            }
        }
        held.over.cancel();
        let rest = async { while visits.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL, rest).await;
        // What is cut off here is found by its nonce.
        visits.shutdown().await;
        deliveries.abort();
        let _ = deliveries.await;
    }

    /// Begins visits to all hosts of which a watch is due and that are neither being visited nor left alone.
    async fn round(self: &Arc<Self>, held: &Held, visits: &mut JoinSet<()>) {
        let began = clock::instant();
        let due = match self.store().due_watches(clock::wall(), MOST_DUE).await {
            Ok(due) => due,
            Err(error) => return held.note(&error),
        };
        let mut hosts: BTreeMap<HostKey, Vec<WatchId>> = BTreeMap::new();
        for watch in due {
            let key = HostKey {
                // What is kept has its own name; two of one name are two hosts.
                sandbox: watch.sandbox,
                entry: watch.entry,
            };
            hosts.entry(key).or_default().push(watch.id);
        }
        let now = clock::instant();
        let mut begun = Vec::new();
        for (key, ids) in hosts {
            let rest = locked(&self.doubtful).get(&key).copied();
            let is_left_alone = rest.is_some_and(|rest| rest.goes_on(now));
            let mark = (!is_left_alone).then(|| self.busy.mark(key.clone()));
            if let Some(mark) = mark.flatten() {
                begun.push((key, ids, mark));
            }
        }
        if begun.is_empty() {
            return;
        }
        let tick = Arc::new(Tick {
            began,
            watches: begun.iter().map(|(_, ids, _)| ids.len()).sum(),
            hosts: begun.len(),
        });
        for (key, ids, mark) in begun {
            let (watchdog, held, tick) = (self.clone(), held.clone(), tick.clone());
            visits.spawn(async move {
                let _mark = mark;
                watchdog.visit(&held, &key, ids).await;
                drop(tick);
            });
        }
    }

    /// Forgets what ended long ago; it is no matter when that fails.
    async fn forget(&self) {
        let events = self.engine.events_folder();
        if let Err(error) = forget_old_watches(self.store(), &events).await {
            tracing::warn!(%error, "old watches are not forgotten");
        }
        if let Some(state) = events.parent() {
            let _ = keep_log_short(state);
        }
        let before = clock::wall().saturating_sub(WATCHES_KEPT_FOR);
        if let Ok(unused) = self.store().forget_unused_sandboxes(before).await
            && !unused.is_empty()
        {
            self.engine.forget_kept_secrets(unused).await;
        }
        let unused: Vec<_> = {
            let mut made = locked(&self.made);
            let now = clock::instant();
            let is_unused = |used| now.saturating_duration_since(used) > UNUSED_FOR;
            let keys: Vec<String> = made
                .iter()
                .filter(|(_, one)| is_unused(one.used))
                .map(|(key, _)| key.clone())
                .collect();
            keys.iter().filter_map(|key| made.remove(key)).collect()
        };
        for one in unused {
            one.sandbox.close().await;
        }
    }

    /// Closes all connections.
    async fn let_go(&self) {
        let made = std::mem::take(&mut *locked(&self.made));
        let closing = made.values().map(|one| one.sandbox.close());
        let closing = futures::future::join_all(closing);
        let _ = tokio::time::timeout(Duration::from_millis(300), closing).await;
    }
}
