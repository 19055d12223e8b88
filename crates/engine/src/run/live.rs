//! One run, from its start until nobody asks for it any more.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::ids::{RunId, RunToken, SandboxName};
use remote_sandbox_core::outcome::StopReason;
use remote_sandbox_core::output::{HeadTail, Shaped, clean_line, shape};
use remote_sandbox_core::secret::{Mask, MaskStream};
use remote_sandbox_core::shell::{Started, Target};
use tokio::sync::watch;
use tokio::time::Instant;

use super::follow::Tap;
use super::reading::{Reading, Wanted, read};
use super::spool::Spool;
use crate::call::Principal;
use crate::clock;
use crate::sandbox::{Ended, Event, Stream};

/// How a run went, once it has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// How it ended, or why it never started.
    pub result: Result<Ended, Failure>,
    /// How long it took.
    pub duration: Duration,
}

/// What can be seen of a run from outside while it goes on.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Bytes of output so far.
    pub bytes: u64,
    /// Set once it has ended.
    pub finished: Option<Finished>,
    settled: bool,
}

/// A command that was started for somebody.
#[derive(Debug)]
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// The mark its processes carry.
    pub token: RunToken,
    /// Where it runs.
    pub sandbox: SandboxName,
    /// For whom.
    pub principal: Principal,
    /// The command, secrets masked.
    pub command: String,
    /// When it was started, since the Unix epoch.
    pub started_at: Duration,
    begun: Instant,
    stop: watch::Sender<Option<StopReason>>,
    status: watch::Sender<Status>,
    output: Mutex<Output>,
    /// Somebody who sees the output while it comes, and until when he is waited for.
    tap: Option<(Tap, Instant)>,
}

#[derive(Debug)]
struct Output {
    stdout: HeadTail,
    stderr: HeadTail,
    stdout_mask: MaskStream,
    stderr_mask: MaskStream,
    spool: Spool,
    started: Option<Started>,
}

/// What is needed to make a run.
pub(super) struct Birth {
    pub(super) id: RunId,
    pub(super) token: RunToken,
    pub(super) sandbox: SandboxName,
    pub(super) principal: Principal,
    pub(super) command: String,
    pub(super) folder: PathBuf,
    pub(super) shown_bytes: usize,
    pub(super) mask: Mask,
    pub(super) tap: Option<(Tap, Instant)>,
}

impl Run {
    pub(super) fn new(birth: Birth) -> Arc<Self> {
        if let Some((tap, _)) = &birth.tap {
            tap.keep_in(birth.folder.clone());
        }
        Arc::new(Run {
            id: birth.id,
            token: birth.token,
            sandbox: birth.sandbox,
            principal: birth.principal,
            command: birth.mask.mask_text(&birth.command).into_owned(),
            started_at: clock::wall(),
            begun: clock::instant(),
            stop: watch::channel(None).0,
            status: watch::channel(Status::default()).0,
            output: Mutex::new(Output {
                stdout: HeadTail::new(birth.shown_bytes),
                stderr: HeadTail::new(birth.shown_bytes),
                stdout_mask: birth.mask.stream(),
                stderr_mask: birth.mask.stream(),
                spool: Spool::new(birth.folder),
                started: None,
            }),
            tap: birth.tap,
        })
    }

    fn output(&self) -> std::sync::MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the sandbox tells.
    pub(super) fn take(&self, event: Event<'_>) {
        let (total, piece) = {
            let mut output = self.output();
            let piece = match event {
                Event::Started(started) => {
                    output.started = Some(started);
                    None
                }
                Event::Output(stream, bytes) => Some((stream, output.push(stream, bytes))),
            };
            (output.spool.total(), piece)
        };
        self.status.send_modify(|status| status.bytes = total);
        // Last, for it may wait: whoever asks for the run's state meanwhile must not.
        if let (Some((tap, deadline)), Some((stream, bytes))) = (&self.tap, piece) {
            tap.push(stream, bytes, *deadline);
        }
    }

    /// Notes the end.
    pub(super) fn finish(&self, finished: Finished) {
        let (total, rest) = {
            let mut output = self.output();
            let rest = output.flush();
            output.spool.finish();
            (output.spool.total(), rest)
        };
        if let Some((tap, deadline)) = &self.tap {
            for (stream, bytes) in rest {
                tap.push(stream, bytes, *deadline);
            }
            tap.end();
        }
        self.status.send_modify(|status| {
            status.bytes = total;
            status.finished = Some(finished);
        });
    }

    /// Notes that everything about its end is written down.
    pub(super) fn settled(&self) {
        self.status.send_modify(|status| status.settled = true);
    }

    /// Waits until everything about its end is written down, but not past a point in time.
    pub(super) async fn wait_until_settled(&self, until: Instant) {
        let mut status = self.watch();
        let settled = status.wait_for(|status| status.settled);
        let _ = tokio::time::timeout_at(until, settled).await;
    }

    /// Asks for the end; the first reason stays.
    pub fn stop(&self, reason: StopReason) {
        self.stop.send_if_modified(|stop| {
            let first = stop.is_none();
            stop.get_or_insert(reason);
            first
        });
        if let Some((tap, _)) = &self.tap {
            tap.hurry();
        }
    }

    pub(super) fn stop_signal(&self) -> watch::Receiver<Option<StopReason>> {
        self.stop.subscribe()
    }

    /// How long it has been going.
    pub fn elapsed(&self) -> Duration {
        clock::instant().saturating_duration_since(self.begun)
    }

    /// How it went, once it has ended.
    pub fn finished(&self) -> Option<Finished> {
        self.status.borrow().finished.clone()
    }

    /// Watches it.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Waits for its end until a point in time.
    pub async fn wait_until(&self, until: Instant) -> Option<Finished> {
        let mut status = self.watch();
        let end = status.wait_for(|status| status.finished.is_some());
        let end = tokio::time::timeout_at(until, end).await.ok()?.ok()?;
        end.finished.clone()
    }

    /// Waits until there is output past `since`, or the end, or a point in time.
    pub async fn wait_for_output(&self, since: u64, until: Instant) {
        let mut status = self.watch();
        let news = status.wait_for(|status| status.bytes > since || status.finished.is_some());
        let _ = tokio::time::timeout_at(until, news).await;
    }

    /// Both streams as a reply shows them, and the byte after the last one shown.
    pub fn shape(&self, budget: usize) -> (Shaped, u64) {
        let output = self.output();
        let shaped = shape(&output.stdout, &output.stderr, budget);
        (shaped, output.spool.total())
    }

    /// Frees the memory for the reply, once that is made.
    pub fn forget_shown(&self) {
        let mut output = self.output();
        output.stdout = HeadTail::new(0);
        output.stderr = HeadTail::new(0);
    }

    /// Reads the kept output.
    pub fn read(&self, wanted: &Wanted) -> std::io::Result<Reading> {
        read(&self.output().spool, wanted)
    }

    /// The newest line, for people who watch.
    pub fn last_line(&self) -> String {
        let output = self.output();
        let since = output.spool.total().saturating_sub(400);
        let piece = output
            .spool
            .read(since, 400)
            .map(|piece| piece.bytes)
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&piece);
        let line = text
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        clean_line(line, 160)
    }

    /// What finds its processes on the host.
    pub fn target(&self) -> Target {
        Target {
            token: self.token.clone(),
            started: self.output().started,
        }
    }

    /// Whether some of its output is on disk.
    pub(super) fn is_on_disk(&self) -> bool {
        self.output().spool.is_on_disk()
    }

    /// Puts its output on disk, where it outlives this process; says how much is kept and came.
    pub(super) fn settle(&self) -> std::io::Result<(u64, u64)> {
        let mut output = self.output();
        output.spool.spill()?;
        Ok((output.spool.kept(), output.spool.total()))
    }
}

impl Output {
    fn push(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let mut clean = Vec::with_capacity(bytes.len());
        match stream {
            Stream::Out => {
                self.stdout_mask.push(bytes, &mut clean);
                self.stdout.push(&clean);
            }
            Stream::Err => {
                self.stderr_mask.push(bytes, &mut clean);
                self.stderr.push(&clean);
            }
        }
        self.spool.push(&clean);
        clean
    }

    /// Lets go of bytes that might have been the start of a secret.
    fn flush(&mut self) -> [(Stream, Vec<u8>); 2] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        self.stdout_mask.finish(&mut out);
        self.stdout.push(&out);
        self.spool.push(&out);
        self.stderr_mask.finish(&mut err);
        self.stderr.push(&err);
        self.spool.push(&err);
        [(Stream::Out, out), (Stream::Err, err)]
    }
}
