//! One command on one channel: sent once, drained always, its end told as it was.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::outcome::{LeftRunning, StopReason};
use remote_sandbox_core::shell::{
    EndReport, HostFacts, Purpose, ShellAge, Target, TimeoutProgram, run_script,
};
use tokio::sync::watch;

use super::channel::{Outgoing, Shell};
use super::control;
use super::pool::{Eagerness, Pool, PoolError};
use super::session::{ChannelError, Place, Session};
use super::warm::{self, Use};
use crate::clock;
use crate::sandbox::{Ended, Order, Sink};
use crate::shell::{Carrier, Conversation, LAST_RESORT_GRACE_S, NotStarted, stopped};

/// A connection on which no channel opens within this time is dead or as good as dead.
const OPEN_LIMIT: Duration = Duration::from_secs(8);

/// A session that was just closed may still count on the host for a moment.
const REFUSALS: u32 = 20;

/// How many connections in a row may break before a session is open on them.
const BREAKS: u32 = 2;

/// How often in a row a host may close a new channel without a word before anything ran on it.
const TAKEN_BACK: u32 = 2;

/// Why a command did not run on a host.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There was no way to the host.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// There was one.
    #[error(transparent)]
    NotStarted(#[from] NotStarted),
}

/// A session on a host, and how another one is had.
struct Reached<'a> {
    pool: &'a Pool,
    session: Arc<Session>,
}

impl Carrier for Reached<'_> {
    type Outgoing = Outgoing;

    fn farewell(&self) -> String {
        self.session.farewell()
    }

    fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    async fn wait_for_end(&self, limit: Duration) {
        self.session.wait_for_end(limit).await;
    }

    async fn answers(&self) -> bool {
        self.session.answers().await
    }

    fn learn_timeout_program(&self, program: TimeoutProgram) {
        self.session.learn_timeout_program(program);
    }

    async fn find(&self, target: &Target) -> Option<LeftRunning> {
        let found = control::find(&self.session, target, Purpose::Look).await;
        found.ok()
    }

    async fn end(&self, target: &Target, main: &Outgoing) -> Option<EndReport> {
        control::end(self.pool, &self.session, target, main).await
    }
}

/// A shell to run a command in, and how old it is.
struct Found {
    place: Place,
    shell: Shell,
    age: ShellAge,
}

/// Runs a command to its end.
pub(super) async fn run(pool: &Pool, mut order: Order, sink: &Sink) -> Result<Ended, RunError> {
    let mut wanted = ShellAge::Waiting;
    let mut taken_back = 0;
    loop {
        let finding = find_shell(pool, &order, wanted);
        let found = match stop_or(&mut order.stop.clone(), finding).await {
            Ok(found) => found?,
            Err(_) => return Err(PoolError::Cancelled.into()),
        };
        let age = found.age;
        match run_in(pool, &mut order, sink, found).await {
            // The shell ended before it took the command up, and said so or was heard to the end.
            Err(NotStarted::Unused) if age == ShellAge::Waiting => wanted = ShellAge::New,
            Err(NotStarted::Unused) if taken_back < TAKEN_BACK => taken_back += 1,
            Err(NotStarted::Unused) => return Err(NotStarted::unheard().into()),
            ended => return Ok(ended?),
        }
    }
}

async fn run_in(
    pool: &Pool,
    order: &mut Order,
    sink: &Sink,
    found: Found,
) -> Result<Ended, NotStarted> {
    let Found { place, shell, age } = found;
    let session = place.session().clone();
    let seconds = order.timeout.as_secs_f64().ceil() as u64 + LAST_RESORT_GRACE_S;
    let host = HostFacts {
        program: session.timeout_program(),
        age,
        tells_signals: session.tells_signals(),
    };
    let script = run_script(&order.spec, &order.token, seconds, host);
    let Shell {
        incoming,
        outgoing,
        open,
    } = shell;
    let reached = Reached { pool, session };
    let conversation = Conversation::new(&order.token, &reached, sink, incoming, age);
    let (rest, ended) = conversation.hold(order, &outgoing, script).await;
    drop(place);
    if let Some(incoming) = rest {
        let shell = Shell {
            incoming,
            outgoing,
            open,
        };
        shell.give_up();
    }
    ended
}

/// A shell on a connection: one that waits where there is one, else a new one, in line where the
/// host allows no more of them.
async fn find_shell(pool: &Pool, order: &Order, wanted: ShellAge) -> Result<Found, RunError> {
    let (mut refusals, mut breaks) = (0, 0);
    loop {
        let place = pool.place(order.deadline, Eagerness::Patient).await?;
        let session = place.session().clone();
        let starting = async {
            if !session.is_awake().await {
                return Err(ChannelError::Gone(session.farewell()));
            }
            shell_on(&session, wanted).await
        };
        match tokio::time::timeout_at(order.deadline.min(clock::instant() + OPEN_LIMIT), starting)
            .await
        {
            // Nothing was sent yet: a new connection may be tried.
            Err(_) => session.retire(),
            Ok(Ok((shell, age))) => {
                warm::refill(&session, Use::Command);
                return Ok(Found { place, shell, age });
            }
            Ok(Err(error)) => {
                match error {
                    // Shells that wait may be what fills it.
                    ChannelError::Full => session.warm().discard(),
                    ChannelError::Refused(_) => refusals += 1,
                    ChannelError::Gone(_) => breaks += 1,
                }
                if refusals > REFUSALS || breaks > BREAKS {
                    return Err(PoolError::Channel(Arc::new(error)).into());
                }
                drop(place);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        if clock::instant() >= order.deadline {
            return Err(PoolError::Late("a free session on the host").into());
        }
    }
}

async fn shell_on(
    session: &Arc<Session>,
    wanted: ShellAge,
) -> Result<(Shell, ShellAge), ChannelError> {
    if wanted == ShellAge::Waiting
        && let Some(shell) = session.warm().take().await
    {
        return Ok((shell, ShellAge::Waiting));
    }
    Ok((session.start_shell().await?, ShellAge::New))
}

/// Waits for a future unless somebody asks for the end first.
async fn stop_or<T>(
    stop: &mut watch::Receiver<Option<StopReason>>,
    work: impl Future<Output = T>,
) -> Result<T, StopReason> {
    tokio::select! {
        reason = stopped(stop) => Err(reason),
        result = work => Ok(result),
    }
}
