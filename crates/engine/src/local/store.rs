//! The folders of sandboxes on this machine, and what is written down about each.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use remote_sandbox_core::local::{LocalName, LocalRecord, RecordError};

use crate::fsio::{self, FileError};

/// Longest record that is read; variables are bounded.
const LONGEST_RECORD: u64 = 32 * 1024 * 1024;

/// Most sandboxes that are shown.
const MOST_SANDBOXES: usize = 1000;

/// The file that says that a folder is a sandbox.
const RECORD: &str = "record.json";

/// The name of the same file when the sandbox is being deleted.
const DELETED: &str = "deleted.json";

/// Why a sandbox cannot be written down or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A record is damaged.
    #[error("the record `{}` cannot be used", path.display())]
    Record {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: RecordError,
    },
    /// The name is taken.
    #[error("there is a local sandbox named `{0}` already")]
    Taken(LocalName),
}

/// The places of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    /// The folder that holds the others; commands do not see it.
    pub(super) root: PathBuf,
    /// The home of commands.
    pub(super) home: PathBuf,
    /// Where they begin.
    pub(super) workspace: PathBuf,
    /// Their /tmp.
    pub(super) temporary: PathBuf,
}

/// All sandboxes on this machine.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) fn new(state: &Path) -> Self {
        Store {
            folder: state.join("sandboxes"),
        }
    }

    pub(super) fn folders(&self, name: &LocalName) -> Folders {
        let root = self.folder.join(name.as_str());
        let home = root.join("home");
        Folders {
            workspace: home.join("workspace"),
            temporary: root.join("tmp"),
            home,
            root,
        }
    }

    /// Makes the folders of a sandbox where they are missing.
    pub(super) fn make_folders(&self, folders: &Folders) -> Result<(), StoreError> {
        fsio::private_directory(&self.folder)?;
        fsio::sealed_directory(&folders.root)?;
        // What is in these two belongs to the commands, so nothing in them is trusted or changed.
        for folder in [&folders.home, &folders.temporary] {
            fsio::private_directory(folder)?;
        }
        if !folders.workspace.exists() {
            fsio::private_directory(&folders.workspace)?;
        }
        Ok(())
    }

    /// Writes down a new sandbox and makes its folders.
    pub(super) fn create(&self, record: &LocalRecord) -> Result<(), StoreError> {
        let folders = self.folders(&record.name);
        if self.read(&record.name)?.is_some() {
            return Err(StoreError::Taken(record.name.clone()));
        }
        self.make_folders(&folders)?;
        let path = folders.root.join(RECORD);
        let text = record.text().map_err(|source| StoreError::Record {
            path: path.clone(),
            source,
        })?;
        // Another server may be making one of the same name at this moment.
        if fsio::create_atomically(&path, &text)? {
            Ok(())
        } else {
            Err(StoreError::Taken(record.name.clone()))
        }
    }

    /// What is written down about a sandbox; nothing when there is none of this name.
    pub(super) fn read(&self, name: &LocalName) -> Result<Option<LocalRecord>, StoreError> {
        let path = self.folder.join(name.as_str()).join(RECORD);
        let Some(text) = fsio::read_sealed(&path, LONGEST_RECORD)? else {
            return Ok(None);
        };
        match LocalRecord::parse(&text) {
            Ok(record) => Ok(Some(record)),
            Err(source) => Err(StoreError::Record { path, source }),
        }
    }

    /// The names of all sandboxes, sorted.
    pub(super) fn names(&self) -> Vec<LocalName> {
        let entries = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        let named = |name: &OsStr| LocalName::parse(name.to_str()?).ok();
        let mut names: Vec<LocalName> = entries
            .filter(|entry| entry.path().join(RECORD).is_file())
            .filter_map(|entry| named(&entry.file_name()))
            .take(MOST_SANDBOXES)
            .collect();
        names.sort();
        names
    }

    /// Marks a sandbox as deleted; from here on nobody finds it. The rest may be done later.
    pub(super) fn mark_deleted(&self, name: &LocalName) -> Result<(), StoreError> {
        let root = self.folders(name).root;
        fsio::rename(&root.join(RECORD), &root.join(DELETED))?;
        Ok(())
    }

    /// Removes all files of a sandbox that was marked.
    pub(super) fn remove(&self, name: &LocalName) -> Result<(), StoreError> {
        let root = self.folders(name).root;
        fsio::open_up_directories(&root);
        fsio::remove_directory(&root)?;
        Ok(())
    }

    /// Sandboxes whose deletion did not come to its end.
    pub(super) fn half_deleted(&self) -> Vec<LocalName> {
        let entries = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter(|entry| entry.path().join(DELETED).is_file())
            .filter(|entry| !entry.path().join(RECORD).exists())
            .filter_map(|entry| LocalName::parse(entry.file_name().to_str()?).ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use remote_sandbox_core::local::Network;

    use super::*;

    fn record(name: &str) -> LocalRecord {
        let name = LocalName::parse(name).unwrap();
        LocalRecord::new(name, "2026-01-01T00:00:00Z".to_owned(), Network::On, vec![])
    }

    #[test]
    fn sandbox_is_found_until_it_is_deleted() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        assert_eq!(store.names(), []);
        store.create(&record("one")).unwrap();
        store.create(&record("two")).unwrap();
        let again = store.create(&record("one")).unwrap_err();
        assert!(matches!(again, StoreError::Taken(_)), "{again}");
        let (one, two) = (record("one").name, record("two").name);
        assert_eq!(store.names(), [one.clone(), two.clone()]);
        assert_eq!(store.read(&one).unwrap(), Some(record("one")));
        store.mark_deleted(&one).unwrap();
        assert_eq!(store.names(), [two]);
        assert_eq!(store.half_deleted(), std::slice::from_ref(&one));
        store.remove(&one).unwrap();
        assert_eq!(store.half_deleted(), []);
        assert!(!store.folders(&one).root.exists());
        store.create(&record("one")).unwrap();
    }

    #[test]
    fn one_of_many_that_make_the_same_sandbox_succeeds() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        let made = std::thread::scope(|scope| {
            let make = || scope.spawn(|| store.create(&record("one")).is_ok());
            let all: Vec<_> = (0..8).map(|_| make()).collect();
            let ended = all.into_iter().map(|one| one.join().unwrap());
            ended.filter(|made| *made).count()
        });
        assert_eq!(made, 1);
        let left = std::fs::read_dir(store.folders(&record("one").name).root).unwrap();
        assert_eq!(left.count(), 3, "the record and two folders");
    }

    #[test]
    fn folders_that_commands_have_closed_are_removed_and_links_are_not_followed() {
        let state = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "x").unwrap();
        let store = Store::new(state.path());
        store.create(&record("one")).unwrap();
        let name = record("one").name;
        let home = store.folders(&name).home;
        let closed = home.join("closed/deep");
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::write(closed.join("file"), "x").unwrap();
        use std::os::unix::fs::PermissionsExt;
        let shut = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&closed, shut.clone()).unwrap();
        std::fs::set_permissions(home.join("closed"), shut).unwrap();
        std::os::unix::fs::symlink(outside.path(), home.join("link")).unwrap();
        store.mark_deleted(&name).unwrap();
        store.remove(&name).unwrap();
        assert!(outside.path().join("kept").exists());
        assert!(!store.folders(&name).root.exists());
    }
}
