//! Temporary files that a sync which was killed has left behind.

use std::time::Duration;

use remote_sandbox_core::sync::temporary::temporary_owner;
use remote_sandbox_core::sync::{Kind, RelPath};
use rustix::fs::{AtFlags, statat};

use super::remove::Removed;
use super::stat::seconds_since_change;
use super::tree::Tree;

/// No transfer lets a temporary file rest this long.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

impl Tree {
    /// Removes those temporary files of ours that were not touched for a day; says how many. `now` is the
    /// time since the Unix epoch. What has another name, or is a directory with something in it, stays.
    pub fn remove_old_temporaries(&self, found: &[RelPath], now: Duration) -> u64 {
        let mut removed = 0;
        for path in found {
            if temporary_owner(path.name()).is_none() {
                continue;
            }
            let Ok(Some(entry)) = self.look(path) else {
                continue;
            };
            let is_old = self
                .rest(path, now)
                .is_some_and(|rest| rest > OLD.as_secs());
            let is_ours = !matches!(entry.kind, Kind::Special(_));
            // One that cannot be removed now is met again by the next scan.
            if is_old && is_ours && matches!(self.remove(&entry), Ok(Removed::Gone)) {
                removed += 1;
            }
        }
        removed
    }

    /// How many seconds nobody has touched it. Its own time does not tell: that is the one of the file it
    /// becomes.
    fn rest(&self, path: &RelPath, now: Duration) -> Option<u64> {
        let parent = self.parent(path).ok()?;
        let found = statat(&parent, path.name(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(seconds_since_change(&found, now))
    }
}
