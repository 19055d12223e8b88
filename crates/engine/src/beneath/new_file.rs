//! A file that is being written under a temporary name.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::entry::CARRIED_MODE;
use remote_sandbox_core::sync::temporary::{is_temporary, temporary_name};
use remote_sandbox_core::sync::{Entry, Kind, Mtime, RelPath};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fchmod, futimens, renameat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::BeneathError;
use super::open::{HANDLE, open_below};
use super::stat::{is_same, look_at, times};
use super::tree::Tree;

/// From this size on it is asked first whether there is room.
const LARGE: u64 = 8 * 1024 * 1024;

const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// A file under a temporary name; it is removed again unless it is committed or kept.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    place: Place,
}

/// A temporary name in an open directory, and the name that it shall get.
#[derive(Debug)]
struct Place {
    directory: Arc<OwnedFd>,
    temporary: String,
    path: RelPath,
    is_taken: bool,
    /// Whether another machine keeps the file.
    is_kept_elsewhere: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_taken {
            let _ = unlinkat(&self.directory, self.temporary.as_str(), AtFlags::empty());
        }
    }
}

/// A complete file that waits for its name and holds nothing open; it is removed again unless it is committed.
#[derive(Debug)]
pub struct ParkedFile {
    tree: Tree,
    temporary: String,
    path: RelPath,
    is_taken: bool,
}

/// The directory that was used last; files come directory by directory.
#[derive(Debug, Default)]
pub struct LastDirectory(Option<(Option<RelPath>, Arc<OwnedFd>)>);

impl LastDirectory {
    fn of(&mut self, tree: &Tree, path: &RelPath) -> Result<Arc<OwnedFd>, Errno> {
        let parent = path.parent();
        let (held, handle) = match self.0.take() {
            Some((held, handle)) if held == parent => (held, handle),
            _ => {
                let handle = tree.directory(parent.as_ref(), HANDLE)?;
                (parent, Arc::new(handle))
            }
        };
        Ok(self.0.insert((held, handle)).1.clone())
    }
}

impl ParkedFile {
    /// Where the file lies until it gets its name.
    pub fn place(&self) -> Option<RelPath> {
        match self.path.parent() {
            Some(parent) => parent.join(self.temporary.as_bytes()).ok(),
            None => RelPath::parse(self.temporary.as_bytes()).ok(),
        }
    }

    /// Gives the file its name, if what it replaces is still what the scan saw.
    pub fn commit(
        mut self,
        replaces: Option<&Entry>,
        last: &mut LastDirectory,
    ) -> Result<(), BeneathError> {
        let directory = last.of(&self.tree, &self.path);
        let directory = directory.map_err(|error| BeneathError::of("write", &self.path, error))?;
        settle(directory.as_fd(), &self.temporary, &self.path, replaces)?;
        self.is_taken = false;
        Ok(())
    }
}

impl Drop for ParkedFile {
    fn drop(&mut self) {
        if self.is_taken
            && let Ok(parent) = self.tree.parent(&self.path)
        {
            let _ = unlinkat(&parent, self.temporary.as_str(), AtFlags::empty());
        }
    }
}

impl Tree {
    /// Begins a file beside the place it shall get; `size_bytes` is what is expected of it.
    pub fn begin_file(
        &self,
        path: &RelPath,
        transfer: &RunToken,
        number: u64,
        size_bytes: u64,
    ) -> Result<NewFile, BeneathError> {
        let mut none = LastDirectory::default();
        self.begin_file_in(&mut none, path, transfer, number, size_bytes)
    }

    /// The same for one of many files.
    pub fn begin_file_in(
        &self,
        last: &mut LastDirectory,
        path: &RelPath,
        transfer: &RunToken,
        number: u64,
        size_bytes: u64,
    ) -> Result<NewFile, BeneathError> {
        if size_bytes >= LARGE && self.free_bytes().is_some_and(|free| free < size_bytes) {
            return Err(BeneathError::of("write", path, Errno::NOSPC));
        }
        let mut place = self.place(last, path, temporary_name(transfer, number))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let name = place.temporary.as_bytes();
        let open = || open_below(place.directory.as_fd(), name, flags, PRIVATE);
        let file = match open() {
            // What is left of this very transfer, which was killed, is nobody else's.
            Err(Errno::EXIST) => {
                let _ = unlinkat(&place.directory, name, AtFlags::empty());
                open()
            }
            opened => opened,
        };
        let file = file.map_err(|error| BeneathError::of("write", path, error))?;
        place.is_taken = true;
        Ok(NewFile {
            file: File::from(file),
            place,
        })
    }

    /// Begins or continues a file under a temporary name that is the same every time; what it holds stays.
    pub fn begin_resumable(&self, path: &RelPath, name: &str) -> Result<NewFile, BeneathError> {
        if !is_temporary(name.as_bytes()) {
            return Err(BeneathError::NotTemporary {
                name: name.to_owned(),
            });
        }
        let failed = |error| BeneathError::of("write", path, error);
        let mut place = self.place(&mut LastDirectory::default(), path, name.to_owned())?;
        let found = look_at(place.directory.as_fd(), name.as_bytes(), path).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = match found {
            None => flags | OFlags::EXCL,
            Some(found) if found.kind.is_file() => flags,
            Some(found) => {
                return Err(BeneathError::NotAFile {
                    shown: path.shown().text,
                    kind: found.kind.name(),
                });
            }
        };
        let file = open_below(place.directory.as_fd(), name.as_bytes(), flags, PRIVATE);
        let file = File::from(file.map_err(failed)?);
        let about = file
            .metadata()
            .map_err(|error| BeneathError::of("look at", path, error))?;
        // A second name or another owner: somebody else put it there, to have something overwritten or to read along.
        let is_ours = about.uid() == rustix::process::geteuid().as_raw() && about.nlink() == 1;
        if !about.is_file() || !is_ours {
            return Err(BeneathError::Changed {
                shown: path.shown().text,
            });
        }
        place.is_taken = true;
        Ok(NewFile { file, place })
    }

    /// Makes a link that says `target`, byte for byte, in one step.
    pub fn make_link(
        &self,
        path: &RelPath,
        target: &[u8],
        transfer: &RunToken,
        number: u64,
        replaces: Option<&Entry>,
    ) -> Result<(), BeneathError> {
        let mut none = LastDirectory::default();
        let mut place = self.place(&mut none, path, temporary_name(transfer, number))?;
        symlinkat(target, &place.directory, place.temporary.as_str())
            .map_err(|error| BeneathError::of("make the link", path, error))?;
        place.is_taken = true;
        place.settle(replaces)
    }

    /// Closes a complete file of this tree; it gets its name later.
    pub fn park(&self, file: NewFile, mode: u16, mtime: Mtime) -> Result<ParkedFile, BeneathError> {
        let mut place = file.close(mode, mtime)?;
        place.is_taken = false;
        Ok(ParkedFile {
            tree: self.clone(),
            temporary: std::mem::take(&mut place.temporary),
            path: place.path.clone(),
            is_taken: true,
        })
    }

    /// What is at the path of one of many files.
    pub fn look_in(
        &self,
        last: &mut LastDirectory,
        path: &RelPath,
    ) -> Result<Option<Entry>, BeneathError> {
        let failed = |error: Errno| BeneathError::of("look at", path, error);
        let directory = last.of(self, path).map_err(failed)?;
        look_at(directory.as_fd(), path.name(), path).map_err(failed)
    }

    fn place(
        &self,
        last: &mut LastDirectory,
        path: &RelPath,
        temporary: String,
    ) -> Result<Place, BeneathError> {
        let failed = |error: Errno| BeneathError::of("write", path, error);
        let directory = last.of(self, path).map_err(failed)?;
        Ok(Place {
            directory,
            temporary,
            path: path.clone(),
            is_taken: false,
            is_kept_elsewhere: self.is_kept_elsewhere(),
        })
    }
}

impl Place {
    /// Gives it its name, if what is there now is what was seen before.
    fn settle(mut self, replaces: Option<&Entry>) -> Result<(), BeneathError> {
        settle(
            self.directory.as_fd(),
            &self.temporary,
            &self.path,
            replaces,
        )?;
        self.is_taken = false;
        Ok(())
    }
}

/// Gives what lies under a temporary name its own, if what is there now is what was seen before.
fn settle(
    directory: BorrowedFd<'_>,
    temporary: &str,
    path: &RelPath,
    replaces: Option<&Entry>,
) -> Result<(), BeneathError> {
    let failed = |error| BeneathError::of("write", path, error);
    let changed = || BeneathError::Changed {
        shown: path.shown().text,
    };
    let found = look_at(directory, path.name(), path).map_err(failed)?;
    let renamed = match (&found, replaces) {
        // What is gone already needs no replacing, but nothing may have come instead.
        (None, _) => rename_to_free_name(directory, temporary, path.name()),
        (Some(_), None) => return Err(changed()),
        (Some(now), Some(seen)) if !is_same(seen, now) => return Err(changed()),
        (Some(now), Some(_)) => match now.kind {
            Kind::File | Kind::Link { .. } => {
                renameat(directory, temporary, directory, path.name())
            }
            Kind::Directory | Kind::Special(_) => {
                return Err(BeneathError::NotAFile {
                    shown: path.shown().text,
                    kind: now.kind.name(),
                });
            }
        },
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::EXIST | Errno::ISDIR) => Err(changed()),
        Err(error) => Err(failed(error)),
    }
}

fn rename_to_free_name(directory: BorrowedFd<'_>, from: &str, to: &[u8]) -> Result<(), Errno> {
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // Some file systems and kernels do not know the flag; the look just before has to do.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM) => {
            renameat(directory, from, directory, to)
        }
        renamed => renamed,
    }
}

impl NewFile {
    /// Where the file shall lie.
    pub fn path(&self) -> &RelPath {
        &self.place.path
    }

    /// The file itself, for reading back what it holds.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes at a place in the file.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), BeneathError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| self.failed(error))
    }

    /// Writes at the end of what was written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BeneathError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| self.failed(error))
    }

    /// Makes the file so long, and no longer.
    pub fn set_length(&self, size_bytes: u64) -> Result<(), BeneathError> {
        self.file
            .set_len(size_bytes)
            .map_err(|error| self.failed(error))
    }

    /// Waits until the content is on the disk.
    pub fn sync(&self) -> Result<(), BeneathError> {
        self.file.sync_all().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> BeneathError {
        BeneathError::of("write", &self.place.path, error)
    }

    /// Leaves the temporary file for a later attempt instead of removing it.
    pub fn keep(&mut self) {
        self.place.is_taken = false;
    }

    /// Removes the temporary file after all, when this goes.
    pub fn discard(&mut self) {
        self.place.is_taken = true;
    }

    /// Gives the file its permissions, its time and its name, if what it replaces is still what the scan saw.
    pub fn commit(
        self,
        mode: u16,
        mtime: Mtime,
        replaces: Option<&Entry>,
    ) -> Result<(), BeneathError> {
        self.close(mode, mtime)?.settle(replaces)
    }

    /// Gives the file its permissions and its time and closes it. What a server keeps back is written before that:
    /// it may say only then that there is no room, and nobody hears what a close says.
    fn close(self, mode: u16, mtime: Mtime) -> Result<Place, BeneathError> {
        let closed = self.dress(mode, mtime);
        closed.map_err(|error| self.failed(error.into()))?;
        if self.place.is_kept_elsewhere {
            self.sync()?;
        }
        Ok(self.place)
    }

    fn dress(&self, mode: u16, mtime: Mtime) -> Result<(), Errno> {
        fchmod(
            &self.file,
            Mode::from_raw_mode((mode & CARRIED_MODE).into()),
        )?;
        futimens(&self.file, &times(mtime))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
