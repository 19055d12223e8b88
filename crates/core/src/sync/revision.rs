//! A short name for exactly what a tree holds.
//!
//! It is made of what a sync makes equal: paths, kinds, whether a file can be run, and content. The content of a file counts
//! by its SHA-256 where it is known. Reading every file at every sync only to name the set would cost more than the
//! sync, so a set with a file whose digest is not known gets a weaker name, made of sizes and times to the
//! nanosecond, and says so. Both are taken from the source, never from the target: a file system there may round times.
//!
//! Two equal `content-` revisions are the same files. Two equal `stamps-` revisions are files that a sync would not
//! send again. Other permissions, owners and the times of directories do not count, special files are not part of a set.

use std::fmt;

use sha2::{Digest, Sha256};

use super::entry::{Entry, Kind};
use super::path::RelPath;

/// The SHA-256 of a file's content.
pub type ContentDigest = [u8; 32];

/// What a revision was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The content of every file.
    Content,
    /// The size and time of every file.
    Stamps,
}

/// The name of a set of files: `content-` or `stamps-`, and 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision {
    /// What it was made of.
    pub basis: Basis,
    digest: [u8; 16],
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let basis = match self.basis {
            Basis::Content => "content",
            Basis::Stamps => "stamps",
        };
        write!(
            formatter,
            "{basis}-{:032x}",
            u128::from_be_bytes(self.digest)
        )
    }
}

/// Why a revision cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the entry `{shown}` came out of order")]
pub struct RevisionError {
    /// The path of the entry, escaped.
    pub shown: String,
}

/// Makes a revision of entries that come in the order of their paths.
#[derive(Debug, Clone)]
pub struct RevisionBuilder {
    /// Dropped at the first file whose digest is not known.
    content: Option<Sha256>,
    stamps: Sha256,
    last: Option<RelPath>,
}

impl Default for RevisionBuilder {
    fn default() -> Self {
        let seeded = |basis: &[u8]| {
            let mut hasher = Sha256::new();
            hasher.update(b"remote-sandbox-mcp revision 1 ");
            hasher.update(basis);
            hasher
        };
        RevisionBuilder {
            content: Some(seeded(b"content")),
            stamps: seeded(b"stamps"),
            last: None,
        }
    }
}

impl RevisionBuilder {
    /// Adds an entry, with the digest of its content where that is known.
    pub fn add(
        &mut self,
        entry: &Entry,
        digest: Option<&ContentDigest>,
    ) -> Result<(), RevisionError> {
        if self.last.as_ref().is_some_and(|last| *last >= entry.path) {
            return Err(RevisionError {
                shown: entry.path.shown().text,
            });
        }
        self.last = Some(entry.path.clone());
        let (letter, says): (u8, &[u8]) = match &entry.kind {
            Kind::File if entry.is_executable() => (b'x', &[]),
            Kind::File => (b'f', &[]),
            Kind::Directory => (b'd', &[]),
            Kind::Link { target, .. } => (b'l', target),
            Kind::Special(_) => return Ok(()),
        };
        // Lengths stand before texts, so that no two sets can spell the same bytes.
        let mut head = vec![letter];
        for text in [entry.path.as_bytes(), says] {
            head.extend_from_slice(&(text.len() as u64).to_be_bytes());
            head.extend_from_slice(text);
        }
        if let Some(hasher) = &mut self.content {
            hasher.update(&head);
        }
        self.stamps.update(&head);
        if entry.kind.is_file() {
            self.add_file(entry, digest);
        }
        Ok(())
    }

    fn add_file(&mut self, entry: &Entry, digest: Option<&ContentDigest>) {
        match (digest, &mut self.content) {
            (Some(digest), Some(hasher)) => hasher.update(digest),
            _ => self.content = None,
        }
        self.stamps.update(entry.size_bytes.to_be_bytes());
        self.stamps.update(entry.mtime.seconds.to_be_bytes());
        let nanoseconds = entry.mtime.nanoseconds().unwrap_or(u32::MAX);
        self.stamps.update(nanoseconds.to_be_bytes());
    }

    /// The revision of everything that was added.
    pub fn finish(self) -> Revision {
        let (basis, hasher) = match self.content {
            Some(hasher) => (Basis::Content, hasher),
            None => (Basis::Stamps, self.stamps),
        };
        let mut digest = [0; 16];
        for (byte, hashed) in digest.iter_mut().zip(hasher.finalize()) {
            *byte = hashed;
        }
        Revision { basis, digest }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{directory, fifo, file, link};
    use super::super::{LinkEnd, Mtime};
    use super::*;

    fn revision(entries: &[(Entry, Option<u8>)]) -> Revision {
        let mut builder = RevisionBuilder::default();
        for (entry, digest) in entries {
            let digest = digest.map(|byte| [byte; 32]);
            builder.add(entry, digest.as_ref()).unwrap();
        }
        builder.finish()
    }

    #[test]
    fn revision_by_content_does_not_see_times_and_one_by_stamps_does() {
        let earlier = revision(&[(file("a", 1, 0), Some(7))]);
        let later = revision(&[(file("a", 1, 9), Some(7))]);
        assert_eq!((earlier, earlier.basis), (later, Basis::Content));
        assert_ne!(earlier, revision(&[(file("a", 1, 0), Some(8))]));
        let stamps = revision(&[(file("a", 1, 0), None)]);
        assert_eq!(stamps.basis, Basis::Stamps);
        assert_ne!(stamps, revision(&[(file("a", 1, 9), None)]));
        let mut finer = file("a", 1, 0);
        finer.mtime = Mtime::exact(finer.mtime.seconds, 6).unwrap();
        assert_ne!(stamps, revision(&[(finer, None)]));
    }

    #[test]
    fn one_unknown_digest_makes_the_whole_set_a_weaker_one() {
        let mixed = [(file("a", 1, 0), Some(7)), (file("b", 1, 0), None)];
        assert_eq!(revision(&mixed).basis, Basis::Stamps);
        assert_eq!(revision(&[]).basis, Basis::Content);
    }

    #[test]
    fn revision_changes_with_path_kind_link_and_executable_bit_only() {
        let base = revision(&[(file("a", 1, 0), Some(7))]);
        let mut executable = file("a", 1, 0);
        executable.mode = 0o755;
        let mut private = file("a", 1, 0);
        private.mode = 0o600;
        assert_eq!(revision(&[(private, Some(7)), (fifo("p"), None)]), base);
        let others = [
            revision(&[(executable, Some(7))]),
            revision(&[(file("b", 1, 0), Some(7))]),
            revision(&[(directory("a"), None)]),
            revision(&[(link("a", "x", LinkEnd::Other), None)]),
            revision(&[(link("a", "y", LinkEnd::Other), None)]),
            revision(&[(file("a", 1, 0), Some(7)), (directory("b"), None)]),
        ];
        for (number, one) in others.iter().enumerate() {
            assert_ne!(*one, base, "{number}");
            assert!(
                others[number + 1..].iter().all(|other| other != one),
                "{number}"
            );
        }
    }

    #[test]
    fn revision_is_stable_and_reads_as_documented() {
        let set = [
            (directory("d"), None),
            (file("d/f", 3, 0), Some(1)),
            (link("l", "d/f", LinkEnd::Unknown), None),
        ];
        let text = revision(&set).to_string();
        assert!(text.starts_with("content-") && text.len() == 40, "{text}");
        // Written down once: a revision that an agent noted must mean the same in the next version.
        assert_eq!(text, "content-ec3a3915ecf747f8a91ae95debe6a5d0");
    }

    #[test]
    fn entries_out_of_order_are_refused() {
        let mut builder = RevisionBuilder::default();
        builder.add(&file("b", 1, 0), None).unwrap();
        assert_eq!(builder.add(&file("a", 1, 0), None).unwrap_err().shown, "a");
        assert!(builder.add(&file("b", 1, 0), None).is_err());
    }
}
