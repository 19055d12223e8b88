//! Entries out of what the file protocol says of files.

use crate::sftp::{Attributes, FileKind};
use crate::sync::entry::{Entry, Kind, LinkEnd, Mtime, Special};
use crate::sync::ignore::Prune;
use crate::sync::path::RelPath;
use crate::sync::temporary::is_temporary;

/// The longest text of a link that is taken.
const LONGEST_TARGET: usize = 4096;

/// An entry of what a server said of it; a link comes with its text and its end.
///
/// None where the server left out what kind, size or time it has, or where a link says nothing.
pub fn listed_entry(
    path: RelPath,
    told: &Attributes,
    link: Option<(&[u8], LinkEnd)>,
) -> Option<Entry> {
    let mode = told.mode?;
    let kind = match told.kind()? {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Link => {
            let (target, end) = link?;
            if target.is_empty() || target.len() > LONGEST_TARGET {
                return None;
            }
            Kind::Link {
                target: target.into(),
                end,
            }
        }
        FileKind::Special => Kind::Special(special(mode)),
    };
    Some(Entry {
        path,
        kind,
        size_bytes: told.size_bytes?,
        mtime: Mtime::whole(told.times?.modified_s.into()),
        mode: (mode & 0o7777) as u16,
        identity: None,
    })
}

fn special(mode: u32) -> Special {
    match mode & 0o170_000 {
        0o010_000 => Special::Fifo,
        0o140_000 => Special::Socket,
        0o060_000 => Special::BlockDevice,
        0o020_000 => Special::CharacterDevice,
        _ => Special::Unknown,
    }
}

/// Whether a directory is listed without being looked into.
pub fn is_passed_over(prunes: &[Prune], path: &RelPath) -> bool {
    let is_meant = |prune: &Prune| match prune {
        Prune::Name(name) => **name == *path.name(),
        Prune::Path(pruned) => pruned == path,
    };
    is_temporary(path.name()) || prunes.iter().any(is_meant)
}
