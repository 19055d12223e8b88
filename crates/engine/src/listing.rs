//! The sorted entries of a tree of any size: in memory while they fit, else in files that have no name.
//!
//! A tree that does not fit is written in sorted runs, and whoever reads it merges them. So memory is bounded for every
//! tree, and the small ones, which are nearly all, never touch the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use remote_sandbox_core::sync::list::Entries;
use remote_sandbox_core::sync::spool::{LONGEST_RECORD, read_entry, write_entry};
use remote_sandbox_core::sync::{Entry, EntryList, Kind, ListError, Mtime, RelPath, SortedEntries};

use crate::fsio::{self, FileError};

/// Entries of one run in a file; about 10 MB while they are sorted.
const RUN: usize = 50_000;

/// Bytes of paths and link targets of one run: a run of ordinary paths is full before, one of long paths is not larger.
const RUN_TEXT: usize = 6 * 1024 * 1024;

/// So many runs can be merged.
const MOST_RUNS: usize = 50;

/// So many entries can be listed; with paths of up to 300 bytes they fit into the runs.
const MOST_ENTRIES: u64 = 1_100_000;

/// Bytes that are read at once from each run; so much of each is held while they are merged.
const WINDOW: usize = 24 * 1024;

/// Why a tree cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// It is too large even for files.
    #[error(
        "the tree has more than {MOST_ENTRIES} entries, or their paths more than {} MiB",
        MOST_RUNS * RUN_TEXT / (1024 * 1024)
    )]
    TooLarge,
    /// There is no place for what does not fit into memory.
    #[error("a tree of this size does not fit into memory, and there is no room for it elsewhere")]
    File(#[from] FileError),
    /// It could not be written.
    #[error("the entries of a large tree could not be written to a file")]
    Write(#[source] io::Error),
}

/// Sorted entries.
#[derive(Debug)]
pub enum Listing {
    /// All in memory.
    Held(SortedEntries),
    /// In files, each with how many entries it has.
    Spooled(Vec<(File, u64)>),
}

impl Default for Listing {
    fn default() -> Self {
        Listing::Held(EntryList::new(0).sorted())
    }
}

impl From<SortedEntries> for Listing {
    fn from(entries: SortedEntries) -> Self {
        Listing::Held(entries)
    }
}

impl Listing {
    /// The entries in the order of their paths.
    pub fn iter(&self) -> Reading<'_> {
        match self {
            Listing::Held(entries) => Reading::Held(entries.iter()),
            Listing::Spooled(runs) => Reading::Merged(Merge::new(runs)),
        }
    }

    /// How many entries were left out because they lie nowhere, or were listed twice.
    pub fn misplaced_count(&self) -> u64 {
        match self {
            Listing::Held(entries) => entries.misplaced_count(),
            Listing::Spooled(_) => 0,
        }
    }
}

impl<'a> IntoIterator for &'a Listing {
    type Item = Entry;
    type IntoIter = Reading<'a>;

    fn into_iter(self) -> Reading<'a> {
        self.iter()
    }
}

/// Takes entries in any order.
#[derive(Debug)]
pub struct ListingBuilder {
    list: EntryList,
    /// Where files go when the list is full.
    folder: PathBuf,
    waiting: Vec<Entry>,
    /// What the paths and targets of these take.
    waiting_bytes: usize,
    runs: Vec<(File, u64)>,
}

impl ListingBuilder {
    /// One that writes into this folder of ours when there is no other way.
    pub fn new(folder: PathBuf) -> Self {
        ListingBuilder::with(EntryList::default(), folder)
    }

    /// The same, for entries of which some lie below links.
    pub fn looking_behind_links(folder: PathBuf) -> Self {
        ListingBuilder::with(EntryList::default().looking_behind_links(), folder)
    }

    fn with(list: EntryList, folder: PathBuf) -> Self {
        ListingBuilder {
            list,
            folder,
            waiting: Vec::new(),
            waiting_bytes: 0,
            runs: Vec::new(),
        }
    }

    /// Adds an entry; blocks for a moment when a run is full.
    pub fn push(&mut self, entry: Entry) -> Result<(), ListingError> {
        if self.runs.is_empty() {
            match self.list.push(entry.clone()) {
                Ok(()) => return Ok(()),
                Err(ListError::Full { .. }) => {
                    let held = std::mem::replace(&mut self.list, EntryList::new(0)).sorted();
                    self.write(held.iter())?;
                }
            }
        }
        self.waiting_bytes += entry.text_bytes();
        self.waiting.push(entry);
        match self.waiting.len() >= RUN || self.waiting_bytes >= RUN_TEXT {
            true => self.write_waiting(),
            false => Ok(()),
        }
    }

    /// Sorts what was added.
    pub fn finish(mut self) -> Result<Listing, ListingError> {
        if self.runs.is_empty() {
            return Ok(Listing::Held(self.list.sorted()));
        }
        self.write_waiting()?;
        Ok(Listing::Spooled(self.runs))
    }

    fn write_waiting(&mut self) -> Result<(), ListingError> {
        self.waiting_bytes = 0;
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by(|one, other| one.path.cmp(&other.path));
        self.write(waiting.into_iter())
    }

    fn write(&mut self, entries: impl Iterator<Item = Entry>) -> Result<(), ListingError> {
        if self.runs.len() >= MOST_RUNS {
            return Err(ListingError::TooLarge);
        }
        let written: u64 = self.runs.iter().map(|(_, count)| count).sum();
        let file = fsio::nameless_file(&self.folder)?;
        let (mut bytes, mut at, mut count) = (Vec::new(), 0, 0);
        for entry in entries {
            count += 1;
            write_entry(&entry, &mut bytes);
            if bytes.len() >= 1024 * 1024 {
                file.write_all_at(&bytes, at).map_err(ListingError::Write)?;
                at += bytes.len() as u64;
                bytes.clear();
            }
        }
        file.write_all_at(&bytes, at).map_err(ListingError::Write)?;
        if written + count > MOST_ENTRIES {
            return Err(ListingError::TooLarge);
        }
        self.runs.push((file, count));
        Ok(())
    }
}

/// Entries one by one.
pub enum Reading<'a> {
    /// From memory.
    Held(Entries<'a>),
    /// From files.
    Merged(Merge<'a>),
}

impl Iterator for Reading<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        match self {
            Reading::Held(entries) => entries.next(),
            Reading::Merged(merge) => merge.next(),
        }
    }
}

/// Several sorted runs as one.
pub struct Merge<'a> {
    runs: Vec<Run<'a>>,
    last: Option<Entry>,
}

struct Run<'a> {
    file: &'a File,
    /// Where the next bytes are read from.
    offset: u64,
    bytes: Vec<u8>,
    at: usize,
    next: Option<Entry>,
    /// How many entries must still come.
    left: u64,
    is_broken: bool,
}

impl Run<'_> {
    /// Reads the next entry.
    fn advance(&mut self) {
        if self.bytes.len() - self.at < LONGEST_RECORD {
            self.bytes.drain(..self.at);
            self.at = 0;
            let kept = self.bytes.len();
            self.bytes.resize(kept + WINDOW, 0);
            let room = self.bytes.get_mut(kept..).unwrap_or_default();
            let read = self.file.read_at(room, self.offset).unwrap_or(0);
            self.offset += read as u64;
            self.bytes.truncate(kept + read);
        }
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.next = read_entry(rest).map(|(entry, length)| {
            self.at += length;
            entry
        });
        match (&self.next, self.left) {
            (Some(_), _) => self.left = self.left.saturating_sub(1),
            (None, left) => self.is_broken = left > 0,
        }
    }
}

impl<'a> Merge<'a> {
    fn new(files: &'a [(File, u64)]) -> Self {
        let runs = files.iter().map(|(file, count)| {
            let mut run = Run {
                file,
                offset: 0,
                bytes: Vec::new(),
                at: 0,
                next: None,
                left: *count,
                is_broken: false,
            };
            run.advance();
            run
        });
        Merge {
            runs: runs.collect(),
            last: None,
        }
    }
}

/// An entry that stands for a list whose first one cannot be read.
fn broken() -> Entry {
    Entry {
        path: RelPath::named(*b"broken"),
        kind: Kind::File,
        size_bytes: 0,
        mtime: Mtime::whole(0),
        mode: 0,
        identity: None,
    }
}

impl Iterator for Merge<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.runs.iter().any(|run| run.is_broken) {
            // A side that is not whole must not pass for a smaller one. An entry that comes twice ends every plan.
            return Some(self.last.get_or_insert_with(broken).clone());
        }
        let mut first: Option<usize> = None;
        for (number, run) in self.runs.iter().enumerate() {
            let Some(entry) = &run.next else {
                continue;
            };
            let best = first.and_then(|first| self.runs.get(first)?.next.as_ref());
            if best.is_none_or(|best| entry.path < best.path) {
                first = Some(number);
            }
        }
        let run = self.runs.get_mut(first?)?;
        let entry = run.next.take()?;
        run.advance();
        // What was listed twice counts once.
        for run in &mut self.runs {
            while run
                .next
                .as_ref()
                .is_some_and(|next| next.path == entry.path)
            {
                run.advance();
            }
        }
        self.last = Some(entry.clone());
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        Entry {
            path: RelPath::parse(text.as_bytes()).unwrap(),
            kind: Kind::File,
            size_bytes: 1,
            mtime: Mtime::whole(0),
            mode: 0o644,
            identity: None,
        }
    }

    #[test]
    fn small_tree_stays_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = ListingBuilder::new(folder.path().to_owned());
        for text in ["b", "a"] {
            builder.push(entry(text)).unwrap();
        }
        let listing = builder.finish().unwrap();
        assert!(matches!(listing, Listing::Held(_)));
        assert_eq!(listing.iter().count(), 2);
    }

    #[test]
    fn long_paths_make_short_runs_and_too_many_of_them_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = ListingBuilder::with(EntryList::new(0), folder.path().to_owned());
        let above = vec!["n".repeat(255); 15].join("/");
        let mut longest = 0;
        for number in 0..3 * RUN_TEXT / above.len() {
            builder
                .push(entry(&format!("{above}/{number:07}")))
                .unwrap();
            longest = longest.max(builder.waiting.len());
        }
        assert!(longest * above.len() <= RUN_TEXT, "{longest} entries");
        while builder.runs.len() < MOST_RUNS {
            builder.write(std::iter::empty()).unwrap();
        }
        let words = builder.finish().unwrap_err().to_string();
        assert!(words.contains("paths more than 300 MiB"), "{words}");
    }

    #[test]
    fn more_entries_than_can_be_listed_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = ListingBuilder::with(EntryList::new(0), folder.path().to_owned());
        builder.write([entry("a")].into_iter()).unwrap();
        builder.runs[0].1 = MOST_ENTRIES - 1;
        builder.write([entry("b")].into_iter()).unwrap();
        let refused = builder.write([entry("c")].into_iter());
        assert!(matches!(refused, Err(ListingError::TooLarge)));
    }

    #[test]
    fn large_tree_is_sorted_by_files_without_a_name_and_read_more_than_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = ListingBuilder::with(EntryList::new(1000), folder.path().to_owned());
        let count = 2 * RUN + 3000;
        for number in 0..count {
            // A jump that meets every number once, far from sorted.
            let number = (number * 7919) % count;
            builder.push(entry(&format!("f{number:07}"))).unwrap();
        }
        builder.push(entry("f0000007")).unwrap();
        let listing = builder.finish().unwrap();
        let Listing::Spooled(runs) = &listing else {
            panic!("it does not fit into a list of 1000");
        };
        assert!(runs.len() >= 3);
        for _ in 0..2 {
            let mut expected = 0;
            for found in listing.iter() {
                assert_eq!(found, entry(&format!("f{expected:07}")));
                expected += 1;
            }
            assert_eq!(expected, count);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // A file that lost its end does not pass for a smaller tree.
        let (file, _) = &runs[0];
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        let mut last = None;
        let repeats = listing
            .iter()
            .any(|found| last.replace(found.path.clone()) == Some(found.path));
        assert!(repeats);
    }
}
