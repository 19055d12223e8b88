//! What a server can do beyond the protocol, and the answers to that.

use super::packet::{Input, PacketError};

/// Something beyond the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Rename over an existing file, in one step.
    PosixRename,
    /// Ask for the space of a file system.
    Statvfs,
    /// Give a file a second name.
    Hardlink,
    /// Have a file written to disk.
    Fsync,
    /// Set attributes of a link itself.
    Lsetstat,
    /// Ask how much the server takes at once.
    Limits,
    /// Work out a path that begins with `~`.
    ExpandPath,
    /// Copy within the host.
    CopyData,
}

impl Extension {
    /// All of them.
    pub const ALL: [Extension; 8] = [
        Extension::PosixRename,
        Extension::Statvfs,
        Extension::Hardlink,
        Extension::Fsync,
        Extension::Lsetstat,
        Extension::Limits,
        Extension::ExpandPath,
        Extension::CopyData,
    ];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Extension::PosixRename => "posix-rename@openssh.com",
            Extension::Statvfs => "statvfs@openssh.com",
            Extension::Hardlink => "hardlink@openssh.com",
            Extension::Fsync => "fsync@openssh.com",
            Extension::Lsetstat => "lsetstat@openssh.com",
            Extension::Limits => "limits@openssh.com",
            Extension::ExpandPath => "expand-path@openssh.com",
            Extension::CopyData => "copy-data",
        }
    }

    /// The version of it that is spoken here.
    pub fn version(self) -> &'static str {
        match self {
            Extension::Statvfs => "2",
            _ => "1",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The extensions that a server offers, of those known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extensions(u8);

impl Extensions {
    /// Whether the server offers it.
    pub fn has(self, extension: Extension) -> bool {
        self.0 & extension.bit() != 0
    }

    /// The same with one more.
    #[must_use]
    pub fn with(self, extension: Extension) -> Self {
        Extensions(self.0 | extension.bit())
    }

    pub(super) fn read(input: &mut Input<'_>) -> Result<Self, PacketError> {
        let mut found = Extensions::default();
        while !input.is_empty() {
            let (name, version) = (input.counted()?, input.counted()?);
            let known = Extension::ALL.into_iter().find(|extension| {
                extension.name().as_bytes() == name && extension.version().as_bytes() == version
            });
            if let Some(extension) = known {
                found = found.with(extension);
            }
        }
        Ok(found)
    }
}

/// How much a server takes at once; 0 stands for "it does not say".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerLimits {
    /// The longest packet.
    pub packet_bytes: u64,
    /// The most that one read brings.
    pub read_bytes: u64,
    /// The most that one write takes.
    pub write_bytes: u64,
    /// The most files and directories that are open at the same time.
    pub open_handles: u64,
}

impl ServerLimits {
    /// Reads the answer of a server.
    pub fn parse(answer: &[u8]) -> Result<Self, PacketError> {
        let mut input = Input(answer);
        Ok(ServerLimits {
            packet_bytes: input.long_number()?,
            read_bytes: input.long_number()?,
            write_bytes: input.long_number()?,
            open_handles: input.long_number()?,
        })
    }
}

/// The space of a file system, in the words of `statvfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filesystem {
    /// The unit of the block counts, in bytes.
    pub fragment_bytes: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that this account may use.
    pub blocks_available: u64,
    /// All files it can hold; 0 where there is no such limit.
    pub files: u64,
    /// Further files that this account may make.
    pub files_available: u64,
    /// Whether nothing can be written.
    pub is_read_only: bool,
    /// The longest name.
    pub longest_name: u64,
}

impl Filesystem {
    /// Reads the answer of a server.
    pub fn parse(answer: &[u8]) -> Result<Self, PacketError> {
        let mut input = Input(answer);
        let mut values = [0; 11];
        for value in &mut values {
            *value = input.long_number()?;
        }
        let [
            block,
            fragment,
            blocks,
            free,
            available,
            files,
            _,
            files_available,
            _,
            flags,
            longest_name,
        ] = values;
        Ok(Filesystem {
            fragment_bytes: if fragment == 0 { block } else { fragment },
            blocks,
            blocks_free: free,
            blocks_available: available,
            files,
            files_available,
            is_read_only: flags & 1 != 0,
            longest_name,
        })
    }

    /// Bytes that this account may still write.
    pub fn available_bytes(&self) -> u64 {
        self.blocks_available.saturating_mul(self.fragment_bytes)
    }
}
