//! Compares files by content, where size and time are not believed.

use std::collections::BTreeMap;
use std::io::Read;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::chores::{digest_script, parse_digests, path_list};
use remote_sandbox_core::sync::plan::{Action, Difference};
use remote_sandbox_core::sync::revision::ContentDigest;
use remote_sandbox_core::sync::{Mtime, RelPath};
use sha2::{Digest, Sha256};

use super::decide::out_of_order;
use super::pack::Source;
use super::progress::{Phase, Progress};
use super::sides::Sides;

use crate::mark::new_mark;

/// Files that are compared together.
const TOGETHER: usize = 2000;

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;

/// What a comparison of contents has found.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Files whose content is not the same.
    differing: BTreeMap<RelPath, ()>,
    /// Files whose content is the same and whose time is not.
    pub(super) times: Vec<(RelPath, Mtime)>,
    /// What was compared, in the order of the plan, with its digest where both sides have the same.
    pub(super) digests: Vec<Option<ContentDigest>>,
}

impl Compared {
    /// Compares all files that the plan is not sure of.
    pub(super) async fn of(
        sides: &Sides,
        source: Option<&Source>,
        progress: &Progress,
    ) -> Result<Compared, Failure> {
        let mut compared = Compared::default();
        if !sides.request.checksum {
            return Ok(compared);
        }
        progress.enter(Phase::Comparing);
        let Some(source) = source else {
            return Ok(compared);
        };
        let mut together = Vec::new();
        for action in sides.plan() {
            let action = action.map_err(|error| out_of_order(&error))?;
            if let Action::CompareContent { entry, target, .. } = action {
                let other_time = (!entry.mtime.agrees(target.mtime)).then_some(entry.mtime);
                together.push((entry.path, other_time));
            }
            if together.len() >= TOGETHER {
                compared
                    .compare(sides, source, std::mem::take(&mut together))
                    .await?;
            }
        }
        compared.compare(sides, source, together).await?;
        Ok(compared)
    }

    async fn compare(
        &mut self,
        sides: &Sides,
        source: &Source,
        together: Vec<(RelPath, Option<Mtime>)>,
    ) -> Result<(), Failure> {
        if together.is_empty() {
            return Ok(());
        }
        let far = sides.far_side();
        let mark = new_mark();
        let there = |path: &RelPath| match &sides.lone {
            Some(lone) => lone.there.clone(),
            None => path.clone(),
        };
        let paths: Vec<RelPath> = together.iter().map(|(path, _)| path.clone()).collect();
        let named: Vec<RelPath> = paths.iter().map(there).collect();
        let script = digest_script(&far.root, &mark);
        let list = path_list(named.iter());
        let asking = far.converse(&script, &list);
        let here = source.clone();
        let reading = tokio::task::spawn_blocking(move || {
            paths
                .iter()
                .map(|path| digest_here(&here, path))
                .collect::<Vec<_>>()
        });
        let (answer, here) = tokio::join!(asking, reading);
        let digests = parse_digests(&mark, &answer?.0).ok_or_else(|| {
            far.failure(
                Code::RemoteRefused,
                "the digests of its files could not be read",
            )
            .hint("it has no sha256sum or no xargs; call again without checksum")
        })?;
        let here = here.map_err(|error| {
            far.failure(Code::Internal, &format!("reading files broke: {error}"))
        })?;
        for (((path, time), named), digest) in together.into_iter().zip(named).zip(here) {
            let is_same = digest.is_some() && digest.as_ref() == digests.get(&named);
            self.digests.push(digest.filter(|_| is_same));
            match (is_same, time) {
                (false, _) => {
                    self.differing.insert(path, ());
                }
                (true, Some(time)) => self.times.push((path, time)),
                (true, None) => {}
            }
        }
        Ok(())
    }

    /// An action in which nothing is open any more.
    pub(super) fn settle(&self, action: Action) -> Action {
        let Action::CompareContent {
            entry,
            target,
            obstacle,
        } = action
        else {
            return action;
        };
        match (self.differing.contains_key(&entry.path), obstacle) {
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

fn digest_here(source: &Source, path: &RelPath) -> Option<ContentDigest> {
    let (file, _) = source.open(path).ok()?;
    digest_of(file, || false)
}

/// The digest of what a file holds; none when it cannot be read, or when nobody wants it any more.
pub(super) fn digest_of(
    mut file: std::fs::File,
    is_unwanted: impl Fn() -> bool,
) -> Option<ContentDigest> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk).ok()? {
            _ if is_unwanted() => return None,
            0 => return Some(hasher.finalize().into()),
            read => hasher.update(chunk.get(..read)?),
        }
    }
}
