//! The server, which the program is when no command is given.

use remote_sandbox_server::mcp::serve_stdio;
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, Mode};
use crate::report::Failed;
use crate::{engine, log};

/// Runs the server until its client goes away.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failed> {
    let hosts = engine::build(&arguments.common)?;
    log::greet_terminal(&hosts.names());
    let runtime = engine::runtime()?;
    let served = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::spawn(engine::stop_on_signal(stop.clone()));
        // It is looked after in passing: no client waits for it.
        let watched = hosts.clone();
        tokio::spawn(async move { watched.bring_watchdog_back().await });
        match arguments.mode {
            Mode::Stdio => serve_stdio(hosts, stop).await,
        }
    });
    // A read of standard input that never returns must not keep the process alive.
    runtime.shutdown_background();
    Ok(served?)
}
