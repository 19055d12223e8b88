//! Looks over the file protocol whether the ways to files there still lead through directories only.
//!
//! The protocol knows no handles of directories, so a link that somebody puts in the place of one is followed. Each
//! directory is looked at just before something is done in it, which leaves a moment; programs there leave none.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use remote_sandbox_core::sftp::{FileKind, RemotePath};
use remote_sandbox_core::sync::RelPath;
use remote_sandbox_core::sync::path::inside;

use crate::sandbox::FileConversation;

/// Directories that are looked at at the same time.
const TOGETHER: usize = 256;

/// What is said of a path that leads elsewhere by now.
pub(super) const ASTRAY: &str = "a directory on its way is a link by now; it was left";

/// Directories that are links by now.
#[derive(Debug, Default)]
pub(super) struct Strayed(BTreeSet<RelPath>);

impl Strayed {
    /// Whether the way to a path goes through one of them.
    pub(super) fn holds(&self, path: &RelPath) -> bool {
        !self.0.is_empty() && ways(path).any(|above| self.0.contains(&above))
    }
}

/// The directories above a path.
fn ways(path: &RelPath) -> impl Iterator<Item = RelPath> {
    std::iter::successors(path.parent(), RelPath::parent)
}

/// Looks at all directories above these paths, but for links that files are meant to go through. What cannot be looked at
/// cannot be worked on either, which whoever tries is told.
pub(super) async fn strayed<'p>(
    files: &FileConversation,
    root: &[u8],
    links: &[RelPath],
    paths: impl Iterator<Item = &'p RelPath>,
) -> Strayed {
    let mut directories = BTreeSet::new();
    for path in paths {
        for above in ways(path) {
            // Those above one that is known are known, too.
            if !directories.insert(above) {
                break;
            }
        }
    }
    let wanted = directories
        .into_iter()
        .filter(|directory| !links.contains(directory));
    let looks = futures::stream::iter(wanted).map(|directory| async move {
        let remote = RemotePath::new(inside(root, directory.as_bytes())).ok()?;
        let found = files.lstat(&remote).await.ok()?;
        (found.kind() == Some(FileKind::Link)).then_some(directory)
    });
    let found = looks.buffer_unordered(TOGETHER);
    Strayed(found.filter_map(std::future::ready).collect().await)
}
