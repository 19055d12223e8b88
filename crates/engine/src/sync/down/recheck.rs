//! Asks a host how files look that it has just packed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use remote_sandbox_core::sftp::FileKind;
use remote_sandbox_core::sync::packing::listed;
use remote_sandbox_core::sync::recheck::Recheck;
use remote_sandbox_core::sync::{RelPath, Stamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::by_sftp::{modified, remote_path};
use super::by_tar::feed;
use super::{DownError, DownJob};
use crate::mark::new_mark;
use crate::sandbox::conversation::SftpError;
use crate::sandbox::{FileConversation, Sandbox};
use crate::sync::far_ways::strayed;

/// The most that is read: the longest paths of a whole batch.
const MOST_SAID: u64 = 64 * 1024 * 1024;

/// Looking at ten thousand files takes far less.
const LOOK_LIMIT: Duration = Duration::from_secs(120);

/// Requests of the file protocol that are under way at the same time.
const LOOKS_TOGETHER: usize = 64;

/// How a file looks now, as exactly as the scan saw it: none where it is gone, and no answer where the host has no program
/// that could tell more than the file protocol.
pub(crate) async fn look_closely(
    far: &dyn Sandbox,
    root: &[u8],
    follow_links: bool,
    path: &RelPath,
) -> Result<Option<Option<Stamp>>, DownError> {
    let mark = new_mark();
    let recheck = Recheck {
        root,
        follow_links,
        mark: &mark,
    };
    let name = [listed(path).as_slice(), b"\0"].concat();
    let said = ask(far, &recheck, async |input: &mut DuplexStream| {
        if input.write_all(&name).await.is_ok() {
            let _ = input.shutdown().await;
        }
    });
    let found = recheck.parse(&said.await?);
    Ok(found.map(|found| found.get(path).copied()))
}

/// Has the host look at what it is given the names of.
async fn ask(
    far: &dyn Sandbox,
    recheck: &Recheck<'_>,
    give: impl AsyncFnOnce(&mut DuplexStream),
) -> Result<Vec<u8>, DownError> {
    let script = recheck.script();
    let opened = far.open(&["sh", "-c", &script]).await;
    let mut stream = opened.map_err(DownError::Sandbox)?;
    let mut said = Vec::new();
    let looking = async {
        let mut output = (&mut stream.output).take(MOST_SAID);
        let _ = tokio::join!(give(&mut stream.input), output.read_to_end(&mut said));
    };
    let looked = tokio::time::timeout(LOOK_LIMIT, looking).await;
    looked.map_err(|_| DownError::Late)?;
    stream.end().await.map_err(DownError::Stream)?;
    Ok(said)
}

/// How these files look now; a host that cannot tell has none of them, so that none is taken for unchanged.
pub(super) async fn look_again(
    far: &dyn Sandbox,
    job: &DownJob<'_>,
    numbers: &[usize],
) -> Result<BTreeMap<RelPath, Stamp>, DownError> {
    let mark = new_mark();
    let recheck = Recheck {
        root: &job.remote_root,
        follow_links: job.follow_links,
        mark: &mark,
    };
    let said = ask(far, &recheck, async |input: &mut DuplexStream| {
        feed(input, &job.files, numbers, None).await;
    });
    match recheck.parse(&said.await?) {
        Some(now) => Ok(now),
        None => look_by_protocol(far, job, numbers).await,
    }
}

/// The same over the file protocol, for hosts that have no program for it.
async fn look_by_protocol(
    far: &dyn Sandbox,
    job: &DownJob<'_>,
    numbers: &[usize],
) -> Result<BTreeMap<RelPath, Stamp>, DownError> {
    let Some(client) = far.files().await.map_err(DownError::Sandbox)? else {
        return Ok(BTreeMap::new());
    };
    let paths = numbers.iter().filter_map(|number| job.files.get(*number));
    let mut paths: Vec<RelPath> = paths.map(|planned| planned.entry.path.clone()).collect();
    if !job.follow_links {
        let strayed = strayed(&client, &job.remote_root, &[], paths.iter()).await;
        paths.retain(|path| !strayed.holds(path));
    }
    let looks = futures::stream::iter(paths);
    let looks = looks.map(|path| look_at(&client, job, path));
    let mut looks = looks.buffer_unordered(LOOKS_TOGETHER);
    let mut now = BTreeMap::new();
    while let Some(looked) = looks.next().await {
        now.extend(looked?);
    }
    Ok(now)
}

/// How one file looks now; none where it is gone, or the server does not say.
async fn look_at(
    client: &FileConversation,
    job: &DownJob<'_>,
    path: RelPath,
) -> Result<Option<(RelPath, Stamp)>, DownError> {
    let Ok(remote) = remote_path(&job.remote_root, &path) else {
        return Ok(None);
    };
    let told = match job.follow_links {
        true => client.stat(&remote).await,
        false => client.lstat(&remote).await,
    };
    let told = match told {
        Err(error @ SftpError::Closed(_)) => return Err(DownError::Files(error)),
        told => told.ok(),
    };
    let stamp = told.filter(|told| told.kind() == Some(FileKind::File));
    let stamp = stamp.and_then(|told| {
        Some(Stamp {
            size_bytes: told.size_bytes?,
            mtime: modified(&told)?,
        })
    });
    Ok(stamp.map(|stamp| (path, stamp)))
}
