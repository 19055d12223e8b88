//! Sends a batch: files of this machine as one archive, unpacked there where nobody looks, then renamed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sftp::{Attributes, Extension, RemotePath};
use remote_sandbox_core::sync::chores::Removal;
use remote_sandbox_core::sync::path::inside;
use remote_sandbox_core::sync::plan::{Action, Difference};
use remote_sandbox_core::sync::receive::{
    Packing, Publishing, Received, SEAL, UNSEALED, discard_script, fits_into_script,
    parse_received, publish_scripts, receive_script,
};
use remote_sandbox_core::sync::scan::Scanner;
use remote_sandbox_core::sync::staging::{Batch, Rename, Staged};
use remote_sandbox_core::sync::{Entry, Kind, RelPath};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::far::{Far, QUESTION_LIMIT, SILENCE_LIMIT, WORK_LIMIT};
use super::gauge::{Gauge, Squeeze};
use super::pack::{Packed, Source, pack};
use super::progress::Progress;
use crate::mark::new_mark;
use crate::sandbox::FileConversation;
use crate::shell::StreamEnd;

/// Pieces of an archive that may wait to be sent.
const PIECES: usize = 8;

/// With more folders than this, renames over the file protocol are faster than one `mv` for each.
const FEW_FOLDERS: usize = 8;

/// Renames that are under way at the same time.
const RENAMES: usize = 512;

/// Most that the host may say about a batch.
const MOST_SAID: u64 = 8 * 1024 * 1024;

/// What a shell says of a program that is not there.
const NO_PROGRAM: u32 = 127;

/// How a batch went.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) packed: Packed,
    /// What has not got its name, by its place.
    pub(super) left: BTreeSet<RelPath>,
    /// What the host said about things that did not work.
    pub(super) words: String,
    /// Whether times arrived to the nanosecond.
    pub(super) keeps_fractions: bool,
}

/// Why a batch could not be sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// The host has no `tar`.
    NoTar,
    /// The host cannot unpack what is packed.
    NoGzip,
    /// It did not work.
    Failed(Failure),
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        SendError::Failed(failure)
    }
}

/// Sends batches to one place.
pub(super) struct Sender<'a> {
    pub(super) far: Far<'a>,
    pub(super) source: Source,
    pub(super) progress: &'a Arc<Progress>,
    pub(super) gauge: &'a Gauge,
}

impl Sender<'_> {
    /// Sends a batch and gives everything in it its name.
    pub(super) async fn send(&self, batch: &Arc<Batch>) -> Result<Sent, SendError> {
        let files = match self.renames_by_protocol(batch) {
            true => self.renaming_files().await?,
            false => None,
        };
        if self.far.scanner == Scanner::Files {
            self.far.make_root().await?;
            if files.is_none() {
                // Without `find` nobody there can give names to what was unpacked.
                return Err(SendError::NoTar);
            }
        }
        let publishing = match files {
            None if fits_into_script(batch) => Publishing::AtOnce,
            _ => Publishing::Later,
        };
        let mut result = self
            .send_and_publish(batch, publishing, files.as_ref())
            .await;
        if matches!(result, Err(SendError::NoGzip)) {
            self.gauge.give_up();
            result = self
                .send_and_publish(batch, publishing, files.as_ref())
                .await;
        }
        match (&result, &files) {
            (Err(SendError::Failed(_)), _) => self.discard(&batch.folders).await,
            // Whoever has no `tar` may have no `rm` either.
            (Err(SendError::NoTar), Some(files)) => remove_folders(files, &self.far, batch).await,
            _ => {}
        }
        result
    }

    /// Removes the folders of a batch; when the link is gone, the next sync does it.
    pub(super) async fn discard(&self, folders: &[RelPath]) {
        let script = discard_script(&self.far.root, folders, &new_mark());
        let asking = self.far.sandbox.ask(script, QUESTION_LIMIT);
        let _ = tokio::time::timeout(Duration::from_secs(10), asking).await;
    }

    /// Whether names are given over the file protocol: there are many folders, or the host may have no `find`.
    fn renames_by_protocol(&self, batch: &Batch) -> bool {
        let has_find = matches!(self.far.scanner, Scanner::Find | Scanner::FindStat);
        !has_find || batch.inner_folders.len() > FEW_FOLDERS
    }

    /// The file protocol, where the host speaks it and can replace by a rename.
    async fn renaming_files(&self) -> Result<Option<FileConversation>, Failure> {
        let files = match self.far.sandbox.files().await {
            Ok(files) => files,
            Err(failure) if failure.code == Code::Unsupported => None,
            Err(failure) => return Err(failure),
        };
        Ok(files.filter(|files| files.extensions().has(Extension::PosixRename)))
    }

    async fn send_and_publish(
        &self,
        batch: &Arc<Batch>,
        publishing: Publishing,
        files: Option<&FileConversation>,
    ) -> Result<Sent, SendError> {
        let (received, packed, end) = self.stream(batch, publishing).await?;
        let Some(received) = received else {
            if self.far.scanner == Scanner::Files {
                // It has not even the programs that the script needs.
                return Err(SendError::NoTar);
            }
            return Err(SendError::Failed(self.refused(&end)));
        };
        if received.has_no_gzip {
            return Err(SendError::NoGzip);
        }
        if end.exit_code == Some(NO_PROGRAM) || received.unpacked == Some(NO_PROGRAM) {
            self.discard(&batch.folders).await;
            return Err(SendError::NoTar);
        }
        let mut sent = Sent {
            packed,
            left: received.left.into_iter().collect(),
            words: end.words,
            keeps_fractions: received.keeps_fractions,
        };
        if received.published {
            return Ok(sent);
        }
        if is_full(&sent.words) {
            return Err(SendError::Failed(self.full(&sent.words)));
        }
        let unusable = self.unusable(batch, &sent, received.unpacked).await?;
        let list: Vec<RelPath> = unusable.iter().cloned().collect();
        let left = self.far.remove(Removal::Files, &list).await?;
        if super::arrived::holds_any(&self.far, batch, &left).await? {
            return Err(SendError::Failed(self.stubborn()));
        }
        sent.left = match files {
            Some(files) => rename_all(files, &self.far, batch, &unusable).await?,
            None => self.publish(batch).await?,
        };
        if !sent.left.is_empty() {
            self.discard(&batch.folders).await;
        }
        sent.left.extend(unusable);
        Ok(sent)
    }

    /// Sends the archive while the host unpacks it.
    async fn stream(
        &self,
        batch: &Arc<Batch>,
        publishing: Publishing,
    ) -> Result<(Option<Received>, Packed, StreamEnd), Failure> {
        let mark = new_mark();
        let packing = self.gauge.packing();
        let script = receive_script(
            (&self.far.root, self.far.new_mode),
            batch,
            packing,
            publishing,
            &mark,
        );
        let mut stream = self.far.sandbox.open(&["sh", "-c", &script]).await?;
        let (pieces, receiver) = mpsc::channel(PIECES);
        let stop = Arc::new(AtomicBool::new(false));
        let packing_work = {
            let (source, batch, stop) = (self.source.clone(), batch.clone(), stop.clone());
            let progress = self.progress.clone();
            tokio::task::spawn_blocking(move || pack(&source, &batch, &stop, pieces, &progress))
        };
        let mut said = Vec::new();
        let (give, take) = (&mut stream.input, &mut stream.output);
        let giving = async {
            self.give(receiver, give, packing, &stop).await;
            let _ = give.shutdown().await;
        };
        let mut take = take.take(MOST_SAID);
        let taking = take.read_to_end(&mut said);
        tokio::pin!(taking);
        // A program that ends before it has read everything says why by itself.
        let was_silent = tokio::select! {
            _ = &mut taking => false,
            () = giving => tokio::time::timeout(WORK_LIMIT, taking).await.is_err(),
        };
        if was_silent {
            return Err(self.far.silent());
        }
        let end = stream
            .end()
            .await
            .map_err(|error| self.far.broken(&error))?;
        let packed = packing_work.await.map_err(|error| {
            self.far
                .failure(Code::Internal, &format!("reading files broke: {error}"))
        })?;
        Ok((parse_received(&mark, &said, publishing), packed, end))
    }

    /// Passes pieces on; where the link turns out to be slow, the archive ends early and the rest goes packed.
    async fn give(
        &self,
        mut pieces: mpsc::Receiver<Bytes>,
        sink: &mut tokio::io::DuplexStream,
        packing: Packing,
        stop: &AtomicBool,
    ) {
        let mut squeeze = Squeeze::new(packing);
        let mut measure = self.gauge.begin();
        while let Some(piece) = pieces.recv().await {
            let packed = squeeze.pass_whole(piece.clone());
            let writing = tokio::time::timeout(SILENCE_LIMIT, sink.write_all(&packed));
            if !writing.await.is_ok_and(|written| written.is_ok()) {
                return;
            }
            measure.sent(packed.len() as u64, &piece);
            if packing == Packing::Plain && measure.wants_packing() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let last = squeeze.finish();
        let _ = tokio::time::timeout(SILENCE_LIMIT, sink.write_all(&last)).await;
    }

    /// What is in the folders and must not be used: what was changed while it was read, and what did not come whole.
    async fn unusable(
        &self,
        batch: &Batch,
        sent: &Sent,
        unpacked: Option<u32>,
    ) -> Result<BTreeSet<RelPath>, Failure> {
        let place = |number: &usize| Some(batch.staged.get(*number)?.place.clone());
        let mut unusable: BTreeSet<RelPath> =
            sent.packed.spoiled.iter().filter_map(place).collect();
        if unpacked != Some(0) {
            let whole = super::arrived::arrived(&self.far, batch, &sent.packed).await?;
            let staged = batch.staged.iter().take(sent.packed.count);
            let missing = staged.filter(|staged| !whole.contains(&staged.place));
            unusable.extend(missing.map(|staged| staged.place.clone()));
        }
        Ok(unusable)
    }

    /// Something that must not be used could not be taken away.
    fn stubborn(&self) -> Failure {
        let text = "what did not arrive whole could not be removed there, so nothing of this batch got its name";
        self.far
            .failure(Code::RemoteRefused, text)
            .hint("see who may delete in the folder there, then sync again")
    }

    async fn publish(&self, batch: &Batch) -> Result<BTreeSet<RelPath>, Failure> {
        let mark = new_mark();
        let mut left = BTreeSet::new();
        for script in publish_scripts(&self.far.root, batch, &mark) {
            let answer = self.far.sandbox.ask(script, QUESTION_LIMIT).await?;
            let received = parse_received(&mark, &answer, Publishing::AtOnce);
            let received = received.ok_or_else(|| {
                self.far
                    .failure(Code::RemoteRefused, "renaming did not come to its end")
                    .hint("sync again")
            })?;
            left.extend(received.left);
        }
        Ok(left)
    }

    fn refused(&self, end: &StreamEnd) -> Failure {
        if is_full(&end.words) {
            return self.full(&end.words);
        }
        let words = &end.words;
        let code = match words.contains("ermission denied") {
            true => Code::PermissionDenied,
            false => Code::RemoteRefused,
        };
        self.far
            .failure(
                code,
                &format!("the target folder cannot be written: {words}"),
            )
            .hint("check the path and who owns it; list_remote_files shows it")
    }

    fn full(&self, words: &str) -> Failure {
        self.far
            .failure(Code::NoSpace, &format!("there is no room left: {words}"))
            .hint("make room there and sync again: what has arrived is not sent twice")
    }
}

/// Whether a program complained about a full disk.
pub(super) fn is_full(words: &str) -> bool {
    ["No space left", "Disk quota exceeded", "disk full"]
        .iter()
        .any(|full| words.contains(full))
}

/// The path of an entry as the file protocol takes it.
pub(super) fn remote_path(far: &Far<'_>, path: &RelPath) -> Option<RemotePath> {
    RemotePath::new(inside(far.root.as_bytes(), path.as_bytes())).ok()
}

/// Renames everything of a batch, many at a time; what could not be renamed.
async fn rename_all(
    files: &FileConversation,
    far: &Far<'_>,
    batch: &Batch,
    unusable: &BTreeSet<RelPath>,
) -> Result<BTreeSet<RelPath>, Failure> {
    let wanted = batch
        .renames
        .iter()
        .filter(|rename| !unusable.contains(&rename.from));
    let wanted: Vec<Rename> = wanted.cloned().collect();
    for directory in &batch.directories {
        if let Some(path) = remote_path(far, &directory.path) {
            // One that is there is what is wanted; one that cannot be made has nothing in it that gets its name.
            let _ = files.mkdir(&path, Attributes::permissions(0o755)).await;
        }
    }
    let strayed = far
        .strayed(files, wanted.iter().map(|rename| &rename.to))
        .await;
    let (astray, wanted): (Vec<Rename>, Vec<Rename>) = wanted
        .into_iter()
        .partition(|rename| strayed.holds(&rename.to));
    let mut left: BTreeSet<RelPath> = astray.into_iter().map(|rename| rename.from).collect();
    let renames = futures::stream::iter(wanted).map(|rename| rename_one(files, far, rename));
    let mut renames = renames.buffered(RENAMES);
    while let Some(renamed) = renames.next().await {
        left.extend(renamed?);
    }
    remove_folders(files, far, batch).await;
    Ok(left)
}

/// Renames one thing; its place when that is not possible.
async fn rename_one(
    files: &FileConversation,
    far: &Far<'_>,
    rename: Rename,
) -> Result<Option<RelPath>, Failure> {
    let paths = remote_path(far, &rename.from).zip(remote_path(far, &rename.to));
    let Some((from, to)) = paths else {
        return Ok(Some(rename.from));
    };
    match files.posix_rename(&from, &to).await {
        Ok(()) => Ok(None),
        Err(_) if files.loss().is_none() => Ok(Some(rename.from)),
        Err(error) => Err(far
            .failure(Code::LinkLost, &Failure::chain(&error))
            .hint("sync again: it goes on where it stopped")
            .retry()),
    }
}

/// Removes the folders that are empty now, the inner ones first.
async fn remove_folders(files: &FileConversation, far: &Far<'_>, batch: &Batch) {
    tokio::join!(
        remove_seal(files, far, batch, SEAL),
        remove_seal(files, far, batch, UNSEALED)
    );
    let inner = batch.inner_folders.iter().rev().chain(&batch.folders);
    let inner = inner.filter_map(|folder| remote_path(far, folder));
    let inner: Vec<RemotePath> = inner.collect();
    let removing = futures::stream::iter(inner).map(|path| async move {
        let _ = files.rmdir(&path).await;
    });
    removing.buffered(RENAMES).collect::<Vec<()>>().await;
}

async fn remove_seal(files: &FileConversation, far: &Far<'_>, batch: &Batch, name: &[u8]) {
    let seal = batch
        .folders
        .first()
        .and_then(|folder| folder.join(name).ok());
    if let Some(path) = seal.and_then(|seal| remote_path(far, &seal)) {
        let _ = files.remove(&path).await;
    }
}

/// Whether a place, or something above it, has not got its name.
pub(super) fn is_left(place: &RelPath, left: &BTreeSet<RelPath>) -> bool {
    if left.is_empty() {
        return false;
    }
    let mut at = Some(place.clone());
    while let Some(path) = at {
        if left.contains(&path) {
            return true;
        }
        at = path.parent();
    }
    false
}

/// The action that an entry was staged for.
pub(super) fn action_of(staged: &Staged) -> Action {
    let (entry, replaces) = (staged.source.clone(), staged.replaces.clone());
    match entry.kind {
        Kind::Directory => Action::MakeDirectory { entry, replaces },
        Kind::Link { .. } => Action::SendLink { entry, replaces },
        _ => file_action(entry, replaces),
    }
}

/// The action that sends a file.
pub(super) fn file_action(entry: Entry, replaces: Option<Entry>) -> Action {
    Action::SendFile {
        entry,
        replaces,
        difference: Difference::Missing,
    }
}
