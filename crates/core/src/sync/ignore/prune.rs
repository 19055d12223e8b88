//! Directories that a host need not even list.

use super::filter::{Filter, Verdict};
use crate::sync::path::RelPath;

/// A script carries at most this many prunes; the rest is left out after it was listed.
const MOST_PRUNES: usize = 500;

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
        prunes.sort();
        prunes.dedup();
        prunes.truncate(MOST_PRUNES);
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
