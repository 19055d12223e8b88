//! The digests of all files of a set, for its name.

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sync::plan::Action;
use remote_sandbox_core::sync::revision::ContentDigest;
use remote_sandbox_core::sync::{RelPath, Stamp};
use tokio_util::sync::CancellationToken;

use super::compare::digest_of;
use super::decide::out_of_order;
use super::digest_list::DigestList;
use super::local_work::here;
use super::pack::Source;
use super::progress::{Phase, Progress};
use super::remember::{Changes, left_by};
use super::sides::{SPOOL, Sides};

/// Files that are read together.
const TOGETHER: usize = 1000;

/// So many digests wait for those before them.
const MOST_WAITING: usize = 20_000;

/// A file whose digest is not known yet.
struct Unread {
    number: usize,
    path: RelPath,
    stamp: Stamp,
}

/// The digest of every file that is the same on both sides now, in the order of the plan; nothing without `checksum`.
///
/// What was compared has its digest. What was sent is read once more on this machine, and counts when it is still what
/// was sent.
pub(super) async fn contents(
    sides: &Sides,
    source: &Source,
    changes: &Changes,
    progress: &Progress,
) -> Result<DigestList, Failure> {
    let mut digests = DigestList::new(sides.state.join(SPOOL));
    if !sides.request.checksum {
        return Ok(digests);
    }
    progress.enter(Phase::Comparing);
    let mut compared = changes.compared.iter();
    let (mut waiting, mut unread) = (Vec::new(), Vec::new());
    for action in sides.plan() {
        let action = action.map_err(|error| out_of_order(&error))?;
        let known = match action {
            Action::CompareContent { .. } => compared.next().flatten(),
            _ => None,
        };
        let Some(entry) = left_by(&action).filter(|entry| entry.kind.is_file()) else {
            continue;
        };
        if known.is_none() && !changes.failed.contains(&entry.path) {
            unread.push(Unread {
                number: waiting.len(),
                path: entry.path.clone(),
                stamp: changes.patched(entry).stamp(),
            });
        }
        waiting.push(known);
        if waiting.len() >= MOST_WAITING || unread.len() >= TOGETHER {
            read(source, std::mem::take(&mut unread), &mut waiting).await?;
            add(&mut digests, &mut waiting)?;
        }
    }
    read(source, unread, &mut waiting).await?;
    add(&mut digests, &mut waiting)?;
    Ok(digests)
}

fn add(digests: &mut DigestList, waiting: &mut Vec<Option<ContentDigest>>) -> Result<(), Failure> {
    waiting
        .drain(..)
        .try_for_each(|digest| digests.push(digest))
}

async fn read(
    source: &Source,
    unread: Vec<Unread>,
    digests: &mut [Option<ContentDigest>],
) -> Result<(), Failure> {
    let unwanted = CancellationToken::new();
    let _guard = unwanted.clone().drop_guard();
    let source = source.clone();
    let made = here(move || {
        let made = unread.into_iter().map(|unread| {
            let digest = digest_of_same(&source, &unread, &unwanted);
            (unread.number, digest)
        });
        made.collect::<Vec<_>>()
    });
    for (number, digest) in made.await? {
        if let Some(place) = digests.get_mut(number) {
            *place = digest;
        }
    }
    Ok(())
}

/// The digest of a file that is still the one that was sent.
fn digest_of_same(
    source: &Source,
    unread: &Unread,
    unwanted: &CancellationToken,
) -> Option<ContentDigest> {
    let (file, found) = source.open(&unread.path).ok()?;
    let is_same = found.stamp().agrees(unread.stamp);
    let digest = digest_of(file.try_clone().ok()?, |_| unwanted.is_cancelled());
    let after = crate::beneath::stamp_of(&file).ok()?;
    digest.filter(|_| is_same && after.agrees(unread.stamp))
}
