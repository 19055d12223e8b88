//! `NAME:PATH`: a file of a sandbox as commands take it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use remote_sandbox_engine::engine::Engine;

use crate::report::Failed;

/// A sandbox and a path in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The name of the sandbox.
    pub(crate) name: String,
    /// The path as it was written; may be empty.
    pub(crate) path: Vec<u8>,
}

impl Remote {
    /// Splits at the first colon, or after the name of a sandbox that has a colon in its name.
    pub(crate) fn parse(word: &OsString, engine: &Engine) -> Result<Self, Failed> {
        Remote::split(word.as_bytes(), &engine.names()).ok_or(Failed::NoRemote)
    }

    /// The path, or where commands of the sandbox begin when none is written.
    pub(crate) fn path_or_start(&self) -> &[u8] {
        match self.path.as_slice() {
            [] => b".",
            path => path,
        }
    }

    fn split(word: &[u8], names: &[String]) -> Option<Self> {
        let is_meant = |name: &&String| {
            let rest = word.strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.first() == Some(&b':'))
        };
        let known = names.iter().filter(is_meant).map(String::len).max();
        let first = word.iter().position(|byte| *byte == b':');
        let length = known.or(first)?;
        let (name, path) = (word.get(..length)?, word.get(length + 1..)?);
        Some(Remote {
            name: String::from_utf8_lossy(name).into_owned(),
            path: path.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(word: &[u8]) -> Option<(String, Vec<u8>)> {
        let names = ["box".to_owned(), "a:b".to_owned()];
        let remote = Remote::split(word, &names)?;
        Some((remote.name, remote.path))
    }

    #[test]
    fn remote_is_a_name_and_everything_after_the_colon() {
        let is = |name: &str, path: &[u8]| Some((name.to_owned(), path.to_vec()));
        assert_eq!(split(b"box:~/a:b"), is("box", b"~/a:b"));
        assert_eq!(split(b"a:b:x"), is("a:b", b"x"));
        assert_eq!(split(b"a:c"), is("a", b"c"));
        assert_eq!(split(b"box:\xff\n"), is("box", b"\xff\n"));
        assert_eq!(split(b"box:"), is("box", b""));
        assert_eq!(split(b"box"), None);
    }
}
