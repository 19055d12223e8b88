//! Runs one short script of ours on a channel of its own and collects what it prints.

use std::sync::Arc;

use remote_sandbox_core::output::HeadTail;
use remote_sandbox_core::shell::CONSTANT_COMMAND;
use russh::ChannelMsg;
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
pub(crate) async fn run_script(
    session: &Arc<Session>,
    script: String,
    deadline: Instant,
) -> Result<Vec<u8>, ScriptFailure> {
    let work = converse(session, script);
    match tokio::time::timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(ScriptFailure::Late),
    }
}

async fn converse(session: &Arc<Session>, script: String) -> Result<Vec<u8>, ScriptFailure> {
    let (channel, _open) = session.open_channel().await?;
    let (mut incoming, outgoing) = channel.split();
    let lost = |error: russh::Error| {
        tracing::debug!(%error, "script could not be sent");
        ScriptFailure::Lost(session.farewell())
    };
    outgoing.exec(true, CONSTANT_COMMAND).await.map_err(lost)?;
    let send = async {
        outgoing.data_bytes(script.into_bytes()).await?;
        outgoing.eof().await
    };
    let mut answer = HeadTail::new(LONGEST_ANSWER);
    let mut finished = false;
    let receive = async {
        while let Some(message) = incoming.wait().await {
            match message {
                ChannelMsg::Data { data } => answer.push(&data),
                ChannelMsg::Failure => return Err(ScriptFailure::Refused),
                ChannelMsg::ExitStatus { .. } | ChannelMsg::ExitSignal { .. } => finished = true,
                _ => {}
            }
        }
        Ok(())
    };
    let (_, received) = tokio::join!(send, receive);
    received?;
    if finished {
        Ok(answer.parts().0)
    } else {
        Err(ScriptFailure::Lost(session.farewell()))
    }
}
