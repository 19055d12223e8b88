//! What is told about the service that keeps the watchdog running.

use serde::Serialize;

use super::{LAUNCHD_LABEL, SYSTEMD_UNIT};
use crate::config::Platform;

/// What keeps the watchdog running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceKind {
    /// An agent of launchd.
    Launchd,
    /// A unit of the user's systemd.
    Systemd,
    /// Nothing: a process of its own, which the next server start restarts.
    Detached,
}

impl ServiceKind {
    /// The name under which it is found: a label, a unit, or what the process is.
    pub fn name(self) -> &'static str {
        match self {
            ServiceKind::Launchd => LAUNCHD_LABEL,
            ServiceKind::Systemd => SYSTEMD_UNIT,
            ServiceKind::Detached => "a process of its own",
        }
    }
}

/// How the service is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceStatus {
    /// `darwin` or `linux`.
    pub platform: &'static str,
    /// What keeps the watchdog running.
    pub kind: ServiceKind,
    /// The label, the unit, or what else it is.
    pub name: &'static str,
    /// Whether it is set up.
    pub installed: bool,
    /// Whether the service manager knows it, or its process runs where there is none.
    #[serde(skip)]
    pub loaded: bool,
    /// Whether its process runs.
    pub running: bool,
    /// The number of its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The same in words, with what the service manager said.
    pub detail: String,
    /// What to do, where something should be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ServiceStatus {
    /// A service that is not set up.
    pub fn absent(platform: Platform, kind: ServiceKind) -> Self {
        ServiceStatus {
            platform: match platform {
                Platform::MacOs => "darwin",
                Platform::Linux => "linux",
            },
            kind,
            name: kind.name(),
            installed: false,
            loaded: false,
            running: false,
            pid: None,
            detail: "not installed".to_owned(),
            hint: None,
        }
    }
}
