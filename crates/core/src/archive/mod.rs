//! Tar streams, written and read without any input or output of their own.
//!
//! **Written** is what GNU tar, bsdtar and busybox all unpack: plain ustar headers; names and link targets that do not
//! fit as the long-name entries of GNU tar, which carry any bytes, while busybox passes over pax records; sizes from
//! 8 GiB on in base 256. Only a time below the second goes into a pax record, since nothing else can hold it; who does
//! not know pax loses just that.
//!
//! **Read** is the same and what other programs write: ustar with prefix, pax, GNU long names, old headers without any
//! mark. The reader takes bytes in pieces of any size, keeps at most one header or extension, and refuses what could lead
//! out of the target (absolute names, `..`) or asks for trust (sparse maps, unknown types). It hands out names; whether
//! an entry was asked for, and where it is written, is decided elsewhere.

mod error;
mod header;
mod number;
mod pax;
mod read;
mod write;

pub use error::ArchiveError;
pub use read::{ArchiveReader, Event, Member, MemberKind, Place};
pub use write::{ArchiveWriter, Precision, WriteError};

/// The size of every unit of an archive.
pub const BLOCK: usize = 512;

/// How many bytes follow content of this size until the next unit begins.
fn padding(size_bytes: u64) -> usize {
    let over = usize::try_from(size_bytes % BLOCK as u64).unwrap_or_default();
    (BLOCK - over) % BLOCK
}

#[cfg(test)]
#[path = "tar_tests.rs"]
mod tar_tests;
#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
