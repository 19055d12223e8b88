//! From what the system says of a file to an entry.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use remote_sandbox_core::sync::{Entry, Identity, Kind, LinkEnd, Mtime, RelPath, Special, Stamp};
use rustix::fs::{AtFlags, FileType, Stat, Timespec, Timestamps, UTIME_OMIT, readlinkat, statat};
use rustix::io::Errno;

/// The kind of what was found; a link's target is not known from this alone.
pub(super) fn kind_of(found: &Stat) -> Kind {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link {
            target: Box::default(),
            end: LinkEnd::Unknown,
        },
        FileType::Fifo => Kind::Special(Special::Fifo),
        FileType::Socket => Kind::Special(Special::Socket),
        FileType::BlockDevice => Kind::Special(Special::BlockDevice),
        FileType::CharacterDevice => Kind::Special(Special::CharacterDevice),
        _ => Kind::Special(Special::Unknown),
    }
}

/// Which object it is.
#[allow(
    clippy::unnecessary_cast,
    reason = "the widths of these fields differ between systems"
)]
pub(super) fn identity_of(found: &Stat) -> Identity {
    Identity {
        device: found.st_dev as u64,
        inode: found.st_ino as u64,
        links: u32::try_from(found.st_nlink as u64).unwrap_or(u32::MAX),
    }
}

/// The entry for what was found at a path.
#[allow(
    clippy::unnecessary_cast,
    reason = "the widths of these fields differ between systems"
)]
pub(super) fn entry_of(path: RelPath, kind: Kind, found: &Stat) -> Entry {
    let seconds = found.st_mtime as i64;
    let nanoseconds = u32::try_from(found.st_mtime_nsec as i64).unwrap_or_default();
    Entry {
        path,
        kind,
        size_bytes: u64::try_from(found.st_size as i64).unwrap_or_default(),
        mtime: Mtime::exact(seconds, nanoseconds).unwrap_or(Mtime::whole(seconds)),
        mode: (found.st_mode & 0o7777) as u16,
        identity: Some(identity_of(found)),
    }
}

/// By what an open file is recognised as unchanged.
#[allow(
    clippy::unnecessary_cast,
    reason = "the widths of these fields differ between systems"
)]
pub fn stamp_of(file: &std::fs::File) -> Result<Stamp, std::io::Error> {
    let found = rustix::fs::fstat(file)?;
    let seconds = found.st_mtime as i64;
    let nanoseconds = u32::try_from(found.st_mtime_nsec as i64).unwrap_or_default();
    Ok(Stamp {
        size_bytes: u64::try_from(found.st_size as i64).unwrap_or_default(),
        mtime: Mtime::exact(seconds, nanoseconds).unwrap_or(Mtime::whole(seconds)),
    })
}

/// Looks at a name in an open directory, without following it if it is a link; none when it is not there.
pub(super) fn look_at(
    directory: BorrowedFd<'_>,
    name: &[u8],
    path: &RelPath,
) -> Result<Option<Entry>, Errno> {
    let found = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let kind = match kind_of(&found) {
        Kind::Link { .. } => match readlinkat(directory, name, Vec::new()) {
            // It was replaced between the two looks.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            target => Kind::Link {
                target: target?.into_bytes().into(),
                end: end_of(directory, name),
            },
        },
        kind => kind,
    };
    Ok(Some(entry_of(path.clone(), kind, &found)))
}

/// Where a link leads. Only asked, never opened.
fn end_of(directory: BorrowedFd<'_>, name: &[u8]) -> LinkEnd {
    match statat(directory, name, AtFlags::empty()) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            LinkEnd::Directory
        }
        Ok(_) => LinkEnd::Other,
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NAMETOOLONG) => LinkEnd::Nothing,
        Err(_) => LinkEnd::Unknown,
    }
}

/// Whether what is there now is what was seen before. A directory changes with its content, so only the
/// object itself counts.
pub(super) fn is_same(seen: &Entry, now: &Entry) -> bool {
    let object = |entry: &Entry| {
        entry
            .identity
            .map(|identity| (identity.device, identity.inode))
    };
    let is_same_object = match (object(seen), object(now)) {
        (Some(seen), Some(now)) => seen == now,
        _ => true,
    };
    let is_same_content = match (&seen.kind, &now.kind) {
        (Kind::File, Kind::File) => {
            seen.size_bytes == now.size_bytes && seen.mtime.agrees(now.mtime)
        }
        (Kind::Link { target: one, .. }, Kind::Link { target: other, .. }) => one == other,
        (Kind::Directory, Kind::Directory) => true,
        (Kind::Special(one), Kind::Special(other)) => one == other,
        _ => false,
    };
    is_same_object && is_same_content
}

/// How many seconds ago anything about it was changed, its name and permissions included.
#[allow(
    clippy::unnecessary_cast,
    reason = "the widths of these fields differ between systems"
)]
pub(super) fn seconds_since_change(found: &Stat, now: Duration) -> u64 {
    let changed = u64::try_from(found.st_ctime as i64).unwrap_or_default();
    now.as_secs().saturating_sub(changed)
}

/// The times that set only when something was last changed.
#[allow(
    clippy::useless_conversion,
    reason = "the widths of these fields differ between systems"
)]
pub(super) fn times(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime.seconds.into(),
            tv_nsec: mtime.nanoseconds().unwrap_or_default().into(),
        },
    }
}
