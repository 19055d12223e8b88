//! `watchdog`: looks at jobs while nobody waits for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_engine::engine::{Engine, load_config};
use remote_sandbox_engine::environment;
use remote_sandbox_engine::watchdog::{self, Options, USUAL_LEASE, USUAL_SLEEP};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::{runtime, stop_on_signal};
use crate::report::Failed;
use crate::watchdog_service;

/// Look at jobs while nobody waits for them: tell what happens, and resume what is gone
#[derive(Debug, clap::Args)]
pub(crate) struct Watchdog {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Run(Run),
    Install(watchdog_service::Install),
    Uninstall(watchdog_service::Uninstall),
    Status(watchdog_service::Status),
}

/// Work until a signal asks for the end; where another one works, wait for it
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The store, or the folder it lies in (default: the state folder)
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Seconds between two rounds
    #[arg(long, value_name = "SECONDS", default_value_t = USUAL_SLEEP.as_secs_f64(), value_parser = seconds)]
    loop_sleep: f64,
    /// Seconds for which the lease holds without a sign
    #[arg(long, value_name = "SECONDS", default_value_t = USUAL_LEASE.as_secs_f64(), value_parser = seconds, hide = true)]
    lease: f64,
    /// Look once at what is due, then end
    #[arg(long, hide = true)]
    once: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.05 to 86400".to_owned()),
    }
}

impl Watchdog {
    /// Whether the result is wanted as JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.action {
            Action::Run(_) => false,
            Action::Install(install) => install.json,
            Action::Uninstall(uninstall) => uninstall.json,
            Action::Status(status) => status.json,
        }
    }

    /// Does it.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        match &self.action {
            Action::Run(run) => run.run(common),
            Action::Install(install) => install.run(common),
            Action::Uninstall(uninstall) => uninstall.run(common),
            Action::Status(status) => status.run(common),
        }
    }
}

impl Run {
    /// Works until a signal comes.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let mut environment = environment::capture();
        if let Some(folder) = self.db.as_deref().and_then(folder_of) {
            let key = "REMOTE_SANDBOX_MCP_HOME".to_owned();
            environment.insert(key, folder.to_string_lossy().into_owned());
        }
        let config = load_config(common.config.as_deref(), environment.clone())?;
        let engine = Engine::new(&config, &environment)?
            .with_config_file(common.config.as_deref())
            .for_watchdog();
        for problem in engine.problems() {
            tracing::warn!("{problem}");
        }
        let options = Options {
            loop_sleep: Duration::from_secs_f64(self.loop_sleep),
            lease: Duration::from_secs_f64(self.lease),
            is_once: self.once,
        };
        let settings = config.watchdog.clone();
        let deliver = watchdog::deliver_by(engine.notify_settings(&config, &environment));
        let engine = Arc::new(engine);
        let runtime = runtime()?;
        let done = runtime.block_on(async {
            let stop = CancellationToken::new();
            tokio::spawn(stop_on_signal(stop.clone()));
            let watchdog = watchdog::Watchdog::new(engine.clone(), settings, options, deliver);
            let done = Arc::new(watchdog).run(stop).await;
            engine.shut_down().await;
            done
        });
        runtime.shutdown_background();
        Ok(done?)
    }
}

/// The folder of a store that was named by its file, or by the file that the Python package has beside it.
fn folder_of(path: &Path) -> Option<&Path> {
    match path.extension() {
        Some(extension) if extension == "sqlite3" || extension == "db" => path.parent(),
        _ => Some(path),
    }
}
