//! Which places of this machine a sync may read from and write to.
//!
//! The verdict is about a path as it really lies, after links were resolved by whoever asks. It keeps an agent that was
//! talked into something from sending away keys or writing start files; it does not replace opening files beneath a handle.

use std::path::{Component, Path, PathBuf};

/// Places in the home directory where keys and tokens lie; refused even when a configured root holds them.
pub const KEY_PLACES: [&str; 7] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".netrc",
];

/// An absolute path without `.`, `..` and doubled slashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CleanPath(PathBuf);

/// Why a path is not clean.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CleanPathError {
    /// It depends on the working directory.
    #[error("the local path {} is not absolute", path.display())]
    Relative {
        /// The path.
        path: PathBuf,
    },
    /// What `..` means depends on links.
    #[error("the local path {} has `..` in it", path.display())]
    Parent {
        /// The path.
        path: PathBuf,
    },
}

impl CleanPath {
    /// Checks a path, and drops what means nothing: `.` and doubled slashes.
    pub fn parse(path: &Path) -> Result<Self, CleanPathError> {
        if !path.is_absolute() {
            return Err(CleanPathError::Relative {
                path: path.to_owned(),
            });
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(CleanPathError::Parent {
                path: path.to_owned(),
            });
        }
        Ok(CleanPath(path.components().collect()))
    }

    /// The path itself.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    fn is_within(&self, place: &CleanPath) -> bool {
        self.0.starts_with(&place.0)
    }

    fn is_top(&self) -> bool {
        self.0.parent().is_none()
    }
}

/// What the rules have to know of this machine; every path as it really lies.
#[derive(Debug, Clone, Default)]
pub struct LocalPlaces {
    /// The working directory of the program.
    pub working_directory: Option<CleanPath>,
    /// Folders for temporary files.
    pub temporary: Vec<CleanPath>,
    /// The user's home directory.
    pub home: Option<CleanPath>,
    /// Where this program keeps its own files: configuration, state, secrets.
    pub own: Vec<CleanPath>,
    /// Where the places of keys in the home directory lead to, when they are links.
    pub keys: Vec<CleanPath>,
    /// The roots of the configuration, which then are the only ones.
    pub configured: Option<Vec<CleanPath>>,
}

/// A path that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The root it lies in.
    pub root: CleanPath,
    /// Places within the path that must not be touched.
    pub avoid: Vec<CleanPath>,
}

/// Why a path may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootRefusal {
    /// It is where this program keeps its own files.
    #[error("{} is where this program keeps its own files", path.display())]
    Own {
        /// The path.
        path: PathBuf,
    },
    /// Keys lie there.
    #[error("{} is a place for keys", path.display())]
    Keys {
        /// The path.
        path: PathBuf,
    },
    /// It is the home directory as a whole.
    #[error("{} is the home directory as a whole", path.display())]
    WholeHome {
        /// The path.
        path: PathBuf,
    },
    /// It lies in a hidden part of the home directory, or in one for programs.
    #[error("{} lies in `{folder}` of the home directory, which is for programs", path.display())]
    Hidden {
        /// The path.
        path: PathBuf,
        /// The first name within the home directory.
        folder: String,
    },
    /// It lies in no root.
    #[error("{} lies outside the folders that a sync may use: {roots}", path.display())]
    Outside {
        /// The path.
        path: PathBuf,
        /// The folders, as a list to read.
        roots: String,
    },
}

impl RootRefusal {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            RootRefusal::Own { .. } | RootRefusal::Keys { .. } => {
                "choose another folder; this one is never used, whatever the configuration says"
            }
            RootRefusal::WholeHome { .. } => "choose a folder in the home directory",
            RootRefusal::Hidden { .. } | RootRefusal::Outside { .. } => {
                "choose another folder, or let the user add this one to the roots of the configuration"
            }
        }
    }
}

/// The rules about local paths.
#[derive(Debug, Clone)]
pub struct LocalRoots {
    places: LocalPlaces,
    /// Roots without further conditions.
    open: Vec<CleanPath>,
    keys: Vec<CleanPath>,
}

impl LocalRoots {
    /// The rules for this machine.
    pub fn new(places: LocalPlaces) -> Self {
        let home = places.home.as_ref();
        let open = match &places.configured {
            Some(configured) => configured.clone(),
            None => {
                let working = places.working_directory.iter().filter(|directory| {
                    // A server that was started at home or above it was not put there to work on that.
                    !directory.is_top() && !home.is_some_and(|home| home.is_within(directory))
                });
                let temporary = places
                    .temporary
                    .iter()
                    .filter(|directory| !directory.is_top());
                working.chain(temporary).cloned().collect()
            }
        };
        let mut keys: Vec<CleanPath> = home
            .iter()
            .flat_map(|home| KEY_PLACES.iter().map(|place| CleanPath(home.0.join(place))))
            .collect();
        let linked = places.keys.iter().filter(|place| !keys.contains(place));
        let linked: Vec<CleanPath> = linked.cloned().collect();
        keys.extend(linked);
        LocalRoots { places, open, keys }
    }

    /// The user's home directory, where it is known.
    pub fn home(&self) -> Option<&CleanPath> {
        self.places.home.as_ref()
    }

    /// Whether a sync may use the path, and what in it must be left alone.
    pub fn judge(&self, path: &CleanPath) -> Result<Allowed, RootRefusal> {
        let refused = || path.0.clone();
        if self.places.own.iter().any(|own| path.is_within(own)) {
            return Err(RootRefusal::Own { path: refused() });
        }
        if self.keys.iter().any(|keys| path.is_within(keys)) {
            return Err(RootRefusal::Keys { path: refused() });
        }
        let open = self.open.iter().find(|root| path.is_within(root));
        let root = match open.filter(|root| !self.is_about_home(path, root)) {
            Some(root) => root.clone(),
            None => self.judge_home(path)?,
        };
        let avoid = self
            .places
            .own
            .iter()
            .chain(&self.keys)
            .filter(|place| place.is_within(path))
            .cloned()
            .collect();
        Ok(Allowed { root, avoid })
    }

    /// Whether a path concerns the home directory though the root it lies in was not meant so: where temporary files lie
    /// at home or above it, what is at home keeps its own rules.
    fn is_about_home(&self, path: &CleanPath, root: &CleanPath) -> bool {
        self.places.configured.is_none()
            && self.places.home.as_ref().is_some_and(|home| {
                home.is_within(root) && (path.is_within(home) || home.is_within(path))
            })
    }

    /// The home directory is a root by itself only where nothing is configured.
    fn judge_home(&self, path: &CleanPath) -> Result<CleanPath, RootRefusal> {
        let outside = || RootRefusal::Outside {
            path: path.0.clone(),
            roots: self.listed(),
        };
        let home = match (&self.places.home, &self.places.configured) {
            (Some(home), None) if !home.is_top() => home,
            _ => return Err(outside()),
        };
        let Ok(below) = path.0.strip_prefix(&home.0) else {
            return Err(outside());
        };
        let Some(first) = below.components().next() else {
            return Err(RootRefusal::WholeHome {
                path: path.0.clone(),
            });
        };
        let folder = first.as_os_str().to_string_lossy();
        if folder.starts_with('.') || folder == "Library" {
            return Err(RootRefusal::Hidden {
                path: path.0.clone(),
                folder: folder.into_owned(),
            });
        }
        Ok(home.clone())
    }

    fn listed(&self) -> String {
        let home = match &self.places.configured {
            None => self.places.home.as_ref(),
            Some(_) => None,
        };
        let mut listed: Vec<String> = self
            .open
            .iter()
            .map(|root| root.0.display().to_string())
            .collect();
        listed.extend(home.map(|home| format!("folders in {}", home.0.display())));
        if listed.is_empty() {
            "none".to_owned()
        } else {
            listed.join(", ")
        }
    }
}

#[cfg(test)]
#[path = "roots_tests.rs"]
mod tests;
