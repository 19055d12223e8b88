//! Compares files by content, where size and time are not believed.

use std::convert::Infallible;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::chores::{digest_script, parse_digests, path_list};
use remote_sandbox_core::sync::plan::{Action, Difference};
use remote_sandbox_core::sync::revision::ContentDigest;
use remote_sandbox_core::sync::{Mtime, RelPath};
use sha2::{Digest, Sha256};

use super::decide::out_of_order;
use super::digest_list::{DigestList, Digests};
use super::far::WORK_LIMIT;
use super::local_work::{here, set_attributes};
use super::outcome::Outcome;
use super::pack::Source;
use super::progress::{Phase, Progress};
use super::request::Way;
use super::sides::{SPOOL, Sides};

use crate::mark::new_mark;

/// Files that are compared together, and their bytes, unless one alone has more: a host says nothing about a batch
/// before its programs have read much of it.
const TOGETHER: usize = 2000;
const BYTES_TOGETHER: u64 = 256 * 1024 * 1024;

/// A host that reads this many bytes in a second is not given up, however much it has to read.
const SLOWEST_BYTES_S: u64 = 1024 * 1024;

/// The pause between two counts of what was read.
const COUNT_EVERY: Duration = Duration::from_millis(200);

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;

/// A file whose content decides.
struct Doubtful {
    path: RelPath,
    size_bytes: u64,
    /// The time it gets when its content is the same, where it has another one.
    other_time: Option<Mtime>,
}

/// What a comparison of contents has found.
#[derive(Debug)]
pub(super) struct Compared {
    /// What was compared, in the order of the plan, with its digest where both sides have the same.
    pub(super) digests: DigestList,
    /// What did not go well.
    pub(super) outcome: Outcome,
}

/// Settles the actions of a plan, from its beginning on.
pub(super) struct Settling<'a> {
    digests: Digests<'a>,
}

impl Compared {
    /// Compares all files that the plan is not sure of.
    pub(super) async fn of(
        sides: &Sides,
        source: Option<&Source>,
        progress: &Progress,
    ) -> Result<Compared, Failure> {
        let mut compared = Compared {
            digests: DigestList::new(sides.state.join(SPOOL)),
            outcome: Outcome::default(),
        };
        if !sides.request.checksum {
            return Ok(compared);
        }
        progress.enter(Phase::Comparing);
        let Some(source) = source else {
            return Ok(compared);
        };
        let (mut together, mut bytes) = (Vec::new(), 0);
        for action in sides.plan() {
            let action = action.map_err(|error| out_of_order(&error))?;
            let Action::CompareContent { entry, target, .. } = action else {
                continue;
            };
            if together.len() >= TOGETHER || bytes >= BYTES_TOGETHER {
                let batch = std::mem::take(&mut together);
                compared.compare(sides, source, progress, batch).await?;
                bytes = 0;
            }
            bytes = bytes.saturating_add(entry.size_bytes);
            together.push(Doubtful {
                other_time: (!entry.mtime.agrees(target.mtime)).then_some(entry.mtime),
                size_bytes: entry.size_bytes,
                path: entry.path,
            });
        }
        compared.compare(sides, source, progress, together).await?;
        Ok(compared)
    }

    async fn compare(
        &mut self,
        sides: &Sides,
        source: &Source,
        progress: &Progress,
        together: Vec<Doubtful>,
    ) -> Result<(), Failure> {
        if together.is_empty() {
            return Ok(());
        }
        let far = sides.far_side();
        let mark = new_mark();
        let there = |file: &Doubtful| match &sides.lone {
            Some(lone) => lone.there.clone(),
            None => file.path.clone(),
        };
        let bytes: u64 = together.iter().map(|file| file.size_bytes).sum();
        let limit = WORK_LIMIT + Duration::from_secs(bytes / SLOWEST_BYTES_S);
        let paths: Vec<RelPath> = together.iter().map(|file| file.path.clone()).collect();
        let named: Vec<RelPath> = together.iter().map(there).collect();
        let script = digest_script(&far.root, &mark);
        let list = path_list(named.iter());
        let asking = far.converse_within(&script, &list, limit);
        let (answer, here_digests) = counted(progress, asking, source, paths).await;
        let digests = parse_digests(&mark, &answer?.0).ok_or_else(|| {
            far.failure(
                Code::RemoteRefused,
                "the digests of its files could not be read",
            )
            .hint("it has no sha256sum or no xargs; call again without checksum")
        })?;
        let here_digests = here_digests.map_err(|error| {
            far.failure(Code::Internal, &format!("reading files broke: {error}"))
        })?;
        let mut times = Vec::new();
        for ((file, named), digest) in together.into_iter().zip(named).zip(here_digests) {
            let is_same = digest.is_some() && digest.as_ref() == digests.get(&named);
            self.digests.push(digest.filter(|_| is_same))?;
            match (is_same, file.other_time) {
                (false, _) => {
                    // They count again when they go.
                    progress.moved_in_vain(file.size_bytes);
                    continue;
                }
                (true, Some(time)) if !sides.is_avoided(&file.path) => {
                    times.push((file.path, time));
                }
                (true, _) => {}
            }
            progress.finished(1);
        }
        self.set_times(sides, source, times).await
    }

    /// Gives files with the same content the time of the source.
    async fn set_times(
        &mut self,
        sides: &Sides,
        source: &Source,
        times: Vec<(RelPath, Mtime)>,
    ) -> Result<(), Failure> {
        if sides.request.way == Way::Up {
            return sides.far_side().set_times(&times).await;
        }
        let tree = source.tree.clone();
        let problems = here(move || set_attributes(&tree, Vec::new(), &times)).await?;
        for (path, problem) in problems {
            self.outcome.problem(&path, problem);
        }
        Ok(())
    }

    /// Begins to settle a plan.
    pub(super) fn settling(&self) -> Settling<'_> {
        Settling {
            digests: self.digests.iter(),
        }
    }
}

impl Settling<'_> {
    /// The next action, in which nothing is open any more.
    pub(super) fn settle(&mut self, action: Action) -> Action {
        let Action::CompareContent {
            entry,
            target,
            obstacle,
        } = action
        else {
            return action;
        };
        let is_different = !matches!(self.digests.next(), Some(Some(_)));
        match (is_different, obstacle) {
            (true, Some(obstacle)) => Action::Conflict {
                path: entry.path,
                obstacle,
            },
            (true, None) => Action::SendFile {
                entry,
                replaces: Some(target),
                difference: Difference::Time,
            },
            (false, _) if entry.carried_mode() != target.carried_mode() => {
                Action::SetAttributes { entry, target }
            }
            (false, _) => Action::Keep { entry },
        }
    }
}

/// What the host says and what is here, both read at the same time; what was read here is counted meanwhile.
async fn counted<A>(
    progress: &Progress,
    asking: impl Future<Output = A>,
    source: &Source,
    paths: Vec<RelPath>,
) -> (
    A,
    Result<Vec<Option<ContentDigest>>, tokio::task::JoinError>,
) {
    let read = Arc::new(AtomicU64::new(0));
    let (here, count) = (source.clone(), read.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let digests = paths.iter().map(|path| {
            let (file, _) = here.open(path).ok()?;
            digest_of(file, |bytes| {
                count.fetch_add(bytes, Ordering::Relaxed);
                false
            })
        });
        digests.collect()
    });
    let counting = async {
        loop {
            tokio::time::sleep(COUNT_EVERY).await;
            progress.moved(read.swap(0, Ordering::Relaxed));
        }
    };
    let both = async { tokio::join!(asking, reading) };
    let done = tokio::select! {
        done = both => done,
        never = counting => match never as Infallible {},
    };
    progress.moved(read.swap(0, Ordering::Relaxed));
    done
}

/// The digest of what a file holds; none when it cannot be read, or when whoever is told of each piece does not want it any
/// more.
pub(super) fn digest_of(
    mut file: std::fs::File,
    is_unwanted: impl Fn(u64) -> bool,
) -> Option<ContentDigest> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk).ok()? {
            read if is_unwanted(read as u64) => return None,
            0 => return Some(hasher.finalize().into()),
            read => hasher.update(chunk.get(..read)?),
        }
    }
}
