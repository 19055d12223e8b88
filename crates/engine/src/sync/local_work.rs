//! Short work on the files of this machine, away from the threads that must not wait.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::{Entry, Kind, Mtime, RelPath};

use crate::beneath::{Removed, Tree};

/// An entry of the source and what it replaces here.
pub(super) type Piece = (Entry, Option<Entry>);

/// What was done, and what was not.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) done: u64,
    pub(super) problems: Vec<(RelPath, String)>,
}

/// What was removed.
#[derive(Debug, Default)]
pub(super) struct RemovedAll {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) problems: Vec<(RelPath, String)>,
}

/// Does work that waits for the disk.
pub(super) async fn here<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::new(Code::Internal, format!("work on files broke: {error}")))
}

/// Makes directories, each after the one it lies in.
pub(super) fn make_directories(tree: &Tree, directories: &[Entry]) -> Done {
    let mut done = Done::default();
    for entry in directories {
        match tree.make_directory(&entry.path, entry.carried_mode()) {
            Ok(true) => done.done += 1,
            Ok(false) => {}
            Err(error) => done
                .problems
                .push((entry.path.clone(), Failure::chain(&error))),
        }
    }
    done
}

/// Makes links.
pub(super) fn make_links(tree: &Tree, transfer: &RunToken, links: &[Piece]) -> Done {
    let mut done = Done::default();
    for (number, (entry, replaces)) in links.iter().enumerate() {
        let Kind::Link { target, .. } = &entry.kind else {
            continue;
        };
        // Numbers of their own, for files of the same batch count from zero.
        let number = u64::MAX - number as u64;
        match tree.make_link(&entry.path, target, transfer, number, replaces.as_ref()) {
            Ok(()) => done.done += 1,
            Err(error) => done
                .problems
                .push((entry.path.clone(), Failure::chain(&error))),
        }
    }
    done
}

/// Removes entries that are still what the scan saw; directories come after their content.
pub(super) fn remove_all(tree: &Tree, entries: Vec<Entry>) -> RemovedAll {
    let mut all = RemovedAll::default();
    for entry in entries {
        let problem = match tree.remove(&entry) {
            Ok(Removed::Gone) => {
                match entry.kind.is_directory() {
                    true => all.directories += 1,
                    false => all.files += 1,
                }
                continue;
            }
            Ok(Removed::Missing) => continue,
            Ok(Removed::Changed) => "not deleted: it was changed meanwhile".to_owned(),
            Ok(Removed::NotEmpty) => "the directory is not empty and stays".to_owned(),
            Err(error) => Failure::chain(&error),
        };
        all.problems.push((entry.path, problem));
    }
    all
}

/// Sets permissions, those of inner directories first, and times.
pub(super) fn set_attributes(
    tree: &Tree,
    modes: Vec<(RelPath, u16)>,
    times: &[(RelPath, Mtime)],
) -> Vec<(RelPath, String)> {
    let mut problems = Vec::new();
    for (path, mode) in modes.into_iter().rev() {
        if let Err(error) = tree.set_attributes(&path, Some(mode), None) {
            problems.push((path, Failure::chain(&error)));
        }
    }
    for (path, time) in times {
        if let Err(error) = tree.set_attributes(path, None, Some(*time)) {
            problems.push((path.clone(), Failure::chain(&error)));
        }
    }
    problems
}
