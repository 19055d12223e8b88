//! Shells that are started before there is a command for them, so that a command costs one round
//! trip and no login file. Each serves once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::shell::{Gate, noted_files, ready_script};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::channel::Shell;
use super::session::Session;
use crate::clock;
use crate::mark::new_mark;
use crate::shell::{Heard, Incoming as _, Outgoing as _};

/// A shell that waited longer may no longer be like a new one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A connection that was not used for this long gets no new shells.
const USED_LATELY: Duration = Duration::from_secs(300);

/// A server that allows fewer sessions needs them all for commands.
pub(super) const FEWEST_SESSIONS: usize = 4;

/// How long the host may take to open a session in advance.
const OPEN_LIMIT: Duration = Duration::from_secs(8);

/// How long a command has the host to itself before a shell is started for the next one.
const BREATH: Duration = Duration::from_millis(15);

/// Shells that are started in a row while login files keep changing; then the next command decides.
const MOST_DISTRUSTED: u32 = 4;

/// How many shells wait, by what the connection was last used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Use {
    /// Nothing yet: none.
    #[default]
    Nothing,
    /// A script of ours: one.
    Script,
    /// A command: two, for the next may come while the first is being replaced.
    Command,
}

/// The shells of one connection that wait.
#[derive(Debug, Default)]
pub(super) struct WarmShells {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    most: Use,
    last_use: Option<Instant>,
    /// The login files as the last ready shell saw them.
    files: Option<Vec<u8>>,
    /// Whether shells can tell changed files without starting a process, once one has said so.
    local: Option<bool>,
    /// How many shells in a row saw other files than the one before.
    distrusted: u32,
    /// How long the last one took to be ready.
    usual_start: Duration,
}

/// One shell, reached through the task that keeps it.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    ready: Arc<AtomicBool>,
    ask: oneshot::Sender<oneshot::Sender<Handed>>,
}

/// A shell on its way to whoever asked for it; one that does not arrive ends.
#[derive(Debug)]
struct Handed(Option<Shell>);

impl Drop for Handed {
    fn drop(&mut self) {
        // At the end of the program there is nobody to do it, and no need.
        if let Some(shell) = self.0.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            shell.dismiss();
        }
    }
}

impl Waiting {
    fn is_good(&self) -> bool {
        !self.ask.is_closed() && self.since.elapsed() < LONGEST_WAIT
    }

    /// Whether it is no slower to wait for it than to start another one.
    fn is_worth_waiting(&self, usual_start: Duration) -> bool {
        self.ready.load(Ordering::Acquire) || self.since.elapsed() * 2 > usual_start
    }
}

impl WarmShells {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of all shells, to make room on the host.
    pub(super) fn discard(&self) {
        self.state().waiting.clear();
    }

    /// The next shell, and how long it may take to be handed over.
    fn pop(&self) -> Option<(Waiting, Duration)> {
        let mut state = self.state();
        state.waiting.retain(Waiting::is_good);
        let usual = state.usual_start;
        state
            .waiting
            .front()
            .filter(|waiting| waiting.is_worth_waiting(usual))?;
        let waiting = state.waiting.pop_front()?;
        Some((waiting, usual.max(BREATH)))
    }

    /// The shell that has waited longest, or one that is about to be ready.
    pub(super) async fn take(&self) -> Option<Shell> {
        loop {
            let (waiting, patience) = self.pop()?;
            let (give, take) = oneshot::channel();
            if waiting.ask.send(give).is_ok()
                && let Ok(Ok(mut handed)) = tokio::time::timeout(patience, take).await
                && let Some(shell) = handed.0.take()
            {
                return Some(shell);
            }
        }
    }

    fn has_one_ready(&self) -> bool {
        let state = self.state();
        state
            .waiting
            .iter()
            .any(|waiting| waiting.is_good() && waiting.ready.load(Ordering::Acquire))
    }
}

/// Replaces a shell that was taken. Where another one is ready there is time, and the host has the
/// command to do first.
pub(super) fn refill(session: &Arc<Session>, used: Use) {
    if !session.warm().has_one_ready() {
        return refill_now(session, used);
    }
    let session = session.clone();
    tokio::spawn(async move {
        tokio::time::sleep(BREATH).await;
        refill_now(&session, used);
    });
}

/// Starts shells where some are missing and the host has room for them.
fn refill_now(session: &Arc<Session>, used: Use) {
    let now = clock::instant();
    let mut state = session.warm().state();
    state.most = state.most.max(used);
    if used != Use::Nothing {
        state.last_use = Some(now);
        state.distrusted = 0;
    }
    let lately = |last: Instant| now.duration_since(last) < USED_LATELY;
    let wanted: usize = match state.most {
        _ if !session.is_live() || !state.last_use.is_some_and(lately) => 0,
        Use::Nothing => 0,
        // The first one only shows how the files are.
        _ if state.files.is_none() => 1,
        Use::Script => 1,
        Use::Command => 2,
    };
    state.waiting.retain(Waiting::is_good);
    let missing = wanted.saturating_sub(state.waiting.len());
    for _ in 0..missing.min(room(session)) {
        let (ask, asked) = oneshot::channel();
        let ready = Arc::new(AtomicBool::new(false));
        state.waiting.push_back(Waiting {
            since: now,
            ready: ready.clone(),
            ask,
        });
        let keeper = Keeper {
            session: session.clone(),
            ready,
            begun: now,
            before: state.files.clone(),
        };
        tokio::spawn(keeper.keep(asked));
    }
}

/// How many shells may wait without taking a place from a command that comes meanwhile.
fn room(session: &Session) -> usize {
    let (open, limit) = session.channels();
    if limit < FEWEST_SESSIONS {
        return 0;
    }
    limit.saturating_sub(open + 1)
}

/// The task that starts a shell and keeps it until somebody asks for it.
struct Keeper {
    session: Arc<Session>,
    ready: Arc<AtomicBool>,
    begun: Instant,
    /// The login files as they were before this shell was asked for.
    before: Option<Vec<u8>>,
}

/// How the time of a waiting shell ended.
enum Parting {
    /// Somebody has it, or nobody will.
    Served,
    /// It cannot be known which login files it has read.
    Distrusted,
    /// Whoever asked for it while it was starting did not wait so long.
    TooLate,
    /// It is too old.
    Expired,
    /// It ended by itself.
    Ended,
}

impl Keeper {
    async fn keep(self, asked: oneshot::Receiver<oneshot::Sender<Handed>>) {
        let starting = tokio::time::timeout(OPEN_LIMIT, self.session.start_shell());
        let Ok(Ok(shell)) = starting.await else {
            return;
        };
        match self.hold(shell, asked).await {
            Parting::Served | Parting::Ended => {}
            Parting::TooLate | Parting::Expired => refill_now(&self.session, Use::Nothing),
            Parting::Distrusted => {
                let again = {
                    let mut state = self.session.warm().state();
                    state.distrusted += 1;
                    state.distrusted <= MOST_DISTRUSTED
                };
                if again {
                    refill_now(&self.session, Use::Nothing);
                }
            }
        }
    }

    async fn hold(
        &self,
        mut shell: Shell,
        asked: oneshot::Receiver<oneshot::Sender<Handed>>,
    ) -> Parting {
        let token = new_mark();
        let local = self.session.warm().state().local;
        let script = ready_script(&token, self.session.timeout_program(), local);
        let expiry = self.begun + LONGEST_WAIT;
        let mut gate = Gate::new(&token);
        tokio::pin!(asked);
        if shell.outgoing.send(script).await.is_err() {
            shell.dismiss();
            return Parting::Ended;
        }
        let mut wanted: Option<oneshot::Sender<Handed>> = None;
        let parting = loop {
            let ready = gate.is_open();
            if ready && let Some(give) = wanted.take() {
                return match give.send(Handed(Some(shell))) {
                    Ok(()) => Parting::Served,
                    // Dropping it ends it.
                    Err(_) => Parting::TooLate,
                };
            }
            tokio::select! {
                biased;
                give = &mut asked, if wanted.is_none() => match give {
                    Ok(give) => wanted = Some(give),
                    // Nobody can ask any more.
                    Err(_) => break Parting::Served,
                },
                heard = shell.incoming.next() => match heard {
                    Some(Heard::Out(data)) => {
                        let _ = gate.pass(&data);
                        if !ready && gate.is_open() && !self.is_trusted(&token, &gate) {
                            break Parting::Distrusted;
                        }
                    }
                    // Whatever login files say is not for anybody.
                    Some(Heard::Err(_)) => {}
                    _ => break Parting::Ended,
                },
                () = tokio::time::sleep_until(expiry) => break Parting::Expired,
            }
        };
        asked.close();
        shell.dismiss();
        parting
    }

    /// A login file may be changed while a login reads it, also by the command that runs meanwhile.
    /// Only if the files are now as they were before this login began is it known what it has read.
    fn is_trusted(&self, token: &RunToken, gate: &Gate) -> bool {
        let Some(started) = gate.started() else {
            return false;
        };
        self.session.learn_timeout_program(started.timeout_program);
        let now = noted_files(token, gate.noise()).map(<[u8]>::to_vec);
        let trusted = now.is_some() && now == self.before;
        let mut state = self.session.warm().state();
        state.files = now;
        state.local = Some(started.tells_changes);
        state.usual_start = self.begun.elapsed();
        if trusted {
            state.distrusted = 0;
            self.ready.store(true, Ordering::Release);
        }
        trusted
    }
}
