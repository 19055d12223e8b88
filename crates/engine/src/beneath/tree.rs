//! An open directory, and what can be done beneath it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use remote_sandbox_core::sync::path::shown;
use remote_sandbox_core::sync::roots::CleanPath;
use remote_sandbox_core::sync::{Entry, Kind, RelPath};
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, fstatfs, fstatvfs, mkdirat};
use rustix::io::Errno;

use super::BeneathError;
use super::open::{HANDLE, open_below};
use super::stat::{entry_of, identity_of, kind_of, look_at};
use crate::disk;

const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

/// An open directory; everything that is done with it stays beneath it and goes through no link.
#[derive(Debug, Clone)]
pub struct Tree(Arc<Root>);

#[derive(Debug)]
struct Root {
    path: CleanPath,
    handle: OwnedFd,
    is_kept_elsewhere: bool,
}

/// The directory that something lies in, open.
pub(super) enum Parent<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Parent::Root(handle) => *handle,
            Parent::Below(handle) => handle.as_fd(),
        }
    }
}

impl Tree {
    /// Opens the directory at a path as it really lies: one with a link in it is refused.
    pub fn open(root: &CleanPath) -> Result<Tree, BeneathError> {
        let handle = open_root(root)
            .map_err(|error| BeneathError::at("open the directory", shown_root(root), error))?;
        Ok(Tree::of(root, handle))
    }

    /// Opens the directory at a path as it really lies, and makes what is missing of it; the last one, when it is made, with
    /// these permissions.
    pub fn open_or_make(root: &CleanPath, mode: Option<u32>) -> Result<Tree, BeneathError> {
        let failed = |error| BeneathError::at("make the directory", shown_root(root), error);
        match open_root(root) {
            Err(Errno::NOENT) => {}
            opened => return Ok(Tree::of(root, opened.map_err(failed)?)),
        }
        let mut above = open_top().map_err(failed)?;
        let names = below_top(root).split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty()).peekable();
        let mut is_made = false;
        while let Some(name) = names.next() {
            let own = mode.filter(|_| names.peek().is_none());
            let own = own.map_or(DIRECTORY_MODE, Mode::from_raw_mode);
            is_made = match mkdirat(&above, name, own) {
                Ok(()) => true,
                // A read-only file system says so even where the directory is there.
                Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS | Errno::PERM) => false,
                Err(error) => return Err(failed(error)),
            };
            above = open_below(
                above.as_fd(),
                name,
                HANDLE | OFlags::DIRECTORY,
                Mode::empty(),
            )
            .map_err(failed)?;
        }
        let tree = Tree::of(root, above);
        if let Some(mode) = mode.filter(|_| is_made) {
            // The mask of this process has taken some away.
            let opened = tree.directory(None, OFlags::RDONLY | OFlags::CLOEXEC);
            let opened = opened.map_err(failed)?;
            fchmod(&opened, Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        Ok(tree)
    }

    /// The permissions of the directory.
    pub fn mode(&self) -> Option<u32> {
        let found = fstat(self.handle()).ok()?;
        Some(Mode::from_raw_mode(found.st_mode).bits() & 0o777)
    }

    fn of(root: &CleanPath, handle: OwnedFd) -> Tree {
        let about = fstatfs(&handle);
        Tree(Arc::new(Root {
            path: root.clone(),
            handle,
            is_kept_elsewhere: about.is_ok_and(|about| disk::is_remote(&about)),
        }))
    }

    /// Where the directory lay when it was opened.
    pub fn path(&self) -> &Path {
        self.0.path.as_path()
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.0.handle.as_fd()
    }

    /// Whether another machine keeps what is written here, so that a full disk may be told only late.
    pub(super) fn is_kept_elsewhere(&self) -> bool {
        self.0.is_kept_elsewhere
    }

    /// Which directory it is.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        let found = fstat(self.handle()).ok()?;
        let identity = identity_of(&found);
        Some((identity.device, identity.inode))
    }

    /// Opens a directory of the tree; none is the root.
    pub(super) fn directory(
        &self,
        path: Option<&RelPath>,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let bytes = path.map_or(b"".as_slice(), RelPath::as_bytes);
        open_below(
            self.handle(),
            bytes,
            flags | OFlags::DIRECTORY,
            Mode::empty(),
        )
    }

    /// Opens the directory that a path lies in.
    pub(super) fn parent(&self, path: &RelPath) -> Result<Parent<'_>, Errno> {
        match path.parent() {
            None => Ok(Parent::Root(self.handle())),
            Some(parent) => self.directory(Some(&parent), HANDLE).map(Parent::Below),
        }
    }

    /// What is at a path, links not followed; none when nothing is, or no directory for it.
    pub fn look(&self, path: &RelPath) -> Result<Option<Entry>, BeneathError> {
        let found = match self.parent(path) {
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => Err(error),
            Ok(parent) => look_at(parent.as_fd(), path.name(), path),
        };
        found.map_err(|error| BeneathError::of("look at", path, error))
    }

    /// Opens a regular file for reading, and tells what was opened.
    pub fn open_file(&self, path: &RelPath) -> Result<(File, Entry), BeneathError> {
        open_regular(self.handle(), path.as_bytes(), path)
    }

    /// Opens the regular file at a path through links, if the place it really lies at is allowed.
    pub fn open_followed(
        &self,
        path: &RelPath,
        is_allowed: impl Fn(&CleanPath) -> bool,
    ) -> Result<(File, Entry), BeneathError> {
        let real = self.real_place(path)?;
        if !is_allowed(&real) {
            return Err(BeneathError::Outside {
                shown: path.shown().text,
            });
        }
        // What is opened is exactly what was judged: from the top, and no link is followed any more.
        let top = open_top().map_err(|error| BeneathError::of("open", path, error))?;
        open_regular(top.as_fd(), below_top(&real), path)
    }

    /// Where a path of the tree really lies, links resolved.
    pub(super) fn real_place(&self, path: &RelPath) -> Result<CleanPath, BeneathError> {
        let whole = self
            .path()
            .join(std::ffi::OsStr::from_bytes(path.as_bytes()));
        let real = std::fs::canonicalize(whole)
            .map_err(|error| BeneathError::of("follow the link", path, error))?;
        CleanPath::parse(&real).map_err(|error| {
            BeneathError::of("follow the link", path, std::io::Error::other(error))
        })
    }

    /// Makes a directory, from the beginning for no more people than it will be for; false when there is one.
    pub fn make_directory(&self, path: &RelPath, mode: u16) -> Result<bool, BeneathError> {
        let failed = |error| BeneathError::of("make the directory", path, error);
        let parent = self.parent(path).map_err(failed)?;
        let mode = Mode::from_raw_mode(u32::from(mode & 0o777 | 0o700));
        match mkdirat(&parent, path.name(), mode) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        match look_at(parent.as_fd(), path.name(), path).map_err(failed)? {
            Some(Entry {
                kind: Kind::Directory,
                ..
            }) => Ok(false),
            Some(other) => Err(BeneathError::NotADirectory {
                shown: path.shown().text,
                kind: other.kind.name(),
            }),
            None => Err(failed(Errno::NOENT)),
        }
    }

    /// How many bytes this user may still write where the tree lies; none when the system does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        let about = fstatvfs(self.handle()).ok()?;
        about.f_bavail.checked_mul(about.f_frsize)
    }
}

/// Opens a regular file beneath a directory. What is no file is not even opened: opening alone can wake a
/// program behind a pipe or move a tape.
fn open_regular(
    directory: BorrowedFd<'_>,
    below: &[u8],
    path: &RelPath,
) -> Result<(File, Entry), BeneathError> {
    let failed = |error| BeneathError::of("open", path, error);
    let refused = |kind: &Kind| BeneathError::NotAFile {
        shown: path.shown().text,
        kind: kind.name(),
    };
    let (parent, name) = match below.iter().rposition(|byte| *byte == b'/') {
        None => (None, below),
        Some(slash) => {
            let (parent, name) = below.split_at(slash);
            let flags = HANDLE | OFlags::DIRECTORY;
            let parent = open_below(directory, parent, flags, Mode::empty()).map_err(failed)?;
            (Some(parent), name.get(1..).unwrap_or_default())
        }
    };
    let parent = parent.as_ref().map_or(directory, AsFd::as_fd);
    match look_at(parent, name, path).map_err(failed)? {
        None => return Err(failed(Errno::NOENT)),
        Some(seen) if !seen.kind.is_file() => return Err(refused(&seen.kind)),
        Some(_) => {}
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = open_below(parent, name, flags, Mode::empty()).map_err(failed)?;
    let found = fstat(&opened).map_err(failed)?;
    let entry = entry_of(path.clone(), kind_of(&found), &found);
    if entry.kind.is_file() {
        Ok((File::from(opened), entry))
    } else {
        Err(refused(&entry.kind))
    }
}

fn open_top() -> Result<OwnedFd, Errno> {
    let flags = HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, c"/", flags, Mode::empty())
}

fn open_root(root: &CleanPath) -> Result<OwnedFd, Errno> {
    let top = open_top()?;
    let flags = HANDLE | OFlags::DIRECTORY;
    open_below(top.as_fd(), below_top(root), flags, Mode::empty())
}

/// The path without its first slash.
fn below_top(path: &CleanPath) -> &[u8] {
    let bytes = path.as_path().as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes)
}

fn shown_root(root: &CleanPath) -> String {
    shown(root.as_path().as_os_str().as_bytes()).text
}
