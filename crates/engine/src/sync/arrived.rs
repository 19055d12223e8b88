//! Looks what of a batch has arrived whole, where the unpacking program complained.

use std::collections::{BTreeMap, BTreeSet};

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sync::scan::{LoneFile, ScanDepth, ScanRequest, SortedBy};
use remote_sandbox_core::sync::staging::Batch;
use remote_sandbox_core::sync::{Entry, RelPath};

use super::far::Far;
use super::far_scan::scan;
use super::pack::Packed;

/// The places of a batch where everything is as it was sent.
pub(super) async fn arrived(
    far: &Far<'_>,
    batch: &Batch,
    packed: &Packed,
) -> Result<BTreeSet<RelPath>, Failure> {
    let mut sizes = BTreeMap::new();
    for (number, stamp) in &packed.stamps {
        if let Some(staged) = batch.staged.get(*number) {
            sizes.insert(&staged.place, stamp.size_bytes);
        }
    }
    let mut whole = BTreeSet::new();
    let take = |place: RelPath, entry: &Entry| {
        if is_whole(entry, sizes.get(&place).copied()) {
            whole.insert(place);
        }
    };
    look_through(far, batch, take).await?;
    Ok(whole)
}

/// Whether any of these places holds something. Of one whose directory never came, a removal does not know.
pub(super) async fn holds_any(
    far: &Far<'_>,
    batch: &Batch,
    places: &[RelPath],
) -> Result<bool, Failure> {
    let mut is_held = false;
    if !places.is_empty() {
        let take = |place: RelPath, _: &Entry| is_held |= places.contains(&place);
        look_through(far, batch, take).await?;
    }
    Ok(is_held)
}

/// Goes through everything in the folders of a batch.
async fn look_through(
    far: &Far<'_>,
    batch: &Batch,
    mut take: impl FnMut(RelPath, &Entry),
) -> Result<(), Failure> {
    for folder in &batch.folders {
        let root = far.below(folder);
        let request = ScanRequest {
            root: &root,
            scanner: far.scanner,
            prunes: &[],
            follow_links: false,
            sorted_by: SortedBy::Reader,
            depth: ScanDepth::Tree,
            lone_file: LoneFile::Unlisted,
        };
        let found = scan(far.sandbox, &request, &far.spool).await?;
        for entry in found.entries.iter() {
            let Ok(place) = folder.join(entry.path.as_bytes()) else {
                continue;
            };
            take(place, &entry);
        }
    }
    Ok(())
}

fn is_whole(entry: &Entry, size_bytes: Option<u64>) -> bool {
    !entry.kind.is_file() || size_bytes == Some(entry.size_bytes)
}
