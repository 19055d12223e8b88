//! Makes sure that the watchdog runs: a look in the usual case, a start when it does not.

use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::service::CopyName;

use super::{InstallReport, Service, ServiceError, Start, VERSION};
use crate::clock;

/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A watchdog that runs says so at least this often, also after the machine slept.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a watchdog may take to say for the first time that it lives.
const FIRST_WORD: Duration = Duration::from_secs(2);

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Whether the watchdog has lately said that it lives.
#[async_trait]
pub trait Heartbeat: Send + Sync {
    /// Looks once, quickly; what cannot be read is not fresh.
    async fn is_fresh(&self) -> bool;
}

/// Where nobody listens.
pub(super) struct Never;

#[async_trait]
impl Heartbeat for Never {
    async fn is_fresh(&self) -> bool {
        false
    }
}

/// How the watchdog was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensured {
    /// It ran.
    Alive,
    /// It was set up or started.
    Started(InstallReport),
}

impl Ensured {
    /// What should be told beside a success.
    pub fn warning(&self) -> Option<&str> {
        match self {
            Ensured::Alive => None,
            Ensured::Started(report) => report.warning.as_deref(),
        }
    }
}

impl Service {
    /// Makes sure that the watchdog runs and is not of an older version than this program. In the usual case that is one
    /// look at its heartbeat; of several that call at once, one starts it.
    pub async fn ensure(&self, heartbeat: &dyn Heartbeat) -> Result<Ensured, ServiceError> {
        if self.is_well(heartbeat).await {
            return Ok(Ensured::Alive);
        }
        let ensured = tokio::time::timeout(LIMIT, self.start_if_needed(heartbeat)).await;
        ensured.unwrap_or(Err(ServiceError::TooSlow(LIMIT)))
    }

    /// What a server does when it starts: brings a service back that was set up and does not run, as after a restart of
    /// the machine, when there is something to watch. One that somebody has taken away is not set up again.
    pub async fn restart_when_needed(
        &self,
        active_watches: bool,
        heartbeat: &dyn Heartbeat,
    ) -> Result<Option<Ensured>, ServiceError> {
        if !active_watches || self.definitions().is_empty() {
            return Ok(None);
        }
        self.ensure(heartbeat).await.map(Some)
    }

    async fn is_well(&self, heartbeat: &dyn Heartbeat) -> bool {
        heartbeat.is_fresh().await && !self.is_outdated()
    }

    /// Whether what was set up runs an older version; of two versions in use the newer one wins, so that they do not
    /// take turns.
    fn is_outdated(&self) -> bool {
        let definitions = self.definitions();
        let copy = definitions
            .first()
            .and_then(|text| CopyName::named_in(text));
        copy.is_some_and(|copy| copy.is_older_than(VERSION))
    }

    async fn start_if_needed(&self, heartbeat: &dyn Heartbeat) -> Result<Ensured, ServiceError> {
        let _lock = self.lock().await?;
        // Whoever had the lock may have started it.
        if self.is_well(heartbeat).await {
            return Ok(Ensured::Alive);
        }
        let mut start = Start::IfNeeded;
        if !self.is_outdated() && self.status().await?.running {
            if is_fresh_within(heartbeat, PATIENCE).await {
                return Ok(Ensured::Alive);
            }
            start = Start::Afresh;
        }
        let report = self.set_up(start, heartbeat, FIRST_WORD).await?;
        Ok(Ensured::Started(report))
    }
}

async fn is_fresh_within(heartbeat: &dyn Heartbeat, limit: Duration) -> bool {
    let end = clock::instant() + limit;
    loop {
        if heartbeat.is_fresh().await {
            return true;
        }
        if clock::instant() >= end {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
}
