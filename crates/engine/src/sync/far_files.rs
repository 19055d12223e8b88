//! Short work on the other side over the file protocol, for hosts that have no programs for it.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sftp::{Attributes, FileKind, OpenFlags, RemotePath, StatusCode};
use remote_sandbox_core::sync::RelPath;
use remote_sandbox_core::sync::chores::Removal;

use super::far::Far;
use super::send::remote_path;
use crate::sandbox::FileConversation;
use crate::sandbox::conversation::SftpError;
use crate::tree_walk;

/// Requests that are under way at the same time.
const TOGETHER: usize = 256;

/// Removes what is on the list; what is still there afterwards.
pub(super) async fn remove(
    far: &Far<'_>,
    removal: Removal,
    paths: &[RelPath],
) -> Result<Vec<RelPath>, Failure> {
    let client = tree_walk::conversation(far.sandbox).await?;
    let strayed = far.strayed(&client, paths.iter()).await;
    let mut levels: BTreeMap<usize, Vec<RelPath>> = BTreeMap::new();
    let (astray, paths): (Vec<&RelPath>, Vec<&RelPath>) =
        paths.iter().partition(|path| strayed.holds(path));
    let mut left: Vec<RelPath> = astray.into_iter().cloned().collect();
    for path in paths {
        let depth = match removal {
            Removal::Files => 0,
            // A directory goes after those in it.
            Removal::Directories => path.components().count(),
        };
        levels.entry(depth).or_default().push(path.clone());
    }
    for level in levels.into_values().rev() {
        let work = futures::stream::iter(level);
        let work = work.map(|path| remove_one(far, &client, removal, path));
        let mut work = work.buffer_unordered(TOGETHER);
        while let Some(removed) = work.next().await {
            left.extend(removed?);
        }
    }
    Ok(left)
}

/// Removes one entry; its path when it is still there.
async fn remove_one(
    far: &Far<'_>,
    client: &FileConversation,
    removal: Removal,
    path: RelPath,
) -> Result<Option<RelPath>, Failure> {
    let Some(remote) = remote_path(far, &path) else {
        return Ok(Some(path));
    };
    let removed = match removal {
        Removal::Files => client.remove(&remote).await,
        Removal::Directories => client.rmdir(&remote).await,
    };
    match removed {
        Ok(()) => Ok(None),
        Err(error) if error.code() == Some(StatusCode::NoSuchFile) => Ok(None),
        Err(error) => unless_cut(far, error).map(|_| Some(path)),
    }
}

/// Sets permissions; the words of the host where not all could be set, and what was not even tried.
pub(super) async fn set_mode(
    far: &Far<'_>,
    mode: u16,
    paths: &[RelPath],
) -> Result<(Option<String>, Vec<RelPath>), Failure> {
    let client = tree_walk::conversation(far.sandbox).await?;
    let strayed = far.strayed(&client, paths.iter()).await;
    let (left, paths): (Vec<RelPath>, Vec<RelPath>) =
        paths.iter().cloned().partition(|path| strayed.holds(path));
    let attributes = Attributes::permissions(u32::from(mode & 0o7777));
    let work = futures::stream::iter(paths);
    let work = work.map(|path| set_one(far, &client, attributes, path));
    let mut work = work.buffer_unordered(TOGETHER);
    let mut words = None;
    while let Some(set) = work.next().await {
        words = words.or(set?);
    }
    Ok((words, left))
}

/// Sets the attributes of one entry; what the host said when it would not.
async fn set_one(
    far: &Far<'_>,
    client: &FileConversation,
    attributes: Attributes,
    path: RelPath,
) -> Result<Option<String>, Failure> {
    let Some(remote) = remote_path(far, &path) else {
        return Ok(Some("the path is too long".to_owned()));
    };
    match client.setstat(&remote, attributes).await {
        Ok(()) => Ok(None),
        Err(error) => unless_cut(far, error).map(Some),
    }
}

/// Makes the root, with what is above it.
pub(super) async fn make_root(far: &Far<'_>) -> Result<(), Failure> {
    let client = tree_walk::conversation(far.sandbox).await?;
    let refused = |error: SftpError| match unless_cut(far, error) {
        Ok(words) => far
            .failure(
                Code::RemoteRefused,
                &format!("the target folder cannot be made: {words}"),
            )
            .hint("check the path and who owns it; list_remote_files shows it"),
        Err(failure) => failure,
    };
    // The last of the directories that are there, then those that are not.
    let mut missing = Vec::new();
    let mut at = far.root.as_bytes();
    while !is_directory(&client, at).await.map_err(refused)? {
        missing.push(at);
        let above = at.iter().rposition(|byte| *byte == b'/');
        match above.and_then(|slash| at.get(..slash)) {
            Some(above) if !above.is_empty() => at = above,
            _ => break,
        }
    }
    for directory in missing.into_iter().rev() {
        let Ok(path) = RemotePath::new(directory) else {
            continue;
        };
        let own = far.new_mode.filter(|_| directory == far.root.as_bytes());
        let own = own.map(Attributes::permissions);
        let made = client.mkdir(&path, own.unwrap_or_default()).await;
        if let (Ok(()), Some(own)) = (&made, own) {
            // The mask of the host has taken some away.
            client.setstat(&path, own).await.map_err(refused)?;
        }
        // Somebody else may have been faster.
        if let Err(error) = made
            && !is_directory(&client, directory).await.map_err(refused)?
        {
            return Err(refused(error));
        }
    }
    Ok(())
}

async fn is_directory(client: &FileConversation, path: &[u8]) -> Result<bool, SftpError> {
    let Ok(path) = RemotePath::new(path) else {
        return Ok(false);
    };
    match client.stat(&path).await {
        Ok(found) => Ok(found.kind() == Some(FileKind::Directory)),
        Err(error @ SftpError::Closed(_)) => Err(error),
        Err(_) => Ok(false),
    }
}

/// The content of small files, up to the first that is too large or cannot be read.
pub(super) async fn read(
    far: &Far<'_>,
    paths: &[RelPath],
    most_bytes: usize,
) -> Result<Vec<Vec<u8>>, Failure> {
    let client = tree_walk::conversation(far.sandbox).await?;
    let work = futures::stream::iter(paths.to_vec());
    let work = work.map(|path| read_small(far, &client, path, most_bytes));
    // Few at a time, for each takes its room in memory.
    let mut work = work.buffered(16);
    let mut contents = Vec::new();
    while let Some(content) = work.next().await {
        match content? {
            Some(content) => contents.push(content),
            None => break,
        }
    }
    Ok(contents)
}

/// The content of one file; none where it is too large or cannot be read.
async fn read_small(
    far: &Far<'_>,
    client: &FileConversation,
    path: RelPath,
    most_bytes: usize,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(remote) = remote_path(far, &path) else {
        return Ok(None);
    };
    match read_one(client, &remote, most_bytes).await {
        Ok(content) => Ok(content),
        Err(error) => unless_cut(far, error).map(|_| None),
    }
}

async fn read_one(
    client: &FileConversation,
    path: &RemotePath,
    most_bytes: usize,
) -> Result<Option<Vec<u8>>, SftpError> {
    // Opening a pipe would stop the server.
    if client.stat(path).await?.kind() != Some(FileKind::File) {
        return Ok(None);
    }
    let file = client
        .open(path, OpenFlags::READ, Attributes::default())
        .await?;
    let mut content = Vec::new();
    let mut reader = file.reader(0, most_bytes as u64 + 1);
    while let Some((_, bytes)) = reader.next().await? {
        content.extend_from_slice(&bytes);
    }
    Ok((content.len() <= most_bytes).then_some(content))
}

/// What the host said, unless the connection is gone.
fn unless_cut(far: &Far<'_>, error: SftpError) -> Result<String, Failure> {
    let words = Failure::chain(&error);
    match error {
        SftpError::Closed(_) => Err(far
            .failure(Code::LinkLost, &words)
            .hint("sync again: it goes on where it stopped")
            .retry()),
        _ => Ok(words),
    }
}
