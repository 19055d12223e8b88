//! The service of this system as what keeps the watchdog running.

use async_trait::async_trait;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::service::ServiceStatus;
use serde::Serialize;
use serde_json::Value;

use super::keeper::{Keeper, is_watchdog_alive};
use crate::service::{Heartbeat, Service};
use crate::store::Store;

/// Has the service manager of this system, or a process of its own, keep the watchdog running.
#[derive(Debug)]
pub struct ServiceKeeper(Service);

impl ServiceKeeper {
    /// A keeper by this service.
    pub fn new(service: Service) -> Self {
        ServiceKeeper(service)
    }
}

/// The lease of the watchdog, which it renews while it lives.
struct Lease<'a>(&'a Store);

#[async_trait]
impl Heartbeat for Lease<'_> {
    async fn is_fresh(&self) -> bool {
        is_watchdog_alive(self.0).await
    }
}

#[async_trait]
impl Keeper for ServiceKeeper {
    async fn ensure(&self, store: &Store) -> Result<Option<String>, Failure> {
        let ensured = self.0.ensure(&Lease(store)).await?;
        Ok(ensured.warning().map(str::to_owned))
    }

    async fn bring_back(&self, store: &Store, has_watches: bool) -> Result<(), Failure> {
        let lease = Lease(store);
        self.0.restart_when_needed(has_watches, &lease).await?;
        Ok(())
    }

    async fn install(&self, start_now: bool) -> Result<Value, Failure> {
        json(&self.0.install(start_now).await?)
    }

    async fn uninstall(&self) -> Result<Value, Failure> {
        json(&self.0.uninstall().await?)
    }

    async fn status(&self) -> Result<ServiceStatus, Failure> {
        Ok(self.0.status().await?)
    }
}

fn json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new(Code::Internal, error.to_string()))
}
