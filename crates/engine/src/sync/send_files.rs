//! Sends a batch over the file protocol, for hosts without `tar`: hundreds of files under way at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sftp::{Attributes, Extension, FileKind, OpenFlags, RemotePath, Times};
use remote_sandbox_core::sync::staging::{Batch, Staged};
use remote_sandbox_core::sync::temporary::temporary_name;
use remote_sandbox_core::sync::{Entry, Kind, Stamp};

use super::far_ways::ASTRAY;
use super::pack::{PackFault, Packed};
use super::send::{Sender, Sent, remote_path};
use crate::beneath::stamp_of;
use crate::mark::new_mark;
use crate::sandbox::FileConversation;
use crate::sandbox::conversation::SftpError;

/// Files under way at the same time.
const FILES: usize = 256;

/// What became of one entry.
enum Single {
    Arrived(Option<Stamp>),
    LeftOut(PackFault),
    Spoiled,
    Refused(String),
}

/// Sends a batch; directories first, each file under another name until it is whole.
pub(super) async fn send_by_files(
    sender: &Sender<'_>,
    batch: &Arc<Batch>,
) -> Result<Sent, Failure> {
    let files = sender.far.sandbox.files().await?;
    let Some(files) = files else {
        let text = "it has no tar, and no file protocol either";
        return Err(sender
            .far
            .failure(Code::Unsupported, text)
            .hint("install tar there"));
    };
    let transfer = new_mark();
    let mut sent = Sent {
        packed: Packed {
            count: batch.staged.len(),
            ..Packed::default()
        },
        left: BTreeSet::new(),
        words: String::new(),
        keeps_fractions: false,
    };
    let mut others = Vec::new();
    let paths = batch.staged.iter().map(|staged| &staged.source.path);
    let strayed = sender.far.strayed(&files, paths).await;
    for (number, staged) in batch.staged.iter().enumerate() {
        if strayed.holds(&staged.source.path) {
            let left = Single::Refused(ASTRAY.to_owned());
            settle(&mut sent, batch, number, left);
        } else if staged.source.kind.is_directory() {
            let made = make_directory(sender, &files, staged).await;
            settle(&mut sent, batch, number, made);
        } else {
            others.push(number);
        }
    }
    let files = &files;
    let mut work = futures::stream::iter(others)
        .map(|number| send_number(sender, files, batch, number, &transfer))
        .buffer_unordered(FILES);
    while let Some((number, single)) = work.next().await {
        settle(&mut sent, batch, number, single);
    }
    if let Some(loss) = files.loss() {
        return Err(sender
            .far
            .failure(Code::LinkLost, &Failure::chain(&*loss))
            .hint("sync again: it goes on where it stopped")
            .retry());
    }
    sent.packed.spoiled.sort_unstable();
    Ok(sent)
}

fn settle(sent: &mut Sent, batch: &Batch, number: usize, single: Single) {
    match single {
        Single::Arrived(stamp) => sent
            .packed
            .stamps
            .extend(stamp.map(|stamp| (number, stamp))),
        Single::LeftOut(fault) => sent.packed.left_out.push((number, fault)),
        Single::Spoiled => sent.packed.spoiled.push(number),
        Single::Refused(words) => {
            sent.words = words;
            if let Some(staged) = batch.staged.get(number) {
                sent.left.insert(staged.place.clone());
            }
        }
    }
}

fn refused(error: &SftpError) -> Single {
    Single::Refused(Failure::chain(error))
}

async fn make_directory(sender: &Sender<'_>, files: &FileConversation, staged: &Staged) -> Single {
    let Some(path) = remote_path(&sender.far, &staged.source.path) else {
        return Single::Refused("the path is too long".to_owned());
    };
    let mode = u32::from(staged.source.carried_mode()) | 0o700;
    match files.mkdir(&path, Attributes::permissions(mode)).await {
        Ok(()) => Single::Arrived(None),
        Err(error) => refused(&error),
    }
}

async fn send_number(
    sender: &Sender<'_>,
    files: &FileConversation,
    batch: &Batch,
    number: usize,
    transfer: &RunToken,
) -> (usize, Single) {
    let name = temporary_name(transfer, number as u64);
    let single = match batch.staged.get(number) {
        Some(staged) => send_one(sender, files, staged, &name).await,
        None => Single::Spoiled,
    };
    (number, single)
}

async fn send_one(
    sender: &Sender<'_>,
    files: &FileConversation,
    staged: &Staged,
    name: &str,
) -> Single {
    let source = &staged.source;
    let beside = match source.path.parent() {
        Some(parent) => parent.join(name.as_bytes()),
        None => remote_sandbox_core::sync::RelPath::parse(name.as_bytes()),
    };
    let paths = beside.ok().and_then(|beside| {
        Some((
            remote_path(&sender.far, &beside)?,
            remote_path(&sender.far, &source.path)?,
        ))
    });
    let Some((temporary, last)) = paths else {
        return Single::Refused("the path is too long".to_owned());
    };
    let written = match &source.kind {
        Kind::Link { target, .. } => match RemotePath::new(target.to_vec()) {
            Ok(target) => match files.symlink(&temporary, &target).await {
                Ok(()) => Single::Arrived(None),
                Err(error) => refused(&error),
            },
            Err(error) => Single::Refused(error.to_string()),
        },
        _ => write(sender, files, source, &temporary).await,
    };
    let Single::Arrived(stamp) = written else {
        let _ = files.remove(&temporary).await;
        return written;
    };
    match give_name(files, &temporary, &last).await {
        Ok(()) => Single::Arrived(stamp),
        Err(error) => {
            let _ = files.remove(&temporary).await;
            refused(&error)
        }
    }
}

/// Where a server cannot replace by a rename, the old file stands aside for a moment, and comes back when that fails.
async fn give_name(
    files: &FileConversation,
    temporary: &RemotePath,
    last: &RemotePath,
) -> Result<(), SftpError> {
    if files.extensions().has(Extension::PosixRename) {
        return files.posix_rename(temporary, last).await;
    }
    let Err(error) = files.rename(temporary, last).await else {
        return Ok(());
    };
    // Only what a file may replace stands aside.
    let found = files.lstat(last).await?;
    if !matches!(found.kind(), Some(FileKind::File | FileKind::Link)) {
        return Err(error);
    }
    let aside = [temporary.as_bytes(), b"9"].concat();
    let Ok(aside) = RemotePath::new(aside) else {
        return files.rename(temporary, last).await;
    };
    files.rename(last, &aside).await?;
    let renamed = files.rename(temporary, last).await;
    let _ = match renamed {
        Ok(()) => files.remove(&aside).await,
        Err(_) => files.rename(&aside, last).await,
    };
    renamed
}

async fn write(
    sender: &Sender<'_>,
    files: &FileConversation,
    source: &Entry,
    temporary: &RemotePath,
) -> Single {
    let (local, path) = (sender.source.clone(), source.path.clone());
    let opened = tokio::task::spawn_blocking(move || local.open(&path)).await;
    let (file, found) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return Single::LeftOut(error.into()),
        Err(_) => return Single::Spoiled,
    };
    let mode = u32::from(found.carried_mode());
    let attributes = Attributes::permissions(mode);
    let there = match files.open(temporary, OpenFlags::REPLACE, attributes).await {
        Ok(there) => there,
        Err(error) => return refused(&error),
    };
    let mut reading = tokio::fs::File::from_std(file);
    let count = match there.write_range(0, &mut reading).await {
        Ok(count) => count,
        Err(error) => return refused(&error),
    };
    sender.progress.moved(count);
    let seconds = u32::try_from(found.mtime.seconds).unwrap_or_default();
    let times = Some(Times {
        accessed_s: seconds,
        modified_s: seconds,
    });
    let attributes = Attributes {
        times,
        ..attributes
    };
    if let Err(error) = there.setstat(attributes).await {
        return refused(&error);
    }
    if let Err(error) = there.close().await {
        return refused(&error);
    }
    let file = reading.into_std().await;
    let is_same = stamp_of(&file).ok() == Some(found.stamp());
    match is_same && count == found.size_bytes {
        true => Single::Arrived(Some(found.stamp())),
        false => Single::Spoiled,
    }
}
