//! Brings files in one archive that the host packs while it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::sync::packing::{NO_ROOT, NO_TAR, Packing, listed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::store::Store;
use super::unpack::{Moved, Taken, Unpacking};
use super::{DownDone, DownError, DownJob, Planned, Problem};
use crate::sandbox::Sandbox;
use crate::shell::{ByteStream, StreamEnd};
use crate::sync::Progress;

/// Bytes that are taken from the host at once, and how many such pieces may wait for the disk.
const CHUNK: usize = 128 * 1024;
const WAITING_CHUNKS: usize = 8;

/// The list of names goes out in pieces of this size.
const LIST_CHUNK: usize = 64 * 1024;

/// So often it is begun anew for what did not come the time before.
const MOST_PASSES: usize = 32;

/// The most of a program's complaint that is told.
const MOST_WORDS: usize = 400;

/// What goes to the thread that writes.
enum Piece {
    Bytes(Bytes),
    /// The archive is over, and the program that packed it ended with these complaints.
    End(String),
}

/// What has been done since somebody last looked.
#[derive(Default)]
pub(super) struct Tally {
    bytes: AtomicU64,
    files: AtomicU64,
}

impl Tally {
    pub(super) fn add(&self, moved: Moved) {
        self.bytes.fetch_add(moved.bytes, Ordering::Relaxed);
        self.files.fetch_add(moved.files, Ordering::Relaxed);
    }

    pub(super) fn tell(&self, progress: &Progress) {
        progress.moved(self.bytes.swap(0, Ordering::Relaxed));
        progress.finished(self.files.swap(0, Ordering::Relaxed));
    }
}

/// How one archive ended.
struct Pass {
    store: Store,
    /// Whether it is worth while to ask for the rest once more.
    again: bool,
    /// What the program complained about.
    words: String,
}

pub(super) async fn download(far: &dyn Sandbox, job: &DownJob<'_>) -> Result<DownDone, DownError> {
    let mut store = Store::new(job.tree.clone(), job.transfer.clone(), job.files.clone());
    let mut words = String::new();
    for _ in 0..MOST_PASSES {
        let waiting = store.waiting();
        if waiting.is_empty() {
            break;
        }
        let pass = one_archive(far, job, store, &waiting).await?;
        (store, words) = (pass.store, pass.words);
        if !pass.again {
            break;
        }
    }
    let mut done = store.done("did not come; it may be gone, or cannot be read there");
    if !words.is_empty() {
        done.problem_count += 1;
        done.problems.push(Problem {
            path: ".".to_owned(),
            problem: format!("the host's `tar` said: {}", clean_line(&words, MOST_WORDS)),
        });
    }
    Ok(done)
}

async fn one_archive(
    far: &dyn Sandbox,
    job: &DownJob<'_>,
    store: Store,
    waiting: &[usize],
) -> Result<Pass, DownError> {
    let packing = Packing {
        root: &job.remote_root,
        follow_links: job.follow_links,
    };
    let script = packing.script();
    let opened = far.open(&["sh", "-c", &script]).await;
    let mut stream = opened.map_err(DownError::Sandbox)?;
    let (pieces, taken) = mpsc::channel(WAITING_CHUNKS);
    let tally = Arc::new(Tally::default());
    let writing = {
        let (tally, files) = (tally.clone(), waiting.len());
        tokio::task::spawn_blocking(move || write(store, taken, files, &tally))
    };
    let is_whole = {
        let tell = || tally.tell(job.progress);
        let feeding = feed(&mut stream.input, &job.files, waiting);
        let pumping = pump(&mut stream.output, &pieces, tell);
        tokio::pin!(feeding, pumping);
        // The program may end without taking the whole list, and the writer may have had enough.
        tokio::select! {
            is_whole = &mut pumping => is_whole,
            () = &mut feeding => pumping.await,
        }
    };
    let end = if is_whole {
        let end = match ended(stream).await {
            Ok(end) => end,
            Err(error) => {
                // Nobody writes any more when the caller hears of it, so that the next sync meets no files in motion.
                drop(pieces);
                let _ = writing.await;
                tally.tell(job.progress);
                return Err(error);
            }
        };
        let _ = pieces.send(Piece::End(complaints(&end))).await;
        Some(end)
    } else {
        drop(stream);
        None
    };
    drop(pieces);
    let written = writing.await.map_err(|_| DownError::Writer)?;
    tally.tell(job.progress);
    let words = end.as_ref().map(complaints).unwrap_or_default();
    match written {
        Ok((store, again)) => Ok(Pass {
            store,
            again,
            words,
        }),
        Err(DownError::Archive { source, .. }) => Err(DownError::Archive { words, source }),
        Err(error) => Err(error),
    }
}

/// What the program said, when something did not go well.
fn complaints(end: &StreamEnd) -> String {
    match end.exit_code {
        Some(0) => String::new(),
        _ => end.words.clone(),
    }
}

async fn ended(stream: ByteStream) -> Result<StreamEnd, DownError> {
    let end = stream.end().await.map_err(DownError::Stream)?;
    match end.exit_code {
        Some(NO_TAR) => Err(DownError::NoTar),
        Some(NO_ROOT) => Err(DownError::NoRoot {
            words: clean_line(&end.words, MOST_WORDS),
        }),
        _ => Ok(end),
    }
}

/// Sends the list of names. A program that ended takes no more of it, which its end will explain.
async fn feed(input: &mut DuplexStream, files: &[Planned], waiting: &[usize]) {
    let mut list = Vec::with_capacity(LIST_CHUNK);
    for planned in waiting.iter().filter_map(|number| files.get(*number)) {
        list.extend(listed(&planned.entry.path));
        list.push(0);
        if list.len() >= LIST_CHUNK {
            if input.write_all(&list).await.is_err() {
                return;
            }
            list.clear();
        }
    }
    if input.write_all(&list).await.is_ok() {
        let _ = input.shutdown().await;
    }
}

/// Passes the archive on to the writer; whether it came to its end.
async fn pump(output: &mut DuplexStream, pieces: &mpsc::Sender<Piece>, tell: impl Fn()) -> bool {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        match output.read_buf(&mut chunk).await {
            Ok(0) | Err(_) => return true,
            Ok(_) => {
                if pieces.send(Piece::Bytes(chunk.freeze())).await.is_err() {
                    return false;
                }
                tell();
            }
        }
    }
}

/// Writes what comes until the archive ends; whether to ask once more for what is missing.
fn write(
    mut store: Store,
    mut pieces: mpsc::Receiver<Piece>,
    files: usize,
    tally: &Tally,
) -> Result<(Store, bool), DownError> {
    let mut unpacking = Unpacking::new(files);
    loop {
        match pieces.blocking_recv() {
            // Nobody wants it any more; with the store every temporary file goes.
            None => return Err(DownError::Writer),
            Some(Piece::Bytes(bytes)) => {
                let taken = unpacking.take(&bytes, &mut store)?;
                tally.add(std::mem::take(&mut unpacking.moved));
                if matches!(taken, Taken::TooLarge) {
                    return Ok((store, true));
                }
            }
            Some(Piece::End(complaints)) => {
                let again = unpacking.again;
                unpacking.finish()?;
                let files = store.settle(&complaints)?;
                tally.add(Moved { bytes: 0, files });
                return Ok((store, again));
            }
        }
    }
}
