//! Syncs trees between this machine and a sandbox.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use tokio_util::sync::CancellationToken;

use super::Engine;
use crate::audit::{BeginRow, EndRow};
use crate::call::{CallContext, Progress as CallProgress};
use crate::clock;
use crate::sandbox::Sandbox;
use crate::sync::{
    Figures, Phase, PlanReport, Prepared, Progress, Purpose, SyncReport, SyncRequest, Way,
};
use crate::transfer::Started;

/// How often a caller is told how far it has come.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// How long a cancelled sync may take to clean up.
const CANCEL_LIMIT: Duration = Duration::from_millis(1500);

/// How long a sync waits for its turn, in the background and within a call, and how often it looks whether that has come.
const TURN_LIMIT: Duration = Duration::from_secs(30);
const CALL_TURN_LIMIT: Duration = Duration::from_secs(5);
const TURN_POLL: Duration = Duration::from_millis(200);

/// Where a sync is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// Within the call when it is small, else in the background.
    BySize,
    /// Within the call, whatever its size.
    Here,
    /// In the background, whatever its size.
    Background,
    /// Nowhere: only the plan is wanted.
    Nowhere,
}

/// What a sync has come to.
#[derive(Debug)]
pub enum SyncAnswer {
    /// It is done.
    Done(Box<SyncReport>),
    /// This is what it would do.
    Planned(Box<PlanReport>),
    /// It goes on in the background.
    Background(Started),
}

impl Engine {
    /// Makes one tree like another.
    pub async fn sync(
        &self,
        context: &CallContext,
        request: SyncRequest,
        place: Where,
        progress: &Arc<Progress>,
    ) -> Result<SyncAnswer, Failure> {
        let sandbox = self.sandbox(Some(&request.sandbox))?;
        self.record_sync(context, sandbox.as_ref(), &request)?;
        self.kept.learn().await;
        let name = request.sandbox.clone();
        let work = self.sync_there(context, sandbox, request, place, progress);
        tokio::pin!(work);
        let mut tick = tokio::time::interval(TELL_EVERY);
        let answer = loop {
            tokio::select! {
                answer = &mut work => break answer,
                () = context.cancel.cancelled() => {
                    // It removes what it has left over there, if the link is still good for that.
                    match tokio::time::timeout(CANCEL_LIMIT, &mut work).await {
                        Ok(Ok(answer)) => break Ok(answer),
                        _ => break Err(cancelled(progress)),
                    }
                }
                _ = tick.tick() => tell(context, &progress.figures()),
            }
        };
        let answer = answer.map_err(|failure| failure.masked(&self.mask));
        self.record_end(context, &name, &answer, progress);
        answer
    }

    /// Writes down how a sync ended.
    fn record_end(
        &self,
        context: &CallContext,
        sandbox: &str,
        answer: &Result<SyncAnswer, Failure>,
        progress: &Progress,
    ) {
        let outcome = match answer {
            Ok(SyncAnswer::Done(_)) => "synced",
            Ok(SyncAnswer::Planned(_)) => "planned",
            Ok(SyncAnswer::Background(_)) => "background",
            Err(failure) => failure.code.name(),
        };
        let row = EndRow {
            run: &context.call,
            sandbox,
            outcome,
            exit_code: None,
            duration_s: progress.figures().duration_s,
        };
        if let Err(error) = self.audit.end(&row) {
            tracing::error!(%error, "the end of a sync could not be recorded");
        }
    }

    /// Syncs when it is its turn: several calls at once may concern the same two folders.
    async fn sync_there(
        &self,
        context: &CallContext,
        sandbox: Arc<dyn Sandbox>,
        request: SyncRequest,
        place: Where,
        progress: &Arc<Progress>,
    ) -> Result<SyncAnswer, Failure> {
        in_turn(CALL_TURN_LIMIT, progress, || {
            self.sync_once(context, sandbox.clone(), request.clone(), place, progress)
        })
        .await
    }

    async fn sync_once(
        &self,
        context: &CallContext,
        sandbox: Arc<dyn Sandbox>,
        request: SyncRequest,
        place: Where,
        progress: &Arc<Progress>,
    ) -> Result<SyncAnswer, Failure> {
        if place == Where::Background {
            return self.sync_later(context, request).await;
        }
        let purpose = match place {
            Where::Nowhere => Purpose::Plan,
            _ => Purpose::Work,
        };
        let prepared = self.prepare(sandbox, &request, purpose, progress).await;
        let prepared = match prepared {
            Err(failure) if failure.code == Code::Busy && place == Where::BySize => {
                let under_way = self.transfer_under_way(context, &request).await?;
                return under_way.map(SyncAnswer::Background).ok_or(failure);
            }
            prepared => prepared?,
        };
        if place == Where::Nowhere {
            return Ok(SyncAnswer::Planned(Box::new(prepared.plan())));
        }
        prepared.check()?;
        let (files, bytes) = prepared.size();
        let settings = self.settings();
        let is_large = files > settings.inline_sync_max_files
            || bytes > settings.inline_sync_max_bytes
            || settings.inline_sync_max_files == 0
            || settings.inline_sync_max_bytes == 0;
        if place == Where::BySize && is_large {
            drop(prepared);
            return self.sync_later(context, request).await;
        }
        let report = prepared.carry_out(progress, &context.cancel).await?;
        Ok(SyncAnswer::Done(Box::new(report)))
    }

    /// Does a sync to its end, in this process.
    pub async fn sync_now(
        &self,
        request: &SyncRequest,
        progress: Arc<Progress>,
        cancel: CancellationToken,
    ) -> Result<SyncReport, Failure> {
        progress.enter(Phase::Connecting);
        let sandbox = self.sandbox(Some(&request.sandbox))?;
        self.kept.learn().await;
        let once = || async {
            let (sandbox, work) = (sandbox.clone(), Purpose::Work);
            let prepared = self.prepare(sandbox, request, work, &progress).await?;
            prepared.carry_out(&progress, &cancel).await
        };
        // A call that is about to find this very sync may look at both sides at the same time.
        let work = in_turn(TURN_LIMIT, &progress, once);
        tokio::pin!(work);
        let done = tokio::select! {
            done = &mut work => done,
            () = cancel.cancelled() => {
                match tokio::time::timeout(CANCEL_LIMIT, &mut work).await {
                    Ok(Ok(report)) => Ok(report),
                    _ => Err(cancelled(&progress)),
                }
            }
        };
        done.map_err(|failure| failure.masked(&self.mask))
    }

    async fn prepare(
        &self,
        sandbox: Arc<dyn Sandbox>,
        request: &SyncRequest,
        purpose: Purpose,
        progress: &Progress,
    ) -> Result<Prepared, Failure> {
        let scanner = self.scanner(sandbox.as_ref()).await?;
        Prepared::look(
            sandbox,
            scanner,
            &self.paths,
            &self.state,
            request,
            purpose,
            progress,
        )
        .await
    }

    async fn sync_later(
        &self,
        context: &CallContext,
        request: SyncRequest,
    ) -> Result<SyncAnswer, Failure> {
        let started = self.start_transfer(context, request).await?;
        Ok(SyncAnswer::Background(started))
    }

    fn record_sync(
        &self,
        context: &CallContext,
        sandbox: &dyn Sandbox,
        request: &SyncRequest,
    ) -> Result<(), Failure> {
        let (tool, arrow) = match request.way {
            Way::Up => ("sync_local_to_remote", "->"),
            Way::Down => ("sync_remote_to_local", "<-"),
        };
        let (local, remote) = (request.local_path.shown(), request.remote_path.shown());
        let paths = format!("{local} {arrow} {remote}");
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool,
            sandbox: sandbox.description().name.as_str(),
            run: &context.call,
            command: &paths,
            cwd: None,
        })
    }
}

/// Does something as soon as nobody else is at it, or tells that it is somebody's after a while. What it does then begins
/// with a new look at both sides.
async fn in_turn<T, F>(
    limit: Duration,
    progress: &Progress,
    once: impl Fn() -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let end = clock::instant() + limit;
    loop {
        match once().await {
            Err(failure) if failure.code == Code::Busy && clock::instant() < end => {
                progress.enter(Phase::Queued);
                tokio::time::sleep(TURN_POLL).await;
            }
            done => return done,
        }
    }
}

fn cancelled(progress: &Progress) -> Failure {
    progress.enter(Phase::Cancelled);
    Failure::new(Code::Cancelled, "the sync was cancelled")
        .hint("what has arrived stays; sync again to go on")
}

fn tell(context: &CallContext, figures: &Figures) {
    let phase = format!("{:?}", figures.phase).to_lowercase();
    let message = match figures.files_total {
        0 => phase,
        total => format!("{phase}: {} of {total} files", figures.files_done),
    };
    context.progress.send_replace(CallProgress {
        message,
        bytes: figures.bytes_done,
    });
}
