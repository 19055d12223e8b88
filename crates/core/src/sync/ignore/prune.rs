//! Directories that a host need not even list.

use super::filter::{Filter, Verdict};
use crate::sync::path::RelPath;

/// A script carries at most this many prunes; the rest is left out after it was listed.
const MOST_PRUNES: usize = 500;

/// The prunes of a script have at most this many bytes. It is one argument of a program, of 128 KiB at most, and may hold them
/// three times, each of their bytes as four.
const MOST_BYTES: usize = 8 * 1024;

/// A directory whose content can be passed over by whoever walks the tree.
///
/// The directory itself is still listed: when it lies in another one that is to be deleted, that one has to stay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prune {
    /// Every directory of this name.
    Name(Box<[u8]>),
    /// The directory with this path.
    Path(RelPath),
}

impl Prune {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Prune::Name(name) => name,
            Prune::Path(path) => path.as_bytes(),
        }
    }
}

impl Filter {
    /// The prunes that hold whatever the tree looks like.
    ///
    /// A `.gitignore` file further down may take back what one further up leaves out, and may not have been read
    /// yet. So of the root's own file only names at the top count.
    pub fn prunes(&self) -> Vec<Prune> {
        let mut prunes: Vec<Prune> = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| !rule.includes)
            .filter_map(|(index, rule)| match rule.literal_name() {
                Some(name) => self.prune_by_name(index, name),
                None => self.prune_by_path(&rule.literal_path()?),
            })
            .collect();
        let at_the_top = self.gitignores.get(b"".as_slice()).into_iter().flatten();
        prunes.extend(
            at_the_top
                .filter(|rule| !rule.includes)
                .filter_map(|rule| rule.literal_path())
                .filter(|path| !path.contains(&b'/'))
                .filter_map(|path| self.prune_by_path(&path)),
        );
        // The shortest first: those at the top, and as many as possible.
        prunes.sort_by_key(|prune| (prune.as_bytes().len(), prune.clone()));
        prunes.dedup();
        let mut bytes = 0;
        let fits = |prune: &Prune| {
            bytes += prune.as_bytes().len();
            bytes <= MOST_BYTES
        };
        let prunes = prunes.into_iter().take(MOST_PRUNES).take_while(fits);
        let mut prunes: Vec<Prune> = prunes.collect();
        prunes.sort();
        prunes
    }

    fn prune_by_name(&self, index: usize, name: &[u8]) -> Option<Prune> {
        let is_taken_back = self
            .rules
            .iter()
            .skip(index + 1)
            .any(|rule| rule.includes && rule.may_concern(name));
        (!is_taken_back && RelPath::parse(name).is_ok()).then(|| Prune::Name(name.into()))
    }

    fn prune_by_path(&self, path: &[u8]) -> Option<Prune> {
        let path = RelPath::parse(path).ok()?;
        let verdict = self.judge().verdict(&path, true);
        (verdict == Verdict::Excluded).then_some(Prune::Path(path))
    }
}
