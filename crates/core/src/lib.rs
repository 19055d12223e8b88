//! The pure part of remote-sandbox-mcp: types, configuration, quoting, parsers and verdicts.
//!
//! Nothing in this crate opens a socket, reads a clock or writes a file.
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests stand outside the doors")
)]

pub mod archive;
pub mod config;
pub mod delta;
pub mod doctor;
pub mod failure;
#[cfg(test)]
mod fed_shell;
pub mod files;
mod glob;
pub mod hostkey;
pub mod ids;
pub mod job;
pub mod local;
pub mod mux;
pub mod outcome;
pub mod output;
pub mod probe;
pub mod secret;
pub mod service;
pub mod sftp;
pub mod shell;
pub mod ssh_config;
pub mod sync;
pub mod watch;
