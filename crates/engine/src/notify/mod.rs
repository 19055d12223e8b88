//! Tells of events: by webhook, by a command, by services, to the person at this machine, to an agent that is woken.

mod command;
mod error;
mod local;
mod notifiers;
mod post;
mod surroundings;
mod wakeup;
mod webhook;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::config::{Config, Environment, Platform, WatchdogSettings};
use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::watch::{Channel, EventRecord};
use rustls::ClientConfig;
use tokio::sync::{OnceCell, Semaphore};

pub use error::DeliveryError;

use crate::secrets::{SecretKeeper, SecretStore};
use surroundings::Surroundings;

/// How many deliveries are under way at the same time, and how many woken agents.
const PLACES: usize = 8;
pub(crate) const AGENT_PLACES: usize = 4;

/// How long each kind of delivery may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    post: Duration,
    command: Duration,
    agent: Duration,
    local: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            post: Duration::from_secs(15),
            command: Duration::from_secs(300),
            agent: Duration::from_secs(30 * 60),
            local: Duration::from_secs(10),
        }
    }
}

/// All that deliveries need besides the event.
#[derive(Debug)]
pub struct NotifySettings {
    watchdog: WatchdogSettings,
    keeper: SecretKeeper,
    mask: Mask,
    surroundings: Surroundings,
    platform: Platform,
    limits: Limits,
    /// The certificates of the system, read at the first use.
    tls: OnceCell<Arc<ClientConfig>>,
    places: Semaphore,
    command_places: Semaphore,
    agent_places: Semaphore,
}

impl NotifySettings {
    /// The settings of a configuration; `mask` learns every secret that is used.
    pub fn new(
        config: &Config,
        environment: &Environment,
        mask: Mask,
        store: Arc<SecretStore>,
    ) -> Self {
        let secrets: Vec<&str> = config.secrets().collect();
        let keeper = SecretKeeper::new(mask.clone(), environment, secrets.iter().copied(), store);
        let surroundings = Surroundings::new(environment, keeper.hidden());
        NotifySettings {
            watchdog: config.watchdog.clone(),
            keeper,
            mask,
            surroundings,
            platform: Platform::current(),
            limits: Limits::default(),
            tls: OnceCell::new(),
            places: Semaphore::new(PLACES),
            command_places: Semaphore::new(PLACES),
            agent_places: Semaphore::new(AGENT_PLACES),
        }
    }

    /// What the configuration says, which decides to whom an event goes.
    pub fn watchdog(&self) -> &WatchdogSettings {
        &self.watchdog
    }
}

/// Tells of an event by one channel, within the time of that channel. `event_file` holds the whole event.
///
/// An agent that is woken may take half an hour, so whoever has others to tell does not wait here for it.
pub async fn deliver(
    event: &EventRecord,
    channel: &Channel,
    order: &WatchOrder,
    settings: &NotifySettings,
    event_file: &Path,
) -> Result<(), DeliveryError> {
    let places = match channel {
        Channel::Codex | Channel::Claude => &settings.agent_places,
        Channel::Command => &settings.command_places,
        _ => &settings.places,
    };
    let _place = places.acquire().await.map_err(|_| DeliveryError::Closed)?;
    match channel {
        Channel::Webhook => webhook::deliver(event, order, settings).await,
        Channel::Command => command::deliver(event, order, settings, event_file).await,
        Channel::Codex => {
            wakeup::deliver(wakeup::Agent::Codex, event, order, settings, event_file).await
        }
        Channel::Claude => {
            wakeup::deliver(wakeup::Agent::Claude, event, order, settings, event_file).await
        }
        Channel::Local => local::deliver(event, settings).await,
        Channel::Notifier(name) => notifiers::deliver(event, name, settings).await,
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
#[path = "post_tests.rs"]
mod post_tests;

#[cfg(test)]
#[path = "program_tests.rs"]
mod program_tests;
