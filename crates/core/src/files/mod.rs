//! Listing and reading files of a sandbox: what can be asked for, the scripts that ask, and what comes back.
//!
//! **One way for every kind.** Reading goes through a script of `head` and `tail`, not through SFTP: every kind of
//! sandbox has a shell and not every one has SFTP, a shell that waits answers in one round trip where SFTP needs
//! three or four, and only the host can pick lines without sending everything before them. The bytes come as they
//! are, between a header and a trailer that carry the mark of the call.

mod figures;
mod first_entries;
mod part;
mod piece;
mod read;

pub use figures::Figures;
pub use first_entries::FirstEntries;
pub use part::{Part, PartError};
pub use piece::{Content, Piece};
pub use read::{
    FileState, Header, ReadAnswer, ReadError, parse_header, parse_read, read_script, whole_script,
};
