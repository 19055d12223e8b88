//! The MCP face of remote-sandbox-mcp: turns tool calls into engine calls and results into replies.
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests stand outside the doors")
)]

pub mod mcp;
