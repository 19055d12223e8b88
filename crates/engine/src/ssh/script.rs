//! Runs one short script of ours on a channel of its own and collects what it prints.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::channel::Shell;
use super::session::{ChannelError, Session};
use super::warm::{self, Use};
use crate::clock;
use crate::shell::{Answer, LastWords, collect_answer};

/// How often, and how soon, a host is asked again that has no session to spare for a moment.
const REFUSALS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// How often in a row a host may close a new channel without a word.
const TAKEN_BACK: u32 = 2;

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

/// Sends a script to the constant command and returns its standard output, up to its last words where it has some.
///
/// It runs to its end or deadline also when the caller goes away: a script that was sent half would
/// wait on the host for its other half, in a session that nobody closes.
pub(crate) async fn run_script(
    session: &Arc<Session>,
    script: String,
    last: Option<LastWords>,
    deadline: Instant,
) -> Result<Vec<u8>, ScriptFailure> {
    let work = tokio::spawn(run_whole_script(session.clone(), script, last, deadline));
    work.await
        .unwrap_or_else(|error| Err(ScriptFailure::Lost(error.to_string())))
}

async fn run_whole_script(
    session: Arc<Session>,
    script: String,
    last: Option<LastWords>,
    deadline: Instant,
) -> Result<Vec<u8>, ScriptFailure> {
    let waiting = tokio::time::timeout_at(deadline, session.warm().take());
    if let Some(shell) = waiting.await.map_err(|_| ScriptFailure::Late)? {
        let answer = run_in(&session, shell, (script.clone(), last.clone()), deadline).await;
        // Only now: where many hosts are one machine, the next shells would compete with the scripts.
        warm::refill(&session, Use::Script);
        // Scripts of ours may run twice, and a shell that waited may have been ended by anybody.
        if answer.is_ok() || clock::instant() >= deadline || !session.is_live() {
            return answer;
        }
    }
    let mut taken_back = 0;
    loop {
        let starting = tokio::time::timeout_at(deadline, start_shell(&session));
        let shell = starting.await.map_err(|_| ScriptFailure::Late)??;
        let answer = run_in(&session, shell, (script.clone(), last.clone()), deadline).await;
        warm::refill(&session, Use::Script);
        match answer {
            // The host closed the channel, and the connection stands.
            Err(ScriptFailure::Lost(_)) if taken_back < TAKEN_BACK && session.is_live() => {
                taken_back += 1;
            }
            answer => return answer,
        }
    }
}

/// A new shell. Where the host allows one session, the one that was just closed may still count.
pub(super) async fn start_shell(session: &Arc<Session>) -> Result<Shell, ChannelError> {
    let mut refusals = 0;
    loop {
        match session.start_shell().await {
            Err(ChannelError::Refused(_)) if refusals < REFUSALS => {
                refusals += 1;
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

async fn run_in(
    session: &Session,
    mut shell: Shell,
    script: (String, Option<LastWords>),
    deadline: Instant,
) -> Result<Vec<u8>, ScriptFailure> {
    let work = converse(session, &mut shell, script);
    let result = tokio::time::timeout_at(deadline, work).await;
    // A channel that nobody waits for any more must not keep its place on the host; a link that
    // takes nothing must not keep us.
    match result {
        Ok((answer, closed)) => {
            if !closed {
                shell.give_up();
            }
            answer
        }
        Err(_) => {
            shell.give_up();
            Err(ScriptFailure::Late)
        }
    }
}

/// Sends the script and listens to its end; also says whether the channel is closed.
async fn converse(
    session: &Session,
    shell: &mut Shell,
    (script, last): (String, Option<LastWords>),
) -> (Result<Vec<u8>, ScriptFailure>, bool) {
    match collect_answer(&mut shell.incoming, &shell.outgoing, script, last).await {
        Answer::Whole(answer) => (Ok(answer), true),
        Answer::Said(answer) => (Ok(answer), false),
        Answer::Broken => (Err(ScriptFailure::Lost(session.farewell())), true),
        Answer::Refused => (Err(ScriptFailure::Refused), false),
    }
}
