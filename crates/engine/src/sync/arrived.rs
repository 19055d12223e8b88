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
            if is_whole(&entry, sizes.get(&place).copied()) {
                whole.insert(place);
            }
        }
    }
    Ok(whole)
}

fn is_whole(entry: &Entry, size_bytes: Option<u64>) -> bool {
    !entry.kind.is_file() || size_bytes == Some(entry.size_bytes)
}
