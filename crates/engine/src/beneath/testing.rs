//! Real directories for tests.

use std::path::{Path, PathBuf};

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::roots::CleanPath;
use remote_sandbox_core::sync::{Filter, RelPath};

use super::{LocalScan, LocalScanOptions, Tree, scan};

pub(crate) struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Ground {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A ground with files; a path that ends in a slash is a directory.
    pub(crate) fn with(paths: &[&str]) -> Self {
        let ground = Ground::new();
        for path in paths {
            let place = ground.at(path);
            if path.ends_with('/') {
                std::fs::create_dir_all(place).unwrap();
            } else {
                std::fs::create_dir_all(place.parent().unwrap()).unwrap();
                std::fs::write(place, path).unwrap();
            }
        }
        ground
    }

    pub(crate) fn real(&self) -> PathBuf {
        std::fs::canonicalize(self.folder.path()).unwrap()
    }

    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.real().join(path)
    }

    pub(crate) fn clean(&self, path: &str) -> CleanPath {
        CleanPath::parse(&self.at(path)).unwrap()
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::open(&self.clean("")).unwrap()
    }

    pub(crate) fn scan(&self, options: &LocalScanOptions) -> LocalScan {
        scan(&self.tree(), options, &mut Filter::default()).unwrap()
    }
}

pub(crate) fn path(text: impl AsRef<[u8]>) -> RelPath {
    RelPath::parse(text.as_ref()).unwrap()
}

pub(crate) fn token() -> RunToken {
    RunToken::from_uuid_bytes([7; 16])
}

/// The paths of a scan, directories with a slash at their end.
pub(crate) fn listed(scan: &LocalScan) -> Vec<String> {
    let shown = |entry: remote_sandbox_core::sync::Entry| {
        let slash = if entry.kind.is_directory() { "/" } else { "" };
        format!("{}{slash}", entry.path.shown())
    };
    scan.entries.iter().map(shown).collect()
}

pub(crate) fn problems(scan: &LocalScan) -> Vec<String> {
    scan.problems.iter().map(ToString::to_string).collect()
}

/// Names in a directory, sorted, to see what was left behind.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
