//! `demo`: the first minute. A real server, a sandbox on this machine, and all of it gone afterwards.

mod error;
mod page;
mod project;
mod resume;
mod server;
mod stage;
mod steps;

use std::io::IsTerminal;

pub(crate) use error::DemoError;
use remote_sandbox_engine::{clock, environment};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::{runtime, stop_on_signal};
use crate::report::{Failed, is_colourful};
use page::{Page, spoken};
use stage::Stage;
use steps::Step;

/// See in a few seconds what this does, on this machine, with nothing configured
///
/// Starts the real server as an agent's client does, makes a local sandbox, puts a small project in,
/// runs its tests, follows a long command, reads a result back, has the watchdog resume a job that was
/// interrupted, and cleans up. It reads none of your configuration and leaves nothing behind. With --config, its server uses that file, so that you can
/// try a `[local]` table; hosts in it are left alone. Ends with 0 only when every step gave what it should.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {}

impl Demo {
    /// Plays it.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let environment = environment::capture();
        let page = Page::new(is_colourful(&environment), terminal_width());
        let program = std::env::current_exe().map_err(DemoError::Program)?;
        let config = common.config.as_deref();
        let mut stage = Stage::new(page, program.clone(), config, &environment)?;
        let runtime = runtime()?;
        let done = runtime.block_on(async {
            let stop = CancellationToken::new();
            let signalled = tokio::spawn(stop_on_signal(stop.clone()));
            let played = tokio::select! {
                played = play(&mut stage) => played,
                () = stop.cancelled() => Ok(()),
            };
            let cleared = stage.clear().await;
            if stop.is_cancelled()
                && let Ok(code) = signalled.await
            {
                return Err(Failed::Interrupted(code));
            }
            played?;
            Ok(cleared?)
        });
        runtime.shutdown_background();
        done?;
        crate::report::print(&page.adding(&program))
    }
}

async fn play(stage: &mut Stage) -> Result<(), Failed> {
    let begun = clock::instant();
    stage.say(&format!(
        "remote-sandbox-mcp {}: a real server, a sandbox on this machine, a small project.\n\
         It takes a few seconds. All of it lies in\n  {}\nand is removed at the end.\n",
        env!("CARGO_PKG_VERSION"),
        stage.folder().display()
    ))?;
    for (number, step) in Step::ALL.into_iter().enumerate() {
        stage.say(&stage.page.title(number + 1, step.title()))?;
        let step_begun = clock::instant();
        match step.play(stage).await {
            Ok(said) => stage.say(&stage.page.done(&said, step_begun.elapsed()))?,
            Err(failed) => {
                stage.say(&stage.page.failed())?;
                return Err(failed);
            }
        }
    }
    let (steps, took) = (Step::ALL.len(), spoken(begun.elapsed()));
    stage.say(&format!(
        "\nAll {steps} steps worked, {took}. Nothing is left behind.\n\n"
    ))
}

/// How wide the terminal is, where there is one.
fn terminal_width() -> Option<usize> {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&output).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
