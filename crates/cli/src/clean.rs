//! `clean`: what runs have left on a host, and the end of it.

use std::io::{self, BufRead, IsTerminal};
use std::sync::Arc;

use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::output::clean_line;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, LeftRun, Leftovers};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::report::{Failed, ask, notice, print, table};

/// List the processes that were left on a sandbox, and end them
///
/// Only processes with our own mark are looked at, and those of commands that somebody still waits
/// for are never ended. Nothing else is left on a host: this program writes no files there.
#[derive(Debug, clap::Args)]
pub(crate) struct Clean {
    /// Name of the sandbox
    name: String,

    /// End them without asking
    #[arg(long)]
    yes: bool,
}

impl Clean {
    /// Lists, asks and ends.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        with_engine(common, |engine, stop| self.clean(engine, stop))
    }

    async fn clean(&self, engine: Arc<Engine>, stop: CancellationToken) -> Result<(), Failed> {
        let found = tokio::select! {
            found = engine.leftovers(&self.name) => found?,
            () = stop.cancelled() => return Ok(()),
        };
        print(&page(&found))?;
        if found.left.is_empty() {
            return Ok(());
        }
        let agreed = tokio::select! {
            agreed = self.agreed(found.left.len()) => agreed?,
            () = stop.cancelled() => return Ok(()),
        };
        if agreed {
            end_all(&engine, &stop, &found).await
        } else {
            notice("nothing was ended; --yes ends what is left");
            Ok(())
        }
    }

    async fn agreed(&self, runs: usize) -> Result<bool, Failed> {
        if self.yes || !io::stdin().is_terminal() {
            return Ok(self.yes);
        }
        ask(&format!("End the {runs} listed as left? Type yes: "));
        let answer = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|_| line)
        });
        match answer.await {
            Ok(line) => Ok(line.map_err(Failed::Input)?.trim() == "yes"),
            Err(error) => Err(Failed::Input(io::Error::other(error))),
        }
    }
}

async fn end_all(
    engine: &Engine,
    stop: &CancellationToken,
    found: &Leftovers,
) -> Result<(), Failed> {
    let context = CallContext::new(Principal::local(), stop.clone());
    let mut failures = 0;
    for run in &found.left {
        if stop.is_cancelled() {
            return Ok(());
        }
        let ended = engine.end_leftover(&context, &found.sandbox, run).await;
        let name = name(run);
        match ended {
            Ok(LeftRunning::Nothing) => print(&format!("ended {name}\n"))?,
            Ok(LeftRunning::Unknown) => {
                failures += 1;
                notice(&format!("{name}: the host did not say what became of it"));
            }
            Ok(LeftRunning::Processes(left)) => {
                failures += 1;
                let left: Vec<String> = left
                    .iter()
                    .map(|process| format!("{} ({})", process.name, process.pid))
                    .collect();
                notice(&format!("{name}: still running: {}", left.join(", ")));
            }
            Err(failure) => {
                failures += 1;
                notice(&format!("{name}: {}", failure.message));
            }
        }
    }
    if failures == 0 {
        Ok(())
    } else {
        Err(Failed::NotCleaned(failures))
    }
}

fn name(run: &LeftRun) -> String {
    match &run.recorded {
        Some((id, _)) => id.clone(),
        None => run.token.to_string(),
    }
}

fn page(found: &Leftovers) -> String {
    let sandbox = clean_line(&found.sandbox, 64);
    if found.live.is_empty() && found.left.is_empty() {
        return format!("nothing of ours runs on {sandbox}\n");
    }
    let heading = ["STATE", "PID", "AGE", "PROCESS", "RUN", "COMMAND"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for (state, runs) in [("live", &found.live), ("left", &found.left)] {
        for run in runs {
            let command = run.recorded.as_ref();
            let command = command.map_or("?", |(_, command)| command.as_str());
            rows.extend(run.processes.iter().map(|process| {
                vec![
                    state.to_owned(),
                    process.pid.to_string(),
                    age(process.age_s),
                    process.name.clone(),
                    name(run),
                    clean_line(command, 60),
                ]
            }));
        }
    }
    let mut text = table(&rows);
    if found.left.is_empty() {
        text.push_str("all of it belongs to commands that somebody waits for\n");
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn age_is_told_in_the_unit_that_fits() {
        let told = [0, 119, 120, 7199, 7200, 172_800].map(age);
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }
}
