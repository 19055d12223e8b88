//! The connections to one host: one dial for all who wait, a bounded number of channels.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use remote_sandbox_core::config::SshSettings;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::dial::Dialled;
use super::dial_error::DialError;
use super::hostkeys::HostKeyStore;
use super::line::Line;
use super::openssh::{OpenSshError, SharedConnection};
use super::route::{Route, RouteFinder};
use super::session::{ChannelError, Place, Session};
use super::watch::Watch;
use crate::clock;
use crate::secrets::SecretKeeper;

/// Most connections to one host from this process.
const MOST_CONNECTIONS: usize = 3;

/// Most connections to one address that are being opened at the same time.
const MOST_DIALS: usize = 3;

/// How many connections may end right after their login before one caller gives up.
const MOST_STILLBORN: u32 = 2;

/// A pause up to this long is waited out instead of being reported.
const SHORT_PAUSE: Duration = Duration::from_secs(3);

/// Why there is no channel to work on.
#[derive(Debug, thiserror::Error, Clone)]
pub enum PoolError {
    /// The host could not be reached or did not take us.
    #[error(transparent)]
    Dial(Arc<DialError>),
    /// The host failed a moment ago and is left alone for a while.
    #[error("it failed a moment ago and is tried again in {:.0} s", wait.as_secs_f64().ceil())]
    Paused {
        /// What happened then.
        #[source]
        error: Arc<DialError>,
        /// How long it is left alone.
        wait: Duration,
    },
    /// The host refuses to open a session.
    #[error(transparent)]
    Channel(Arc<ChannelError>),
    /// The deadline passed while waiting.
    #[error("the deadline passed while waiting for {0}")]
    Late(&'static str),
    /// The caller gave up while waiting.
    #[error("cancelled while waiting for the host")]
    Cancelled,
}

impl PoolError {
    /// Whether the host knows us and will not have us; asking again by ourselves would be a loop.
    fn is_refusal(&self) -> bool {
        let (PoolError::Dial(error) | PoolError::Paused { error, .. }) = self else {
            return false;
        };
        error.is_refusal()
    }
}

type Dial = Shared<BoxFuture<'static, Result<(), Arc<DialError>>>>;

/// What all pools share.
#[derive(Debug)]
pub struct Dialer {
    pub(super) store: Arc<HostKeyStore>,
    pub(super) secrets: SecretKeeper,
    pub(super) routes: RouteFinder,
    /// Where control sockets of our own are.
    pub(super) sockets: PathBuf,
    addresses: Mutex<HashMap<(String, u16), Arc<Semaphore>>>,
}

impl Dialer {
    /// A dialer that records host keys in `store`, takes what it needs to log in from `secrets`, and
    /// asks `routes` how hosts are reached; control sockets of the system's `ssh` go to `sockets`.
    pub fn new(
        store: Arc<HostKeyStore>,
        secrets: SecretKeeper,
        routes: RouteFinder,
        sockets: PathBuf,
    ) -> Self {
        Dialer {
            store,
            secrets,
            routes,
            sockets,
            addresses: Mutex::new(HashMap::new()),
        }
    }

    pub(super) fn slots(&self, settings: &SshSettings) -> Arc<Semaphore> {
        let mut addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = (settings.host.clone(), settings.port);
        addresses
            .entry(key)
            .or_insert_with(|| Arc::new(Semaphore::new(MOST_DIALS)))
            .clone()
    }
}

/// The connections to one host.
pub(crate) struct Pool {
    route: Arc<Route>,
    dialer: Arc<Dialer>,
    line: Arc<Line>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sessions: Vec<Arc<Session>>,
    dial: Option<Dial>,
    backoff: Backoff,
    last_error: Option<Arc<DialError>>,
}

impl State {
    fn forget_dead(&mut self) {
        self.sessions.retain(|session| session.is_live());
    }
}

/// Whether a recent failure is believed or the host is tried again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eagerness {
    /// Leave a host alone that failed a moment ago.
    Patient,
    /// Somebody wants to know how it is now.
    AskAgain,
}

impl Pool {
    pub(crate) fn new(route: Arc<Route>, dialer: Arc<Dialer>) -> Self {
        Pool {
            route,
            dialer,
            line: Arc::new(Line::new()),
            state: Arc::new(Mutex::new(State::default())),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a channel before the deadline, on a connection that is opened when needed.
    pub(crate) async fn place(
        &self,
        deadline: Instant,
        eagerness: Eagerness,
    ) -> Result<Place, PoolError> {
        // The time of the first dial does not count: nobody was ahead in the line then.
        let mut in_line_since = None;
        let mut dials = 0;
        let mut unwanted = false;
        loop {
            let change = self.line.change();
            let connections = {
                let mut state = self.state();
                state.forget_dead();
                if let Some(place) = state.sessions.iter().find_map(Session::try_take) {
                    return Ok(place);
                }
                state.sessions.len()
            };
            if connections == 0 {
                if dials == MOST_STILLBORN {
                    let error = ChannelError::Gone("right after the login".to_owned());
                    return Err(PoolError::Channel(Arc::new(error)));
                }
                dials += 1;
                self.connect(deadline, eagerness).await?;
                continue;
            }
            let since = *in_line_since.get_or_insert_with(clock::instant);
            let another = async {
                if connections >= MOST_CONNECTIONS || unwanted || !self.route.may_repeat() {
                    return std::future::pending().await;
                }
                self.line.patience(since).await;
                self.connect(deadline, eagerness).await
            };
            tokio::select! {
                () = change => {}
                () = tokio::time::sleep_until(deadline) => {
                    return Err(PoolError::Late("a free session on the host"));
                }
                // When the host takes no further connection, the open ones have to do.
                result = another => {
                    in_line_since = None;
                    unwanted = matches!(&result, Err(error) if error.is_refusal());
                }
            }
        }
    }

    /// Opens a connection, or waits for the one that is being opened.
    async fn connect(&self, deadline: Instant, eagerness: Eagerness) -> Result<(), PoolError> {
        if eagerness == Eagerness::Patient {
            self.wait_out_pause(deadline).await?;
        }
        let dial = self.shared_dial();
        match tokio::time::timeout_at(deadline, dial).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(PoolError::Dial(error)),
            Err(_) => Err(PoolError::Late("the connection")),
        }
    }

    async fn wait_out_pause(&self, deadline: Instant) -> Result<(), PoolError> {
        // Somebody else may have tried and failed meanwhile, so one look is not enough.
        loop {
            let (wait, error) = {
                let state = self.state();
                match (state.backoff.remaining(), state.last_error.clone()) {
                    (Some(wait), Some(error)) if state.dial.is_none() => (wait, error),
                    _ => return Ok(()),
                }
            };
            if wait > SHORT_PAUSE || clock::instant() + wait > deadline {
                return Err(PoolError::Paused { error, wait });
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Joins the dial under way or starts one; it goes on when its first caller gives up.
    fn shared_dial(&self) -> Dial {
        let mut state = self.state();
        // One that is over but still here broke; it is not joined.
        if let Some(dial) = state.dial.as_ref().filter(|dial| dial.peek().is_none()) {
            return dial.clone();
        }
        let (route, dialer) = (self.route.clone(), self.dialer.clone());
        let (shared, line) = (self.state.clone(), self.line.clone());
        let work = tokio::spawn(async move {
            let result = route.dial(&dialer).await.map_err(Arc::new);
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            state.dial = None;
            match result {
                Ok(link) => {
                    let session = Session::new(link, line.clone());
                    state.sessions.push(Arc::new(session));
                    state.backoff.succeeded();
                    state.last_error = None;
                    drop(state);
                    line.everybody();
                    Ok(())
                }
                Err(error) => {
                    state.backoff.failed();
                    state.last_error = Some(error.clone());
                    Err(error)
                }
            }
        });
        let host = self.route.name().to_owned();
        let dial = async move {
            work.await
                .unwrap_or_else(|source| Err(Arc::new(DialError::Broken { host, source })))
        };
        let dial = dial.boxed().shared();
        state.dial = Some(dial.clone());
        dial
    }

    /// A connection that just answered, opened when there is none.
    pub(crate) async fn check(&self, deadline: Instant) -> Result<(), PoolError> {
        let open = {
            let mut state = self.state();
            state.forget_dead();
            state.sessions.first().cloned()
        };
        if let Some(session) = open
            && matches!(
                tokio::time::timeout_at(deadline, session.answers()).await,
                Ok(true)
            )
        {
            return Ok(());
        }
        self.connect(deadline, Eagerness::AskAgain).await
    }

    /// A connection of its own for ending processes, when the ordinary one does not answer.
    pub(crate) async fn fresh_session(&self) -> Result<Arc<Session>, DialError> {
        if !self.route.may_repeat() {
            let host = self.route.name().to_owned();
            return Err(OpenSshError::OneOnly { host }.into());
        }
        let link = self.route.dial(&self.dialer).await?;
        Ok(Arc::new(Session::new(link, self.line.clone())))
    }

    /// A connection of its own for somebody who wants to see how it is opened.
    pub(super) async fn dial_watched(&self, watch: &Watch) -> Result<Dialled, DialError> {
        self.route.dial_watched(&self.dialer, watch).await
    }

    /// Looks for a connection of the system's `ssh` that is open already; opens none.
    pub(super) async fn shared(&self) -> Result<SharedConnection, OpenSshError> {
        self.route.shared(&self.dialer).await
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        let sessions = std::mem::take(&mut self.state().sessions);
        futures::future::join_all(sessions.iter().map(|session| session.disconnect())).await;
    }
}
