//! One entry of a tree, as a scan of either side sees it.

use sha2::{Digest, Sha256};

use super::path::RelPath;

/// A billion: so many nanoseconds are a second.
pub const NANOSECONDS: u32 = 1_000_000_000;

/// The permission bits that are carried over; set-user-id and its kin stay behind on purpose.
pub const CARRIED_MODE: u16 = 0o777;

/// When an entry was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtime {
    /// Seconds since the Unix epoch.
    pub seconds: i64,
    /// What comes on top, below one second; none where the side cannot tell.
    nanoseconds: Option<u32>,
}

impl Mtime {
    /// A time in whole seconds; nothing is known about what comes on top.
    pub fn whole(seconds: i64) -> Self {
        Mtime {
            seconds,
            nanoseconds: None,
        }
    }

    /// A time with its nanoseconds; none when they make a second or more.
    pub fn exact(seconds: i64, nanoseconds: u32) -> Option<Self> {
        (nanoseconds < NANOSECONDS).then_some(Mtime {
            seconds,
            nanoseconds: Some(nanoseconds),
        })
    }

    /// The nanoseconds, where they are known.
    pub fn nanoseconds(self) -> Option<u32> {
        self.nanoseconds
    }

    /// Whether both are the same as far as both can tell.
    pub fn agrees(self, other: Mtime) -> bool {
        self.seconds == other.seconds
            && match (self.nanoseconds, other.nanoseconds) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            }
    }

    /// Whether this one is later, as far as both can tell.
    pub fn is_after(self, other: Mtime) -> bool {
        match self.seconds.cmp(&other.seconds) {
            std::cmp::Ordering::Equal => match (self.nanoseconds, other.nanoseconds) {
                (Some(one), Some(other)) => one > other,
                _ => false,
            },
            order => order.is_gt(),
        }
    }
}

/// Where a link leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LinkEnd {
    /// The scan did not look.
    #[default]
    Unknown,
    /// To a directory.
    Directory,
    /// To something that is no directory.
    Other,
    /// Nowhere, or round in a circle.
    Nothing,
}

/// The kind of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// Something this program has no word for.
    Unknown,
}

impl Special {
    /// The word for it in results.
    pub fn name(self) -> &'static str {
        match self {
            Special::Fifo => "fifo",
            Special::Socket => "socket",
            Special::BlockDevice => "block device",
            Special::CharacterDevice => "character device",
            Special::Unknown => "special file",
        }
    }
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// What it says, byte for byte.
        target: Box<[u8]>,
        /// Where that leads.
        end: LinkEnd,
    },
    /// Neither of these; it is never transferred.
    Special(Special),
}

impl Kind {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Kind::Directory)
    }

    /// Whether it is a file or a link: what a sync remembers.
    pub fn is_content(&self) -> bool {
        matches!(self, Kind::File | Kind::Link { .. })
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self, Kind::File)
    }

    /// The word for it in results.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Link { .. } => "link",
            Kind::Special(special) => special.name(),
        }
    }
}

/// Which object of the file system an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The device it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// How many names it has.
    pub links: u32,
}

/// One entry of a scanned tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it lies, from the root of the sync.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes; only that of a file means anything.
    pub size_bytes: u64,
    /// When it was last changed.
    pub mtime: Mtime,
    /// Its permission bits, at most `0o7777`.
    pub mode: u16,
    /// Which object it is, where the scan could tell.
    pub identity: Option<Identity>,
}

impl Entry {
    /// How many bytes its path takes, and what it says if it is a link.
    pub fn text_bytes(&self) -> usize {
        let target = match &self.kind {
            Kind::Link { target, .. } => target.len(),
            Kind::File | Kind::Directory | Kind::Special(_) => 0,
        };
        self.path.as_bytes().len() + target
    }

    /// The permission bits that are carried over.
    pub fn carried_mode(&self) -> u16 {
        self.mode & CARRIED_MODE
    }

    /// Whether anybody may run it.
    pub fn is_executable(&self) -> bool {
        self.mode & 0o111 != 0
    }

    /// By what a changed file is recognised.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            size_bytes: self.size_bytes,
            mtime: self.mtime,
        }
    }

    /// What the next sync remembers of it: a link is known by what it says, for its time is not kept.
    pub fn remembered(&self) -> Stamp {
        match &self.kind {
            Kind::Link { target, .. } => Stamp::of_link(target),
            Kind::File | Kind::Directory | Kind::Special(_) => self.stamp(),
        }
    }
}

/// By what a changed file is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The size in bytes.
    pub size_bytes: u64,
    /// When it was last changed.
    pub mtime: Mtime,
}

impl Stamp {
    /// Whether both look like the same content.
    pub fn agrees(self, other: Stamp) -> bool {
        self.size_bytes == other.size_bytes && self.mtime.agrees(other.mtime)
    }

    /// A digest in the form of a stamp, which agrees with that of the same words and with no other.
    fn of_link(target: &[u8]) -> Stamp {
        let digest: [u8; 32] = Sha256::digest(target).into();
        let number = |at: usize| {
            let bytes = digest.get(at..).and_then(|rest| rest.first_chunk());
            u64::from_be_bytes(bytes.copied().unwrap_or_default())
        };
        Stamp {
            size_bytes: number(0),
            mtime: Mtime {
                seconds: number(8).cast_signed(),
                nanoseconds: Some(0),
            },
        }
    }

    /// How it looks where times are kept in whole seconds.
    #[must_use]
    pub fn in_whole_seconds(self) -> Stamp {
        let mtime = Mtime::exact(self.mtime.seconds, 0).unwrap_or(self.mtime);
        Stamp { mtime, ..self }
    }

    /// The stamp of a file whose time was set to this one: whole seconds have nothing on top then.
    pub fn as_set(self) -> Stamp {
        let nanoseconds = self.mtime.nanoseconds.or(Some(0));
        let mtime = Mtime {
            nanoseconds,
            ..self.mtime
        };
        Stamp { mtime, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Mtime::exact(5, 1), Mtime::exact(5, 1), true)]
    #[case(Mtime::exact(5, 1), Mtime::exact(5, 2), false)]
    #[case(Mtime::exact(5, 1), Some(Mtime::whole(5)), true)]
    #[case(Mtime::exact(5, 0), Some(Mtime::whole(6)), false)]
    fn times_agree_as_far_as_both_can_tell(
        #[case] one: Option<Mtime>,
        #[case] other: Option<Mtime>,
        #[case] agree: bool,
    ) {
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.agrees(other), agree);
        assert_eq!(other.agrees(one), agree);
    }

    #[test]
    fn time_is_later_only_when_both_can_tell() {
        let at = |nanoseconds| Mtime::exact(5, nanoseconds).unwrap();
        assert!(at(2).is_after(at(1)) && !at(1).is_after(at(2)) && !at(1).is_after(at(1)));
        assert!(!at(2).is_after(Mtime::whole(5)) && Mtime::whole(6).is_after(at(2)));
        assert_eq!(Mtime::exact(5, NANOSECONDS), None);
    }
}
