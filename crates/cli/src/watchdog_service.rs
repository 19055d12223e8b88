//! `watchdog install`, `uninstall` and `status`: the service that keeps the watchdog running.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::service::{ServiceKind, ServiceStatus};
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::WatchdogReport;
use remote_sandbox_engine::service::{InstallReport, Service, ServiceError, UninstallReport};
use remote_sandbox_engine::{clock, environment};
use remote_sandbox_server::mcp::watchdog_status;
use serde_json::Value;

use crate::arguments::Common;
use crate::engine::{runtime, with_engine};
use crate::report::{Failed, notice, print, rough};

/// Set up the service that keeps the watchdog running, and start it
///
/// On macOS that is an agent of launchd, on Linux a unit of your systemd, and elsewhere a process of
/// its own. Starting a background task does the same by itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Install {
    /// Leave the start to your next login
    #[arg(long)]
    no_start: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// End the watchdog and take its service away
#[derive(Debug, clap::Args)]
pub(crate) struct Uninstall {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show whether the watchdog works, what keeps it running and what it has to do
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Print what the tool get_watchdog_status returns
    #[arg(long)]
    pub(crate) json: bool,
}

impl Install {
    /// Sets it up.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let report = with_service(common, async |service| {
            service.install(!self.no_start).await
        })?;
        if self.json {
            return print_json(serde_json::to_value(&report));
        }
        if let Some(warning) = &report.warning {
            notice(warning);
        }
        print(&installed(&report))
    }
}

impl Uninstall {
    /// Takes it away.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let report = with_service(common, async |service| service.uninstall().await)?;
        if self.json {
            return print_json(serde_json::to_value(&report));
        }
        print(&uninstalled(&report))
    }
}

impl Status {
    /// Shows it.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let report = with_engine(common, |engine, stop| async move {
            let context = CallContext::new(Principal::local(), stop);
            Ok(engine.watchdog_report(&context, true).await?)
        })?;
        if self.json {
            return print(&format!("{:#}\n", watchdog_status(&report)));
        }
        print(&page(&report))
    }
}

fn with_service<T>(
    common: &Common,
    work: impl AsyncFnOnce(&Service) -> Result<T, ServiceError>,
) -> Result<T, Failed> {
    let environment = environment::capture();
    let service = Service::for_this_system(&environment, common.config.as_deref());
    let service = service.map_err(Failure::from)?;
    let done = runtime()?.block_on(work(&service));
    Ok(done.map_err(Failure::from)?)
}

fn print_json(value: serde_json::Result<Value>) -> Result<(), Failed> {
    let value = value.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
    print(&format!("{value:#}\n"))
}

fn installed(report: &InstallReport) -> String {
    let name = report.name;
    let process = report.pid.map(|pid| format!(" (process {pid})"));
    let process = process.unwrap_or_default();
    let what = match (report.kind, report.started, report.ran_before) {
        (ServiceKind::Detached, false, false) => {
            "no service manager can be used here; the watchdog starts with the next background task"
                .to_owned()
        }
        (ServiceKind::Detached, false, true) => {
            format!("the watchdog runs already as {name}{process}; it was left as it is")
        }
        (ServiceKind::Detached, true, false) => {
            format!("no service manager can be used here; started the watchdog as {name}{process}")
        }
        (ServiceKind::Detached, true, true) => format!(
            "the watchdog ran as {name} that was not as it should be; it was ended and started anew{process}"
        ),
        (_, false, true) => format!("{name} is installed and runs already; it was left as it is"),
        (_, false, false) => format!("installed {name}; it starts with your next login"),
        (_, true, false) => format!("installed and started {name}"),
        (_, true, true) => format!("installed {name} anew and restarted it"),
    };
    let mut text = format!("{what}\n");
    if let Some(pid) = report.ended_process {
        text.push_str(&format!(
            "ended the watchdog that ran as {} (process {pid}), for {name} runs it now\n",
            ServiceKind::Detached.name()
        ));
    }
    if let Some(file) = &report.file {
        text.push_str(&format!("file: {}\n", file.display()));
    }
    text.push_str(&format!("program: {}\n", report.program.display()));
    text
}

fn uninstalled(report: &UninstallReport) -> String {
    if report.removed.is_empty() {
        return "nothing was installed\n".to_owned();
    }
    let removed = report.removed.iter();
    removed
        .map(|kind| format!("ended and removed {}\n", kind.name()))
        .collect()
}

fn page(report: &WatchdogReport) -> String {
    let mut lines = match &report.keeper {
        Some(service) => service_lines(service, !report.is_stale),
        None => vec![(
            "watchdog",
            "turned off by REMOTE_SANDBOX_WATCHDOG or the configuration".to_owned(),
        )],
    };
    let now = clock::wall();
    lines.push(("lease", lease_line(report)));
    if let Some(at) = report.heartbeat {
        let age = rough(now.saturating_sub(at));
        let state = if report.is_stale { "stale" } else { "fresh" };
        lines.push(("heartbeat", format!("{age} ago, {state}")));
    }
    let counts = &report.counts;
    lines.push((
        "watches",
        format!(
            "{} active, {} completed, {} exhausted, {} cancelled",
            counts.active, counts.completed, counts.exhausted, counts.cancelled
        ),
    ));
    let unreachable = counts.unreachable_hosts;
    lines.push(("hosts", format!("{unreachable} cannot be reached")));
    let (pending, dead) = (counts.pending_deliveries, counts.dead_deliveries);
    lines.push((
        "deliveries",
        format!("{pending} not delivered yet, {dead} given up"),
    ));
    if let Some(why) = &report.unshown {
        lines.push(("desktop", clean_line(why, 1000)));
    }
    let lines = lines.into_iter();
    lines
        .map(|(name, text)| format!("{name}: {text}\n"))
        .collect()
}

/// What keeps it running. One that works without that was started by hand.
fn service_lines(service: &ServiceStatus, is_fresh: bool) -> Vec<(&'static str, String)> {
    let state = match (service.running, service.installed) {
        (true, _) => "running",
        (false, _) if is_fresh => "running, started by hand",
        (false, true) => "not running",
        (false, false) => "not installed",
    };
    let mut lines = vec![
        ("watchdog", state.to_owned()),
        ("kept running by", service.name.to_owned()),
    ];
    if let Some(pid) = service.pid {
        lines.push(("process", pid.to_string()));
    }
    lines.push(("detail", service.detail.clone()));
    if let Some(hint) = &service.hint {
        lines.push(("hint", hint.clone()));
    }
    lines
}

fn lease_line(report: &WatchdogReport) -> String {
    match &report.holder {
        None => "held by nobody".to_owned(),
        Some(holder) => {
            let age = rough(clock::wall().saturating_sub(holder.since));
            match holder.pid {
                Some(pid) => format!("held by process {pid} for {age}"),
                None => format!("held by {} for {age}", clean_line(&holder.words, 200)),
            }
        }
    }
}

#[cfg(test)]
#[path = "watchdog_service_tests.rs"]
mod tests;
