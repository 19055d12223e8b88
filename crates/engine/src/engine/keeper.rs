//! What keeps the watchdog running, as the engine sees it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::Platform;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::service::{ServiceKind, ServiceStatus};
use serde_json::Value;

use super::Engine;
use crate::clock;
use crate::store::{LeaseRow, Store};
use crate::transfer::process::is_alive;
use crate::watchdog::LEASE;

/// How long a start waits until it is known whether the watchdog runs; finding out goes on after that.
const ENSURE_LIMIT: Duration = Duration::from_secs(5);

/// A watchdog that has not shown itself for so long is gone.
pub(super) const STALE_AFTER: Duration = Duration::from_secs(30);

/// What keeps the watchdog running.
#[async_trait]
pub trait Keeper: Send + Sync {
    /// Makes sure that the watchdog runs; gives what should be told beside a success.
    async fn ensure(&self, store: &Store) -> Result<Option<String>, Failure>;

    /// Brings a service back that was set up and does not run, when there is something to watch.
    async fn bring_back(&self, store: &Store, has_watches: bool) -> Result<(), Failure>;

    /// Sets the service up.
    async fn install(&self, start_now: bool) -> Result<Value, Failure>;

    /// Takes the service away.
    async fn uninstall(&self) -> Result<Value, Failure>;

    /// How it is.
    async fn status(&self) -> Result<ServiceStatus, Failure>;
}

/// Where nobody keeps it running.
pub(super) struct NoKeeper;

#[async_trait]
impl Keeper for NoKeeper {
    async fn ensure(&self, store: &Store) -> Result<Option<String>, Failure> {
        let is_there = is_watchdog_alive(store).await;
        Ok((!is_there).then(|| {
            "no watchdog runs, so nobody looks after this task; `remote-sandbox-mcp watchdog run` is one".to_owned()
        }))
    }

    async fn bring_back(&self, _: &Store, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    async fn install(&self, _: bool) -> Result<Value, Failure> {
        Err(unsupported())
    }

    async fn uninstall(&self) -> Result<Value, Failure> {
        Err(unsupported())
    }

    async fn status(&self) -> Result<ServiceStatus, Failure> {
        let platform = Platform::current();
        Ok(ServiceStatus::absent(platform, ServiceKind::Detached))
    }
}

fn unsupported() -> Failure {
    Failure::new(
        Code::Unsupported,
        "nothing here can keep the watchdog running",
    )
    .hint("keep `remote-sandbox-mcp watchdog run` running yourself")
}

/// Whether a watchdog has lately shown itself in the store and its process lives.
pub async fn is_watchdog_alive(store: &Store) -> bool {
    match store.lease(LEASE).await {
        Ok(Some(lease)) => is_fresh(&lease),
        Ok(None) | Err(_) => false,
    }
}

pub(super) fn is_fresh(lease: &LeaseRow) -> bool {
    let age = clock::wall().saturating_sub(lease.renewed);
    let lives = lease.process.as_ref().is_none_or(is_alive);
    lease.holder.is_some() && age <= STALE_AFTER && lives
}

impl Engine {
    /// The same with something that keeps the watchdog running.
    #[must_use]
    pub fn with_keeper(mut self, keeper: Arc<dyn Keeper>) -> Self {
        self.keeper = keeper;
        self
    }

    /// Makes sure that the watchdog runs; what the caller should know about it when it does not.
    pub(super) async fn ensure_watchdog(&self, is_wanted: bool) -> Option<String> {
        if !is_wanted || !self.settings.watchdog {
            return None;
        }
        let (keeper, store) = (self.keeper.clone(), self.store().clone());
        let ensuring = tokio::spawn(async move { keeper.ensure(&store).await });
        match tokio::time::timeout(ENSURE_LIMIT, ensuring).await {
            Ok(Ok(Ok(warning))) => warning,
            Ok(Ok(Err(failure))) => Some(failure.masked(&self.mask).message),
            Ok(Err(_)) => Some("looking for the watchdog broke off".to_owned()),
            Err(_) => Some(
                "the watchdog is still being started; `remote-sandbox-mcp watchdog status` shows whether it runs"
                    .to_owned(),
            ),
        }
    }

    /// What a server does when it starts: brings the watchdog back where it was set up and is gone, as after a restart
    /// of the machine.
    pub async fn bring_watchdog_back(&self) {
        // A server that was only started leaves nothing behind.
        if !self.settings.watchdog || !self.state.join("store.sqlite3").exists() {
            return;
        }
        let counts = self.store().watch_counts(None).await;
        let has_watches =
            counts.is_ok_and(|counts| counts.active > 0 || counts.pending_deliveries > 0);
        if let Err(failure) = self.keeper.bring_back(self.store(), has_watches).await {
            tracing::warn!("the watchdog does not come back: {}", failure.message);
        }
    }
}
