//! Reads one directory and tells what is in it.

use std::ffi::OsStr;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use remote_sandbox_core::sync::ignore::MOST_GITIGNORE_BYTES;
use remote_sandbox_core::sync::path::PathError;
use remote_sandbox_core::sync::scan::ScanProblem;
use remote_sandbox_core::sync::temporary::is_temporary;
use remote_sandbox_core::sync::{Entry, Kind, LinkEnd, RelPath};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use super::BeneathError;
use super::open::open_below;
use super::scan::LocalScanOptions;
use super::stat::{entry_of, kind_of, look_at};
use super::tree::Tree;

const IGNORE_FILE: &[u8] = b".gitignore";

/// A directory that is to be read.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The tree it is opened beneath: that of the scan, or the end of a link that was followed.
    pub(super) tree: Tree,
    /// Its path in that tree; none for the top of it.
    pub(super) inside: Option<RelPath>,
    /// Its path in the scan; none for the root.
    pub(super) path: Option<RelPath>,
}

/// What is found while a directory is read, in this order.
#[derive(Debug)]
pub(super) enum Event {
    /// The directory itself; without a path it is the root.
    Opened(Option<Entry>),
    /// Its `.gitignore` file.
    Rules(Vec<u8>),
    /// Something in it that need not be entered.
    Entry(Entry),
    /// A directory in it.
    Directory(Box<[u8]>),
    /// A link in it that leads to a directory and is to be followed.
    DirectoryLink(Box<[u8]>),
    /// A temporary file of ours.
    Temporary(RelPath),
    /// Something that could not be looked at.
    Problem(ScanProblem),
    /// The directory cannot be opened.
    Closed(Errno),
    /// The whole scan is worth nothing.
    Failed(BeneathError),
}

pub(super) type Told = ControlFlow<()>;

impl Place {
    /// The path that a name in this directory has in the scan.
    pub(super) fn child_path(&self, name: &[u8]) -> Result<RelPath, PathError> {
        joined(self.path.as_ref(), name)
    }

    /// A directory in this one.
    pub(super) fn child(&self, name: &[u8]) -> Result<Place, PathError> {
        Ok(Place {
            tree: self.tree.clone(),
            inside: Some(joined(self.inside.as_ref(), name)?),
            path: Some(self.child_path(name)?),
        })
    }

    /// Where it really lies.
    fn real(&self) -> PathBuf {
        let inside = self
            .inside
            .as_ref()
            .map_or(b"".as_slice(), RelPath::as_bytes);
        self.tree.path().join(OsStr::from_bytes(inside))
    }
}

fn joined(directory: Option<&RelPath>, name: &[u8]) -> Result<RelPath, PathError> {
    match directory {
        None => RelPath::parse(name),
        Some(directory) => directory.join(name),
    }
}

/// Reads a directory. Nothing is kept: whatever is found is told at once.
pub(super) fn read(
    place: &Place,
    options: &LocalScanOptions,
    tell: &mut dyn FnMut(Event) -> Told,
) -> Told {
    let opened = match place.tree.directory(place.inside.as_ref(), OFlags::RDONLY) {
        Ok(opened) => opened,
        Err(error) => return tell(Event::Closed(error)),
    };
    let found = match fstat(&opened) {
        Ok(found) => found,
        Err(error) => return tell(Event::Closed(error)),
    };
    let itself = place.path.clone();
    let itself = itself.map(|path| entry_of(path, Kind::Directory, &found));
    tell(Event::Opened(itself))?;
    if options.gitignore {
        match read_rules(opened.as_fd(), place) {
            Ok(None) => {}
            Ok(Some(text)) => tell(Event::Rules(text))?,
            Err(error) => return tell(Event::Failed(error)),
        }
    }
    let reader = Reader {
        place,
        options,
        avoided: avoided_names(place, options),
    };
    match Dir::new(opened) {
        Ok(mut directory) => reader.entries(&mut directory, tell),
        Err(_) => tell(Event::Problem(unreadable(place))),
    }
}

pub(super) fn unreadable(place: &Place) -> ScanProblem {
    ScanProblem::Unreadable {
        shown: place
            .path
            .as_ref()
            .map_or_else(|| ".".to_owned(), |path| path.shown().text),
    }
}

/// What it means that an entry could not be looked at.
pub(super) fn not_looked_at(shown: String, is_denied: bool) -> ScanProblem {
    match is_denied {
        true => ScanProblem::Denied { shown },
        false => ScanProblem::Vanished { shown },
    }
}

/// The names in this directory that must not be touched.
fn avoided_names(place: &Place, options: &LocalScanOptions) -> Vec<Vec<u8>> {
    if options.avoid.is_empty() {
        return Vec::new();
    }
    let here = place.real();
    let avoided = options.avoid.iter().map(|avoided| avoided.as_path());
    avoided
        .filter(|avoided| avoided.parent() == Some(here.as_path()))
        .filter_map(|avoided| Some(avoided.file_name()?.as_bytes().to_vec()))
        .collect()
}

struct Reader<'a> {
    place: &'a Place,
    options: &'a LocalScanOptions,
    avoided: Vec<Vec<u8>>,
}

impl Reader<'_> {
    fn entries(&self, directory: &mut Dir, tell: &mut dyn FnMut(Event) -> Told) -> Told {
        while let Some(next) = directory.read() {
            let Ok(next) = next else {
                return tell(Event::Problem(unreadable(self.place)));
            };
            let name = next.file_name().to_bytes();
            if matches!(name, b"." | b"..") || self.avoided.iter().any(|avoided| avoided == name) {
                continue;
            }
            let path = match self.place.child_path(name) {
                Ok(path) => path,
                Err(error) => {
                    tell(Event::Problem(error.into()))?;
                    continue;
                }
            };
            if is_temporary(name) {
                tell(Event::Temporary(path))?;
                continue;
            }
            if next.file_type() == FileType::Directory {
                tell(Event::Directory(name.into()))?;
                continue;
            }
            let Ok(handle) = directory.fd() else {
                return tell(Event::Problem(unreadable(self.place)));
            };
            self.look(handle, name, &path, tell)?;
        }
        Told::Continue(())
    }

    fn look(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
        tell: &mut dyn FnMut(Event) -> Told,
    ) -> Told {
        let looked = look_at(directory, name, path);
        let is_denied = matches!(looked, Err(Errno::ACCESS | Errno::PERM));
        let Ok(Some(entry)) = looked else {
            return tell(Event::Problem(not_looked_at(path.shown().text, is_denied)));
        };
        match &entry.kind {
            Kind::Directory => tell(Event::Directory(name.into())),
            Kind::Link { end, .. } if self.options.follow_links => match end {
                LinkEnd::Directory => tell(Event::DirectoryLink(name.into())),
                LinkEnd::Nothing => tell(Event::Entry(entry)),
                LinkEnd::Other | LinkEnd::Unknown => self.follow(name, entry, tell),
            },
            _ => tell(Event::Entry(entry)),
        }
    }

    /// Tells what a link leads to instead of the link, where that may be used.
    fn follow(&self, name: &[u8], link: Entry, tell: &mut dyn FnMut(Event) -> Told) -> Told {
        match self.end_of(name, &link) {
            Ok(entry) => tell(Event::Entry(entry)),
            Err(problem) => {
                tell(Event::Problem(problem))?;
                tell(Event::Entry(link))
            }
        }
    }

    fn end_of(&self, name: &[u8], link: &Entry) -> Result<Entry, ScanProblem> {
        let shown = || link.path.shown().text;
        let failed = |is_denied| not_looked_at(shown(), is_denied);
        let inside = joined(self.place.inside.as_ref(), name)?;
        let real = self
            .place
            .tree
            .real_place(&inside)
            .map_err(|error| failed(error.is_denied()))?;
        if !self.options.allows(&real) {
            return Err(ScanProblem::Outside { shown: shown() });
        }
        let found = rustix::fs::lstat(real.as_path())
            .map_err(|error| failed(matches!(error, Errno::ACCESS | Errno::PERM)))?;
        match kind_of(&found) {
            // It was replaced since it was resolved; nothing good comes of following once more.
            Kind::Link { .. } | Kind::Directory => Err(failed(false)),
            kind => Ok(entry_of(link.path.clone(), kind, &found)),
        }
    }
}

impl Tree {
    /// The `.gitignore` file at the top.
    pub fn ignore_file(&self) -> Result<Option<Vec<u8>>, BeneathError> {
        let top = Place {
            tree: self.clone(),
            inside: None,
            path: None,
        };
        read_rules(self.handle(), &top)
    }
}

/// The `.gitignore` file of a directory. Like `git`, links and other things of that name do not count; but one that
/// cannot be read is an error, because what it leaves out would be sent.
fn read_rules(directory: BorrowedFd<'_>, place: &Place) -> Result<Option<Vec<u8>>, BeneathError> {
    let path = match place.child_path(IGNORE_FILE) {
        Ok(path) => path,
        Err(_) => return Ok(None),
    };
    let failed = |error: std::io::Error| BeneathError::of("read the ignore file", &path, error);
    match look_at(directory, IGNORE_FILE, &path) {
        Ok(Some(entry)) if entry.kind.is_file() => {}
        Ok(_) => return Ok(None),
        Err(error) => return Err(failed(error.into())),
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open_below(directory, IGNORE_FILE, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        opened => opened.map_err(|error| failed(error.into()))?,
    };
    let mut text = Vec::new();
    let mut bounded = std::fs::File::from(file).take(MOST_GITIGNORE_BYTES as u64 + 1);
    bounded.read_to_end(&mut text).map_err(failed)?;
    if text.len() > MOST_GITIGNORE_BYTES {
        let text = format!("it is larger than {MOST_GITIGNORE_BYTES} bytes");
        return Err(failed(std::io::Error::other(text)));
    }
    Ok(Some(text))
}
