//! The scan of a tree in a sandbox.

use std::path::Path;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sftp::RemotePath;
use remote_sandbox_core::sync::scan::{
    Found, HostPath, RootKind, ScanError, ScanProblem, ScanReader, ScanRequest, ScanSummary,
    Scanner, SortedBy, scan_script,
};
use tokio::io::AsyncReadExt as _;

use super::far::SILENCE_LIMIT;
use crate::listing::{Listing, ListingBuilder, ListingError};
use crate::mark::new_mark;
use crate::questions;
use crate::sandbox::Sandbox;
use crate::tree_walk;

/// Bytes that are taken from the stream at once.
const CHUNK: usize = 64 * 1024;

/// Most problems that are named.
pub(super) const MOST_PROBLEMS: usize = 100;

/// A tree in a sandbox.
pub(super) struct FarTree {
    pub(super) entries: Listing,
    pub(super) problems: Vec<ScanProblem>,
    pub(super) problem_count: u64,
    pub(super) summary: ScanSummary,
}

impl FarTree {
    /// Where the root lies, or will lie; as it was written where the host cannot tell.
    pub(super) fn place(&self, written: &HostPath) -> HostPath {
        let told = HostPath::parse(&self.summary.location);
        told.unwrap_or_else(|_| written.clone())
    }
}

/// Lists a tree in a sandbox, sorted. A path that leads back out of a directory that does not exist is taken by its words.
pub(super) async fn scan(
    sandbox: &dyn Sandbox,
    request: &ScanRequest<'_>,
    spool: &Path,
) -> Result<FarTree, Failure> {
    let found = scan_once(sandbox, request, spool).await?;
    match HostPath::parse(&found.summary.location) {
        Ok(root) if found.summary.is_detour => {
            let request = ScanRequest {
                root: &root,
                ..request.clone()
            };
            scan_once(sandbox, &request, spool).await
        }
        _ => Ok(found),
    }
}

async fn scan_once(
    sandbox: &dyn Sandbox,
    request: &ScanRequest<'_>,
    spool: &Path,
) -> Result<FarTree, Failure> {
    let mark = new_mark();
    let script = scan_script(request, &mark);
    let mut stream = sandbox.open(&["sh", "-c", &script]).await?;
    let mut reader = ScanReader::new(&mark, request.scanner);
    let mut taken = Taken {
        list: ListingBuilder::new(spool.to_owned()),
        problems: Vec::new(),
        full: None,
    };
    let mut chunk = vec![0; CHUNK];
    loop {
        let reading = stream.output.read(&mut chunk);
        let read = tokio::time::timeout(SILENCE_LIMIT, reading).await;
        let read = read.map_err(|_| silent(sandbox))?.unwrap_or(0);
        if read == 0 {
            break;
        }
        let bytes = chunk.get(..read).unwrap_or_default();
        let fed = reader.feed(bytes, &mut |found| taken.take(found));
        fed.map_err(|error| questions::unfinished_scan(sandbox, &error))?;
        if let Some(error) = &taken.full {
            return Err(too_large(sandbox, error));
        }
    }
    let summary = reader.finish();
    let mut summary =
        summary.map_err(|error: ScanError| questions::unfinished_scan(sandbox, &error))?;
    if request.scanner == Scanner::Files {
        walk(sandbox, request, &mut summary, &mut taken).await?;
    }
    debug_assert_eq!(request.sorted_by, SortedBy::Reader);
    let entries = taken.list.finish();
    let entries = entries.map_err(|error| too_large(sandbox, &error))?;
    let mut problems = taken.problems;
    let mut problem_count = summary.problems;
    if let Listing::Held(held) = &entries {
        problem_count += held.misplaced_count();
        let room = MOST_PROBLEMS.saturating_sub(problems.len());
        let misplaced = held.misplaced().iter().take(room);
        problems.extend(misplaced.map(|(path, _)| ScanProblem::Garbled {
            shown: path.shown().text,
        }));
    }
    Ok(FarTree {
        entries,
        problems,
        problem_count,
        summary,
    })
}

/// Lists the tree over the file protocol.
async fn walk(
    sandbox: &dyn Sandbox,
    request: &ScanRequest<'_>,
    summary: &mut ScanSummary,
    taken: &mut Taken,
) -> Result<(), Failure> {
    let client = tree_walk::conversation(sandbox).await?;
    if summary.root == RootKind::Directory
        && let Ok(location) = RemotePath::new(summary.location.clone())
    {
        let found = client.stat(&location).await.ok();
        summary.mode = found.and_then(|found| found.mode).map(|mode| mode & 0o777);
    }
    let root = summary.clone();
    let take = |found| {
        if let Some(found) = summary.count(found) {
            taken.take(found);
        }
        taken.full.is_none()
    };
    let walked = tree_walk::list(&client, request, &root, take).await;
    walked.map_err(|error| error.failure(sandbox))?;
    match &taken.full {
        Some(error) => Err(too_large(sandbox, error)),
        None => Ok(()),
    }
}

struct Taken {
    list: ListingBuilder,
    problems: Vec<ScanProblem>,
    full: Option<ListingError>,
}

impl Taken {
    fn take(&mut self, found: Found) {
        match found {
            Found::Entry(entry) => {
                if let Err(error) = self.list.push(entry) {
                    self.full.get_or_insert(error);
                }
            }
            Found::Problem(problem) if self.problems.len() < MOST_PROBLEMS => {
                self.problems.push(problem);
            }
            Found::Problem(_) => {}
        }
    }
}

fn silent(sandbox: &dyn Sandbox) -> Failure {
    let name = &sandbox.description().name;
    let text = format!("sandbox `{name}`: the scan says nothing any more");
    Failure::new(Code::LinkLost, text)
        .hint("see whether its disk hangs, or exclude what is so slow")
        .retry()
}

pub(super) fn too_large(sandbox: &dyn Sandbox, error: &ListingError) -> Failure {
    let name = &sandbox.description().name;
    Failure::new(
        Code::Unsupported,
        format!("sandbox `{name}`: {}", Failure::chain(error)),
    )
    .hint("exclude what is not needed, or sync its folders one by one")
}
