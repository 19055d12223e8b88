//! Large files, one at a time: by parts over several channels, continued where they were cut, and only what changed
//! where the host has an older one and the link is slow.
//!
//! A file is written beside its place under a name that follows from who sends it and from its path, size and time. So a
//! later sync finds what an earlier one left, asks the host for hashes of it, and sends only what is not right. The file
//! gets its own name in one step when all of it is there. On a slow link parts that get smaller go and come packed, into
//! the same unfinished file.

mod delta;
mod download;
mod error;
mod packed_down;
mod packed_up;
mod place;
mod resume;
mod source;
mod stripes;
mod trying;
mod upload;

#[cfg(test)]
use download::LargeReceived;
pub(crate) use download::{LargeDown, download_large};
pub(crate) use error::LargeError;
pub(crate) use place::unfinished_name;
pub(crate) use trying::Trying;
#[cfg(test)]
use upload::LargeDone;
pub(crate) use upload::{LargeUp, still_answers, upload_large};

#[cfg(test)]
#[path = "download_tests.rs"]
mod download_tests;
#[cfg(test)]
#[path = "host_tests.rs"]
mod host_tests;
#[cfg(test)]
#[path = "packed_tests.rs"]
mod packed_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
#[path = "upload_tests.rs"]
mod upload_tests;
