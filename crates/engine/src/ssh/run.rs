//! One command on one channel: sent once, drained always, its end told as it was.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::outcome::StopReason;
use remote_sandbox_core::shell::{CONSTANT_COMMAND, run_script};
use russh::client::Msg;
use russh::{Channel, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::watch;

use super::conversation::{Conversation, lost, stopped};
use super::pool::{Eagerness, Pool, PoolError};
use super::session::{ChannelError, OpenChannel, Place};
use crate::clock;
use crate::sandbox::{Ended, Order, Sink};

/// The host's own timer fires this much later than ours.
const LAST_RESORT_GRACE_S: u64 = 5;

/// A connection on which no channel opens within this time is dead or as good as dead.
const OPEN_LIMIT: Duration = Duration::from_secs(8);

/// How long a channel that was given up is still drained.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// A session that was just closed may still count on the host for a moment.
const REFUSALS: u32 = 20;

/// How many connections in a row may break before a session is open on them.
const BREAKS: u32 = 2;

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// There was no way to the host.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The directory could not be entered.
    #[error("the directory `{cwd}` cannot be entered: {words}")]
    Directory {
        /// The directory as the caller wrote it, safe to show.
        cwd: String,
        /// What the host said.
        words: String,
    },
    /// The host would not start a shell.
    #[error("the host did not start the command: {words}")]
    Refused {
        /// What the host said.
        words: String,
    },
}

/// Runs a command to its end.
pub(super) async fn run(pool: &Pool, mut order: Order, sink: &Sink) -> Result<Ended, NotStarted> {
    let (place, channel, open) = match stop_or(&mut order.stop.clone(), open(pool, &order)).await {
        Ok(opened) => opened?,
        Err(_) => return Err(PoolError::Cancelled.into()),
    };
    let session = place.session().clone();
    let (incoming, outgoing) = channel.split();
    let request = outgoing.exec(true, CONSTANT_COMMAND);
    if !matches!(
        tokio::time::timeout_at(order.deadline, request).await,
        Ok(Ok(()))
    ) {
        // The request is in nobody's hands yet, but the library does not say so for certain.
        session.retire();
        return Ok(lost(&session));
    }
    let seconds = order.timeout.as_secs_f64().ceil() as u64 + LAST_RESORT_GRACE_S;
    let script = run_script(
        &order.spec,
        &order.token,
        seconds,
        session.timeout_program(),
    );
    let conversation = Conversation::new(&order.token, session, sink, incoming);
    let ended = conversation.hold(pool, &mut order, &outgoing, script).await;
    drop(place);
    let (rest, ended) = ended;
    if let Some(incoming) = rest {
        give_up(incoming, outgoing, open);
    }
    ended
}

/// Keeps reading a channel that nobody waits for any more, for an undrained channel stops them all.
fn give_up(mut incoming: ChannelReadHalf, outgoing: ChannelWriteHalf<Msg>, open: OpenChannel) {
    tokio::spawn(async move {
        let _ = outgoing.close().await;
        let drain = async { while incoming.wait().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN_LIMIT, drain).await;
        drop(open);
    });
}

/// A channel on a connection, waiting in line where the host allows no more of them.
async fn open(
    pool: &Pool,
    order: &Order,
) -> Result<(Place, Channel<Msg>, OpenChannel), NotStarted> {
    let (mut refusals, mut breaks) = (0, 0);
    loop {
        let place = pool.place(order.deadline, Eagerness::Patient).await?;
        let opening = place.session().open_channel();
        match tokio::time::timeout_at(order.deadline.min(clock::instant() + OPEN_LIMIT), opening)
            .await
        {
            // Nothing was sent yet: a new connection may be tried.
            Err(_) => place.session().retire(),
            Ok(Ok((channel, open))) => return Ok((place, channel, open)),
            Ok(Err(error)) => {
                match error {
                    ChannelError::Full => {}
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
