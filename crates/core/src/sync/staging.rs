//! Where things lie on a host between their arrival and the moment they get their names.
//!
//! Everything of a batch is unpacked into a folder of its own within the target, so that nobody sees half of it, and
//! then renamed. What comes into a directory that is there already is renamed one by one; a directory that is new
//! is filled where nobody sees it and renamed as a whole, which is one step for all that is in it.
//!
//! A rename works within one mount only. Where something is mounted within the target, or files go through a link to a
//! directory, that part of the tree gets a folder of its own. Below such a link the target may not have been looked
//! through, so that directories are made there one by one, and only what is in them is renamed.

use std::collections::BTreeMap;

use super::entry::{Entry, Kind, LinkEnd};
use super::path::RelPath;
use super::plan::Action;
use super::temporary::temporary_name;
use crate::ids::RunToken;

/// A batch has at most so many entries.
const MOST_ENTRIES: usize = 10_000;

/// A batch has at most so many bytes, but one entry always.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Paths in a batch have at most so many bytes; each is kept up to five times.
const MOST_TEXT: usize = 1024 * 1024;

/// One entry on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The entry of the source.
    pub source: Entry,
    /// Where it lies until it gets its name, from the root of the target.
    pub place: RelPath,
    /// What the scan saw in its place.
    pub replaces: Option<Entry>,
}

/// One rename.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// From where.
    pub from: RelPath,
    /// To where; the last names are the same.
    pub to: RelPath,
}

/// What is sent and renamed together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// What is sent, directories before what is in them.
    pub staged: Vec<Staged>,
    /// What is renamed then.
    pub renames: Vec<Rename>,
    /// The folders that hold it until then, from the root of the target.
    pub folders: Vec<RelPath>,
    /// Folders within these, empty after the renames.
    pub inner_folders: Vec<RelPath>,
    /// Links that renames and directories go through, in the order of paths.
    pub links: Vec<RelPath>,
    /// Directories that are made before the renames, each after the one it lies in.
    pub directories: Vec<Entry>,
    /// How many bytes the files in it have.
    pub bytes: u64,
}

/// Parts of the target that lie elsewhere than what is above them.
#[derive(Debug, Clone, Default)]
pub struct Regions {
    /// The directory, and whether it is a link.
    tops: Vec<(RelPath, bool)>,
}

impl Regions {
    /// Finds them in a scan of the target, whose root lies on this device and has these mounts below it.
    pub fn of(
        target: impl Iterator<Item = Entry>,
        device: Option<u64>,
        mounts: &[RelPath],
        keep_dirlinks: bool,
    ) -> Self {
        let mut above: Vec<(RelPath, Option<u64>)> = Vec::new();
        let mut tops = Vec::new();
        for entry in target {
            while above
                .last()
                .is_some_and(|(path, _)| !entry.path.is_below(path))
            {
                above.pop();
            }
            match &entry.kind {
                Kind::Directory => {
                    let own = entry.identity.map(|identity| identity.device);
                    let outer = above.last().map_or(device, |(_, device)| *device);
                    let is_elsewhere = own.zip(outer).is_some_and(|(own, outer)| own != outer);
                    if is_elsewhere || mounts.contains(&entry.path) {
                        tops.push((entry.path.clone(), false));
                    }
                    above.push((entry.path, own.or(outer)));
                }
                Kind::Link {
                    end: LinkEnd::Directory | LinkEnd::Unknown,
                    ..
                } if keep_dirlinks => {
                    // On which device that is nobody knows; mounts below it are told by name.
                    tops.push((entry.path.clone(), true));
                    above.push((entry.path, None));
                }
                _ => {}
            }
        }
        Regions { tops }
    }

    /// The links among them.
    pub fn links(&self) -> impl Iterator<Item = &RelPath> {
        let links = self.tops.iter().filter(|(_, is_link)| *is_link);
        links.map(|(path, _)| path)
    }

    /// The region that a directory lies in; none when that is the one of the root.
    fn of_directory(&self, directory: Option<&RelPath>) -> Option<&(RelPath, bool)> {
        let directory = directory?;
        let holds = |top: &&(RelPath, bool)| top.0 == *directory || directory.is_below(&top.0);
        self.tops
            .iter()
            .filter(holds)
            .max_by_key(|top| top.0.as_bytes().len())
    }
}

/// An entry that cannot be sent: in the folder that would hold it until it gets its name, its path would be too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its path is too long to be sent")]
pub struct TooLong {
    /// The path.
    pub path: RelPath,
}

/// Sorts what has to be sent into batches.
#[derive(Debug)]
pub struct Stager<'a> {
    token: RunToken,
    regions: &'a Regions,
    batch: Batch,
    /// Folders of the batch by the directory that their content comes into; none is the root.
    parents: BTreeMap<Option<RelPath>, RelPath>,
    /// The new directory that is being filled, and where it lies until then.
    open: Option<(RelPath, RelPath)>,
    /// What the paths in the batch take.
    text_bytes: usize,
    /// Counts folders, so that two batches never share one.
    number: u64,
}

impl<'a> Stager<'a> {
    /// One for a transfer.
    pub fn new(token: RunToken, regions: &'a Regions) -> Self {
        Stager {
            token,
            regions,
            batch: Batch::default(),
            parents: BTreeMap::new(),
            open: None,
            text_bytes: 0,
            number: 0,
        }
    }

    /// Takes what an action sends; actions that send nothing are passed over.
    pub fn add(&mut self, action: Action) -> Result<(), TooLong> {
        let (source, replaces) = match action {
            Action::MakeDirectory { entry, replaces }
            | Action::SendFile {
                entry, replaces, ..
            }
            | Action::SendLink { entry, replaces } => (entry, replaces),
            _ => return Ok(()),
        };
        self.text_bytes += source.text_bytes();
        if source.kind.is_directory() && self.lies_behind_link(&source.path) {
            self.batch.directories.push(source.clone());
            // It has to be there before what is in it; so the folder of its parent is the first to be made.
            let _ = self.place_in_parent(&source.path);
            return Ok(());
        }
        let place = match self.place_in_open(&source.path) {
            Some(place) => place,
            None => {
                let Some(place) = self.place_in_parent(&source.path) else {
                    return Err(TooLong { path: source.path });
                };
                self.batch.renames.push(Rename {
                    from: place.clone(),
                    to: source.path.clone(),
                });
                if source.kind.is_directory() {
                    self.open = Some((source.path.clone(), place.clone()));
                }
                place
            }
        };
        if source.kind.is_file() {
            self.batch.bytes = self.batch.bytes.saturating_add(source.size_bytes);
        }
        self.batch.staged.push(Staged {
            source,
            place,
            replaces,
        });
        Ok(())
    }

    /// Whether it is time to send the batch.
    pub fn is_full(&self) -> bool {
        let entries = self.batch.staged.len() + self.batch.directories.len();
        entries >= MOST_ENTRIES || self.batch.bytes >= MOST_BYTES || self.text_bytes >= MOST_TEXT
    }

    /// Gives out the batch and begins the next one; none when nothing is in it.
    pub fn take(&mut self) -> Option<Batch> {
        self.parents.clear();
        self.open = None;
        self.text_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        let is_empty = batch.staged.is_empty() && batch.directories.is_empty();
        (!is_empty).then_some(batch)
    }

    fn lies_behind_link(&self, path: &RelPath) -> bool {
        let region = self.regions.of_directory(path.parent().as_ref());
        region.is_some_and(|(_, is_link)| *is_link)
    }

    fn place_in_open(&self, path: &RelPath) -> Option<RelPath> {
        let (directory, place) = self.open.as_ref()?;
        let rest = path
            .is_below(directory)
            .then(|| path.as_bytes().get(directory.as_bytes().len() + 1..))??;
        place.join(rest).ok()
    }

    /// A place in the folder of the directory that it comes into. None is a path that is too long to be staged.
    fn place_in_parent(&mut self, path: &RelPath) -> Option<RelPath> {
        let parent = path.parent();
        if let Some(folder) = self.parents.get(&parent) {
            return folder.join(path.name()).ok();
        }
        let name = temporary_name(&self.token, 0);
        let region = self.regions.of_directory(parent.as_ref());
        let outer = match region {
            Some((region, _)) => region.join(name.as_bytes()).ok()?,
            None => RelPath::parse(name.as_bytes()).ok()?,
        };
        if !self.batch.folders.contains(&outer) {
            let links = self.regions.links().filter(|link| outer.is_below(link));
            self.batch.links.extend(links.cloned());
            self.batch.links.sort();
            self.batch.links.dedup();
            self.batch.folders.push(outer.clone());
        }
        self.number += 1;
        let folder = outer.join(self.number.to_string().as_bytes()).ok()?;
        self.batch.inner_folders.push(folder.clone());
        self.parents.insert(parent, folder.clone());
        folder.join(path.name()).ok()
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
