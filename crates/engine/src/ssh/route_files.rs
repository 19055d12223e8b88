//! The files of the SSH configuration, for what `ssh` does not tell or where there is no `ssh`.

use std::path::{Path, PathBuf};

use remote_sandbox_core::config::Environment;
use remote_sandbox_core::ssh_config::{
    ConfigFile, ConfigPlace, TEXT_MAX_BYTES, expand_home, listed, matches_pattern,
};

use crate::fsio::{self, FileError};

/// The variable that names another file than the user's own.
const SSH_CONFIG_VARIABLE: &str = "REMOTE_SANDBOX_SSH_CONFIG";

/// The machine's own file.
const SYSTEM_FILE: &str = "/etc/ssh/ssh_config";

/// Files that one pattern may name.
const MOST_MATCHES: usize = 256;

/// Files that are read for a list of hosts.
const MOST_FILES: usize = 256;

/// Where the configuration lies.
#[derive(Debug, Clone)]
pub(super) struct ConfigFiles {
    instead: Option<PathBuf>,
    home: Option<PathBuf>,
}

impl ConfigFiles {
    /// The user's own file and the machine's, or only the one that a variable names.
    pub(super) fn new(environment: &Environment) -> Self {
        let text = |name: &str| environment.get(name).filter(|text| !text.is_empty());
        let home = text("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
        let instead = text(SSH_CONFIG_VARIABLE);
        ConfigFiles {
            instead: instead.map(|path| PathBuf::from(expand_home(path, home.as_deref()))),
            home,
        }
    }

    /// The user's home directory.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The file that counts instead of all others.
    pub(super) fn instead(&self) -> Option<&Path> {
        self.instead.as_deref()
    }

    fn paths(&self) -> Vec<(ConfigPlace, PathBuf)> {
        if let Some(path) = &self.instead {
            return vec![(ConfigPlace::User, path.clone())];
        }
        let user = self.home.as_ref().map(|home| home.join(".ssh/config"));
        let user = user.map(|path| (ConfigPlace::User, path));
        let system = (ConfigPlace::System, PathBuf::from(SYSTEM_FILE));
        user.into_iter().chain([system]).collect()
    }

    /// Reads the files, the one that counts first at the beginning.
    pub(super) fn read(&self) -> Result<Vec<ConfigFile>, FileError> {
        let mut files = Vec::new();
        for (place, path) in self.paths() {
            if let Some(text) = fsio::read_bounded(&path, TEXT_MAX_BYTES as u64)? {
                files.push(ConfigFile { place, text });
            }
        }
        Ok(files)
    }

    /// Reads the files that an `Include` names; what cannot be read is passed over, as `ssh` does.
    pub(super) fn included(&self, place: ConfigPlace, pattern: &str) -> Vec<ConfigFile> {
        let pattern = PathBuf::from(expand_home(pattern, self.home.as_deref()));
        let folder = match (place, &self.home) {
            (ConfigPlace::System, _) => PathBuf::from("/etc/ssh"),
            (ConfigPlace::User, Some(home)) => home.join(".ssh"),
            (ConfigPlace::User, None) => return Vec::new(),
        };
        let texts = matching_files(&folder.join(pattern)).into_iter();
        texts
            .filter_map(
                |path| match fsio::read_bounded(&path, TEXT_MAX_BYTES as u64) {
                    Ok(Some(text)) => Some(ConfigFile { place, text }),
                    _ => None,
                },
            )
            .collect()
    }
}

/// The files that a pattern describes, in the order of their names.
fn matching_files(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.components().skip(1) {
        let part = part.as_os_str();
        let wild = part.to_str().filter(|text| text.contains(['*', '?']));
        let mut next = Vec::new();
        for folder in found {
            let Some(wild) = wild else {
                next.push(folder.join(part));
                continue;
            };
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names
                .filter(|name| !name.starts_with('.') || wild.starts_with('.'))
                .filter(|name| matches_pattern(wild, name))
                .take(MOST_MATCHES)
                .collect();
            names.sort();
            next.extend(names.into_iter().map(|name| folder.join(name)));
        }
        next.truncate(MOST_MATCHES);
        found = next;
    }
    found
}

/// The hosts that the SSH configuration names without a pattern, those of included files too; what
/// cannot be read is passed over.
pub fn known_aliases(environment: &Environment) -> Vec<String> {
    let files = ConfigFiles::new(environment);
    let mut waiting: Vec<ConfigFile> = Vec::new();
    for (place, path) in files.paths() {
        if let Ok(Some(text)) = fsio::read_bounded(&path, TEXT_MAX_BYTES as u64) {
            waiting.push(ConfigFile { place, text });
        }
    }
    let mut names: Vec<String> = Vec::new();
    // Files that include each other come again and again; the number of files ends that.
    for _ in 0..MOST_FILES {
        if waiting.is_empty() {
            break;
        }
        let file = waiting.remove(0);
        let found = listed(&file.text);
        for name in found.hosts {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for pattern in found.includes {
            if waiting.len() < MOST_FILES {
                waiting.extend(files.included(file.place, &pattern));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_included_files_are_known() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".ssh");
        std::fs::create_dir_all(folder.join("more.d")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(
            "config",
            "Include more.d/*.conf\nInclude config\nHost one\n",
        );
        write("more.d/b.conf", "Host two *.x\n");
        write("more.d/a.conf", "Host three\nInclude ~/.ssh/last\n");
        write("more.d/no.txt", "Host never\n");
        write("last", "Host four one\n");
        let mut environment = Environment::new();
        let mut set = |name: &str, path: &Path| {
            environment.insert(name.to_owned(), path.to_str().unwrap().to_owned());
            known_aliases(&environment)
        };
        let names = set("HOME", home.path());
        for name in ["one", "two", "three", "four"] {
            let count = names.iter().filter(|known| *known == name).count();
            assert_eq!(count, 1, "{name} in {names:?}");
        }
        assert!(!names.iter().any(|name| name == "never" || name == "*.x"));
        let only = set(SSH_CONFIG_VARIABLE, &folder.join("last"));
        assert_eq!(only, ["four", "one"]);
    }
}
