//! A client of SFTP, version 3, over any pair of streams.
//!
//! Many requests are under way at the same time, bounded in number and bytes; replies may come in any order.
//! Names and handles are bytes. Nothing here knows what carries the streams or what files are wanted for.
//!
//! Every call may be given up at any time. A request that has gone out is then answered to nobody; a handle
//! that arrives for nobody, or that is dropped, is closed. When the conversation breaks, every call that
//! waits gets the error at once, and so does each later one.

mod client;
mod conversation;
mod directory;
mod error;
mod file;
mod pump;
mod range_reader;
mod range_writer;

pub use client::{Client, Options};
pub use directory::{Batch, Entry, ReadDir};
pub use error::{Loss, SftpError};
pub use file::File;
pub use range_reader::RangeReader;
pub use range_writer::RangeWriter;

#[cfg(test)]
#[path = "ending_tests.rs"]
mod ending_tests;
#[cfg(test)]
#[path = "flow_tests.rs"]
mod flow_tests;
#[cfg(test)]
#[path = "hostile_tests.rs"]
mod hostile_tests;
#[cfg(test)]
#[path = "server_tests.rs"]
mod server_tests;
#[cfg(test)]
pub(crate) mod stand_in;
