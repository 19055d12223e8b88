//! `watchdog install`, `uninstall` and `status`: the service that keeps the watchdog running.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::service::{ServiceKind, ServiceStatus};
use remote_sandbox_engine::environment;
use remote_sandbox_engine::service::{InstallReport, Service, ServiceError, UninstallReport};
use serde_json::Value;

use crate::arguments::Common;
use crate::engine::runtime;
use crate::report::{Failed, notice, print};

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
    json: bool,
}

/// End the watchdog and take its service away
#[derive(Debug, clap::Args)]
pub(crate) struct Uninstall {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Show whether the watchdog runs and what keeps it running
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
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
        let status = with_service(common, async |service| service.status().await)?;
        if self.json {
            return print_json(serde_json::to_value(&status));
        }
        print(&page(&status))
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
    let what = match (report.kind, report.started) {
        (ServiceKind::Detached, false) if report.warning.is_none() => {
            "no service manager is here; the watchdog starts with the next background task"
                .to_owned()
        }
        (ServiceKind::Detached, _) => format!("the watchdog runs as {}", report.name),
        (_, true) => format!("installed and started {}", report.name),
        (_, false) => format!("installed {}", report.name),
    };
    let mut text = format!("{what}\n");
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

fn page(status: &ServiceStatus) -> String {
    let state = match (status.running, status.installed) {
        (true, _) => "running",
        (false, true) => "not running",
        (false, false) => "not installed",
    };
    let mut text = format!("watchdog: {state}\nkept running by: {}\n", status.name);
    if let Some(pid) = status.pid {
        text.push_str(&format!("process: {pid}\n"));
    }
    text.push_str(&format!("detail: {}\n", status.detail));
    if let Some(hint) = &status.hint {
        text.push_str(&format!("hint: {hint}\n"));
    }
    text
}
