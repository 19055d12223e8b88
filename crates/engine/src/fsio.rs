//! The one door to files that this program writes: private from the first instant, whole or not at all.
#![expect(
    clippy::disallowed_methods,
    reason = "this module is the door to written files"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock;

/// The pause between two attempts to take a lock.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// A file operation that failed, with the file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct FileError {
    /// What was attempted.
    pub action: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// Why it did not work.
    #[source]
    pub source: io::Error,
}

trait Named<T> {
    fn named(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> Named<T> for io::Result<T> {
    fn named(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// Makes a directory, and those above it, that only this user can enter.
pub fn private_directory(path: &Path) -> Result<(), FileError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .named("make", path)?;
    let found = std::fs::metadata(path).named("look at", path)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let reason = io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        );
        return Err(reason).named("use", path);
    }
    Ok(())
}

/// Makes a directory in one that is there; that it is there already is as good.
pub fn private_subdirectory(path: &Path) -> Result<(), FileError> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.named("make", path),
    }
}

/// Makes a directory that only this user can enter, also where it was there before and was wider; a
/// link in its place is refused.
pub fn sealed_directory(path: &Path) -> Result<(), FileError> {
    private_directory(path)?;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::DIRECTORY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .named("enter", path)?;
    if folder.metadata().named("look at", path)?.mode() & 0o077 != 0 {
        let only_mine = std::fs::Permissions::from_mode(0o700);
        folder.set_permissions(only_mine).named("close", path)?;
    }
    Ok(())
}

/// Makes a directory that was not there before and that only this user can enter.
pub fn fresh_directory(parent: &Path, prefix: &str) -> Result<PathBuf, FileError> {
    let number = uuid::Uuid::now_v7().simple().to_string();
    // The end is the part that is drawn by lot.
    let lot = number.get(20..).unwrap_or(&number);
    let path = parent.join(format!("{prefix}{lot}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
    made.named("make", &path)?;
    Ok(path)
}

/// Opens a file for appending and reading, making it readable by this user only.
pub fn append_private(path: &Path) -> Result<File, FileError> {
    open_regular(
        OpenOptions::new()
            .append(true)
            .read(true)
            .create(true)
            .mode(0o600),
        "open for appending",
        path,
    )
}

/// Opens or makes a file for reading and writing, readable by this user only.
pub fn read_write_private(path: &Path) -> Result<File, FileError> {
    open_regular(
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600),
        "open",
        path,
    )
}

/// Refuses links and special files: what we write to is a plain file that we made.
fn open_regular(
    options: &mut OpenOptions,
    action: &'static str,
    path: &Path,
) -> Result<File, FileError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = options.custom_flags(flags).open(path).named(action, path)?;
    if file.metadata().named(action, path)?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file")).named(action, path)
    }
}

/// Replaces a file: a reader sees the old content or the new, never a part.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let temporary = temporary_beside(path);
    let written = write_new(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.named("write", path)
}

/// Makes a file with its whole content; false when there is one already, also when another process was
/// first by a moment.
pub fn create_atomically(path: &Path, content: &[u8]) -> Result<bool, FileError> {
    let temporary = temporary_beside(path);
    // A link is refused where something is, which a rename is not.
    let made = write_new(&temporary, content).and_then(|()| std::fs::hard_link(&temporary, path));
    let _ = std::fs::remove_file(&temporary);
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).named("write", path),
    }
}

/// A file of ours that is written piece by piece and gets its name when it is whole; dropped before, it is gone.
#[derive(Debug)]
pub struct NewPrivateFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl NewPrivateFile {
    /// Begins one.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let temporary = temporary_beside(path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .named("write", path)?;
        Ok(NewPrivateFile {
            file,
            temporary,
            path: path.to_owned(),
            is_finished: false,
        })
    }

    /// Writes on.
    pub fn write(&mut self, content: &[u8]) -> Result<(), FileError> {
        self.file.write_all(content).named("write", &self.path)
    }

    /// Gives it its name. It is not waited until it is on the disk: these are files that can be done without.
    pub fn finish(mut self) -> Result<(), FileError> {
        let renamed = std::fs::rename(&self.temporary, &self.path);
        self.is_finished = renamed.is_ok();
        renamed.named("write", &self.path)
    }
}

impl Drop for NewPrivateFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Makes a program that only this user can run, from the rest of an open file; under its name it is whole or not there.
pub fn write_program(path: &Path, content: &mut File) -> Result<(), FileError> {
    let temporary = temporary_beside(path);
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&temporary);
    let written = opened
        .and_then(|mut file| {
            io::copy(content, &mut file)?;
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.named("write", path)
}

/// Whether a path names a link, wherever that leads.
pub fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// A file in a folder of ours that has no name and is gone with the last that has it open.
pub fn nameless_file(folder: &Path) -> Result<File, FileError> {
    private_directory(folder)?;
    let path = temporary_beside(&folder.join("spool"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .named("write", &path)?;
    std::fs::remove_file(&path).named("remove", &path)?;
    Ok(file)
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", uuid::Uuid::now_v7().simple()));
    PathBuf::from(temporary)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Renames a file of ours.
pub fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).named("rename", from)
}

/// Removes a directory of ours with what is in it.
pub fn remove_directory(path: &Path) -> Result<(), FileError> {
    std::fs::remove_dir_all(path).named("remove", path)
}

/// Gives this user back the right to enter and change directories of ours, links not followed, so that
/// they can be removed. What cannot be changed is left as it is.
pub fn open_up_directories(root: &Path) {
    let only_mine = || std::fs::Permissions::from_mode(0o700);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let is_open = |found: &std::fs::Metadata| found.mode() & 0o700 == 0o700;
        let found = std::fs::symlink_metadata(&folder);
        if found.is_ok_and(|found| found.is_dir() && !is_open(&found)) {
            let _ = std::fs::set_permissions(&folder, only_mine());
        }
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_folder =
            |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        folders.extend(entries.filter(is_folder).map(|entry| entry.path()));
    }
}

/// Takes the lock of a file, waiting a limited time for whoever holds it.
pub fn lock_within(file: &File, limit: Duration) -> io::Result<()> {
    let end = clock::instant() + limit;
    while !try_lock(file) {
        if clock::instant() >= end {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "another process keeps it locked",
            ));
        }
        std::thread::sleep(LOCK_POLL);
    }
    Ok(())
}

/// Whether an open file is the one that a path names.
pub fn is_still_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), std::fs::symlink_metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// Whether a plain file was last written before this moment; not when it cannot be looked at.
pub fn is_older_than(path: &Path, moment: Duration) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| {
        let written = u64::try_from(found.mtime()).unwrap_or(0);
        found.is_file() && Duration::from_secs(written) < moment
    })
}

/// Makes a file look as if it had been written now; that there is none is as good.
pub fn touch(path: &Path) -> Result<(), FileError> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        touched => touched.map_err(io::Error::from).named("touch", path),
    }
}

/// Takes the lock of a file if nobody holds it.
pub fn try_lock(file: &File) -> bool {
    rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Reads a file of bounded size without hanging on a pipe or device; `None` when there is none.
pub fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).named("read", path),
    };
    let found = file.metadata().named("read", path)?;
    let kind = found.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() {
            "it is a directory"
        } else if kind.is_fifo() {
            "it is a pipe"
        } else {
            "it is not a regular file"
        };
        return Err(io::Error::other(what)).named("read", path);
    }
    let mut content = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut content)
        .named("read", path)?;
    if content.len() as u64 > limit {
        let reason = format!("it is larger than {limit} bytes");
        return Err(io::Error::other(reason)).named("read", path);
    }
    Ok(Some(content))
}

/// Opens a file that nobody but this user may read, never through a link; `None` when there is none.
pub fn open_sealed(path: &Path) -> Result<Option<File>, FileError> {
    let opened = open_regular(OpenOptions::new().read(true), "read", path);
    let file = match opened {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata().named("read", path)?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        let reason = "others may use it too; it should be yours alone (chmod 600)";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)).named("trust", path);
    }
    Ok(Some(file))
}

/// Reads a file that nobody but this user may read, never through a link; `None` when there is none.
pub fn read_sealed(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let Some(file) = open_sealed(path)? else {
        return Ok(None);
    };
    let mut content = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)
        .named("read", path)?;
    if content.len() as u64 > limit {
        let reason = format!("it is larger than {limit} bytes");
        return Err(io::Error::other(reason)).named("read", path);
    }
    Ok(Some(content))
}

/// Removes a file of ours; that there is none is as good.
pub fn remove_file(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.named("remove", path),
    }
}

/// How many bytes the files of a folder have, those of its folders not counted.
pub fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|found| found.len())
        .sum()
}

/// How many bytes a file has; none when it cannot be looked at.
pub fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Opens the device that gives nothing and takes everything.
pub fn open_nothing() -> Result<File, FileError> {
    let path = Path::new("/dev/null");
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.named("open", path)
}

/// Opens a file of the kernel's that takes settings; it is there already.
pub fn open_setting(path: &Path) -> Result<std::os::fd::OwnedFd, FileError> {
    let opened = OpenOptions::new().write(true).open(path);
    opened.map(Into::into).named("open", path)
}

/// Writes one setting to a file of the kernel's.
pub fn write_setting(path: &Path, value: &str) -> Result<(), FileError> {
    let mut file = OpenOptions::new()
        .write(true)
        .open(path)
        .named("open", path)?;
    file.write_all(value.as_bytes()).named("write", path)
}

/// Removes a directory in which nothing is; that there is none is as good.
pub fn remove_empty_directory(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.named("remove", path),
    }
}

/// Who may use a file.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// Its access bits.
    pub mode: u32,
    /// Whether it belongs to this user.
    pub mine: bool,
    /// Whether it belongs to root.
    pub of_root: bool,
}

/// Looks up who may use a file.
pub fn mode_and_ownership(path: &Path) -> Result<Access, FileError> {
    let found = std::fs::metadata(path).named("look at", path)?;
    Ok(Access {
        mode: found.mode() & 0o7777,
        mine: found.uid() == rustix::process::geteuid().as_raw(),
        of_root: found.uid() == 0,
    })
}

#[cfg(test)]
#[path = "fsio_tests.rs"]
mod tests;
