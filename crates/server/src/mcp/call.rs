//! The way of every call: progress at once, then while it runs; a panic is an answer too.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_engine::call::{CallContext, Progress};
use remote_sandbox_engine::clock;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::render::Reply;

/// Shortest time between two notifications.
const SHORTEST: Duration = Duration::from_millis(250);

/// How long handing over one note may take.
const NOTE_LIMIT: Duration = Duration::from_millis(300);

/// Longest silence.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs a handler to its end and tells how far it has come.
pub(super) async fn attend(
    context: &CallContext,
    watcher: Option<(Peer<RoleServer>, ProgressToken)>,
    work: impl Future<Output = Result<Reply, Failure>>,
) -> Reply {
    let news = context.progress.subscribe();
    let work = AssertUnwindSafe(work).catch_unwind();
    let outcome = match watcher {
        None => work.await,
        Some((peer, token)) => {
            // Told before anything else, so that every client knows that its call has arrived.
            let first = ProgressNotificationParam::new(token.clone(), 1.0).with_message("starting");
            note(&peer, first).await;
            // A child, so that a cancelled call falls silent too.
            let over = context.cancel.child_token();
            let telling = tell(peer, token, news, &over);
            let working = async {
                let outcome = work.await;
                over.cancel();
                outcome
            };
            // Joined, not raced: a notification under way that is let go would arrive after the reply.
            tokio::join!(working, telling).0
        }
    };
    match outcome {
        Ok(Ok(reply)) => reply,
        Ok(Err(failure)) => failure.into(),
        Err(_) => Failure::new(
            Code::Internal,
            "the tool broke while it worked on this call",
        )
        .hint("this is a fault of the server; its standard error has more")
        .into(),
    }
}

/// Sends one note; says whether more make sense. Nobody takes notes any more when the client is gone,
/// and a call must not wait for that.
async fn note(peer: &Peer<RoleServer>, news: ProgressNotificationParam) -> bool {
    let sent = tokio::time::timeout(NOTE_LIMIT, peer.notify_progress(news)).await;
    matches!(sent, Ok(Ok(())))
}

/// Tells progress until the call is over or the client does not listen any more.
async fn tell(
    peer: Peer<RoleServer>,
    token: ProgressToken,
    mut news: watch::Receiver<Progress>,
    over: &CancellationToken,
) {
    let begun = clock::instant();
    let mut tick = 2.0;
    loop {
        tokio::select! {
            biased;
            () = over.cancelled() => return,
            () = wait_for_news(&mut news) => {}
        }
        let now = news.borrow_and_update().clone();
        let elapsed = clock::instant().saturating_duration_since(begun).as_secs();
        let message = if now.bytes == 0 {
            format!("running for {elapsed} s, no output yet")
        } else {
            format!(
                "running for {elapsed} s, {} bytes: {}",
                now.bytes, now.message
            )
        };
        let news = ProgressNotificationParam::new(token.clone(), tick).with_message(message);
        if !note(&peer, news).await {
            return;
        }
        tick += 1.0;
    }
}

/// Waits for something new, neither too short nor too long.
async fn wait_for_news(news: &mut watch::Receiver<Progress>) {
    let told: Instant = clock::instant();
    tokio::select! {
        changed = news.changed() => match changed {
            Ok(()) => tokio::time::sleep_until(told + SHORTEST).await,
            Err(_) => tokio::time::sleep(LONGEST).await,
        },
        () = tokio::time::sleep(LONGEST) => {}
    }
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
