//! All input and output of remote-sandbox-mcp; knows nothing of MCP, HTTP or terminals.

pub mod audit;
pub mod call;
pub mod clock;
pub mod engine;
pub mod environment;
pub mod fsio;
pub mod proc;
pub mod run;
pub mod sandbox;
pub mod ssh;
