//! Whether a plan may delete.

use super::plan::{Side, Summary};

/// Below this many files no share of them is remarkable.
const FEW_FILES: u64 = 20;

/// Where a root really lies, links resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootPlace<'a> {
    /// The absolute path of the root.
    pub location: &'a [u8],
    /// The home directory of whoever works there, where it is known.
    pub home: Option<&'a [u8]>,
}

/// What has to be known before anything is deleted.
#[derive(Debug, Clone, Copy)]
pub struct DeleteRequest<'a> {
    /// The source; none when there is nothing.
    pub source: Option<RootPlace<'a>>,
    /// The target.
    pub target: RootPlace<'a>,
    /// How many files and links of the source are part of the sync.
    pub source_files: u64,
    /// How many files and links of the target are part of the sync.
    pub target_files: u64,
    /// How many problems both scans had.
    pub scan_problems: u64,
    /// The number of deletions that the caller has agreed to.
    pub confirmed: Option<u64>,
}

/// Why nothing is deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefusal {
    /// There is no source.
    #[error("the source does not exist, so nothing in the target is deleted")]
    SourceMissing,
    /// The source holds nothing that could be sent.
    #[error("the source is empty, and {count} entries of the target would be deleted")]
    SourceEmpty {
        /// How many entries would go.
        count: u64,
    },
    /// A root is the top of the file system.
    #[error("the {} is `/`, and {count} entries would be deleted", side.name())]
    TopDirectory {
        /// Which root.
        side: Side,
        /// How many entries would go.
        count: u64,
    },
    /// A root is a home directory, or holds some.
    #[error("the {} is a home directory or holds one, and {count} entries would be deleted", side.name())]
    HomeDirectory {
        /// Which root.
        side: Side,
        /// How many entries would go.
        count: u64,
    },
    /// What a scan could not see may be what makes an entry look superfluous.
    #[error(
        "the scans had {problems} problems, so it is not sure that {count} entries are really superfluous"
    )]
    ScanProblems {
        /// How many problems.
        problems: u64,
        /// How many entries would go.
        count: u64,
    },
    /// Most of the target would go.
    #[error("{files} of {all} files in the target would be deleted, which is more than half")]
    MoreThanHalf {
        /// How many files would go.
        files: u64,
        /// How many there are.
        all: u64,
        /// How many entries would go, directories included.
        count: u64,
    },
    /// The caller has agreed to another number.
    #[error("`confirm_delete` is {confirmed}, but {count} entries would be deleted")]
    OtherNumber {
        /// What was agreed to.
        confirmed: u64,
        /// How many entries would go.
        count: u64,
    },
}

impl DeleteRefusal {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            DeleteRefusal::SourceMissing => "check the source path".to_owned(),
            DeleteRefusal::SourceEmpty { count }
            | DeleteRefusal::TopDirectory { count, .. }
            | DeleteRefusal::HomeDirectory { count, .. }
            | DeleteRefusal::ScanProblems { count, .. }
            | DeleteRefusal::MoreThanHalf { count, .. }
            | DeleteRefusal::OtherNumber { count, .. } => format!(
                "look at them with `dry_run: true`; if they are to go, call again with `confirm_delete: {count}`, or without `delete_extras`"
            ),
        }
    }
}

/// Decides whether the deletions of a plan may be carried out.
///
/// The number the caller agrees to overrules every doubt but a missing source, where there was nothing to compare with.
/// A number that is not the right one is a refusal even where no number was needed: the caller expects something else.
pub fn allow_deletes(request: &DeleteRequest<'_>, summary: &Summary) -> Result<(), DeleteRefusal> {
    let Some(source) = request.source else {
        return Err(DeleteRefusal::SourceMissing);
    };
    let count = summary.deleted();
    match request.confirmed {
        Some(confirmed) if confirmed != count => {
            return Err(DeleteRefusal::OtherNumber { confirmed, count });
        }
        Some(_) => return Ok(()),
        None if count == 0 => return Ok(()),
        None => {}
    }
    for (side, place) in [(Side::Source, source), (Side::Target, request.target)] {
        if is_top(place) {
            return Err(DeleteRefusal::TopDirectory { side, count });
        }
        if is_home(place) {
            return Err(DeleteRefusal::HomeDirectory { side, count });
        }
    }
    if request.source_files == 0 {
        return Err(DeleteRefusal::SourceEmpty { count });
    }
    if request.scan_problems > 0 {
        let problems = request.scan_problems;
        return Err(DeleteRefusal::ScanProblems { problems, count });
    }
    let (files, all) = (summary.deleted_files, request.target_files);
    if all >= FEW_FILES && files.saturating_mul(2) > all {
        return Err(DeleteRefusal::MoreThanHalf { files, all, count });
    }
    Ok(())
}

fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .collect()
}

fn is_top(place: RootPlace<'_>) -> bool {
    names(place.location).is_empty()
}

/// Whether it is the home of the one who works there, holds it, or looks like the home of somebody else.
fn is_home(place: RootPlace<'_>) -> bool {
    let location = names(place.location);
    let is_own = place
        .home
        .is_some_and(|home| names(home).starts_with(&location));
    let first = location.first().copied().unwrap_or_default();
    let looks_like_one = match location.len() {
        1 => matches!(first, b"home" | b"Users" | b"root"),
        2 => matches!(first, b"home" | b"Users") || location == [b"var".as_slice(), b"root"],
        _ => false,
    };
    is_own || looks_like_one
}

#[cfg(test)]
#[path = "safety_tests.rs"]
mod tests;
