//! Opens a path beneath a directory, never through a link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

/// How a directory is held only to be a starting point; it need not be readable for that.
#[cfg(target_os = "linux")]
pub(super) const HANDLE: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
pub(super) const HANDLE: OFlags = OFlags::RDONLY;

/// No system call takes a path of this length or more.
const PATH_MAX: usize = 4096;

/// How often a directory that is moved meanwhile is tried again.
#[cfg(target_os = "linux")]
const MOST_TRIES: u32 = 16;

/// Opens `path` beneath the directory; `ELOOP` when a link lies on the way or at the end.
///
/// The path has no `..` and does not begin with a slash, as a `RelPath` does; an empty one is the directory itself.
pub(super) fn open_below(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.is_empty() {
        return openat(directory, c".", flags, mode);
    }
    if path.len() < PATH_MAX
        && let Some(opened) = open_in_one(directory, path, flags, mode)
    {
        return opened;
    }
    open_by_steps(directory, path, flags, mode)
}

/// One call for the whole path; none where the kernel does not have it.
#[cfg(target_os = "linux")]
fn open_in_one(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Option<Result<OwnedFd, Errno>> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..MOST_TRIES {
        match openat2(directory, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Some walls answer EPERM to calls they do not know; going by steps is as safe. And where a
            // directory is wanted, only the steps tell a link in its place from a file.
            Err(Errno::NOSYS | Errno::PERM | Errno::NOTDIR) => return None,
            opened => return Some(opened),
        }
    }
    None
}

#[cfg(not(target_os = "linux"))]
fn open_in_one(
    _directory: BorrowedFd<'_>,
    _path: &[u8],
    _flags: OFlags,
    _mode: Mode,
) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// Name by name, each of them opened only if it is no link.
pub(super) fn open_by_steps(
    directory: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let mut names = path.split(|byte| *byte == b'/').peekable();
    let mut above: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let here = above.as_ref().map_or(directory, AsFd::as_fd);
        let is_last = names.peek().is_none();
        let flags = if is_last {
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC
        } else {
            HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
        };
        let opened = openat(here, name, flags, mode).map_err(|error| told(here, name, error))?;
        // A handle to a link can be opened as such, and is then no file.
        if is_last && flags.contains(HANDLE) && is_link(here, name) {
            return Err(Errno::LOOP);
        }
        above = Some(opened);
    }
    above.ok_or(Errno::NOENT)
}

/// A link in the place of a directory is told as one, as the single call does.
fn told(directory: BorrowedFd<'_>, name: &[u8], error: Errno) -> Errno {
    // FreeBSD and macOS have other words for a link that is not followed.
    let may_be_link = matches!(error, Errno::NOTDIR | Errno::MLINK);
    if may_be_link && is_link(directory, name) {
        Errno::LOOP
    } else {
        error
    }
}

fn is_link(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}
