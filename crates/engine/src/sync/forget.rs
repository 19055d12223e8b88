//! Forgets what is kept of pairs that nobody has synced for long: what is remembered of them, and their lock files.

use std::path::Path;
use std::time::Duration;

use super::lock::{self, SyncLock};
use super::pairs;
use crate::clock;
use crate::fsio;

/// What nobody has used for so long is forgotten.
const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 3600);

/// So many files of a folder are looked at in one go, and so many names are read to choose them from.
const MOST_LOOKED_AT: usize = 1000;
const MOST_NAMES: usize = 50_000;

/// Removes what is old and what nobody uses now; it is no matter when that fails, the next sync tries again.
pub(super) fn forget_old(state: &Path) {
    let before = clock::wall().saturating_sub(KEPT_FOR);
    let folder = state.join(pairs::FOLDER);
    for name in old_files(&folder, before) {
        forget_pair(state, &name, before);
    }
    let folder = state.join(lock::FOLDER);
    for name in old_files(&folder, before) {
        SyncLock::remove_free(&folder.join(name), before);
    }
}

/// Removes what is remembered of a pair while nobody can be syncing it.
fn forget_pair(state: &Path, name: &str, before: Duration) {
    let path = state.join(pairs::FOLDER).join(name);
    let Ok(lock) = SyncLock::of_pair(state, name) else {
        return;
    };
    // A sync may have come between.
    if fsio::is_older_than(&path, before) {
        let _ = fsio::remove_file(&path);
    }
    lock.remove();
}

/// The names of old files in a folder; in a large one not all are looked at, and other ones the next time.
fn old_files(folder: &Path, before: Duration) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.take(MOST_NAMES).collect();
    let first = match names.len() > MOST_LOOKED_AT {
        true => usize::try_from(clock::wall().as_millis() % names.len() as u128).unwrap_or(0),
        false => 0,
    };
    let around = names.iter().cycle().skip(first);
    let looked_at = around.take(names.len().min(MOST_LOOKED_AT));
    looked_at
        .filter(|name| fsio::is_older_than(&folder.join(name), before))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::super::pairs::Pair;
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn make_old(path: &Path) {
        let file = File::options().write(true).open(path).unwrap();
        let old = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
        file.set_modified(old).unwrap();
    }

    fn remembered(state: &Path, remote: &str) -> (Pair, PathBuf) {
        let pair = Pair::new(state, "box", Path::new("/a"), remote.as_bytes());
        pair.remember().unwrap().finish().unwrap();
        let path = state.join(pairs::FOLDER).join(pair.name());
        (pair, path)
    }

    #[test]
    fn pair_that_nobody_synced_for_long_is_forgotten_and_no_other_one() {
        let state = tempfile::tempdir().unwrap();
        let (_, old) = remembered(state.path(), "/old");
        let (_, fresh) = remembered(state.path(), "/fresh");
        let (used, under_way) = remembered(state.path(), "/under-way");
        make_old(&old);
        make_old(&under_way);
        let lock = SyncLock::of_pair(state.path(), used.name()).unwrap();
        forget_old(state.path());
        assert!(!old.exists());
        assert!(fresh.exists() && under_way.exists());
        drop(lock);
        forget_old(state.path());
        assert!(fresh.exists() && !under_way.exists());
        // The locks that were taken for it are gone, too.
        assert_eq!(names(&state.path().join(lock::FOLDER)), [""; 0]);
    }

    #[test]
    fn lock_file_goes_when_it_is_old_and_free() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(lock::FOLDER);
        let held = SyncLock::of_target(state.path(), "box", b"/held").unwrap();
        drop(SyncLock::of_target(state.path(), "box", b"/old").unwrap());
        for name in names(&folder) {
            make_old(&folder.join(name));
        }
        drop(SyncLock::of_target(state.path(), "box", b"/fresh").unwrap());
        assert_eq!(names(&folder).len(), 3);
        forget_old(state.path());
        assert_eq!(names(&folder).len(), 2);
        SyncLock::of_target(state.path(), "box", b"/held").unwrap_err();
        drop(held);
        forget_old(state.path());
        assert_eq!(names(&folder).len(), 1);
    }

    #[test]
    fn large_folder_is_looked_through_in_parts_until_nothing_old_is_left() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(lock::FOLDER);
        fsio::sealed_directory(&folder).unwrap();
        for number in 0..MOST_LOOKED_AT + 200 {
            let path = folder.join(format!("{number:032x}"));
            File::create(&path).unwrap();
            if number % 3 == 0 {
                make_old(&path);
            }
        }
        let old = || old_files(&folder, clock::wall() - KEPT_FOR).len();
        assert!(old() <= MOST_LOOKED_AT);
        for _ in 0..1000 {
            forget_old(state.path());
            std::thread::sleep(Duration::from_millis(1));
            if names(&folder).len() == 800 {
                return;
            }
        }
        panic!("{} are left", names(&folder).len());
    }
}
