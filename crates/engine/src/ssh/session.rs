//! One live connection and the channels on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use remote_sandbox_core::shell::TimeoutProgram;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelOpenFailure};
use tokio::sync::oneshot;

use super::dial::{Dialled, Farewell, HostGuard};
use super::line::Line;

/// Most channels on one connection; OpenSSH allows ten, and two are kept for ending processes.
pub(crate) const MOST_CHANNELS: usize = 8;

/// How long an answer to a ping may take.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// Why a channel could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The host has enough sessions on this connection.
    #[error("the host allows no further session on this connection")]
    Full,
    /// The host refuses sessions altogether.
    #[error("the host refuses to open a session ({0:?})")]
    Refused(ChannelOpenFailure),
    /// The connection is gone.
    #[error("the connection ended: {0}")]
    Gone(String),
}

/// A connection that is logged in.
pub(crate) struct Session {
    handle: Handle<HostGuard>,
    farewell: Farewell,
    retired: AtomicBool,
    /// Channels handed out to runs and probes.
    taken: AtomicUsize,
    /// Channels that are open on the wire, those for ending processes too.
    open: AtomicUsize,
    limit: AtomicUsize,
    line: Arc<Line>,
    timeout_program: std::sync::Mutex<TimeoutProgram>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("live", &self.is_live())
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(dialled: Dialled, line: Arc<Line>) -> Self {
        Session {
            handle: dialled.handle,
            farewell: dialled.farewell,
            retired: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            limit: AtomicUsize::new(MOST_CHANNELS),
            line,
            timeout_program: std::sync::Mutex::new(TimeoutProgram::Unknown),
        }
    }

    /// Whether the connection may be used for something new.
    pub(crate) fn is_live(&self) -> bool {
        !self.retired.load(Ordering::Acquire) && !self.handle.is_closed()
    }

    /// Whether the connection itself still stands, although it may be retired.
    pub(crate) fn is_connected(&self) -> bool {
        !self.handle.is_closed()
    }

    /// Takes the connection out of use; what runs on it goes on.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.line.everybody();
    }

    /// Says goodbye to the host.
    pub(crate) async fn disconnect(&self) {
        self.retire();
        let bye = self
            .handle
            .disconnect(russh::Disconnect::ByApplication, "", "");
        let _ = tokio::time::timeout(Duration::from_millis(200), bye).await;
    }

    /// Waits a moment for the connection to be seen as ended.
    pub(crate) async fn wait_for_end(&self, limit: Duration) {
        let ended = async {
            while self.is_connected() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(limit, ended).await;
    }

    /// What the host said when it ended the connection.
    pub(crate) fn farewell(&self) -> String {
        self.farewell
            .words()
            .unwrap_or_else(|| "it was closed".to_owned())
    }

    /// Asks the host for a sign of life.
    pub(crate) async fn answers(&self) -> bool {
        // The library's own ping does not tell an answer from the end of the connection.
        let question = self
            .handle
            .send_global_request("keepalive@openssh.com", &[], true);
        let answer = tokio::time::timeout(PING_LIMIT, question).await;
        let alive = matches!(answer, Ok(Ok(_) | Err(russh::Error::RequestDenied)));
        if !alive {
            self.retire();
        }
        alive
    }

    /// Takes one of the places for a channel, if one is free.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let limit = self.limit.load(Ordering::Acquire);
        let took = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < limit).then_some(taken + 1)
            });
        (self.is_live() && took.is_ok())
            .then(|| Place {
                session: self.clone(),
            })
            .or_else(|| {
                if took.is_ok() {
                    self.taken.fetch_sub(1, Ordering::AcqRel);
                }
                None
            })
    }

    /// Opens a channel; a refusal while others are open teaches us the host's limit.
    pub(crate) async fn open_channel(
        self: &Arc<Self>,
    ) -> Result<(Channel<Msg>, OpenChannel), ChannelError> {
        let others = self.open.fetch_add(1, Ordering::AcqRel);
        let counted = OpenChannel {
            session: self.clone(),
        };
        let (give, take) = oneshot::channel();
        let session = self.clone();
        // A caller may give up meanwhile; the channel must not stay open on the host then.
        tokio::spawn(async move {
            let opened = session.handle.channel_open_session().await;
            if let Err((Ok(unwanted), _counted)) = give.send((opened, counted)) {
                let _ = unwanted.close().await;
            }
        });
        let Ok((opened, counted)) = take.await else {
            return Err(ChannelError::Gone(self.farewell()));
        };
        match opened {
            Ok(channel) => Ok((channel, counted)),
            Err(russh::Error::ChannelOpenFailure(_)) if others > 0 => {
                self.limit.fetch_min(others.max(1), Ordering::AcqRel);
                Err(ChannelError::Full)
            }
            Err(russh::Error::ChannelOpenFailure(failure)) => Err(ChannelError::Refused(failure)),
            Err(error) => {
                self.retire();
                let words = self.farewell.words().unwrap_or_else(|| error.to_string());
                Err(ChannelError::Gone(words))
            }
        }
    }

    pub(crate) fn timeout_program(&self) -> TimeoutProgram {
        *self
            .timeout_program
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn learn_timeout_program(&self, program: TimeoutProgram) {
        *self
            .timeout_program
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = program;
    }
}

/// A place for one channel, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    session: Arc<Session>,
}

impl Place {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.taken.fetch_sub(1, Ordering::AcqRel);
        self.session.line.move_up();
    }
}

/// Counts a channel that is open on the wire until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenChannel {
    session: Arc<Session>,
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        self.session.open.fetch_sub(1, Ordering::AcqRel);
    }
}
