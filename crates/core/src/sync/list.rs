//! Many entries in little memory, sorted when they are complete.
//!
//! Two trees of 200,000 files have to fit into a process of 60 MB. An [`Entry`] with its own path would need about
//! 150 bytes each. Here an entry is a record of fixed size and its last name; the names above it are those of its
//! directory, which is on the list too. Sorting compares names within one directory, never whole paths, and entries
//! are handed out one by one, so that the whole list never exists as [`Entry`] values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::entry::Kind;
use super::entry::{Entry, Identity, Mtime};
use super::packed::{DIRECTORY, Packed, may_hold, name_of, packed_kind, unpacked_kind};
use super::path::{PathError, RelPath, path_order};

/// A list takes this many entries when nothing else is said: about 12 MB with names of 25 bytes, and 15 MB at most, so that
/// two lists leave room in 60 MB.
pub const MOST_ENTRIES: usize = 150_000;

/// All names and link targets of a list together take at most this many bytes, whole paths of strays included.
const MOST_TEXT: usize = 6 * 1024 * 1024;

const ROOT: u32 = u32::MAX;
const NO_NANOSECONDS: u32 = u32::MAX;
const MOST_MISPLACED: usize = 1000;

/// So many entries may come before or far from their directory; they are kept whole and take more room.
const MOST_STRAYS: usize = 60_000;

/// Why an entry does not get onto the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The list is full.
    #[error(
        "the tree is too large to be sorted here: more than {limit} entries, or names of more than {MOST_TEXT} bytes"
    )]
    Full {
        /// How many it takes.
        limit: usize,
    },
}

/// What is wrong with an entry that was left out of a sorted list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// The directory it should lie in was not listed, or is no directory.
    #[error("lies in no directory that was listed")]
    NoDirectory,
    /// The same path was listed before.
    #[error("was listed twice")]
    Twice,
}

/// Entries in the order they were found.
#[derive(Debug)]
pub struct EntryList {
    records: Vec<Packed>,
    text: Vec<u8>,
    devices: Vec<u64>,
    /// The directories that lie above the last entry, which most often lie above the next one too.
    above: Vec<(RelPath, u32)>,
    /// Entries whose directory is not among these; they find it when the list is complete.
    strays: Vec<Entry>,
    /// What the paths and targets of these take.
    stray_bytes: usize,
    limit: usize,
    /// Whether entries may lie below a link.
    looks_behind_links: bool,
}

/// Entries in the order of their paths.
#[derive(Debug)]
pub struct SortedEntries {
    records: Vec<Packed>,
    text: Vec<u8>,
    devices: Vec<u64>,
    /// Record numbers by directory, then by name.
    order: Vec<u32>,
    misplaced: Vec<(RelPath, Misplaced)>,
    misplaced_count: u64,
}

impl Default for EntryList {
    fn default() -> Self {
        EntryList::new(MOST_ENTRIES)
    }
}

impl EntryList {
    /// An empty list that takes at most so many entries.
    pub fn new(limit: usize) -> Self {
        EntryList {
            records: Vec::new(),
            text: Vec::new(),
            devices: Vec::new(),
            above: Vec::new(),
            strays: Vec::new(),
            stray_bytes: 0,
            limit: limit.min(u32::MAX as usize - 1),
            looks_behind_links: false,
        }
    }

    /// One in which links may have something below them, as directories have.
    #[must_use]
    pub fn looking_behind_links(mut self) -> Self {
        self.looks_behind_links = true;
        self
    }

    fn may_hold(&self, entry: &Entry) -> bool {
        match entry.kind {
            Kind::Directory => true,
            Kind::Link { .. } => self.looks_behind_links,
            Kind::File | Kind::Special(_) => false,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.records.len() + self.strays.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry; fastest when directories come before their content and are not torn apart.
    pub fn push(&mut self, entry: Entry) -> Result<(), ListError> {
        if self.len() >= self.limit || self.text.len() + self.stray_bytes >= MOST_TEXT {
            return Err(ListError::Full { limit: self.limit });
        }
        while self
            .above
            .last()
            .is_some_and(|(directory, _)| !entry.path.is_below(directory))
        {
            self.above.pop();
        }
        let expected = self.above.last().map(|(path, _)| path.as_bytes());
        if expected != entry.path.parent_bytes() {
            if self.strays.len() >= MOST_STRAYS {
                return Err(ListError::Full { limit: self.limit });
            }
            self.stray_bytes += entry.text_bytes();
            self.strays.push(entry);
            return Ok(());
        }
        let directory = self.above.last().map_or(ROOT, |(_, number)| *number);
        let number = self.put(&entry, directory);
        if self.may_hold(&entry) {
            self.above.push((entry.path, number));
        }
        Ok(())
    }

    fn put(&mut self, entry: &Entry, directory: u32) -> u32 {
        let name = entry.path.name();
        let text_at = u32::try_from(self.text.len()).unwrap_or(u32::MAX);
        grow_gently(&mut self.text, name.len());
        self.text.extend_from_slice(name);
        let (kind, target) = packed_kind(&entry.kind);
        let target = target.get(..usize::from(u16::MAX)).unwrap_or(target);
        grow_gently(&mut self.text, target.len());
        self.text.extend_from_slice(target);
        let device = entry
            .identity
            .map_or(0, |identity| self.device(identity.device));
        grow_gently(&mut self.records, 1);
        self.records.push(Packed {
            size_bytes: entry.size_bytes,
            seconds: entry.mtime.seconds,
            inode: entry.identity.map_or(0, |identity| identity.inode),
            text_at,
            target_length: u16::try_from(target.len()).unwrap_or(u16::MAX),
            mode: entry.mode,
            directory,
            nanoseconds: entry.mtime.nanoseconds().unwrap_or(NO_NANOSECONDS),
            links: entry.identity.map_or(0, |identity| identity.links.max(1)),
            device,
            name_length: u8::try_from(name.len()).unwrap_or(u8::MAX),
            kind,
        });
        u32::try_from(self.records.len() - 1).unwrap_or(ROOT)
    }

    fn device(&mut self, device: u64) -> u16 {
        let known = self.devices.iter().position(|other| *other == device);
        let at = known.unwrap_or_else(|| {
            // A tree on more devices than this is a lie; the last one then stands for the rest.
            if self.devices.len() < usize::from(u8::MAX) {
                self.devices.push(device);
            }
            self.devices.len() - 1
        });
        u16::try_from(at).unwrap_or_default()
    }

    /// Gives entries that came late to their directories, some of which came late themselves.
    fn place(&mut self, mut strays: Vec<Entry>, sorted: &mut SortedEntries) {
        strays.sort_by(|one, other| one.path.cmp(&other.path));
        let mut late: BTreeMap<RelPath, u32> = BTreeMap::new();
        for stray in strays {
            let parent = stray.path.parent();
            let directory = parent
                .and_then(|parent| late.get(&parent).copied())
                .or_else(|| find_directory(self, &sorted.order, &stray.path));
            match directory {
                Some(directory) => {
                    let number = self.put(&stray, directory);
                    if self.may_hold(&stray) {
                        late.insert(stray.path, number);
                    }
                }
                None => sorted.misplace(stray.path, Misplaced::NoDirectory),
            }
        }
    }

    /// Sorts the list.
    pub fn sorted(mut self) -> SortedEntries {
        let strays = std::mem::take(&mut self.strays);
        let mut sorted = SortedEntries {
            order: order_of(&self.records, &self.text),
            records: Vec::new(),
            text: Vec::new(),
            devices: Vec::new(),
            misplaced: Vec::new(),
            misplaced_count: 0,
        };
        if !strays.is_empty() {
            self.place(strays, &mut sorted);
            sorted.order = order_of(&self.records, &self.text);
        }
        sorted.records = self.records;
        sorted.text = self.text;
        sorted.devices = self.devices;
        sorted.leave_out_twins();
        sorted
    }
}

impl SortedEntries {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The first entries that were left out, and why.
    pub fn misplaced(&self) -> &[(RelPath, Misplaced)] {
        &self.misplaced
    }

    /// How many entries were left out.
    pub fn misplaced_count(&self) -> u64 {
        self.misplaced_count
    }

    /// The entries in the order of their paths.
    pub fn iter(&self) -> Entries<'_> {
        Entries {
            list: self,
            open: vec![Level {
                next: self.first_of(ROOT),
                directory: ROOT,
                path_length: 0,
            }],
            path: Vec::new(),
        }
    }

    fn misplace(&mut self, path: RelPath, why: Misplaced) {
        self.misplaced_count += 1;
        if self.misplaced.len() < MOST_MISPLACED {
            self.misplaced.push((path, why));
        }
    }

    /// A path that was listed twice counts once, and the other time is reported.
    fn leave_out_twins(&mut self) {
        let mut kept: Vec<u32> = Vec::with_capacity(self.order.len());
        let mut twins = Vec::new();
        for number in std::mem::take(&mut self.order) {
            let is_twin = kept
                .last()
                .is_some_and(|last| compare(&self.records, &self.text, *last, number).is_eq());
            if is_twin {
                twins.push(number);
            } else {
                kept.push(number);
            }
        }
        self.order = kept;
        for number in twins {
            if let Ok(path) = self.path_of(number) {
                self.misplace(path, Misplaced::Twice);
            }
        }
    }

    fn path_of(&self, number: u32) -> Result<RelPath, PathError> {
        let mut names = Vec::new();
        let mut at = number;
        while let Some(record) = self.records.get(at as usize) {
            names.push(name_of(record, &self.text));
            at = record.directory;
        }
        names.reverse();
        RelPath::parse(&names.join(&b'/'))
    }

    fn first_of(&self, directory: u32) -> usize {
        self.order.partition_point(|number| {
            self.records
                .get(*number as usize)
                .is_some_and(|record| record.directory.wrapping_add(1) < directory.wrapping_add(1))
        })
    }

    fn entry(&self, record: &Packed, path: &[u8]) -> Option<Entry> {
        let target_at = record.text_at as usize + usize::from(record.name_length);
        let target = self
            .text
            .get(target_at..target_at + usize::from(record.target_length))?;
        let identity = (record.links > 0).then(|| Identity {
            device: self
                .devices
                .get(usize::from(record.device))
                .copied()
                .unwrap_or_default(),
            inode: record.inode,
            links: record.links,
        });
        Some(Entry {
            path: RelPath::of_checked_names(path),
            kind: unpacked_kind(record.kind, target),
            size_bytes: record.size_bytes,
            mtime: Mtime::exact(record.seconds, record.nanoseconds)
                .unwrap_or(Mtime::whole(record.seconds)),
            mode: record.mode,
            identity,
        })
    }
}

struct Level {
    next: usize,
    directory: u32,
    path_length: usize,
}

/// The entries of a sorted list, one by one.
pub struct Entries<'a> {
    list: &'a SortedEntries,
    open: Vec<Level>,
    path: Vec<u8>,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let level = self.open.last_mut()?;
            let found = self.list.order.get(level.next).and_then(|number| {
                let record = self.list.records.get(*number as usize)?;
                (record.directory == level.directory).then_some((*number, record))
            });
            self.path.truncate(level.path_length);
            let Some((number, record)) = found else {
                self.open.pop();
                continue;
            };
            level.next += 1;
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path
                .extend_from_slice(name_of(record, &self.list.text));
            if may_hold(record.kind) {
                self.open.push(Level {
                    next: self.list.first_of(number),
                    directory: number,
                    path_length: self.path.len(),
                });
            }
            return self.list.entry(record, &self.path);
        }
    }
}

impl<'a> IntoIterator for &'a SortedEntries {
    type Item = Entry;
    type IntoIter = Entries<'a>;

    fn into_iter(self) -> Entries<'a> {
        self.iter()
    }
}

/// Growing by a quarter instead of doubling keeps the peak near what is needed.
fn grow_gently<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / 4).max(1024));
    }
}

fn order_of(records: &[Packed], text: &[u8]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(records.len()).unwrap_or(ROOT)).collect();
    // The number decides between twins, so that the first one stays.
    order.sort_unstable_by(|one, other| compare(records, text, *one, *other).then(one.cmp(other)));
    order
}

fn compare(records: &[Packed], text: &[u8], one: u32, other: u32) -> Ordering {
    let key = |number: u32| {
        records.get(number as usize).map(|record| {
            // The root comes first, so that its number wraps round to 0.
            (record.directory.wrapping_add(1), name_of(record, text))
        })
    };
    match (key(one), key(other)) {
        (Some((above, name)), Some((other_above, other_name))) => above
            .cmp(&other_above)
            .then_with(|| path_order(name, other_name)),
        _ => Ordering::Equal,
    }
}

/// Finds a directory by its names, each by binary search among its siblings.
fn find_directory(list: &EntryList, order: &[u32], path: &RelPath) -> Option<u32> {
    let Some(parent) = path.parent_bytes() else {
        return Some(ROOT);
    };
    let mut directory = ROOT;
    for name in parent.split(|byte| *byte == b'/') {
        let at = order.binary_search_by(|number| {
            list.records
                .get(*number as usize)
                .map_or(Ordering::Less, |record| {
                    (record.directory.wrapping_add(1))
                        .cmp(&directory.wrapping_add(1))
                        .then_with(|| path_order(name_of(record, &list.text), name))
                })
        });
        let number = *order.get(at.ok()?)?;
        let record = list.records.get(number as usize)?;
        let is_found = match list.looks_behind_links {
            true => may_hold(record.kind),
            false => record.kind == DIRECTORY,
        };
        if !is_found {
            return None;
        }
        directory = number;
    }
    Some(directory)
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
