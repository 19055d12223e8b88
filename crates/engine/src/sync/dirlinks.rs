//! Looks behind links to directories in the target that files go through.
//!
//! A scan does not follow links. Where the source has a directory and the target a link to one, and files go through it, what
//! lies behind it is listed by a scan of its own, so that what is there already is not sent again.

use std::iter::Peekable;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sync::scan::{LoneFile, RootKind, ScanDepth, ScanRequest, SortedBy};
use remote_sandbox_core::sync::{Entry, Kind, LinkEnd, Prune, RelPath};

use super::far::Far;
use super::far_scan::{FarTree, scan, too_large};
use super::sides::Sides;
use crate::listing::{Listing, ListingBuilder};

/// So many links are looked behind; behind further ones everything is sent.
const MOST_LINKS: usize = 256;

/// So many links in what lies behind links are remembered.
const MOST_INNER: usize = 10_000;

/// Scans at the same time.
const AT_ONCE: usize = 4;

/// What lies behind one link.
pub(super) struct Behind {
    link: RelPath,
    tree: FarTree,
}

impl Behind {
    /// The entries with their paths from the root of the target.
    fn entries(&self) -> impl Iterator<Item = Entry> {
        let whole = |entry: Entry| {
            let path = self.link.join(entry.path.as_bytes()).ok()?;
            Some(Entry { path, ..entry })
        };
        self.tree.entries.iter().filter_map(whole)
    }
}

/// Lists what lies behind the links of the target through which files of the source go.
pub(super) async fn look_behind(sides: &mut Sides) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut links = gone_through(&sides.local, sides.far.iter(), MOST_LINKS);
    while !links.is_empty() {
        let next = scan_behind(sides, &links).await?;
        let inner = next.iter().flat_map(Behind::entries).filter(may_lead_on);
        let mut inner: Vec<Entry> = inner.take(MOST_INNER).collect();
        inner.sort_by(|one, other| one.path.cmp(&other.path));
        sides.far_links.append(&mut links);
        let room = MOST_LINKS.saturating_sub(sides.far_links.len());
        links = gone_through(&sides.local, inner.into_iter(), room);
        found.extend(next);
    }
    if found.is_empty() {
        return Ok(());
    }
    for behind in &found {
        note(sides, behind);
    }
    sides.far = joined(&sides.far_side(), &sides.far, &found)?;
    Ok(())
}

/// Lists the trees behind links.
pub(super) async fn scan_behind(sides: &Sides, links: &[RelPath]) -> Result<Vec<Behind>, Failure> {
    let far = sides.far_side();
    let prunes = sides.filter.prunes();
    let mut scans: Vec<BoxFuture<'_, Result<Behind, Failure>>> = Vec::new();
    for link in links {
        scans.push(scan_one(&far, &prunes, link).boxed());
    }
    let mut scans = futures::stream::iter(scans).buffered(AT_ONCE);
    let mut found = Vec::new();
    while let Some(behind) = scans.next().await {
        found.push(behind?);
    }
    Ok(found)
}

async fn scan_one(far: &Far<'_>, prunes: &[Prune], link: &RelPath) -> Result<Behind, Failure> {
    let prunes: Vec<Prune> = prunes
        .iter()
        .filter_map(|prune| below(prune, link))
        .collect();
    let root = far.below(link);
    let request = ScanRequest {
        root: &root,
        scanner: far.scanner,
        prunes: &prunes,
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: ScanDepth::Tree,
        lone_file: LoneFile::Unlisted,
    };
    let tree = scan(far.sandbox, &request, &far.spool).await?;
    Ok(Behind {
        link: link.clone(),
        tree,
    })
}

/// A rule for the whole tree as one for what lies behind a link; none where it says nothing about that.
fn below(prune: &Prune, link: &RelPath) -> Option<Prune> {
    match prune {
        Prune::Name(_) => Some(prune.clone()),
        Prune::Path(path) => {
            let rest = path.as_bytes().strip_prefix(link.as_bytes())?;
            let rest = RelPath::parse(rest.strip_prefix(b"/")?).ok()?;
            Some(Prune::Path(rest))
        }
    }
}

/// One list of a tree and of what lies behind its links.
pub(super) fn joined(far: &Far<'_>, tree: &Listing, behind: &[Behind]) -> Result<Listing, Failure> {
    let mut list = ListingBuilder::looking_behind_links(far.spool.clone());
    let all = tree.iter().chain(behind.iter().flat_map(Behind::entries));
    for entry in all {
        let pushed = list.push(entry);
        pushed.map_err(|error| too_large(far.sandbox, &error))?;
    }
    list.finish()
        .map_err(|error| too_large(far.sandbox, &error))
}

/// Takes what a scan said besides its entries.
fn note(sides: &mut Sides, behind: &Behind) {
    let summary = &behind.tree.summary;
    if summary.root != RootKind::Directory {
        return;
    }
    let whole = |path: &RelPath| behind.link.join(path.as_bytes()).ok();
    sides
        .far_mounts
        .extend(summary.mounts.iter().filter_map(whole));
    let left = summary.temporaries.iter().filter_map(|entry| {
        let path = whole(&entry.path)?;
        Some(Entry {
            path,
            ..entry.clone()
        })
    });
    sides.far_leftovers.extend(left);
    sides.problem_count += behind.tree.problem_count;
    let link = behind.link.shown().text;
    let problems = behind.tree.problems.iter();
    sides.problems.extend(problems.map(|problem| {
        let path = format!("{link}/{}", problem.path());
        (path, Failure::chain(problem))
    }));
}

fn may_lead_on(entry: &Entry) -> bool {
    let Kind::Link { end, .. } = &entry.kind else {
        return false;
    };
    matches!(end, LinkEnd::Directory | LinkEnd::Unknown)
}

/// The links in whose place the source has a directory, the first of them.
fn gone_through(
    source: &Listing,
    target: impl Iterator<Item = Entry>,
    most: usize,
) -> Vec<RelPath> {
    let mut source = source.iter().peekable();
    let links = target.filter(may_lead_on).map(|link| link.path);
    let links = links.filter(|link| has_directory(&mut source, link));
    links.take(most).collect()
}

/// Whether a sorted list, read up to here, has a directory of this path.
fn has_directory(source: &mut Peekable<impl Iterator<Item = Entry>>, path: &RelPath) -> bool {
    while source.next_if(|entry| entry.path < *path).is_some() {}
    source
        .peek()
        .is_some_and(|entry| entry.path == *path && entry.kind.is_directory())
}
