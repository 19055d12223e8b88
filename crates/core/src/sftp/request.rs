//! What a server is asked for.

use super::VERSION;
use super::attributes::Attributes;
use super::extension::Extension;
use super::packet::{put_counted, put_long_number, put_number};
use super::path::RemotePath;
use super::reply::HandleBytes;

const INIT: u8 = 1;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const WRITE: u8 = 6;
const LSTAT: u8 = 7;
const FSTAT: u8 = 8;
const SETSTAT: u8 = 9;
const FSETSTAT: u8 = 10;
const OPENDIR: u8 = 11;
const READDIR: u8 = 12;
const REMOVE: u8 = 13;
const MKDIR: u8 = 14;
const RMDIR: u8 = 15;
const REALPATH: u8 = 16;
const STAT: u8 = 17;
const RENAME: u8 = 18;
const READLINK: u8 = 19;
const SYMLINK: u8 = 20;
const EXTENDED: u8 = 200;

/// Where the number of a request stands in its packet: behind length and kind.
const ID_AT: std::ops::Range<usize> = 5..9;

/// Kind, number, offset and two counts, without handle and data.
const WRITE_HEAD: usize = 32;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags(u32);

impl OpenFlags {
    /// To read an existing file.
    pub const READ: OpenFlags = OpenFlags(0x01);
    /// To write an existing file, from where one likes.
    pub const WRITE: OpenFlags = OpenFlags(0x02);
    /// To write to the end, wherever that is.
    pub const APPEND: OpenFlags = OpenFlags(0x02 | 0x04);
    /// To write, made if it is not there.
    pub const CREATE: OpenFlags = OpenFlags(0x02 | 0x08);
    /// To write, made or emptied.
    pub const REPLACE: OpenFlags = OpenFlags(0x02 | 0x08 | 0x10);
    /// To write one that must not be there yet.
    pub const NEW: OpenFlags = OpenFlags(0x02 | 0x08 | 0x20);

    /// Both together.
    #[must_use]
    pub const fn and(self, other: OpenFlags) -> Self {
        OpenFlags(self.0 | other.0)
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Opens a file; the attributes are those of a new one.
    Open(&'a RemotePath, OpenFlags, Attributes),
    /// Closes a file or directory.
    Close(&'a HandleBytes),
    /// Reads from an offset up to a length.
    Read(&'a HandleBytes, u64, u32),
    /// Writes at an offset.
    Write(&'a HandleBytes, u64, &'a [u8]),
    /// Attributes of what a path leads to.
    Stat(&'a RemotePath),
    /// Attributes of a path itself, links not followed.
    Lstat(&'a RemotePath),
    /// Attributes of an open file.
    Fstat(&'a HandleBytes),
    /// Sets attributes of what a path leads to.
    Setstat(&'a RemotePath, Attributes),
    /// Sets attributes of an open file.
    Fsetstat(&'a HandleBytes, Attributes),
    /// Opens a directory.
    Opendir(&'a RemotePath),
    /// The next entries of an open directory.
    Readdir(&'a HandleBytes),
    /// Removes a file or link.
    Remove(&'a RemotePath),
    /// Makes a directory.
    Mkdir(&'a RemotePath, Attributes),
    /// Removes an empty directory.
    Rmdir(&'a RemotePath),
    /// The path without links and dots.
    Realpath(&'a RemotePath),
    /// Renames; what exists under the new name stays.
    Rename {
        /// The old name.
        from: &'a RemotePath,
        /// The new name.
        to: &'a RemotePath,
    },
    /// Where a link points.
    Readlink(&'a RemotePath),
    /// Makes a link.
    Symlink {
        /// Where it is.
        link: &'a RemotePath,
        /// Where it points.
        target: &'a RemotePath,
    },
    /// Renames over what exists under the new name, in one step.
    PosixRename {
        /// The old name.
        from: &'a RemotePath,
        /// The new name.
        to: &'a RemotePath,
    },
    /// The space of the file system a path is on.
    Statvfs(&'a RemotePath),
    /// Gives a file a second name.
    Hardlink {
        /// The name it has.
        existing: &'a RemotePath,
        /// The name it gets.
        new: &'a RemotePath,
    },
    /// Has an open file written to disk.
    Fsync(&'a HandleBytes),
    /// Sets attributes of a path itself, links not followed.
    Lsetstat(&'a RemotePath, Attributes),
    /// How much the server takes at once.
    Limits,
    /// Works out a path that begins with `~`.
    ExpandPath(&'a RemotePath),
    /// Copies within the host.
    CopyData {
        /// The file that is read.
        from: &'a HandleBytes,
        /// Where.
        from_offset: u64,
        /// How much; 0 for all that is there.
        length: u64,
        /// The file that is written.
        to: &'a HandleBytes,
        /// Where.
        to_offset: u64,
    },
}

/// A whole packet on its way to a server, its length in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// The first packet of a client.
    pub fn init() -> Self {
        let mut out = started(INIT);
        put_number(&mut out, VERSION);
        finished(out)
    }

    /// Gives a request its number.
    pub fn set_id(&mut self, id: u32) {
        if let Some(place) = self.0.get_mut(ID_AT) {
            place.copy_from_slice(&id.to_be_bytes());
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to keep.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// How a request is told apart on the wire.
enum Kind {
    Plain(u8),
    Beyond(Extension),
}

impl Request<'_> {
    /// Writes the request; its number is set later.
    pub fn encode(&self) -> Frame {
        let mut out = match self.kind() {
            Kind::Plain(kind) => started(kind),
            Kind::Beyond(_) => started(EXTENDED),
        };
        put_number(&mut out, 0);
        if let Kind::Beyond(extension) = self.kind() {
            put_counted(&mut out, extension.name().as_bytes());
        }
        self.write_operands(&mut out);
        finished(out)
    }

    fn kind(&self) -> Kind {
        match self {
            Request::Open(..) => Kind::Plain(OPEN),
            Request::Close(_) => Kind::Plain(CLOSE),
            Request::Read(..) => Kind::Plain(READ),
            Request::Write(..) => Kind::Plain(WRITE),
            Request::Stat(_) => Kind::Plain(STAT),
            Request::Lstat(_) => Kind::Plain(LSTAT),
            Request::Fstat(_) => Kind::Plain(FSTAT),
            Request::Setstat(..) => Kind::Plain(SETSTAT),
            Request::Fsetstat(..) => Kind::Plain(FSETSTAT),
            Request::Opendir(_) => Kind::Plain(OPENDIR),
            Request::Readdir(_) => Kind::Plain(READDIR),
            Request::Remove(_) => Kind::Plain(REMOVE),
            Request::Mkdir(..) => Kind::Plain(MKDIR),
            Request::Rmdir(_) => Kind::Plain(RMDIR),
            Request::Realpath(_) => Kind::Plain(REALPATH),
            Request::Rename { .. } => Kind::Plain(RENAME),
            Request::Readlink(_) => Kind::Plain(READLINK),
            Request::Symlink { .. } => Kind::Plain(SYMLINK),
            Request::PosixRename { .. } => Kind::Beyond(Extension::PosixRename),
            Request::Statvfs(_) => Kind::Beyond(Extension::Statvfs),
            Request::Hardlink { .. } => Kind::Beyond(Extension::Hardlink),
            Request::Fsync(_) => Kind::Beyond(Extension::Fsync),
            Request::Lsetstat(..) => Kind::Beyond(Extension::Lsetstat),
            Request::Limits => Kind::Beyond(Extension::Limits),
            Request::ExpandPath(_) => Kind::Beyond(Extension::ExpandPath),
            Request::CopyData { .. } => Kind::Beyond(Extension::CopyData),
        }
    }

    fn write_operands(&self, out: &mut Vec<u8>) {
        match *self {
            Request::Limits => {}
            Request::Stat(path)
            | Request::Lstat(path)
            | Request::Opendir(path)
            | Request::Remove(path)
            | Request::Rmdir(path)
            | Request::Realpath(path)
            | Request::Readlink(path)
            | Request::Statvfs(path)
            | Request::ExpandPath(path) => put_counted(out, path.as_bytes()),
            Request::Close(handle)
            | Request::Fstat(handle)
            | Request::Readdir(handle)
            | Request::Fsync(handle) => put_counted(out, handle.as_bytes()),
            Request::Setstat(path, attributes)
            | Request::Lsetstat(path, attributes)
            | Request::Mkdir(path, attributes) => {
                put_counted(out, path.as_bytes());
                attributes.write(out);
            }
            Request::Fsetstat(handle, attributes) => {
                put_counted(out, handle.as_bytes());
                attributes.write(out);
            }
            Request::Open(path, flags, attributes) => {
                put_counted(out, path.as_bytes());
                put_number(out, flags.0);
                attributes.write(out);
            }
            Request::Read(handle, offset, length) => {
                put_counted(out, handle.as_bytes());
                put_long_number(out, offset);
                put_number(out, length);
            }
            Request::Write(handle, offset, data) => {
                out.reserve(WRITE_HEAD + handle.as_bytes().len() + data.len());
                put_counted(out, handle.as_bytes());
                put_long_number(out, offset);
                put_counted(out, data);
            }
            Request::CopyData {
                from,
                from_offset,
                length,
                to,
                to_offset,
            } => {
                put_counted(out, from.as_bytes());
                put_long_number(out, from_offset);
                put_long_number(out, length);
                put_counted(out, to.as_bytes());
                put_long_number(out, to_offset);
            }
            Request::Rename { from, to } | Request::PosixRename { from, to } => {
                put_pair(out, from, to);
            }
            Request::Hardlink { existing, new } => put_pair(out, existing, new),
            // OpenSSH has the two the other way round than the protocol says, and all followed it.
            Request::Symlink { link, target } => put_pair(out, target, link),
        }
    }
}

fn put_pair(out: &mut Vec<u8>, first: &RemotePath, second: &RemotePath) {
    put_counted(out, first.as_bytes());
    put_counted(out, second.as_bytes());
}

fn started(kind: u8) -> Vec<u8> {
    // The length is known at the end.
    vec![0, 0, 0, 0, kind]
}

fn finished(mut out: Vec<u8>) -> Frame {
    let length = out.len().saturating_sub(4) as u32;
    if let Some(header) = out.first_chunk_mut::<4>() {
        *header = length.to_be_bytes();
    }
    Frame(out)
}
