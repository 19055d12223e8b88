//! MCP over stdio: one table of tools, one way for every call.

mod arguments;
mod call;
mod opening;
mod reference;
mod render;
mod schema;
mod server;
mod stdio;
mod tools;

pub use reference::tools_markdown;
pub use server::McpServer;
pub use stdio::{ServeError, serve_stdio};
pub use tools::{
    file_list, job_list, job_started, job_status, sandbox_list, sync_plan, sync_result,
    transfer_status, transfer_statuses,
};
