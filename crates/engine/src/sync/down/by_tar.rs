//! Brings files in one archive that the host packs while it comes.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use flate2::bufread::GzDecoder;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::sync::RelPath;
use remote_sandbox_core::sync::packing::{GZIP_MAGIC, NO_ROOT, NO_TAR, Packing, listed};
use remote_sandbox_core::sync::receive;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::flow::Flow;
use super::pieces::{Piece, Pieces};
use super::recheck::look_again;
use super::store::Store;
use super::unpack::{Moved, Taken, Unpacking};
use super::{DownDone, DownError, DownJob, MOST_GROWTH, Planned, Problem};
use crate::mark::new_mark;
use crate::sandbox::Sandbox;
use crate::shell::{ByteStream, StreamEnd};
use crate::sync::Progress;
use crate::sync::far::SILENCE_LIMIT;

/// Bytes that are taken from the host at once, and how many such pieces may wait for the disk.
const CHUNK: usize = 128 * 1024;
const WAITING_CHUNKS: usize = 8;

/// The list of names goes out in pieces of this size.
const LIST_CHUNK: usize = 64 * 1024;

/// So much of a script may be names of directories, and so much comes with each.
const MOST_DIRECTORY_BYTES: usize = 64 * 1024;
const BYTES_PER_DIRECTORY: usize = 24;

/// So often it is begun anew for what did not come the time before.
const MOST_PASSES: usize = 32;

/// The most of a program's complaint that is told.
const MOST_WORDS: usize = 400;

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
        words = pass.words;
        store = without_doubt(far, job, pass.store).await?;
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

/// Gives what waits for its name its name, or tells that it changed.
pub(super) async fn without_doubt(
    far: &dyn Sandbox,
    job: &DownJob<'_>,
    mut store: Store,
) -> Result<Store, DownError> {
    let doubtful = store.doubtful();
    if doubtful.is_empty() {
        return Ok(store);
    }
    let now = look_again(far, job, &doubtful).await?;
    let settling = tokio::task::spawn_blocking(move || {
        let files = store.settle(&now)?;
        Ok((store, files))
    });
    let (store, files) = settling.await.map_err(|_| DownError::Writer)??;
    job.progress.finished(files);
    Ok(store)
}

async fn one_archive(
    far: &dyn Sandbox,
    job: &DownJob<'_>,
    store: Store,
    waiting: &[usize],
) -> Result<Pass, DownError> {
    let expected = Expected::of(job, waiting);
    let script = expected.script(job);
    let opened = far.open(&["sh", "-c", &script]).await;
    let mut stream = opened.map_err(DownError::Sandbox)?;
    let (pieces, taken) = mpsc::channel(WAITING_CHUNKS);
    let tally = Arc::new(Tally::default());
    let writing = {
        let tally = tally.clone();
        tokio::task::spawn_blocking(move || write(store, taken, &expected, &tally))
    };
    let flow = Flow::new(job.gauge);
    let pumped = {
        let tell = || tally.tell(job.progress);
        let feeding = feed(&mut stream.input, &job.files, waiting, Some(&flow));
        let pumping = pump(&mut stream.output, &pieces, &flow, tell);
        tokio::pin!(feeding, pumping);
        // The program may end without taking the whole list, and the writer may have had enough.
        tokio::select! {
            pumped = &mut pumping => pumped,
            () = &mut feeding => pumping.await,
        }
    };
    let end = if !matches!(pumped, Ok(false)) {
        let ended = match pumped {
            Ok(_) => ended(stream).await,
            Err(error) => Err(error),
        };
        let end = match ended {
            Ok(end) => end,
            Err(error) => {
                // Nobody writes any more when the caller hears of it, so that the next sync meets no files in motion.
                drop(pieces);
                let _ = writing.await;
                tally.tell(job.progress);
                return Err(error);
            }
        };
        let _ = pieces.send(Piece::End).await;
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
            again: again || flow.is_stopped(),
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
pub(super) async fn feed(
    input: &mut DuplexStream,
    files: &[Planned],
    waiting: &[usize],
    flow: Option<&Flow<'_>>,
) {
    let mut list = Vec::with_capacity(LIST_CHUNK);
    for planned in waiting.iter().filter_map(|number| files.get(*number)) {
        let is_held = flow.is_some_and(Flow::is_ahead);
        if list.len() >= LIST_CHUNK || is_held {
            if input.write_all(&list).await.is_err() {
                return;
            }
            list.clear();
        }
        if let Some(flow) = flow {
            if is_held && !flow.may_go_on().await {
                break;
            }
            flow.asked(planned.entry.size_bytes);
        }
        list.extend(listed(&planned.entry.path));
        list.push(0);
    }
    if input.write_all(&list).await.is_ok() {
        let _ = input.shutdown().await;
    }
}

/// Passes the archive on to the writer; whether it came to its end.
async fn pump(
    output: &mut DuplexStream,
    pieces: &mpsc::Sender<Piece>,
    flow: &Flow<'_>,
    tell: impl Fn(),
) -> Result<bool, DownError> {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let reading = tokio::time::timeout(SILENCE_LIMIT, output.read_buf(&mut chunk));
        match reading.await.map_err(|_| DownError::Late)? {
            Ok(0) | Err(_) => return Ok(true),
            Ok(_) => {
                flow.came(&chunk);
                if pieces.send(Piece::Bytes(chunk.freeze())).await.is_err() {
                    return Ok(false);
                }
                tell();
            }
        }
    }
}

/// What an archive may hold.
struct Expected {
    files: usize,
    /// Whether it may be packed.
    gzip: bool,
    /// Bytes of files together.
    bytes: u64,
    /// What its remarks are known by.
    mark: RunToken,
    /// The directories of the files, unless they are too many to be told beforehand.
    directories: Option<Vec<RelPath>>,
}

impl Expected {
    fn of(job: &DownJob<'_>, waiting: &[usize]) -> Self {
        let sizes = waiting.iter().filter_map(|number| job.files.get(*number));
        let sizes = sizes.map(|planned| planned.entry.size_bytes);
        Expected {
            files: waiting.len(),
            gzip: job.gauge.packing() == receive::Packing::Gzip,
            bytes: sizes.fold(MOST_GROWTH, u64::saturating_add),
            mark: new_mark(),
            directories: directories_of(job, waiting),
        }
    }

    /// The script that makes it.
    fn script(&self, job: &DownJob<'_>) -> String {
        let packing = Packing {
            root: &job.remote_root,
            follow_links: job.follow_links,
            mark: &self.mark,
            as_named: job.gauge.is_slow().is_none(),
            gzip: self.gzip,
            directories: self.directories.as_deref(),
        };
        packing.script()
    }
}

/// The directories that files lie in, below the root; none where they make a script too long.
fn directories_of(job: &DownJob<'_>, waiting: &[usize]) -> Option<Vec<RelPath>> {
    let files = waiting.iter().filter_map(|number| job.files.get(*number));
    let mut found: Vec<RelPath> = Vec::new();
    let mut bytes = 0;
    for parent in files.filter_map(|planned| planned.entry.path.parent()) {
        // They come in the order of paths, so the same ones mostly follow each other.
        if found.last() != Some(&parent) {
            bytes += parent.as_bytes().len() + BYTES_PER_DIRECTORY;
            found.push(parent);
        }
        if bytes > MOST_DIRECTORY_BYTES {
            return None;
        }
    }
    Some(found)
}

/// Writes what comes until the archive ends; whether to ask once more for what is missing.
fn write(
    mut store: Store,
    pieces: mpsc::Receiver<Piece>,
    expected: &Expected,
    tally: &Tally,
) -> Result<(Store, bool), DownError> {
    let mut pieces = Pieces::new(pieces);
    let is_packed = expected.gzip && pieces.begin_with(GZIP_MAGIC);
    let most_content = match is_packed {
        true => expected.bytes,
        false => u64::MAX,
    };
    let mut unpacking = Unpacking::new(expected.files, most_content, &expected.mark);
    let taken = match is_packed {
        true => {
            let unpacked = GzDecoder::new(&mut pieces);
            let mut unpacked = std::io::BufReader::with_capacity(CHUNK, unpacked);
            take_all(&mut unpacked, &mut unpacking, &mut store, tally)
        }
        false => take_all(&mut pieces, &mut unpacking, &mut store, tally),
    };
    match taken {
        // Nobody wants it any more; with the store every temporary file goes.
        Err(DownError::Packed(_)) if pieces.is_lost() => return Err(DownError::Writer),
        Ok(Taken::TooLarge) => {
            store.doubt();
            return Ok((store, true));
        }
        Ok(Taken::More) => {}
        Err(error) => return Err(error),
    }
    // Behind what is packed nothing may follow.
    while let Some(bytes) = pieces.next() {
        unpacking.put_up_with(bytes.len() as u64)?;
    }
    if !pieces.is_over() {
        return Err(DownError::Writer);
    }
    let again = unpacking.again;
    unpacking.finish()?;
    store.doubt();
    Ok((store, again))
}

/// Takes an archive to its end, or up to something that is too large.
fn take_all(
    archive: &mut impl BufRead,
    unpacking: &mut Unpacking,
    store: &mut Store,
    tally: &Tally,
) -> Result<Taken, DownError> {
    loop {
        let bytes = archive.fill_buf().map_err(DownError::Packed)?;
        if bytes.is_empty() {
            return Ok(Taken::More);
        }
        let taken = unpacking.take(bytes, store)?;
        tally.add(std::mem::take(&mut unpacking.moved));
        if matches!(taken, Taken::TooLarge) {
            return Ok(taken);
        }
        let length = bytes.len();
        archive.consume(length);
    }
}
