//! The log, and a word to whoever starts the server by hand: standard error only, for standard output
//! belongs to the protocol.
#![expect(
    clippy::print_stderr,
    reason = "this module is where people are spoken to"
)]

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts the log. The SSH and MCP libraries are loud about ordinary events and are kept quiet.
pub(crate) fn start(verbose: u8) {
    let filter = match verbose {
        0 => "warn,rmcp=error,russh=error",
        1 => "info,rmcp=warn,russh=warn",
        _ => "debug,rmcp=info,russh=info",
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(EnvFilter::new(filter));
    let _ = subscriber.try_init();
}

/// Tells a person who started the server by hand what it is.
pub(crate) fn greet_terminal(sandboxes: &[String]) {
    if !std::io::stdin().is_terminal() {
        return;
    }
    let configured = if sandboxes.is_empty() {
        "no sandbox is configured yet".to_owned()
    } else {
        format!("sandboxes: {}", sandboxes.join(", "))
    };
    eprintln!(
        "remote-sandbox-mcp is an MCP server and waits for a client on standard input ({configured}).\n\
         Add it to an agent instead: claude mcp add remote-sandbox -- remote-sandbox-mcp\n\
         Ctrl-D ends it; --help shows the options."
    );
}
