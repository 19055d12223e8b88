//! Shells that are started before there is a command for them, so that a command costs one round
//! trip and no login file. Each serves once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::shell::{Gate, ready_script};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::channel::{Heard, Shell};
use super::session::Session;
use crate::clock;

/// A shell that waited longer may no longer be like a new one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A connection that was not used for this long gets no new shells.
const USED_LATELY: Duration = Duration::from_secs(300);

/// A server that allows fewer sessions needs them all for commands.
const FEWEST_SESSIONS: usize = 4;

/// How long the host may take to open a session in advance.
const OPEN_LIMIT: Duration = Duration::from_secs(8);

/// How long a shell that is not wanted any more is still drained.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

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
}

/// One shell, reached through the task that keeps it.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    ask: oneshot::Sender<oneshot::Sender<Shell>>,
}

impl Waiting {
    fn is_good(&self) -> bool {
        !self.ask.is_closed() && self.since.elapsed() < LONGEST_WAIT
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

    /// The shell that has waited longest. It may still be starting, which is no slower than to
    /// start another one.
    pub(super) async fn take(&self) -> Option<Shell> {
        loop {
            let waiting = self.state().waiting.pop_front()?;
            if !waiting.is_good() {
                continue;
            }
            let (give, take) = oneshot::channel();
            if waiting.ask.send(give).is_ok()
                && let Ok(shell) = take.await
            {
                return Some(shell);
            }
        }
    }
}

/// Starts shells where some are missing and the host has room for them.
pub(super) fn refill(session: &Arc<Session>, used: Use) {
    let now = clock::instant();
    let mut state = session.warm().state();
    state.most = state.most.max(used);
    if used != Use::Nothing {
        state.last_use = Some(now);
    }
    let lately = |last: Instant| now.duration_since(last) < USED_LATELY;
    let wanted: usize = match state.most {
        _ if !session.is_live() || !state.last_use.is_some_and(lately) => 0,
        Use::Nothing => 0,
        Use::Script => 1,
        Use::Command => 2,
    };
    state.waiting.retain(Waiting::is_good);
    let missing = wanted.saturating_sub(state.waiting.len());
    for _ in 0..missing.min(room(session)) {
        let (ask, asked) = oneshot::channel();
        state.waiting.push_back(Waiting { since: now, ask });
        tokio::spawn(keep(session.clone(), asked));
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

/// Starts a shell and keeps it until somebody asks for it, or until it is of no use any more.
async fn keep(session: Arc<Session>, asked: oneshot::Receiver<oneshot::Sender<Shell>>) {
    let starting = tokio::time::timeout(OPEN_LIMIT, session.start_shell());
    let Ok(Ok(mut shell)) = starting.await else {
        return;
    };
    let token = RunToken::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes());
    let script = ready_script(&token, session.timeout_program());
    let expiry = clock::instant() + LONGEST_WAIT;
    let mut gate = Gate::new(&token);
    tokio::pin!(asked);
    if shell.outgoing.send(script).await.is_err() {
        return shell.give_up(DRAIN_LIMIT);
    }
    loop {
        tokio::select! {
            biased;
            give = &mut asked => {
                let rest = match give {
                    Ok(give) => give.send(shell).err(),
                    Err(_) => Some(shell),
                };
                if let Some(shell) = rest {
                    shell.give_up(DRAIN_LIMIT);
                }
                return;
            }
            heard = shell.incoming.next() => match heard {
                Some(Heard::Out(data)) => {
                    let _ = gate.pass(&data);
                    if let Some(ready) = gate.started() {
                        session.learn_timeout_program(ready.timeout_program);
                    }
                }
                // Whatever login files say is not for anybody.
                Some(Heard::Err(_)) => {}
                _ => break,
            },
            () = tokio::time::sleep_until(expiry) => break,
        }
    }
    asked.close();
    shell.give_up(DRAIN_LIMIT);
    if clock::instant() >= expiry {
        refill(&session, Use::Nothing);
    }
}
