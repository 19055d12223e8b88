//! Brings files by the file protocol, many at the same time.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sftp::{Attributes as Told, FileKind, OpenFlags, PathError, RemotePath};
use remote_sandbox_core::sync::path::inside;
use remote_sandbox_core::sync::{Kind, Mtime, RelPath};
use tokio::sync::{Semaphore, mpsc};

use super::by_tar::{Tally, without_doubt};
use super::store::{Attributes, Store, too_large};
use super::unpack::Moved;
use super::{DownDone, DownError, DownJob, Planned};
use crate::sandbox::Sandbox;
use crate::sandbox::conversation::{Client, SftpError};

/// Files under way at the same time, where the server allows as many to be open.
const MOST_FILES: usize = 256;

/// The same where it does not say what it allows.
const USUAL_FILES: usize = 64;

/// Bytes of files under way, in KiB.
const MOST_KIB: u32 = 16 * 1024;

/// Pieces that may wait for the disk.
const WAITING_PIECES: usize = 32;

/// Bytes of one file that are asked for ahead.
const WINDOW: u64 = 256 * 1024;

const CHANGED: &str = "was changed while it was read; it is left for the next sync";

/// What goes to the thread that writes, each with the number of its file.
enum Step {
    Begin(usize, u64),
    Content(usize, Bytes),
    Finish(usize, Attributes),
    Link(usize, Vec<u8>),
    Fail(usize, String),
    /// Everything came.
    End,
}

/// Why the way to one file is left.
enum Stop {
    /// Only this file is concerned.
    File(String),
    /// The conversation is over, or nobody writes any more.
    All(Option<SftpError>),
}

impl From<SftpError> for Stop {
    fn from(error: SftpError) -> Self {
        match error {
            SftpError::Closed(_) => Stop::All(Some(error)),
            error => Stop::File(Failure::chain(&error)),
        }
    }
}

impl From<PathError> for Stop {
    fn from(error: PathError) -> Self {
        Stop::File(error.to_string())
    }
}

impl From<mpsc::error::SendError<Step>> for Stop {
    fn from(_: mpsc::error::SendError<Step>) -> Self {
        Stop::All(None)
    }
}

/// Brings files over a conversation about files, hundreds at the same time and in bounded memory.
pub(super) async fn download(
    far: &dyn Sandbox,
    client: &Client,
    job: &DownJob<'_>,
) -> Result<DownDone, DownError> {
    let store = Store::new(job.tree.clone(), job.transfer.clone(), job.files.clone());
    let (steps, taken) = mpsc::channel(WAITING_PIECES);
    let tally = Arc::new(Tally::default());
    let writing = {
        let tally = tally.clone();
        tokio::task::spawn_blocking(move || write(store, taken, &tally))
    };
    let fetching = Fetching {
        client,
        root: &job.remote_root,
        follow_links: job.follow_links,
        room: Semaphore::new(MOST_KIB as usize),
        steps: &steps,
    };
    let fetched = fetching.all(job, &tally).await;
    if fetched.is_ok() {
        let _ = steps.send(Step::End).await;
    }
    drop(steps);
    let written = writing.await.map_err(|_| DownError::Writer)?;
    tally.tell(job.progress);
    match (fetched, written) {
        (Err(Some(error)), _) => Err(DownError::Files(error)),
        (_, written) => {
            let store = without_doubt(far, job, written?).await?;
            Ok(store.done("did not come"))
        }
    }
}

/// Some handles are left to others who speak on the same conversation.
fn at_once(client: &Client) -> usize {
    match client.limits().open_handles {
        0 => USUAL_FILES,
        handles => {
            usize::try_from(handles / 2).map_or(MOST_FILES, |half| half.clamp(1, MOST_FILES))
        }
    }
}

struct Fetching<'a> {
    client: &'a Client,
    root: &'a [u8],
    follow_links: bool,
    room: Semaphore,
    steps: &'a mpsc::Sender<Step>,
}

impl Fetching<'_> {
    /// Brings everything, many at the same time.
    async fn all(&self, job: &DownJob<'_>, tally: &Tally) -> Result<(), Option<SftpError>> {
        let numbers = futures::stream::iter(0..job.files.len());
        let mut work = numbers
            .map(|number| self.numbered(number, job))
            .buffer_unordered(at_once(self.client));
        while let Some(done) = work.next().await {
            done?;
            tally.tell(job.progress);
        }
        Ok(())
    }

    async fn numbered(&self, number: usize, job: &DownJob<'_>) -> Result<(), Option<SftpError>> {
        match job.files.get(number) {
            Some(planned) => self.one(number, planned).await,
            None => Ok(()),
        }
    }

    async fn one(&self, number: usize, planned: &Planned) -> Result<(), Option<SftpError>> {
        let fetched = match &planned.entry.kind {
            Kind::Link { .. } => self.link(number, planned).await,
            _ => self.file(number, planned).await,
        };
        let fetched = match fetched {
            Err(Stop::File(problem)) => {
                let failed = self.steps.send(Step::Fail(number, problem)).await;
                failed.map_err(Stop::from)
            }
            fetched => fetched,
        };
        match fetched {
            Err(Stop::All(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, path: &RelPath) -> Result<RemotePath, PathError> {
        remote_path(self.root, path)
    }

    async fn link(&self, number: usize, planned: &Planned) -> Result<(), Stop> {
        let path = self.path(&planned.entry.path)?;
        let target = self.client.readlink(&path).await?;
        let target = target.as_bytes().to_vec();
        Ok(self.steps.send(Step::Link(number, target)).await?)
    }

    async fn file(&self, number: usize, planned: &Planned) -> Result<(), Stop> {
        let size_kib = u32::try_from(planned.entry.size_bytes / 1024).unwrap_or(MOST_KIB);
        let permits = size_kib.saturating_add(1).min(MOST_KIB);
        let room = self.room.acquire_many(permits).await;
        let _room = room.map_err(|_| Stop::All(None))?;
        let path = self.path(&planned.entry.path)?;
        // Opening a pipe would stop the server, and with it everything else.
        let about = match self.follow_links {
            true => self.client.stat(&path).await?,
            false => self.client.lstat(&path).await?,
        };
        let size_bytes = match (about.kind(), about.size_bytes) {
            (Some(FileKind::File), Some(size)) => size,
            _ => return Err(Stop::File("is no regular file any more".to_owned())),
        };
        if size_bytes > planned.most_bytes() {
            return Err(Stop::File(too_large().to_owned()));
        }
        let file = self
            .client
            .open(&path, OpenFlags::READ, Told::default())
            .await?;
        self.steps.send(Step::Begin(number, size_bytes)).await?;
        let mut reader = file.reader(0, planned.most_bytes()).window(WINDOW);
        let mut read = 0;
        while let Some((_, bytes)) = reader.next().await? {
            read += bytes.len() as u64;
            self.steps.send(Step::Content(number, bytes)).await?;
        }
        let after = file.stat().await?;
        let is_same = after.size_bytes == Some(read)
            && read == size_bytes
            && modified(&after) == modified(&about);
        if !is_same {
            return Err(Stop::File(CHANGED.to_owned()));
        }
        let said = Attributes {
            mode: (about.mode.unwrap_or(0o644) & 0o7777) as u16,
            mtime: modified(&about).unwrap_or(planned.entry.mtime),
        };
        self.steps.send(Step::Finish(number, said)).await?;
        // The content is complete, whatever the server says about closing.
        let _ = file.close().await;
        Ok(())
    }
}

/// The path of a file below the root.
pub(super) fn remote_path(root: &[u8], path: &RelPath) -> Result<RemotePath, PathError> {
    RemotePath::new(inside(root, path.as_bytes()))
}

pub(super) fn modified(about: &Told) -> Option<Mtime> {
    about
        .times
        .map(|times| Mtime::whole(i64::from(times.modified_s)))
}

fn write(
    mut store: Store,
    mut steps: mpsc::Receiver<Step>,
    tally: &Tally,
) -> Result<Store, DownError> {
    loop {
        let mut moved = Moved::default();
        match steps.blocking_recv() {
            // Nobody wants it any more; with the store every temporary file goes.
            None => return Err(DownError::Writer),
            Some(Step::End) => {
                // The protocol knows whole seconds; what was changed within one is found by a closer look.
                store.doubt();
                return Ok(store);
            }
            Some(Step::Begin(number, size_bytes)) => store.begin(number, size_bytes)?,
            Some(Step::Content(number, bytes)) => {
                store.content(number, &bytes)?;
                moved.bytes = bytes.len() as u64;
            }
            Some(Step::Finish(number, said)) => store.park(number, said)?,
            Some(Step::Link(number, target)) => {
                moved.files = u64::from(store.link(number, &target)?);
            }
            Some(Step::Fail(number, problem)) => store.fail(number, problem),
        }
        tally.add(moved);
    }
}
