//! `status`: bars for load, memory and GPUs on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use remote_sandbox_engine::engine::Engine;
use remote_sandbox_engine::environment;
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::report::{Failed, is_colourful, print};
use crate::status_page::{Look, page};

/// Moves to the top left and clears what is below.
const FRESH_PAGE: &str = "\x1b[H\x1b[J";

/// Show load, memory and GPUs of sandboxes
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Names of sandboxes (default: all)
    names: Vec<String>,

    /// Repeat every S seconds until Ctrl-C
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "2", require_equals = true,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

impl Status {
    /// Prints the page, once or again and again.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let look = look();
        with_engine(common, |engine, stop| async move {
            tokio::select! {
                shown = self.show(&engine, look, &stop) => shown,
                () = stop.cancelled() => Ok(()),
            }
        })
    }

    async fn show(
        &self,
        engine: &Engine,
        look: Look,
        stop: &CancellationToken,
    ) -> Result<(), Failed> {
        loop {
            let listed = engine.list_named(&self.names, true).await?;
            let text = page(&listed, look);
            let Some(pause_s) = self.watch else {
                return print(&text);
            };
            let before = if look.is_terminal() { FRESH_PAGE } else { "" };
            print(&format!("{before}{text}"))?;
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(pause_s)) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }
}

/// How the page is drawn on what standard output is.
fn look() -> Look {
    let output = std::io::stdout();
    if !output.is_terminal() {
        return Look::Plain;
    }
    let width = rustix::termios::tcgetwinsize(&output).map_or(0, |size| size.ws_col);
    Look::Bars {
        width: if width == 0 { 80 } else { usize::from(width) },
        colour: is_colourful(&environment::capture()),
    }
}
