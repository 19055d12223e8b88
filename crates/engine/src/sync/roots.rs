//! From a path that somebody wrote to a place of this machine that a sync may use.
//!
//! What counts is where a path really lies: links are resolved first, whatever they are called and wherever they lie, and
//! the verdict is about the result. So `..`, links and `/proc/self/root` change nothing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use remote_sandbox_core::config::{
    Environment, FileChoice, Platform, SyncSettings, config_file_location, state_dir,
};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::path::LONGEST_PATH;
use remote_sandbox_core::sync::roots::{Allowed, CleanPath, KEY_PLACES, LocalPlaces, LocalRoots};
use remote_sandbox_core::sync::scan::RootKind;
use remote_sandbox_core::sync::{RelPath, WrittenPath};

/// The folder of this program in the folder for sockets.
const FOLDER: &str = "remote-sandbox-mcp";

/// The rules about local paths, and what is needed to understand a path.
#[derive(Debug, Clone)]
pub struct LocalPaths {
    home: Option<PathBuf>,
    working_directory: Option<PathBuf>,
    places: LocalPlaces,
    rules: LocalRoots,
}

/// A place of this machine that a sync may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Where it really lies.
    pub path: CleanPath,
    /// What is there.
    pub kind: RootKind,
    /// The root it lies in, and what in it must be left alone.
    pub allowed: Allowed,
    /// Whether it was written with a slash at its end, as a directory.
    pub is_written_as_directory: bool,
    /// Its last name as it was written, which may be that of a link.
    pub name: Option<RelPath>,
}

/// Why a path cannot be resolved.
#[derive(Debug, thiserror::Error)]
enum ResolveError {
    #[error("no local path is given")]
    Empty,
    #[error("the local path is longer than {LONGEST_PATH} bytes")]
    TooLong,
    #[error("the local path `{shown}` has a NUL byte in it")]
    Nul { shown: String },
    #[error("the local path `{shown}` begins at the home of another user")]
    OtherUser { shown: String },
    #[error("the local path `{shown}` begins at the {place}, which is not known")]
    Unknown { shown: String, place: &'static str },
    #[error("the local path `{shown}` goes up with `..` from a directory that does not exist")]
    Parent { shown: String },
    #[error("the local path `{shown}` goes through a link that leads nowhere")]
    DanglingLink { shown: String },
    #[error("the local path `{shown}` cannot be resolved")]
    File {
        shown: String,
        #[source]
        source: io::Error,
    },
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        let hint = match &error {
            ResolveError::Empty => "give the path of a file or directory on this machine",
            ResolveError::Unknown { .. } => "give an absolute path",
            _ => "give the path of a file or directory on this machine as it really lies",
        };
        Failure::new(Code::PathRefused, Failure::chain(&error)).hint(hint)
    }
}

impl LocalPaths {
    /// The rules for this process.
    pub fn new(
        settings: &SyncSettings,
        environment: &Environment,
        working_directory: Option<PathBuf>,
    ) -> Self {
        let absolute = |name: &str| {
            let value = environment.get(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let home = absolute("HOME");
        let real_home = home.as_deref().and_then(real_place);
        let temporary = absolute("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        let temporary = real_place(&temporary);
        let own = own_places(environment, absolute("XDG_RUNTIME_DIR"));
        let configured = settings.roots.as_ref();
        let keys = home
            .iter()
            .flat_map(|home| KEY_PLACES.map(|place| home.join(place)));
        let places = LocalPlaces {
            working_directory: working_directory.as_deref().and_then(real_place),
            temporary: temporary.into_iter().collect(),
            home: real_home,
            own: own.iter().filter_map(|place| real_place(place)).collect(),
            keys: keys.filter_map(|place| real_place(&place)).collect(),
            configured: configured
                .map(|roots| roots.iter().filter_map(|root| real_place(root)).collect()),
        };
        LocalPaths {
            home,
            working_directory,
            rules: LocalRoots::new(places.clone()),
            places,
        }
    }

    /// The same for a process whose relative paths begin elsewhere.
    #[must_use]
    pub fn from_directory(mut self, folder: Option<PathBuf>) -> Self {
        self.places.working_directory = folder.as_deref().and_then(real_place);
        self.working_directory = folder;
        self.rules = LocalRoots::new(self.places.clone());
        self
    }

    /// The same with a configuration file that was named.
    #[must_use]
    pub fn with_config_file(mut self, file: &Path) -> Self {
        self.places.own.extend(real_place(file));
        self.rules = LocalRoots::new(self.places.clone());
        self
    }

    /// The rules themselves, for what is found on the way.
    pub fn rules(&self) -> &LocalRoots {
        &self.rules
    }

    /// Where a path really lies, if a sync may use that. Asks the file system.
    pub fn resolve(&self, written: &WrittenPath) -> Result<Resolved, Failure> {
        let path = self.real(written)?;
        let allowed = self.rules.judge(&path).map_err(|refusal| {
            Failure::new(Code::PathRefused, refusal.to_string()).hint(refusal.hint())
        })?;
        Ok(Resolved {
            kind: kind_of(&path),
            path,
            allowed,
            is_written_as_directory: written.as_bytes().ends_with(b"/"),
            name: last_name(written),
        })
    }

    fn real(&self, written: &WrittenPath) -> Result<CleanPath, ResolveError> {
        let shown = || written.shown().text;
        match written.as_bytes() {
            [] => return Err(ResolveError::Empty),
            bytes if bytes.len() > LONGEST_PATH => return Err(ResolveError::TooLong),
            bytes if bytes.contains(&0) => return Err(ResolveError::Nul { shown: shown() }),
            _ => {}
        }
        let absolute = self.absolute(written)?;
        resolved(&absolute).map_err(|fault| match fault {
            Unresolved::Parent => ResolveError::Parent { shown: shown() },
            Unresolved::DanglingLink => ResolveError::DanglingLink { shown: shown() },
            Unresolved::File(source) => ResolveError::File {
                shown: shown(),
                source,
            },
        })
    }

    fn absolute(&self, written: &WrittenPath) -> Result<PathBuf, ResolveError> {
        let shown = || written.shown().text;
        let from = |start: &Option<PathBuf>, place, mut rest: &[u8]| match start {
            Some(start) => {
                // A slash too many does not lead back to the top.
                while let Some(shorter) = rest.strip_prefix(b"/") {
                    rest = shorter;
                }
                Ok(start.join(OsStr::from_bytes(rest)))
            }
            None => Err(ResolveError::Unknown {
                shown: shown(),
                place,
            }),
        };
        match written.as_bytes() {
            path @ [b'/', ..] => Ok(PathBuf::from(OsStr::from_bytes(path))),
            [b'~', rest @ ..] if matches!(rest, [] | [b'/', ..]) => {
                from(&self.home, "home directory", rest)
            }
            [b'~', ..] => Err(ResolveError::OtherUser { shown: shown() }),
            path => from(&self.working_directory, "working directory", path),
        }
    }
}

fn last_name(written: &WrittenPath) -> Option<RelPath> {
    let names = written.without_end_slashes().rsplit(|byte| *byte == b'/');
    names.take(1).find_map(|name| RelPath::parse(name).ok())
}

/// Where this program keeps its own files.
fn own_places(environment: &Environment, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let platform = Platform::current();
    let mut own: Vec<PathBuf> = state_dir(environment, platform).into_iter().collect();
    own.extend(runtime.map(|folder| folder.join(FOLDER)));
    match config_file_location(None, environment, platform) {
        // A file that was named lies among other people's files; only the file itself is ours.
        FileChoice::Required(file) => own.push(file),
        FileChoice::Optional(files) => {
            let folders = files.iter().filter_map(|file| file.parent());
            own.extend(folders.map(Path::to_owned));
        }
        FileChoice::None => {}
    }
    own
}

#[derive(Debug)]
enum Unresolved {
    Parent,
    DanglingLink,
    File(io::Error),
}

/// Where a path really lies: what exists of it with all links resolved, then the rest as it is written.
fn resolved(path: &Path) -> Result<CleanPath, Unresolved> {
    let mut rest: Vec<OsString> = Vec::new();
    let mut existing = path.to_owned();
    loop {
        match std::fs::canonicalize(&existing) {
            Ok(mut real) => {
                real.extend(rest.iter().rev());
                return CleanPath::parse(&real)
                    .map_err(|error| Unresolved::File(io::Error::other(error)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Unresolved::File(error)),
        }
        // It does not lead anywhere, but the name is taken.
        if std::fs::symlink_metadata(&existing).is_ok() {
            return Err(Unresolved::DanglingLink);
        }
        match existing.components().next_back() {
            Some(Component::Normal(name)) => rest.push(name.to_owned()),
            Some(Component::ParentDir) => return Err(Unresolved::Parent),
            _ => return Err(Unresolved::File(io::ErrorKind::NotFound.into())),
        }
        existing.pop();
    }
}

/// The same for a place of which only the good case counts.
fn real_place(path: &Path) -> Option<CleanPath> {
    resolved(path).ok()
}

fn kind_of(path: &CleanPath) -> RootKind {
    match std::fs::symlink_metadata(path.as_path()) {
        Ok(found) if found.is_dir() => match std::fs::read_dir(path.as_path()) {
            Ok(_) => RootKind::Directory,
            Err(_) => RootKind::Unreadable,
        },
        Ok(_) => RootKind::File,
        Err(_) => RootKind::Missing,
    }
}

#[cfg(test)]
#[path = "roots_tests.rs"]
mod tests;
