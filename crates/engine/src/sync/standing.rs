//! What is remembered of a pair, held against a plan that changes nothing.

use std::iter::Peekable;

use remote_sandbox_core::sync::Entry;
use remote_sandbox_core::sync::revision::RevisionBuilder;

use super::pairs::Recalled;
use super::remember::source_of;
use super::sides::Sides;

/// Finds out whether what is remembered can stay as it is, and names the set while it does, so that a sync that finds
/// nothing to do goes through its plan once and writes nothing.
pub(super) struct Standing<'a> {
    sides: &'a Sides,
    old: Peekable<Recalled>,
    revision: Option<RevisionBuilder>,
}

impl<'a> Standing<'a> {
    /// None where what is remembered is scattered: it is brought together by writing it down anew.
    pub(super) fn new(sides: &'a Sides) -> Option<Self> {
        let recalled = sides.pair().recall();
        recalled.is_the_pairs_own().then(|| Standing {
            sides,
            old: recalled.peekable(),
            revision: Some(RevisionBuilder::default()),
        })
    }

    /// Takes the next entry that stays as it is; nothing is left when it is not remembered just so.
    pub(super) fn with(mut self, entry: &Entry) -> Option<Self> {
        let added = self
            .revision
            .as_mut()
            .map(|builder| builder.add(entry, None));
        if added.is_some_and(|added| added.is_err()) {
            self.revision = None;
        }
        if !entry.kind.is_content() {
            return Some(self);
        }
        // What the plan passes by stays remembered.
        while self
            .old
            .next_if(|record| record.path < entry.path)
            .is_some()
        {}
        let mut next = || self.old.next_if(|record| record.path == entry.path);
        let (first, second) = (next(), next());
        let stands = first.is_some_and(|record| {
            !record.is_intended && source_of(self.sides, &record).agrees(entry.remembered())
        });
        (stands && second.is_none()).then_some(self)
    }

    /// The name of the set, where it has one.
    pub(super) fn revision(self) -> Option<String> {
        self.revision.map(|builder| builder.finish().to_string())
    }
}
