//! What commands that speak with hosts share: an engine, a runtime, and an end on a signal.

use std::pin::pin;
use std::sync::Arc;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_engine::engine::{Engine, ServiceKeeper, load_config};
use remote_sandbox_engine::environment;
use remote_sandbox_engine::service::Service;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::report::{Failed, INTERRUPTED, notice, print};

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

/// What is said to somebody who interrupts what cannot be taken back.
#[derive(Clone, Copy)]
pub(crate) struct UnderWay {
    /// What is waited for, at the first signal.
    pub(crate) waiting: &'static str,
    /// Where to look what became of it, at the second.
    pub(crate) leaving: &'static str,
}

/// Does something that has an effect and prints what came of it. A first signal is answered and waited through, for
/// otherwise nobody would hear of the effect; a second one leaves at once. `work` gets a token that tells of the first.
pub(crate) fn print_through<W>(
    common: &Common,
    said: UnderWay,
    work: impl FnOnce(Arc<Engine>, CancellationToken) -> W,
) -> Result<(), Failed>
where
    W: Future<Output = Result<String, Failed>>,
{
    let engine = build(common)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let signalled = CancellationToken::new();
        let mut signals = Signals::new();
        let mut working = pin!(work(engine.clone(), signalled.clone()));
        let mut first = None;
        let done = loop {
            tokio::select! {
                done = &mut working => break done,
                code = signals.next() => {
                    if first.is_some() {
                        notice(said.leaving);
                        return Err(Failed::Interrupted(code));
                    }
                    first = Some(code);
                    signalled.cancel();
                    notice(&format!("{}; interrupt again to leave at once", said.waiting));
                }
            }
        };
        engine.shut_down().await;
        Ok((done?, first))
    });
    runtime.shutdown_background();
    let (text, first) = done?;
    print(&text)?;
    first.map_or(Ok(()), |code| Err(Failed::DoneAllTheSame(code)))
}

/// The signals that ask for the end.
struct Signals(Option<(Signal, Signal)>);

impl Signals {
    fn new() -> Self {
        let interrupt = signal(SignalKind::interrupt());
        let terminate = signal(SignalKind::terminate());
        Signals(interrupt.ok().zip(terminate.ok()))
    }

    /// Waits for the next one and gives the exit code that tells of it.
    async fn next(&mut self) -> u8 {
        let Some((interrupt, terminate)) = &mut self.0 else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
        }
    }
}

/// Waits for a signal that asks for the end, sets `stop`, and gives the exit code that tells of it.
pub(crate) async fn stop_on_signal(stop: CancellationToken) -> u8 {
    let code = Signals::new().next().await;
    stop.cancel();
    code
}
