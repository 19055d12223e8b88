//! Permissions and times of what is there already.

use std::os::fd::{AsFd, BorrowedFd};

use remote_sandbox_core::sync::entry::CARRIED_MODE;
use remote_sandbox_core::sync::{Kind, Mtime, RelPath};
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, utimensat};
use rustix::io::Errno;

use super::BeneathError;
use super::open::open_below;
use super::stat::{look_at, times};
use super::tree::Tree;

impl Tree {
    /// Sets the permissions or the time of a file or directory; only the time of a link can be set.
    pub fn set_attributes(
        &self,
        path: &RelPath,
        mode: Option<u16>,
        mtime: Option<Mtime>,
    ) -> Result<(), BeneathError> {
        let failed = |error| BeneathError::of("set the attributes of", path, error);
        let parent = self.parent(path).map_err(failed)?;
        let (parent, name) = (parent.as_fd(), path.name());
        let found = look_at(parent, name, path).map_err(failed)?;
        let found = found.ok_or_else(|| failed(Errno::NOENT))?;
        if let Kind::Special(special) = found.kind {
            return Err(BeneathError::NotAFile {
                shown: path.shown().text,
                kind: special.name(),
            });
        }
        if let Some(mode) = mode {
            let mode = Mode::from_raw_mode((mode & CARRIED_MODE).into());
            set_mode(parent, name, &found.kind, mode).map_err(failed)?;
        }
        if let Some(mtime) = mtime {
            let link_itself = AtFlags::SYMLINK_NOFOLLOW;
            utimensat(parent, name, &times(mtime), link_itself).map_err(failed)?;
        }
        Ok(())
    }
}

fn set_mode(parent: BorrowedFd<'_>, name: &[u8], kind: &Kind, mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = match kind {
        Kind::Link { .. } => return Err(Errno::LOOP),
        Kind::Directory => flags | OFlags::DIRECTORY,
        Kind::File | Kind::Special(_) => flags,
    };
    match open_below(parent, name, flags, Mode::empty()) {
        // What its owner cannot read has permissions all the same.
        Err(Errno::ACCESS) => set_mode_unread(parent, name, mode),
        opened => fchmod(opened?, mode),
    }
}

/// Through a handle that needs no permission to read, which the kernel shows under a name of its own.
#[cfg(target_os = "linux")]
fn set_mode_unread(parent: BorrowedFd<'_>, name: &[u8], mode: Mode) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let handle = open_below(parent, name, OFlags::PATH, Mode::empty())?;
    let shown = format!("/proc/self/fd/{}", handle.as_raw_fd());
    // A link can be held by such a handle, too; setting the permissions of one is refused by the kernel.
    rustix::fs::chmodat(rustix::fs::CWD, shown.as_str(), mode, AtFlags::empty())
}

#[cfg(not(target_os = "linux"))]
fn set_mode_unread(parent: BorrowedFd<'_>, name: &[u8], mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmodat(parent, name, mode, AtFlags::SYMLINK_NOFOLLOW)
}
