//! The MCP face of remote-sandbox-mcp: turns tool calls into engine calls and results into replies.

pub mod mcp;
