//! Has a host build a file out of its older one and what is new.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remote_sandbox_core::delta::{
    ApplyRequest, ApplyVerdict, BlockLength, Checksum, Instruction, Matcher, OldStamp, Signature,
    SignatureReader, apply_script, copy_frame, data_head, end_frame, parse_apply, signature_script,
};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::Entry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::error::LargeError;
use super::place::Place;
use super::source::Source;
use crate::sandbox::Sandbox;
use crate::shell::ByteStream;
use crate::sync::Progress;

/// A smaller old file is not worth the words.
const SMALLEST_OLD: u64 = 8 * 1024 * 1024;

/// When this many hundredths of the file are new, it goes as a whole.
const MOST_NEW_PERCENT: u64 = 60;

/// Bytes of the file that are read at once.
const CHUNK: usize = 1024 * 1024;

/// New bytes that are sent at once.
const FRAME: u64 = 256 * 1024;

/// Instructions that may wait to be sent; finding them is faster than sending what they need.
const WAITING: usize = 16 * 1024;

/// What the host may print.
const LONGEST_VERDICT: u64 = 64 * 1024;

/// A host copies at least so many bytes in a second, and may take this long in any case.
const SLOWEST_COPY: u64 = 10 * 1024 * 1024;
const COPY_LIMIT: Duration = Duration::from_secs(60);

/// So long a host may take nothing of what is sent to it.
const STALL_LIMIT: Duration = Duration::from_secs(120);

/// Whether the old file may be of use for the new one.
pub(super) fn is_candidate(old: &Entry, new: &Entry) -> bool {
    let (old_size, new_size) = (old.size_bytes, new.size_bytes);
    old.kind.is_file()
        && old_size >= SMALLEST_OLD
        && old_size / 2 <= new_size
        && new_size / 2 <= old_size
}

fn fresh_mark() -> RunToken {
    RunToken::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes())
}

/// What the host says of its old file; nothing where it cannot.
async fn signature(far: &dyn Sandbox, place: &Place, old: &Entry) -> Option<Signature> {
    let block = BlockLength::for_size(old.size_bytes)?;
    let mark = fresh_mark();
    let script = signature_script(place.target.as_bytes(), block, &mark);
    let mut stream = far.open(&["sh", "-c", &script]).await.ok()?;
    let mut reader = SignatureReader::new(&mark, block);
    let mut buffer = vec![0; 64 * 1024];
    while !reader.is_complete() {
        let count = stream.output.read(&mut buffer).await.ok()?;
        if count == 0 {
            break;
        }
        reader.feed(buffer.get(..count)?).ok()?;
    }
    let signature = reader.finish().ok()?;
    (signature.size_bytes() == old.size_bytes).then_some(signature)
}

/// How the building went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Built {
    /// The file lies complete under its name of the building; so many bytes were sent for it.
    Done(u64),
    /// It is not worth it, or did not work; nothing is there.
    No,
}

/// A program on the host that waits to be told how the new file is built.
pub(super) struct Builder {
    stream: ByteStream,
    mark: RunToken,
}

/// What is known of the old file, and who builds the new one; started together, for each takes its time to begin.
pub(super) async fn prepare(
    far: &dyn Sandbox,
    place: &Place,
    old: &Entry,
    new: &Entry,
) -> Option<(Signature, Builder)> {
    let mark = fresh_mark();
    let request = ApplyRequest {
        old: place.target.as_bytes(),
        new: place.built.as_bytes(),
        size_bytes: new.size_bytes,
        mode: new.carried_mode(),
        mtime: new.mtime,
    };
    let script = apply_script(&request, &mark);
    let arguments = ["sh", "-c", &script];
    let limit = COPY_LIMIT + Duration::from_secs(old.size_bytes / SLOWEST_COPY);
    let both = async { tokio::join!(signature(far, place, old), far.open(&arguments)) };
    let (signature, stream) = tokio::time::timeout(limit, both).await.ok()?;
    let stream = stream.ok()?;
    Some((signature?, Builder { stream, mark }))
}

/// Has the host build the new file.
pub(super) async fn build(
    builder: Builder,
    source: &Source,
    entry: &Entry,
    signature: Signature,
    progress: &Progress,
) -> Result<Built, LargeError> {
    let Builder { stream, mark } = builder;
    let new_bytes = Arc::new(AtomicU64::new(0));
    let (tell, instructions) = mpsc::channel(WAITING);
    let stamp = signature.stamp().clone();
    let search = {
        let (file, new_bytes) = (source.clone(), new_bytes.clone());
        let size = entry.size_bytes;
        source.apart(move || search(&file, size, &signature, &new_bytes, &tell))
    };
    let mut sender = Sender {
        stream,
        source,
        progress,
        sent_bytes: 0,
        counted: 0,
        most_new: entry.size_bytes / 100 * MOST_NEW_PERCENT,
        new_bytes: &new_bytes,
    };
    let sending = sender.send(instructions);
    let (whole, sent) = tokio::join!(search, sending);
    let is_sent = sent? && sender.end(whole?, &stamp).await;
    let sent_bytes = sender.sent_bytes;
    let limit = COPY_LIMIT + Duration::from_secs(entry.size_bytes / SLOWEST_COPY);
    let verdict = match is_sent {
        true => tokio::time::timeout(limit, sender.verdict(&mark))
            .await
            .ok()
            .flatten(),
        false => None,
    };
    if verdict == Some(ApplyVerdict::Done) {
        return Ok(Built::Done(sent_bytes));
    }
    tracing::debug!(?verdict, "the host built no new file out of its old one");
    progress.moved_in_vain(sender.counted);
    Ok(Built::No)
}

/// Goes through the whole file; gives its sum, or that of a part when nobody wants the rest.
fn search(
    source: &Source,
    size_bytes: u64,
    signature: &Signature,
    new_bytes: &AtomicU64,
    tell: &mpsc::Sender<Instruction>,
) -> Result<Checksum, LargeError> {
    let mut whole = Checksum::new();
    let mut matcher = Matcher::new(signature);
    let mut buffer = vec![0; CHUNK];
    let mut pass_on = |instruction: Instruction| {
        if let Instruction::Data { length, .. } = instruction {
            new_bytes.fetch_add(length, Ordering::Relaxed);
        }
        // Whoever listened has given up; that is noticed below.
        let _ = tell.blocking_send(instruction);
    };
    let mut at = 0;
    while at < size_bytes && !tell.is_closed() {
        let length = (size_bytes - at).min(CHUNK as u64);
        let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
        source.read_now(at, chunk)?;
        whole.update(chunk);
        matcher.feed(chunk, &mut pass_on);
        at += length;
    }
    matcher.finish(&mut pass_on);
    Ok(whole)
}

struct Sender<'a> {
    stream: ByteStream,
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
                Instruction::Copy { offset, length } => {
                    self.count(length);
                    self.put(&copy_frame(offset, length)).await
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
            let is_sent = self.put(&data_head(length as u32)).await && self.put(&data).await;
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
        let writing = self.stream.input.write_all(bytes);
        let written = tokio::time::timeout(STALL_LIMIT, writing).await;
        written.is_ok_and(|written| written.is_ok())
    }

    async fn end(&mut self, whole: Checksum, old: &OldStamp) -> bool {
        self.put(&end_frame(whole, old)).await && self.stream.input.shutdown().await.is_ok()
    }

    async fn verdict(&mut self, mark: &RunToken) -> Option<ApplyVerdict> {
        let mut words = Vec::new();
        let mut output = (&mut self.stream.output).take(LONGEST_VERDICT);
        output.read_to_end(&mut words).await.ok()?;
        parse_apply(mark, &words)
    }
}
