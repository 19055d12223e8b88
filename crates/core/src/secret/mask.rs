//! Replaces known secrets in text and in byte streams.
//!
//! Every byte that belongs to an occurrence of any secret is hidden; occurrences that overlap become one mark.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aho_corasick::AhoCorasick;
use serde_json::Value;
use zeroize::Zeroizing;

/// What stands in the place of a secret.
pub const MASKED: &str = "[masked]";

/// A secret with fewer characters is not masked: ordinary words would vanish from the output.
pub const SHORTEST_MASKED_CHARS: usize = 8;

/// A shared handle on all secrets that must not be shown; clones see secrets learned later.
#[derive(Clone, Default)]
pub struct Mask {
    matcher: Arc<RwLock<Option<Arc<Matcher>>>>,
}

impl Mask {
    /// Makes a mask of the given secrets.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let mut patterns = Vec::new();
        for secret in secrets {
            add_patterns(&mut patterns, secret.as_ref());
        }
        Self {
            matcher: Arc::new(RwLock::new(Matcher::build(patterns).map(Arc::new))),
        }
    }

    /// Adds a secret that became known after the start; all clones and running streams mask it from now on.
    pub fn learn(&self, secret: &str) {
        let mut added = Vec::new();
        add_patterns(&mut added, secret);
        // The matcher is replaced as a whole, so a poisoned lock still holds a complete one.
        let mut guard = self.matcher.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = guard.as_deref() {
            added.retain(|pattern| !known.patterns.contains(pattern));
            if !added.is_empty() {
                added.extend(known.patterns.iter().cloned());
            }
        }
        if !added.is_empty() {
            *guard = Matcher::build(added).map(Arc::new);
        }
    }

    /// Replaces every known secret in a text.
    pub fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let spans = self.spans(text.as_bytes());
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = String::with_capacity(text.len());
        let mut from = 0;
        for span in spans {
            // Secrets are whole characters, so a span never cuts one.
            masked.push_str(text.get(from..span.start).unwrap_or_default());
            masked.push_str(MASKED);
            from = span.end;
        }
        masked.push_str(text.get(from..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// Replaces every known secret in bytes that need not be text.
    pub fn mask_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let spans = self.spans(bytes);
        if spans.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut masked = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for span in spans {
            masked.extend_from_slice(bytes.get(from..span.start).unwrap_or_default());
            masked.extend_from_slice(MASKED.as_bytes());
            from = span.end;
        }
        masked.extend_from_slice(bytes.get(from..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// Replaces every known secret in the texts of a JSON value.
    pub fn mask_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.mask_text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_json(item)),
            Value::Object(members) => members.values_mut().for_each(|item| self.mask_json(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Starts the masking of one byte stream.
    pub fn stream(&self) -> MaskStream {
        MaskStream {
            mask: self.clone(),
            pending: Vec::new(),
            covered: 0,
        }
    }

    fn spans(&self, bytes: &[u8]) -> Vec<Span> {
        self.current()
            .map(|matcher| matcher.spans(bytes))
            .unwrap_or_default()
    }

    fn current(&self) -> Option<Arc<Matcher>> {
        self.matcher
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.current().map_or(0, |matcher| matcher.patterns.len());
        write!(formatter, "Mask({count} patterns)")
    }
}

/// Masks one byte stream that arrives in pieces; a secret cut by a border between pieces is masked too.
pub struct MaskStream {
    mask: Mask,
    /// The last bytes received, when they may be the beginning of a secret.
    pending: Vec<u8>,
    /// How many of the first pending bytes belong to a mark already written.
    covered: usize,
}

impl MaskStream {
    /// Takes a piece and appends to `out` all that can be shown now.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        match self.mask.current() {
            None if self.pending.is_empty() => out.extend_from_slice(chunk),
            current => {
                self.pending.extend_from_slice(chunk);
                self.release(current.as_deref(), out, false);
            }
        }
    }

    /// Appends to `out` what was held back, when no more pieces come.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let current = self.mask.current();
        self.release(current.as_deref(), out, true);
    }

    /// Writes everything before the point where a secret that is not complete yet could begin.
    fn release(&mut self, matcher: Option<&Matcher>, out: &mut Vec<u8>, at_end: bool) {
        let held = match matcher {
            Some(matcher) if !at_end => matcher.unfinished_suffix(&self.pending),
            _ => 0,
        };
        let limit = self.pending.len().saturating_sub(held);
        let mut written = self.covered;
        for span in matcher.map(|m| m.spans(&self.pending)).unwrap_or_default() {
            if span.start < written {
                written = written.max(span.end);
            } else if span.start < limit {
                out.extend_from_slice(self.pending.get(written..span.start).unwrap_or_default());
                out.extend_from_slice(MASKED.as_bytes());
                written = span.end;
            } else {
                break;
            }
        }
        if written < limit {
            out.extend_from_slice(self.pending.get(written..limit).unwrap_or_default());
        }
        self.covered = written.saturating_sub(limit);
        self.pending.drain(..limit);
    }
}

impl fmt::Debug for MaskStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MaskStream({} bytes held)", self.pending.len())
    }
}

/// A part of the input that is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

type Pattern = Zeroizing<Vec<u8>>;

struct Matcher {
    /// Sorted and without doubles, for the search by beginning.
    patterns: Vec<Pattern>,
    first_bytes: [bool; 256],
    longest: usize,
    /// Absent only when the automaton would be too large; the patterns are then tried one by one.
    automaton: Option<AhoCorasick>,
}

impl Matcher {
    fn build(mut patterns: Vec<Pattern>) -> Option<Self> {
        patterns.sort_unstable_by(|left, right| left.as_slice().cmp(right.as_slice()));
        patterns.dedup();
        let longest = patterns.iter().map(|pattern| pattern.len()).max()?;
        let mut first_bytes = [false; 256];
        for byte in patterns.iter().filter_map(|pattern| pattern.first()) {
            if let Some(slot) = first_bytes.get_mut(usize::from(*byte)) {
                *slot = true;
            }
        }
        let automaton = AhoCorasick::new(patterns.iter().map(|pattern| pattern.as_slice())).ok();
        Some(Self {
            patterns,
            first_bytes,
            longest,
            automaton,
        })
    }

    /// All parts that belong to a secret, in order, overlapping ones joined.
    fn spans(&self, bytes: &[u8]) -> Vec<Span> {
        let Some(automaton) = &self.automaton else {
            return self.spans_one_by_one(bytes);
        };
        let mut spans = Vec::new();
        // The plain search has fast skipping, which the overlapping one has not.
        if automaton.is_match(bytes) {
            for found in automaton.find_overlapping_iter(bytes) {
                join(&mut spans, found.start(), found.end());
            }
        }
        spans
    }

    fn spans_one_by_one(&self, bytes: &[u8]) -> Vec<Span> {
        let mut spans = Vec::new();
        for end in 1..=bytes.len() {
            let seen = bytes.get(..end).unwrap_or_default();
            for pattern in &self.patterns {
                if seen.ends_with(pattern) {
                    join(&mut spans, end - pattern.len(), end);
                }
            }
        }
        spans
    }

    /// The length of the longest end of `bytes` that is the beginning of a secret, but not all of it.
    fn unfinished_suffix(&self, bytes: &[u8]) -> usize {
        let window = bytes.len().min(self.longest.saturating_sub(1));
        let tail = bytes
            .get(bytes.len().saturating_sub(window)..)
            .unwrap_or_default();
        (0..tail.len())
            .filter_map(|from| tail.get(from..))
            .find(|suffix| self.begins_a_pattern(suffix))
            .map_or(0, <[u8]>::len)
    }

    fn begins_a_pattern(&self, suffix: &[u8]) -> bool {
        let possible = suffix
            .first()
            .and_then(|byte| self.first_bytes.get(usize::from(*byte)));
        if possible != Some(&true) {
            return false;
        }
        // Patterns that begin with the suffix stand together, right after the suffix itself.
        let after = self
            .patterns
            .partition_point(|pattern| pattern.as_slice() <= suffix);
        self.patterns
            .get(after)
            .is_some_and(|pattern| pattern.starts_with(suffix))
    }
}

/// Adds a span whose end is not before the ends already there.
fn join(spans: &mut Vec<Span>, mut start: usize, end: usize) {
    while let Some(last) = spans.pop_if(|last| last.end > start) {
        start = start.min(last.start);
    }
    spans.push(Span { start, end });
}

/// A secret of several lines is also masked line by line, since a terminal may change the line ends.
fn add_patterns(patterns: &mut Vec<Pattern>, secret: &str) {
    let whole = secret.trim_end_matches(['\r', '\n']);
    let lines = whole.lines().map(|line| line.trim_end_matches('\r'));
    for part in std::iter::once(whole).chain(lines) {
        if part.chars().count() >= SHORTEST_MASKED_CHARS {
            patterns.push(Zeroizing::new(part.as_bytes().to_vec()));
        }
    }
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
