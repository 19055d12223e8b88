//! The watchdog: looks at watched tasks while nobody waits for them, tells what happens, and resumes what is gone.
//!
//! One process holds the lease and works; others wait for it. Whatever it decides is written down, under the fence of
//! its lease, before it has any effect. Each host is visited in a task of its own, so that a dead one delays nobody.

mod deliver;
mod files;
mod lease;
mod looking;
mod marks;
mod noting;
mod package;
mod rest;
mod resume;
mod round;
mod visit;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use remote_sandbox_core::config::WatchdogSettings;
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::watch::{Channel, EventRecord};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use self::marks::Marks;
use crate::engine::Engine;
use crate::notify::{self, NotifySettings};
use crate::sandbox::Sandbox;
use crate::store::{Fence, Store, StoreError};

/// The name of the lease.
pub const LEASE: &str = "watchdog";

/// How long a lease holds without a sign of its holder, when nothing else is said.
pub const USUAL_LEASE: Duration = Duration::from_secs(30);

/// How long it sleeps between two rounds, when nothing else is said.
pub const USUAL_SLEEP: Duration = Duration::from_secs(5);

/// Hosts that are visited at the same time; as many more that did not answer the last time.
const MOST_VISITS: usize = 64;

/// Why the watchdog cannot work.
#[derive(Debug, thiserror::Error)]
pub enum WatchdogError {
    /// The store is at fault.
    #[error("the watchdog cannot use its store")]
    Store(#[from] StoreError),
    /// Another one works, and nobody was to wait.
    #[error("another watchdog works: {0}")]
    Held(String),
}

/// How it works.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long it sleeps between two rounds.
    pub loop_sleep: Duration,
    /// How long its lease holds without a sign.
    pub lease: Duration,
    /// Whether it ends after one round.
    pub is_once: bool,
}

/// An event on its way to somebody.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// The event.
    pub event: EventRecord,
    /// By which way it goes.
    pub channel: Channel,
    /// What is wanted of the watch.
    pub order: WatchOrder,
    /// The file that holds the event.
    pub event_file: PathBuf,
}

/// Why an event was not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelivered {
    /// In words, without a secret.
    pub words: String,
    /// Whether it is of no use to try again.
    pub is_permanent: bool,
    /// Whether this machine does not have the way, so that nothing has failed.
    pub is_impossible: bool,
}

/// Tells an event by one way.
pub type Deliver = Arc<dyn Fn(Parcel) -> BoxFuture<'static, Result<(), Undelivered>> + Send + Sync>;

/// Tells events as the settings say.
pub fn deliver_by(settings: NotifySettings) -> Deliver {
    let settings = Arc::new(settings);
    Arc::new(move |parcel: Parcel| {
        let settings = settings.clone();
        Box::pin(async move {
            let (event, channel) = (&parcel.event, &parcel.channel);
            let (order, file) = (&parcel.order, &parcel.event_file);
            let done = notify::deliver(event, channel, order, &settings, file).await;
            done.map_err(|error| Undelivered {
                words: Failure::chain(&error),
                is_permanent: error.is_permanent(),
                is_impossible: error.is_impossible(),
            })
        })
    })
}

/// Which host: that of a kept entry, or one that our own configuration names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostKey {
    entry: Option<String>,
    sandbox: String,
}

/// A sandbox that was made of a kept entry.
struct Made {
    sandbox: Arc<dyn Sandbox>,
    used: Instant,
}

/// The watchdog of one state folder.
pub struct Watchdog {
    engine: Arc<Engine>,
    settings: WatchdogSettings,
    options: Options,
    deliver: Deliver,
    made: Mutex<BTreeMap<String, Made>>,
    /// Hosts that are being visited.
    busy: Marks<HostKey>,
    /// Hosts that did not answer the last time, or lately.
    doubtful: Mutex<BTreeMap<HostKey, rest::Rest>>,
    visits: Semaphore,
    doubtful_visits: Semaphore,
    /// Says that there may be something to deliver.
    told: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchdog {
    /// A watchdog that works on the store of an engine.
    pub fn new(
        engine: Arc<Engine>,
        settings: WatchdogSettings,
        options: Options,
        deliver: Deliver,
    ) -> Self {
        Watchdog {
            engine,
            settings,
            options,
            deliver,
            made: Mutex::default(),
            busy: Marks::default(),
            doubtful: Mutex::default(),
            visits: Semaphore::new(MOST_VISITS),
            doubtful_visits: Semaphore::new(MOST_VISITS),
            told: Notify::new(),
        }
    }

    fn store(&self) -> &Store {
        self.engine.store()
    }
}

/// The lease that this process holds, and the word that it was lost.
#[derive(Clone)]
struct Held {
    fence: Fence,
    /// Set when the lease is lost, or when this process is to end.
    over: tokio_util::sync::CancellationToken,
}

impl Held {
    /// Stops everything when an error says that the lease is lost.
    fn note(&self, error: &StoreError) {
        if matches!(error, StoreError::LeaseLost(_)) {
            tracing::warn!("another watchdog has taken over");
            self.over.cancel();
        } else {
            tracing::error!(error = %remote_sandbox_core::failure::Failure::chain(error), "the watchdog cannot use its store");
        }
    }
}
