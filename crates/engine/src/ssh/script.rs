//! Runs one short script of ours on a channel of its own and collects what it prints.

use std::sync::Arc;

use remote_sandbox_core::output::HeadTail;
use remote_sandbox_core::shell::CONSTANT_COMMAND;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::time::Instant;

use super::session::{ChannelError, Session};

/// Most bytes of a script's answer that are kept.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;

/// Why a script gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFailure {
    /// There was no channel for it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The host would not start a shell.
    #[error("the host refused to start a shell")]
    Refused,
    /// The connection broke.
    #[error("the connection ended: {0}")]
    Lost(String),
    /// No answer in time.
    #[error("the host did not answer in time")]
    Late,
}

/// Sends a script to the constant command and returns its standard output.
///
/// It runs to its end or deadline also when the caller goes away: a script that was sent half would
/// wait on the host for its other half, in a session that nobody closes.
pub(crate) async fn run_script(
    session: &Arc<Session>,
    script: String,
    deadline: Instant,
) -> Result<Vec<u8>, ScriptFailure> {
    let work = tokio::spawn(run_whole_script(session.clone(), script, deadline));
    work.await
        .unwrap_or_else(|error| Err(ScriptFailure::Lost(error.to_string())))
}

async fn run_whole_script(
    session: Arc<Session>,
    script: String,
    deadline: Instant,
) -> Result<Vec<u8>, ScriptFailure> {
    let opening = tokio::time::timeout_at(deadline, session.open_channel());
    let (channel, open) = opening.await.map_err(|_| ScriptFailure::Late)??;
    let (incoming, outgoing) = channel.split();
    let work = converse(&session, incoming, &outgoing, script);
    let result = tokio::time::timeout_at(deadline, work).await;
    if result.is_err() {
        // A channel that nobody waits for any more must not keep its place on the host; a link that
        // takes nothing must not keep us.
        tokio::spawn(async move {
            let _ = outgoing.close().await;
            drop(open);
        });
    }
    result.unwrap_or(Err(ScriptFailure::Late))
}

async fn converse(
    session: &Arc<Session>,
    mut incoming: ChannelReadHalf,
    outgoing: &ChannelWriteHalf<Msg>,
    script: String,
) -> Result<Vec<u8>, ScriptFailure> {
    let lost = |error: russh::Error| {
        tracing::debug!(%error, "script could not be sent");
        ScriptFailure::Lost(session.farewell())
    };
    outgoing.exec(true, CONSTANT_COMMAND).await.map_err(lost)?;
    let send = async {
        outgoing.data_bytes(script.into_bytes()).await?;
        outgoing.eof().await
    };
    let receive = async {
        let mut answer = HeadTail::new(LONGEST_ANSWER);
        let mut finished = false;
        while let Some(message) = incoming.wait().await {
            match message {
                ChannelMsg::Data { data } => answer.push(&data),
                ChannelMsg::Failure => return Err(ScriptFailure::Refused),
                ChannelMsg::ExitStatus { .. } | ChannelMsg::ExitSignal { .. } => finished = true,
                _ => {}
            }
        }
        Ok((finished, answer))
    };
    tokio::pin!(send, receive);
    // A host that ends the channel early never takes the rest of the script.
    let (finished, answer) = tokio::select! {
        received = &mut receive => received?,
        _ = &mut send => receive.await?,
    };
    if finished {
        Ok(answer.parts().0)
    } else {
        Err(ScriptFailure::Lost(session.farewell()))
    }
}
