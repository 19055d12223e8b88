//! The beginning of a listing in the order of its paths, however many entries come and in whatever order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::sync::Entry;

/// Keeps the first entries and forgets the others.
#[derive(Debug)]
pub struct FirstEntries {
    most: usize,
    /// The last one of those kept is on top.
    kept: BinaryHeap<ByPath>,
    left_out: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct ByPath(Entry);

impl Ord for ByPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.path.cmp(&other.0.path)
    }
}

impl PartialOrd for ByPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FirstEntries {
    /// One that keeps this many.
    pub fn new(most: usize) -> Self {
        FirstEntries {
            most,
            kept: BinaryHeap::new(),
            left_out: false,
        }
    }

    /// Takes the next entry.
    pub fn push(&mut self, entry: Entry) {
        self.kept.push(ByPath(entry));
        if self.kept.len() > self.most {
            self.kept.pop();
            self.left_out = true;
        }
    }

    /// Whether entries were forgotten.
    pub fn has_left_out(&self) -> bool {
        self.left_out
    }

    /// The entries that were kept, in the order of their paths.
    pub fn into_sorted(self) -> Vec<Entry> {
        let sorted = self.kept.into_sorted_vec();
        sorted.into_iter().map(|ByPath(entry)| entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Kind, Mtime, RelPath};

    fn first(most: usize, names: &[&str]) -> (Vec<String>, bool) {
        let mut first = FirstEntries::new(most);
        for name in names {
            first.push(Entry {
                path: RelPath::parse(name.as_bytes()).unwrap(),
                kind: Kind::File,
                size_bytes: 0,
                mtime: Mtime::whole(0),
                mode: 0,
                identity: None,
            });
        }
        let left_out = first.has_left_out();
        let names = first.into_sorted().into_iter();
        (
            names.map(|entry| entry.path.shown().text).collect(),
            left_out,
        )
    }

    #[test]
    fn first_entries_are_the_first_ones_in_whatever_order_they_come() {
        let names = ["b", "a-b", "c", "a/b", "a"];
        let kept = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(first(3, &names), (kept(&["a", "a/b", "a-b"]), true));
        assert_eq!(
            first(5, &names),
            (kept(&["a", "a/b", "a-b", "b", "c"]), false)
        );
    }
}
