//! The server: the default, and all there is on the command line so far.

use std::sync::Arc;

use remote_sandbox_engine::engine::{Engine, SetupError, load_config};
use remote_sandbox_engine::environment;
use remote_sandbox_server::mcp::{ServeError, serve_stdio};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, Mode};
use crate::log;

/// Why the server ended with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// It could not start.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The runtime could not start.
    #[error("the asynchronous runtime cannot start")]
    Runtime(#[source] std::io::Error),
    /// It could not go on.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Runs the server until its client goes away.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failed> {
    let environment = environment::capture();
    let config = load_config(arguments.config.as_deref(), environment.clone())?;
    let engine = Arc::new(Engine::new(&config, &environment)?);
    for problem in engine.problems() {
        tracing::warn!("{problem}");
    }
    log::greet_terminal(&engine.names());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Failed::Runtime)?;
    let served = runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::spawn(stop_on_signal(stop.clone()));
        match arguments.mode {
            Mode::Stdio => serve_stdio(engine, stop).await,
        }
    });
    // A read of standard input that never returns must not keep the process alive.
    runtime.shutdown_background();
    Ok(served?)
}

async fn stop_on_signal(stop: CancellationToken) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    stop.cancel();
}
