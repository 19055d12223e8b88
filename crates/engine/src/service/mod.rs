//! The service that keeps the watchdog running: launchd on macOS, the user's systemd on Linux, a process of its own
//! where there is neither.
//!
//! It points to a copy of this program in our state folder and is told no secret. One process at a time changes it.

mod binary;
mod detached;
mod ensure;
mod error;
mod files;
mod launchd;
mod manager;
mod systemd;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::config::{
    Environment, FileChoice, Platform, config_file_location, state_dir,
};
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::service::{
    DescriptionError, ServiceDescription, ServiceKind, ServiceStatus,
};
use serde::Serialize;

pub use ensure::{Ensured, Heartbeat};
pub use error::ServiceError;
pub use files::keep_log_short;

use crate::environment;
use ensure::Never;
use systemd::ENDS_WITH_SESSION;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A process that lives so long did not end at once.
const SETTLED: Duration = Duration::from_millis(300);

/// When the watchdog is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// By the service manager, when the user next logs in.
    Later,
    /// Now, unless it runs as it should.
    IfNeeded,
    /// Now; one that runs is ended first.
    Afresh,
}

/// What became of the process of the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begun {
    /// Whether one was started now.
    started: bool,
    /// Whether one ran before.
    ran_before: bool,
}

impl Begun {
    /// None was started.
    fn nothing(ran_before: bool) -> Self {
        Begun {
            started: false,
            ran_before,
        }
    }

    /// One was started.
    fn now(ran_before: bool) -> Self {
        Begun {
            started: true,
            ran_before,
        }
    }
}

/// What was set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstallReport {
    /// What keeps the watchdog running.
    pub kind: ServiceKind,
    /// The label, the unit, or what else it is.
    pub name: &'static str,
    /// What the service manager reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The copy of this program that is run.
    pub program: PathBuf,
    /// Whether a process was started for it now; one that ran as it should was left alone.
    pub started: bool,
    /// Whether one ran before.
    pub ran_before: bool,
    /// The process, where it is one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The process of its own that ran before and was ended, because the service manager has one now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_process: Option<u32>,
    /// Why it is not what it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// What was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UninstallReport {
    /// Everything that kept the watchdog running.
    pub removed: Vec<ServiceKind>,
}

/// What can keep the watchdog running here, and why not something better.
struct Choice {
    kind: ServiceKind,
    why_not: Option<String>,
}

/// The service of one user.
#[derive(Clone)]
pub struct Service {
    platform: Platform,
    environment: Environment,
    home: PathBuf,
    state: PathBuf,
    config_file: Option<PathBuf>,
    /// The program to copy, where it is not this one.
    program: Option<PathBuf>,
}

impl fmt::Debug for Service {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values of variables are often passwords.
        formatter
            .debug_struct("Service")
            .field("platform", &self.platform)
            .field("state", &self.state)
            .field("config_file", &self.config_file)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// The service on this system; `config_file` is what the command line named.
    pub fn for_this_system(
        environment: &Environment,
        config_file: Option<&Path>,
    ) -> Result<Self, ServiceError> {
        Service::on(Platform::current(), environment, config_file)
    }

    /// The service as it is on a kind of system.
    pub fn on(
        platform: Platform,
        environment: &Environment,
        config_file: Option<&Path>,
    ) -> Result<Self, ServiceError> {
        let home = environment.get("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute());
        let config_file = match config_file_location(config_file, environment, platform) {
            FileChoice::Required(path) => Some(from_anywhere(path)),
            // Found in the same place by whoever has the same variables.
            FileChoice::Optional(_) | FileChoice::None => None,
        };
        Ok(Service {
            platform,
            environment: environment.clone(),
            home: home.ok_or(DescriptionError::NoHome)?,
            state: state_dir(environment, platform)?,
            config_file,
            program: None,
        })
    }

    /// The same with another program than this one.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }

    /// Sets the service up, anew where it is not as it should be, and starts it, unless that is for later.
    pub async fn install(&self, start_now: bool) -> Result<InstallReport, ServiceError> {
        let start = if start_now {
            Start::IfNeeded
        } else {
            Start::Later
        };
        let _lock = self.lock().await?;
        self.set_up(start, &Never, SETTLED).await
    }

    /// Takes away everything that keeps the watchdog running, and ends it.
    pub async fn uninstall(&self) -> Result<UninstallReport, ServiceError> {
        let _lock = self.lock().await?;
        let mut removed = Vec::new();
        let (kind, was_there) = match self.platform {
            Platform::MacOs => (ServiceKind::Launchd, self.uninstall_agent().await?),
            Platform::Linux => (ServiceKind::Systemd, self.uninstall_unit().await?),
        };
        if was_there {
            removed.push(kind);
        }
        if self.end_process().await? {
            removed.push(ServiceKind::Detached);
        }
        self.forget_copies();
        self.forget_files();
        Ok(UninstallReport { removed })
    }

    /// How the service is.
    pub async fn status(&self) -> Result<ServiceStatus, ServiceError> {
        let choice = self.choose().await;
        let process = self.process_status();
        let mut status = match choice.kind {
            ServiceKind::Launchd => self.agent_status().await?,
            ServiceKind::Systemd => self.unit_status().await?,
            ServiceKind::Detached => process.clone(),
        };
        if process.running {
            status = process;
        }
        let Some(why) = choice.why_not else {
            return Ok(status);
        };
        let (kind, file) = self.best();
        if !status.installed && file.exists() {
            status = ServiceStatus::absent(self.platform, kind);
            status.installed = true;
            status.detail = format!("installed, but it is not known whether it runs: {why}");
        } else {
            status.detail = format!("{}; without a service manager: {why}", status.detail);
        }
        Ok(status)
    }

    /// The best that there can be on this kind of system, and what it is told in.
    fn best(&self) -> (ServiceKind, PathBuf) {
        match self.platform {
            Platform::MacOs => (ServiceKind::Launchd, self.plist_path()),
            Platform::Linux => (ServiceKind::Systemd, self.unit_path()),
        }
    }

    async fn choose(&self) -> Choice {
        let (kind, file) = self.best();
        let why_not = match kind {
            _ if self.is_foreign(&file) => {
                Some("the service belongs to another state folder".to_owned())
            }
            ServiceKind::Launchd if self.find("launchctl").is_some() => None,
            ServiceKind::Launchd => Some("`launchctl` is not on the PATH".to_owned()),
            _ => self.no_systemd().await,
        };
        let kind = match why_not {
            None => kind,
            Some(_) => ServiceKind::Detached,
        };
        Choice { kind, why_not }
    }

    async fn set_up(
        &self,
        start: Start,
        heartbeat: &dyn Heartbeat,
        settled: Duration,
    ) -> Result<InstallReport, ServiceError> {
        let report = self.tell_manager(start, heartbeat, settled).await;
        self.forget_copies();
        report
    }

    /// Tells the service manager what to run, or does without one.
    async fn tell_manager(
        &self,
        start: Start,
        heartbeat: &dyn Heartbeat,
        settled: Duration,
    ) -> Result<InstallReport, ServiceError> {
        let program = self.keep_copy().await?;
        let config_file = self.config_file.as_deref();
        let service =
            ServiceDescription::watchdog(&program, &self.log(), config_file, &self.environment)?;
        let mut kind = self.choose().await.kind;
        let managed = match kind {
            ServiceKind::Launchd => self.install_agent(&service, start).await.map(Some),
            ServiceKind::Systemd => self.install_unit(&service, start).await.map(Some),
            ServiceKind::Detached => Ok(None),
        };
        let (managed, mut warning) = match managed {
            Err(error) if start != Start::Later && error.is_of_the_manager() => {
                let why = Failure::chain(&error);
                let text = format!("the watchdog runs as a process of its own: {why}");
                (None, Some(text))
            }
            managed => (managed?, None),
        };
        let mut ended_process = None;
        let begun = match managed {
            Some(begun) => {
                if start != Start::Later {
                    ended_process = self.running_process();
                    self.end_process().await?;
                }
                begun
            }
            None => {
                if kind != ServiceKind::Detached {
                    self.remove_definition()?;
                }
                kind = ServiceKind::Detached;
                self.install_process(&service, start, heartbeat, settled)
                    .await?
            }
        };
        if kind == ServiceKind::Systemd && self.lingers_not().await {
            warning = Some(ENDS_WITH_SESSION.to_owned());
        }
        let is_lone = kind == ServiceKind::Detached;
        Ok(InstallReport {
            kind,
            name: kind.name(),
            file: (!is_lone).then(|| self.best().1),
            program,
            started: begun.started,
            ran_before: begun.ran_before,
            pid: self.running_process().filter(|_| is_lone),
            ended_process,
            warning,
        })
    }

    /// Removes what the service manager would read, without asking it: it has just failed.
    fn remove_definition(&self) -> Result<(), ServiceError> {
        match self.platform {
            Platform::MacOs => Ok(crate::fsio::remove_file(&self.plist_path())?),
            Platform::Linux => self.remove_unit(),
        }
    }
}

/// A path that was typed in some folder, as a process finds it that begins in another.
fn from_anywhere(path: PathBuf) -> PathBuf {
    match environment::working_directory() {
        Some(folder) => folder.join(path),
        None => path,
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
#[path = "managed_tests.rs"]
mod managed_tests;

#[cfg(test)]
#[path = "detached_tests.rs"]
mod detached_tests;
