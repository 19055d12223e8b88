//! The true binary, driven over MCP against real servers.
#![cfg(test)]

mod exec;
mod faults;
mod sandboxes;
mod support;
mod tasks;
