//! Directories that wait to be listed, in little memory.

use std::sync::Arc;

use remote_sandbox_core::sync::{PathError, RelPath};

use super::way::Way;

/// Directories that wait to be listed.
pub(super) struct Waiting {
    /// Where they lie; none is the root.
    above: Option<RelPath>,
    /// Their names, each with a slash behind it.
    names: Vec<u8>,
    /// How one came into them.
    pub(super) way: Arc<Way>,
}

impl Waiting {
    pub(super) fn new(above: Option<RelPath>, way: Arc<Way>) -> Self {
        Waiting {
            above,
            names: Vec::new(),
            way,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Bytes that their names take.
    pub(super) fn held_bytes(&self) -> usize {
        self.names.len()
    }

    /// Puts one in.
    pub(super) fn push(&mut self, name: &[u8]) {
        self.names.extend_from_slice(name);
        self.names.push(b'/');
    }

    /// Takes the last one out.
    pub(super) fn pop(&mut self) -> Option<RelPath> {
        self.names.pop()?;
        let end = self.names.iter().rposition(|byte| *byte == b'/');
        let name = self.names.split_off(end.map_or(0, |end| end + 1));
        // It was a path when it came in.
        below(self.above.as_ref(), &name).ok()
    }
}

/// The path of an entry of a directory; none is the root.
pub(super) fn below(above: Option<&RelPath>, name: &[u8]) -> Result<RelPath, PathError> {
    match above {
        Some(above) => above.join(name),
        None => RelPath::parse(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_out_as_they_went_in_the_last_one_first() {
        let above = RelPath::parse(b"a/b").unwrap();
        let mut waiting = Waiting::new(Some(above), Arc::default());
        for name in [b"one".as_slice(), b"two\n", b"\xff"] {
            waiting.push(name);
        }
        assert_eq!(waiting.held_bytes(), 11);
        let out = std::iter::from_fn(|| waiting.pop());
        let out: Vec<Vec<u8>> = out.map(|path| path.as_bytes().to_vec()).collect();
        assert_eq!(out, [b"a/b/\xff".as_slice(), b"a/b/two\n", b"a/b/one"]);
        assert!(waiting.is_empty());
    }
}
