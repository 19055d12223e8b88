//! All input and output of remote-sandbox-mcp; knows nothing of MCP, HTTP or terminals.
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests stand outside the doors")
)]

pub mod audit;
pub mod beneath;
pub mod call;
pub mod clock;
mod disk;
pub mod doctor;
pub mod engine;
pub mod environment;
pub mod failpoint;
pub mod fsio;
pub mod job;
pub mod listing;
pub mod local;
mod mark;
pub mod memory;
pub mod notify;
pub mod proc;
pub mod questions;
pub mod run;
pub mod sandbox;
pub mod secrets;
pub mod service;
pub mod shell;
pub mod ssh;
pub mod store;
pub mod sync;
pub mod transfer;
mod tree_walk;
pub mod watchdog;
