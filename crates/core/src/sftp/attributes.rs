//! What a server says about a file, or is told to make of it.

use super::packet::{Input, PacketError, put_long_number, put_number};

const SIZE: u32 = 0x0000_0001;
const OWNER: u32 = 0x0000_0002;
const PERMISSIONS: u32 = 0x0000_0004;
const TIMES: u32 = 0x0000_0008;
const EXTENDED: u32 = 0x8000_0000;

/// The bits of the mode that say what kind of file it is.
const KIND_MASK: u32 = 0o170_000;

/// The attributes of a file; what is `None` was not said, or is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// The size in bytes.
    pub size_bytes: Option<u64>,
    /// Whose it is.
    pub owner: Option<Owner>,
    /// The mode as `stat` gives it: permissions and, in replies, the kind of file.
    pub mode: Option<u32>,
    /// When it was read and changed.
    pub times: Option<Times>,
}

/// The numbers of a user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

/// Seconds since 1970; the protocol has nothing finer and ends in 2106.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When it was last read.
    pub accessed_s: u32,
    /// When its content last changed.
    pub modified_s: u32,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device, which is never opened.
    Special,
}

impl Attributes {
    /// Only the permissions.
    pub fn permissions(mode: u32) -> Self {
        Attributes {
            mode: Some(mode),
            ..Attributes::default()
        }
    }

    /// Only the times.
    pub fn at(times: Times) -> Self {
        Attributes {
            times: Some(times),
            ..Attributes::default()
        }
    }

    /// What kind of file it is, where the server said so.
    pub fn kind(&self) -> Option<FileKind> {
        Some(match self.mode? & KIND_MASK {
            0 => return None,
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Link,
            _ => FileKind::Special,
        })
    }

    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, PacketError> {
        let flags = input.number()?;
        let given = |flag: u32| flags & flag != 0;
        let mut attributes = Attributes::default();
        if given(SIZE) {
            attributes.size_bytes = Some(input.long_number()?);
        }
        if given(OWNER) {
            let (user, group) = (input.number()?, input.number()?);
            attributes.owner = Some(Owner { user, group });
        }
        if given(PERMISSIONS) {
            attributes.mode = Some(input.number()?);
        }
        if given(TIMES) {
            let (accessed_s, modified_s) = (input.number()?, input.number()?);
            attributes.times = Some(Times {
                accessed_s,
                modified_s,
            });
        }
        if given(EXTENDED) {
            // Each pair takes bytes of the packet, so a false count ends at its end.
            for _ in 0..input.number()? {
                input.counted()?;
                input.counted()?;
            }
        }
        Ok(attributes)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let flag = |given: bool, flag: u32| if given { flag } else { 0 };
        let flags = flag(self.size_bytes.is_some(), SIZE)
            | flag(self.owner.is_some(), OWNER)
            | flag(self.mode.is_some(), PERMISSIONS)
            | flag(self.times.is_some(), TIMES);
        put_number(out, flags);
        if let Some(size) = self.size_bytes {
            put_long_number(out, size);
        }
        if let Some(owner) = self.owner {
            put_number(out, owner.user);
            put_number(out, owner.group);
        }
        if let Some(mode) = self.mode {
            put_number(out, mode);
        }
        if let Some(times) = self.times {
            put_number(out, times.accessed_s);
            put_number(out, times.modified_s);
        }
    }
}
