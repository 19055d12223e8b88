//! The true binary, driven over MCP against real servers.
#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the doors")]

mod exec;
mod faults;
mod sandboxes;
mod support;
mod tasks;
