//! What commands that speak with hosts share: an engine, a runtime, and an end on a signal.

use std::sync::Arc;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_engine::engine::{Engine, ServiceKeeper, load_config};
use remote_sandbox_engine::environment;
use remote_sandbox_engine::service::Service;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::report::{Failed, INTERRUPTED};

/// What a shell shows for a program that was asked to end.
const TERMINATED: u8 = 143;

/// An engine for the user's configuration; what is wrong with that goes to the log.
pub(crate) fn build(common: &Common) -> Result<Arc<Engine>, Failed> {
    let environment = environment::capture();
    let config = load_config(common.config.as_deref(), environment.clone())?;
    let config_file = common.config.as_deref();
    let mut engine = Engine::new(&config, &environment)?.with_config_file(config_file);
    match Service::for_this_system(&environment, config_file) {
        Ok(service) => engine = engine.with_keeper(Arc::new(ServiceKeeper::new(service))),
        Err(error) => tracing::debug!("no service can be used: {}", Failure::chain(&error)),
    }
    let engine = Arc::new(engine);
    for problem in engine.problems() {
        tracing::warn!("{problem}");
    }
    Ok(engine)
}

/// The runtime of this program.
pub(crate) fn runtime() -> Result<Runtime, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Failed::Runtime)?;
    outlive_limit_of_files(&runtime);
    Ok(runtime)
}

/// A file that may not grow any more is an error of that one write. The signal for it, which would end this program, only
/// has to be taken once; programs that are started from here have it as usual.
fn outlive_limit_of_files(runtime: &Runtime) {
    let _within = runtime.enter();
    let limit = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    if let Err(error) = signal(limit) {
        tracing::debug!("a limit for the size of files would end this program: {error}");
    }
}

/// Does something with an engine until it is done or a signal comes; `work` gets a token that says so.
pub(crate) fn with_engine<T, W>(
    common: &Common,
    work: impl FnOnce(Arc<Engine>, CancellationToken) -> W,
) -> Result<T, Failed>
where
    W: Future<Output = Result<T, Failed>>,
{
    with(build(common)?, work)
}

/// The same with an engine that is there already.
pub(crate) fn with<T, W>(
    engine: Arc<Engine>,
    work: impl FnOnce(Arc<Engine>, CancellationToken) -> W,
) -> Result<T, Failed>
where
    W: Future<Output = Result<T, Failed>>,
{
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signalled = tokio::spawn(stop_on_signal(stop.clone()));
        let done = work(engine.clone(), stop.clone()).await;
        engine.shut_down().await;
        if stop.is_cancelled()
            && let Ok(code) = signalled.await
        {
            return Err(Failed::Interrupted(code));
        }
        done
    });
    runtime.shutdown_background();
    done
}

/// Waits for a signal that asks for the end, sets `stop`, and gives the exit code that tells of it.
pub(crate) async fn stop_on_signal(stop: CancellationToken) -> u8 {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    let code = tokio::select! {
        _ = interrupt.recv() => INTERRUPTED,
        _ = terminate.recv() => TERMINATED,
    };
    stop.cancel();
    code
}
