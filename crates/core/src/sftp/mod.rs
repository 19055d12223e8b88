//! The words of SFTP, version 3: requests are written, replies are read, and nothing else happens here.
//!
//! A packet is a length, a kind, a number that pairs a reply with its request, and what the kind asks for.
//! Names and handles are bytes: a host may use any, also such that are no text.

mod attributes;
mod extension;
mod packet;
mod path;
mod reply;
mod request;
mod status;

pub use attributes::{Attributes, FileKind, Owner, Times};
pub use extension::{Extension, Extensions, Filesystem, ServerLimits};
pub use packet::{LONGEST_PACKET, PacketError, packet_length};
pub use path::{EntryName, EntryNameError, LONGEST_PATH, PathError, RemotePath, shown_bytes};
pub use reply::{HandleBytes, LONGEST_HANDLE, NamedEntry, Reply, parse_reply, parse_version};
pub use request::{Frame, OpenFlags, Request};
pub use status::{Status, StatusCode};

/// The version of the protocol that is spoken, the one every OpenSSH has.
pub const VERSION: u32 = 3;

#[cfg(test)]
#[path = "property_tests.rs"]
mod property_tests;
#[cfg(test)]
#[path = "sftp_tests.rs"]
mod tests;
