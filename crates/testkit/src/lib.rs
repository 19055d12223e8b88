//! Test support: a real sshd, throw-away accounts, a faulty network, hostile SSH servers and an MCP client.
//!
//! Everything here fails loudly: a test whose surroundings cannot be made is a broken test, not a passing one.
//! What a machine may lack (root, a shell, an old key type) answers `None` after printing a `SKIP:` line.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test support fails loudly and is never shipped"
)]

pub mod busybox;
pub mod dropbear;
mod evil_session;
pub mod evil_ssh;
pub mod evil_tcp;
pub mod keys;
pub mod mcp;
mod mcp_record;
pub mod process;
pub mod proxy;
mod proxy_connection;
pub mod sftp_server;
pub mod sshd;
mod sshd_builder;
pub mod users;
pub mod wait;

pub use busybox::Busybox;
pub use dropbear::Dropbear;
pub use evil_ssh::{ChannelPolicy, EvilSsh, EvilSshBuilder, ExecScript, Offer};
pub use evil_tcp::{EvilTcp, TcpBehaviour};
pub use keys::{ClientKey, KeyFormat, KeyType};
pub use mcp::{McpClient, McpClientBuilder, McpError, ToolReply};
pub use proxy::{Direction, FaultProxy};
pub use sftp_server::SftpServer;
pub use sshd::Sshd;
pub use sshd_builder::SshdBuilder;
pub use users::{Home, Shell, TestUser, TestUserBuilder};
pub use wait::{free_port, skip, wait_until, wait_until_async, wait_until_blocking};
