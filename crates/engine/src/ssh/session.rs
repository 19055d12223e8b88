//! One live connection and the channels on it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::shell::TimeoutProgram;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::allowance::Allowance;
use super::channel::Shell;
use super::line::Line;
use super::link::{Link, NotOpened, Opened, Wanted};
use super::warm::{self, WarmShells};
use crate::clock;

/// Most channels on one connection; OpenSSH allows ten, and two are kept for ending processes.
pub(crate) const MOST_CHANNELS: usize = 8;

/// How long an answer to a ping may take.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// The two clocks part by this much only where the machine slept.
const SLEPT: Duration = Duration::from_secs(5);

/// Why a channel could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The host has enough sessions on this connection.
    #[error("the host allows no further session on this connection")]
    Full,
    /// The host refuses sessions altogether.
    #[error("the host refuses to open a session ({0})")]
    Refused(String),
    /// The connection is gone.
    #[error("the connection ended: {0}")]
    Gone(String),
}

/// A connection that is logged in.
pub(crate) struct Session {
    link: Link,
    retired: AtomicBool,
    /// Channels handed out to runs and probes.
    taken: AtomicUsize,
    /// Channels that are open on the wire, those for ending processes too.
    open: AtomicUsize,
    allowance: Allowance,
    line: Arc<Line>,
    timeout_program: Mutex<TimeoutProgram>,
    warm: WarmShells,
    /// Both clocks when the connection was last known to be good.
    seen: Mutex<(Instant, Duration)>,
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
    pub(crate) fn new(link: Link, line: Arc<Line>) -> Self {
        Session {
            link,
            retired: AtomicBool::new(false),
            taken: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            allowance: Allowance::new(MOST_CHANNELS, clock::instant()),
            line,
            timeout_program: Mutex::new(TimeoutProgram::Unknown),
            warm: WarmShells::default(),
            seen: Mutex::new((clock::instant(), clock::wall())),
        }
    }

    /// Whether the connection may be used for something new.
    pub(crate) fn is_live(&self) -> bool {
        !self.retired.load(Ordering::Acquire) && !self.link.is_closed()
    }

    /// Whether the connection itself still stands, although it may be retired.
    pub(crate) fn is_connected(&self) -> bool {
        !self.link.is_closed()
    }

    /// Takes the connection out of use; what runs on it goes on.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.line.everybody();
    }

    /// Says goodbye to the host.
    pub(crate) async fn disconnect(&self) {
        self.retire();
        self.link.disconnect().await;
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
        self.link
            .farewell()
            .unwrap_or_else(|| "it was closed".to_owned())
    }

    /// Asks the host for a sign of life.
    pub(crate) async fn answers(&self) -> bool {
        let answer = tokio::time::timeout(PING_LIMIT, self.link.answers()).await;
        let alive = matches!(answer, Ok(true));
        if !alive {
            self.retire();
        }
        alive
    }

    /// Whether the connection is good for a command; asks the host only where this machine slept
    /// meanwhile, for then the link is likely dead and nobody noticed.
    pub(crate) async fn is_awake(&self) -> bool {
        let now = (clock::instant(), clock::wall());
        let slept = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *seen, now);
            slept(before, now)
        };
        !slept || self.answers().await
    }

    /// Takes one of the places for a channel, if one is free.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let limit = self.allowance.limit(clock::instant());
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

    /// The shells that wait on this connection.
    pub(super) fn warm(&self) -> &WarmShells {
        &self.warm
    }

    /// How many channels are open, and how many the host has not refused.
    pub(super) fn channels(&self) -> (usize, usize) {
        let open = self.open.load(Ordering::Acquire);
        (open, self.allowance.proven(clock::instant()))
    }

    /// Asks the host for a shell that waits for a script; nothing of a caller is sent yet.
    pub(super) async fn start_shell(self: &Arc<Self>) -> Result<Shell, ChannelError> {
        let (opened, open) = self.open_channel(Wanted::Shell).await?;
        match opened.start().await {
            Ok((incoming, outgoing)) => Ok(Shell {
                incoming,
                outgoing,
                open,
            }),
            Err(error) => {
                self.retire();
                let words = self.link.farewell().unwrap_or_else(|| error.to_string());
                Err(ChannelError::Gone(words))
            }
        }
    }

    /// Opens a channel; a refusal while others are open teaches us the host's limit.
    pub(super) async fn open_channel(
        self: &Arc<Self>,
        wanted: Wanted,
    ) -> Result<(Opened, OpenChannel), ChannelError> {
        let others = self.open.fetch_add(1, Ordering::AcqRel);
        let counted = OpenChannel {
            session: self.clone(),
        };
        let (give, take) = oneshot::channel();
        let session = self.clone();
        // A caller may give up meanwhile; the channel must not stay open on the host then.
        tokio::spawn(async move {
            let result = session.link.open(wanted).await;
            // Whatever is not taken closes itself.
            let _ = give.send(result.map(|opened| Given(Some((opened, counted)))));
        });
        let Ok(opened) = take.await else {
            return Err(ChannelError::Gone(self.farewell()));
        };
        match opened {
            Ok(mut given) => given
                .0
                .take()
                .ok_or_else(|| ChannelError::Gone(self.farewell())),
            Err(NotOpened::Refused(_)) if others > 0 => {
                let limit = self.allowance.refused(others, clock::instant());
                if limit < warm::FEWEST_SESSIONS {
                    self.warm.discard();
                }
                Err(ChannelError::Full)
            }
            Err(NotOpened::Refused(words)) => Err(ChannelError::Refused(words)),
            Err(NotOpened::Gone(words)) => {
                self.retire();
                Err(ChannelError::Gone(self.link.farewell().unwrap_or(words)))
            }
        }
    }

    /// Whether the connection tells by which signal a command ended.
    pub(crate) fn tells_signals(&self) -> bool {
        self.link.tells_signals()
    }

    pub(crate) fn timeout_program(&self) -> TimeoutProgram {
        *self
            .timeout_program
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn learn_timeout_program(&self, program: TimeoutProgram) {
        *self
            .timeout_program
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = program;
    }
}

/// A channel on its way to whoever asked for it; one that does not arrive is closed.
struct Given(Option<(Opened, OpenChannel)>);

impl Drop for Given {
    fn drop(&mut self) {
        // At the end of the program there is nobody to do it, and no need.
        if let Some((opened, open)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move {
                opened.close().await;
                drop(open);
            });
        }
    }
}

/// Whether the wall clock went on while the other stood still.
fn slept(before: (Instant, Duration), now: (Instant, Duration)) -> bool {
    let awake = now.0.duration_since(before.0);
    now.1.saturating_sub(before.1) > awake + SLEPT
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_told_from_a_long_pause_and_from_a_clock_set_back() {
        let (start, wall) = (clock::instant(), Duration::from_secs(1000));
        let minute = Duration::from_secs(60);
        let later = |awake, passed| slept((start, wall), (start + awake, wall + passed));
        assert!(!later(minute, minute));
        assert!(!later(minute, Duration::ZERO));
        assert!(later(Duration::from_secs(1), minute));
    }
}
