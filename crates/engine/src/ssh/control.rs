//! Ends and finds the processes of a run, over a channel of its own.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::shell::{EndReport, Purpose, Target, end_script, parse_end_report};
use tokio::time::Instant;

use super::channel::Outgoing;
use super::pool::Pool;
use super::script::{ScriptFailure, run_script};
use super::session::{ChannelError, Session};
use crate::clock;
use crate::shell::left_running;

/// TERM, two seconds, KILL and the way there and back fit into this.
const END_LIMIT: Duration = Duration::from_millis(2900);

/// A connection that gives no sign of life for this long is not waited for any more.
const SILENCE: Duration = Duration::from_millis(500);

/// Between two questions that a host without room is asked.
const PAUSE: Duration = Duration::from_millis(50);

/// Finding takes a moment, ending two seconds more.
const FIND_LIMIT: Duration = Duration::from_secs(5);

/// Ends the processes of a run and says what is left of them; `None` when the host did not answer.
///
/// `main` is the run's own channel; it is closed when the host has no room for another one.
pub(super) async fn end(
    pool: &Pool,
    session: &Arc<Session>,
    target: &Target,
    main: &Outgoing,
) -> Option<EndReport> {
    let deadline = clock::instant() + END_LIMIT;
    let ordinary = ask_until_answered(session, target, deadline);
    let silence = async {
        let alive = tokio::time::timeout(SILENCE, session.answers()).await;
        if matches!(alive, Ok(true)) {
            std::future::pending().await
        }
    };
    let detour = end_over_detour(pool, target, deadline);
    tokio::pin!(ordinary, detour);
    let answer = tokio::select! {
        answer = &mut ordinary => Some(answer),
        () = silence => None,
    };
    let report = match answer {
        Some(Ok(report)) => return Some(report),
        Some(Err(error)) => {
            tracing::debug!(%error, "processes could not be ended over this connection");
            if let Some(report) = detour.await {
                return Some(report);
            }
            if let Some(report) = ask_making_room(session, target, main, deadline).await {
                return Some(report);
            }
            None
        }
        // It may only be slow, so both ways are open from here on.
        None => tokio::select! {
            answer = &mut ordinary => match answer {
                Ok(report) => return Some(report),
                Err(_) => detour.await,
            },
            report = &mut detour => match report {
                Some(report) => Some(report),
                None => ordinary.await.ok(),
            },
        },
    };
    // A connection over which this could not be done is not good for anything new.
    session.retire();
    report
}

/// Ends the processes over a connection of its own.
async fn end_over_detour(pool: &Pool, target: &Target, deadline: Instant) -> Option<EndReport> {
    let fresh = tokio::time::timeout_at(deadline, pool.fresh_session()).await;
    let Ok(Ok(fresh)) = fresh else { return None };
    let report = ask(&fresh, target, Purpose::End, deadline).await.ok();
    // Saying goodbye must not delay the reply.
    tokio::spawn(async move { fresh.disconnect().await });
    report
}

/// Asks again where no shell started: a host without a process to spare makes room by force and
/// cannot say so.
async fn ask_until_answered(
    session: &Arc<Session>,
    target: &Target,
    deadline: Instant,
) -> Result<EndReport, ScriptFailure> {
    loop {
        match ask(session, target, Purpose::End, deadline).await {
            Err(ScriptFailure::Refused) if clock::instant() < deadline => {
                tokio::time::sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// The last resort where the host has no room: the run's own channel is given up for it.
async fn ask_making_room(
    session: &Arc<Session>,
    target: &Target,
    main: &Outgoing,
    deadline: Instant,
) -> Option<EndReport> {
    loop {
        match ask(session, target, Purpose::End, deadline).await {
            Ok(report) => return Some(report),
            Err(ScriptFailure::Channel(ChannelError::Full | ChannelError::Refused(_))) => {
                let _ = tokio::time::timeout(PAUSE, main.close()).await;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => {
                tracing::debug!(%error, "processes could not be ended over this connection");
                return None;
            }
        }
        if clock::instant() >= deadline {
            return None;
        }
    }
}

async fn ask(
    session: &Arc<Session>,
    target: &Target,
    purpose: Purpose,
    deadline: Instant,
) -> Result<EndReport, ScriptFailure> {
    let answer = run_script(session, end_script(target, purpose), None, deadline).await?;
    parse_end_report(&target.token, &answer).ok_or(ScriptFailure::Refused)
}

/// Finds the processes of a run over an open connection, and ends them when asked to.
pub(super) async fn find(
    session: &Arc<Session>,
    target: &Target,
    purpose: Purpose,
) -> Result<LeftRunning, ScriptFailure> {
    let report = ask(session, target, purpose, clock::instant() + FIND_LIMIT).await?;
    Ok(left_running(Some(report)))
}
