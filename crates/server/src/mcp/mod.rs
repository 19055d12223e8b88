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
    dead_letter_json, event_json, event_list, file_content, file_list, given_name, job_list,
    job_started, job_status, sandbox_list, status_of, sync_plan, sync_result, transfer_status,
    transfer_statuses, watch_added, watch_json, watch_list, watch_progress, watchdog_status,
};
