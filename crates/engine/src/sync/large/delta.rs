//! Has a host build a file out of its older one and what is new.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remote_sandbox_core::delta::{
    Block, BlockLength, Checksum, Instruction, Matcher, OldStamp, RebuildRequest, RebuildVerdict,
    Signature, SignatureReader, copy_frame, data_head, end_frame, parse_rebuild, rebuild_script,
};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::Entry;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

use super::error::LargeError;
use super::place::Place;
use super::source::Source;
use crate::mark::new_mark;
use crate::sandbox::Sandbox;
use crate::shell::ByteStream;
use crate::sync::Progress;

/// A smaller old file is not worth the words.
const SMALLEST_OLD: u64 = 8 * 1024 * 1024;

/// When this many hundredths of the file are new, it goes as a whole.
const MOST_NEW_PERCENT: u64 = 60;

/// Bytes of the file that are read at once.
const CHUNK: usize = 256 * 1024;

/// New bytes that are sent at once.
const FRAME: u64 = 256 * 1024;

/// Instructions that may wait to be sent; finding them is faster than sending what they need.
const WAITING: usize = 16 * 1024;

/// What the host tells of its blocks at once, and how much of that may wait.
const TOLD_AT_ONCE: usize = 64 * 1024;
const TOLD_WAITING: usize = 256;

/// So much further than the new file is gone through, the old one must be known. What was moved back a little is found;
/// and what is known the host has copied, so that it does not do so over what it is sent for that place.
const KNOWN_AHEAD: u64 = 4 * 1024 * 1024;

/// After so many bytes without a block, all of the old file should be known before it goes on.
const LONGEST_SEARCH: u64 = 256 * 1024;

/// What the host may print.
const LONGEST_VERDICT: u64 = 64 * 1024;

/// A host copies at least so many bytes in a second, and may take this long in any case.
const SLOWEST_COPY: u64 = 10 * 1024 * 1024;
const COPY_LIMIT: Duration = Duration::from_secs(60);

/// So long a host may take to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

/// So long a host may take to clear away what it built in vain.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

/// So long a host may say nothing, or take nothing of what is sent to it.
const STALL_LIMIT: Duration = Duration::from_secs(120);

/// Whether the old file may be of use for the new one.
pub(super) fn is_candidate(old: &Entry, new: &Entry) -> bool {
    let (old_size, new_size) = (old.size_bytes, new.size_bytes);
    old.kind.is_file()
        && old_size >= SMALLEST_OLD
        && old_size / 2 <= new_size
        && new_size / 2 <= old_size
}

/// A program on the host that tells of the old file and waits to be told how the new one differs.
pub(super) struct Rebuilder {
    stream: ByteStream,
    mark: RunToken,
    reader: SignatureReader,
    signature: Signature,
}

impl Rebuilder {
    /// Has the host begin; nothing where it cannot.
    pub(super) async fn begin(
        far: &dyn Sandbox,
        place: &Place,
        old: &Entry,
        new: &Entry,
    ) -> Option<Self> {
        let block = BlockLength::for_size(old.size_bytes)?;
        let mark = new_mark();
        let request = RebuildRequest {
            old: place.target.as_bytes(),
            new: place.built.as_bytes(),
            block,
            size_bytes: new.size_bytes,
            mode: new.carried_mode(),
            mtime: new.mtime,
        };
        let script = rebuild_script(&request, &mark);
        let mut reader = SignatureReader::new(&mark, block);
        let begin = async {
            let mut stream = far.open(&["sh", "-c", &script]).await.ok()?;
            loop {
                listen(&mut stream.output, &mut reader).await?;
                if let Some(signature) = reader.begun() {
                    return Some((stream, signature));
                }
            }
        };
        let (stream, signature) = tokio::time::timeout(BEGIN_LIMIT, begin).await.ok()??;
        let rebuilder = Rebuilder {
            stream,
            mark,
            reader,
            signature,
        };
        if rebuilder.signature.size_bytes() == old.size_bytes {
            return Some(rebuilder);
        }
        rebuilder.give_up().await;
        None
    }

    /// Ends it, and waits until nothing is left of what it built: that takes space which others need.
    pub(super) async fn give_up(self) {
        clear(self.stream).await;
    }
}

async fn clear(mut stream: ByteStream) {
    let end = async {
        stream.input.shutdown().await?;
        tokio::io::copy(&mut stream.output, &mut tokio::io::sink()).await
    };
    // It ends by itself when its link does.
    let _ = tokio::time::timeout(CLEAR_LIMIT, end).await;
}

/// Takes what the host says next; nothing when it says no more.
async fn listen(output: &mut DuplexStream, reader: &mut SignatureReader) -> Option<()> {
    let mut buffer = Vec::with_capacity(TOLD_AT_ONCE);
    let reading = output.read_buf(&mut buffer);
    let count = tokio::time::timeout(STALL_LIMIT, reading).await;
    let is_more = count.ok()?.ok()? > 0;
    reader.feed(&buffer).ok()?;
    is_more.then_some(())
}

/// Passes blocks on as they come, until all have, they break off or nobody wants them.
async fn pass_on(
    output: &mut DuplexStream,
    mut reader: SignatureReader,
    tell: mpsc::Sender<Vec<Block>>,
) {
    loop {
        let blocks = reader.take();
        if !blocks.is_empty() && tell.send(blocks).await.is_err() {
            return;
        }
        if reader.is_complete() || listen(output, &mut reader).await.is_none() {
            return;
        }
    }
}

/// How the building went.
pub(super) enum Built {
    /// The file lies complete under its name of the building.
    Done(Finished),
    /// It is not worth it, or did not work; nothing is there.
    No,
}

/// A program that has built its file. It keeps the old one open, so that a rename over that does not take as long as the
/// file system needs to free it.
pub(super) struct Finished {
    /// Bytes that were sent to it.
    pub(super) sent_bytes: u64,
    _stream: ByteStream,
}

/// Has the host build the new file.
pub(super) async fn build(
    rebuilder: Rebuilder,
    source: &Source,
    entry: &Entry,
    progress: &Progress,
) -> Result<Built, LargeError> {
    let Rebuilder {
        mut stream,
        mark,
        reader,
        signature,
    } = rebuilder;
    let new_bytes = Arc::new(AtomicU64::new(0));
    let (tell, instructions) = mpsc::channel(WAITING);
    let (told, known) = mpsc::channel(TOLD_WAITING);
    let stamp = signature.stamp().clone();
    let search = {
        let search = Search {
            source: source.clone(),
            size_bytes: entry.size_bytes,
            matcher: Matcher::new(signature),
            blocks: known,
            new_bytes: new_bytes.clone(),
            tell,
        };
        source.apart(move || search.run())
    };
    let mut sender = Sender {
        input: &mut stream.input,
        source,
        progress,
        sent_bytes: 0,
        counted: 0,
        most_new: entry.size_bytes / 100 * MOST_NEW_PERCENT,
        new_bytes: &new_bytes,
    };
    let sending = sender.send(instructions);
    let telling = pass_on(&mut stream.output, reader, told);
    let (copied, sent, ()) = tokio::join!(search, sending, telling);
    let is_sent = match (copied, sent) {
        (Ok(Some(copied)), Ok(true)) => sender.end(&copied, &stamp).await,
        (Ok(_), Ok(_)) => false,
        (Err(error), _) | (_, Err(error)) => {
            clear(stream).await;
            return Err(error);
        }
    };
    let (sent_bytes, counted) = (sender.sent_bytes, sender.counted);
    let verdict = match is_sent {
        true => verdict(&mut stream.output, &mark, entry.size_bytes).await,
        false => None,
    };
    if verdict == Some(RebuildVerdict::Done) {
        return Ok(Built::Done(Finished {
            sent_bytes,
            _stream: stream,
        }));
    }
    tracing::debug!(?verdict, "the host built no new file out of its old one");
    clear(stream).await;
    progress.moved_in_vain(counted);
    Ok(Built::No)
}

async fn verdict(
    output: &mut DuplexStream,
    mark: &RunToken,
    size_bytes: u64,
) -> Option<RebuildVerdict> {
    let limit = COPY_LIMIT + Duration::from_secs(size_bytes / SLOWEST_COPY);
    let mut words = Vec::new();
    let mut output = output.take(LONGEST_VERDICT);
    let reading = async {
        // The program goes on after it, so it is not the end that is waited for.
        while output.read_buf(&mut words).await.ok()? > 0 {
            if let Some(verdict) = parse_rebuild(mark, &words) {
                return Some(verdict);
            }
        }
        None
    };
    tokio::time::timeout(limit, reading).await.ok()?
}

/// Looks in the new file for what is known of the old one.
struct Search {
    source: Source,
    size_bytes: u64,
    matcher: Matcher,
    blocks: mpsc::Receiver<Vec<Block>>,
    new_bytes: Arc<AtomicU64>,
    tell: mpsc::Sender<Instruction>,
}

impl Search {
    /// Goes through the whole file; gives the sum of what is copied, or nothing when the host stopped telling or nobody
    /// wants the rest.
    fn run(mut self) -> Result<Option<Checksum>, LargeError> {
        let mut buffer = vec![0; CHUNK];
        let (tell, new_bytes) = (self.tell.clone(), self.new_bytes.clone());
        let mut pass_on = |instruction: Instruction| {
            if let Instruction::Data { length, .. } = instruction {
                new_bytes.fetch_add(length, Ordering::Relaxed);
            }
            // Whoever listened has given up; that is noticed below.
            let _ = tell.blocking_send(instruction);
        };
        let mut at = 0;
        while at < self.size_bytes {
            let needed = match self.matcher.bytes_without_a_block() > LONGEST_SEARCH {
                true => u64::MAX,
                false => at + KNOWN_AHEAD,
            };
            if !self.learn(needed) || self.tell.is_closed() {
                return Ok(None);
            }
            let length = (self.size_bytes - at).min(CHUNK as u64);
            let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
            self.source.read_now(at, chunk)?;
            self.matcher.feed(chunk, &mut pass_on);
            at += length;
        }
        if !self.learn(u64::MAX) {
            return Ok(None);
        }
        Ok(Some(self.matcher.finish(&mut pass_on)))
    }

    /// Waits until the old file is known so far; false when the host stopped telling before.
    fn learn(&mut self, needed_bytes: u64) -> bool {
        loop {
            let known = self.matcher.signature();
            if known.is_complete() || known.known_bytes() >= needed_bytes {
                return true;
            }
            match self.blocks.blocking_recv() {
                Some(blocks) => self.matcher.learn(&blocks),
                None => return false,
            }
        }
    }
}

struct Sender<'a> {
    input: &'a mut DuplexStream,
    source: &'a Source,
    progress: &'a Progress,
    sent_bytes: u64,
    /// What progress was told.
    counted: u64,
    most_new: u64,
    new_bytes: &'a AtomicU64,
}

impl Sender<'_> {
    /// Passes everything on; false when it is not worth it or the program is gone.
    async fn send(
        &mut self,
        mut instructions: mpsc::Receiver<Instruction>,
    ) -> Result<bool, LargeError> {
        while let Some(instruction) = instructions.recv().await {
            let is_sent = match instruction {
                // It is there already.
                Instruction::Copy { from, to, length } if from == to => {
                    self.count(length);
                    true
                }
                Instruction::Copy { from, to, length } => {
                    self.count(length);
                    self.put(&copy_frame(from, to, length)).await
                }
                Instruction::Data { offset, length } => self.data(offset, length).await?,
            };
            if !is_sent || self.is_too_much() {
                return Ok(false);
            }
        }
        Ok(!self.is_too_much())
    }

    fn is_too_much(&self) -> bool {
        self.new_bytes.load(Ordering::Relaxed) > self.most_new
    }

    async fn data(&mut self, offset: u64, length: u64) -> Result<bool, LargeError> {
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let length = (end - at).min(FRAME);
            let data = self.source.read(at, length as usize).await?;
            let is_sent = self.put(&data_head(at, length as u32)).await && self.put(&data).await;
            if !is_sent || self.is_too_much() {
                return Ok(false);
            }
            self.count(length);
            at += length;
        }
        Ok(true)
    }

    fn count(&mut self, bytes: u64) {
        self.counted += bytes;
        self.progress.moved(bytes);
    }

    async fn put(&mut self, bytes: &[u8]) -> bool {
        self.sent_bytes += bytes.len() as u64;
        let writing = self.input.write_all(bytes);
        let written = tokio::time::timeout(STALL_LIMIT, writing).await;
        written.is_ok_and(|written| written.is_ok())
    }

    async fn end(&mut self, copied: &Checksum, old: &OldStamp) -> bool {
        self.put(&end_frame(copied, old)).await
    }
}
