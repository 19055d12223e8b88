//! The folders of sandboxes on this machine, and what is written down about each.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::local::{LocalName, LocalRecord, RecordError};

use crate::fsio::{self, FileError};
use crate::proc;

/// Longest record that is read; variables are bounded.
const LONGEST_RECORD: u64 = 32 * 1024 * 1024;

/// Most sandboxes that are shown.
const MOST_SANDBOXES: usize = 1000;

/// The file that says that a folder is a sandbox.
const RECORD: &str = "record.json";

/// How the name of a folder begins whose sandbox is being deleted; no sandbox has such a name.
const DELETED: &str = ".deleted-";

/// How long removing all files of a sandbox may take.
const REMOVE_LIMIT: Duration = Duration::from_secs(900);

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

    /// Takes a sandbox out of the others by one step; from here on nobody finds it, and its name is free.
    pub(super) fn set_aside(&self, name: &LocalName) -> Result<PathBuf, StoreError> {
        let lot = uuid::Uuid::now_v7().simple();
        let aside = self.folder.join(format!("{DELETED}{name}-{lot}"));
        fsio::rename(&self.folders(name).root, &aside)?;
        Ok(aside)
    }

    /// Removes the folder of a sandbox that was set aside. Commands may have made it deeper than any path
    /// is long and closed parts of it, for which the system's own tools are made.
    pub(super) async fn remove(&self, aside: &Path) -> Result<(), StoreError> {
        let folder = aside.to_string_lossy().into_owned();
        for (program, option) in [("chmod", ["-R", "u+rwX"].as_slice()), ("rm", &["-rf"])] {
            let mut words = vec![program.to_owned()];
            words.extend(option.iter().map(|&word| word.to_owned()));
            words.extend(["--".to_owned(), folder.clone()]);
            // What is left shows below.
            let _ = proc::capture_both(&words, &[], REMOVE_LIMIT, 64 * 1024).await;
        }
        if aside.exists() {
            fsio::remove_directory(aside)?;
        }
        Ok(())
    }

    /// Folders of sandboxes whose deletion did not come to its end.
    pub(super) fn set_aside_before(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        let is_aside = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with(DELETED));
        entries
            .filter(|entry| is_aside(&entry.file_name()))
            .map(|entry| entry.path())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> LocalRecord {
        let name = LocalName::parse(name).unwrap();
        LocalRecord::new(name, "2026-01-01T00:00:00Z".to_owned(), None, vec![])
    }

    #[tokio::test]
    async fn sandbox_is_found_until_it_is_deleted() {
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
        let aside = store.set_aside(&one).unwrap();
        assert_eq!(store.names(), [two]);
        assert_eq!(store.set_aside_before(), std::slice::from_ref(&aside));
        // The name is free at once.
        store.create(&record("one")).unwrap();
        store.remove(&aside).await.unwrap();
        assert_eq!(store.set_aside_before(), Vec::<PathBuf>::new());
        assert!(!aside.exists());
        assert_eq!(store.names().len(), 2);
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

    #[tokio::test]
    async fn folders_that_commands_have_closed_are_removed_and_links_are_not_followed() {
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
        // Deeper than a path may be long.
        let line = "for (1..1500) { mkdir 'ddddd'; chdir 'ddddd' or exit 1 }";
        let made = std::process::Command::new("perl")
            .args(["-e", line])
            .current_dir(&home)
            .status();
        assert!(made.unwrap().success());
        let aside = store.set_aside(&name).unwrap();
        store.remove(&aside).await.unwrap();
        assert!(outside.path().join("kept").exists());
        assert!(!aside.exists());
    }
}
