//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Parser, ValueEnum};

/// MCP server that gives coding agents remote machines as sandboxes.
///
/// Without arguments it serves MCP on standard input and output. Sandboxes come from the environment
/// (REMOTE_SANDBOX_LIST, or REMOTE_HOST and its siblings) and from a configuration file.
#[derive(Debug, Parser)]
#[command(name = "remote-sandbox-mcp", version)]
pub(crate) struct Arguments {
    /// How clients connect
    #[arg(long, value_enum, default_value_t = Mode::Stdio)]
    pub(crate) mode: Mode,

    /// Configuration file, .toml or .json (default: REMOTE_SANDBOX_CONFIG, else the user's config folder)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// More log on standard error; twice for every detail
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// A way for clients to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Standard input and output
    Stdio,
}
