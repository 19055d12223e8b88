//! What is told about the watchdog and the service that keeps it running.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};

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

/// When the watchdog last said that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastHeartbeat {
    /// Seconds since the epoch.
    pub at: u64,
    /// After as many seconds it counts as gone.
    pub stale_after: u64,
}

/// How many watches there are of each status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WatchCounts {
    /// Those that are looked after.
    pub active: u64,
    /// Those whose task has ended.
    pub completed: u64,
    /// Those that were resumed as often as they may be.
    pub exhausted: u64,
    /// Those that somebody ended.
    pub cancelled: u64,
}

/// Everything that is told about the watchdog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchdogStatus {
    /// The configuration file that it reads, when there is one.
    pub config_path: Option<PathBuf>,
    /// The store.
    pub db_path: PathBuf,
    /// What keeps it running.
    pub service: ServiceStatus,
    /// When it last said that it lives.
    pub heartbeat: Option<LastHeartbeat>,
    /// Whether that is too long ago, or never was.
    pub heartbeat_stale: bool,
    /// How many watches there are.
    pub watch_counts: WatchCounts,
}

impl WatchdogStatus {
    /// The documented object, with what keeps the watchdog running here as `service`.
    pub fn json(&self) -> Value {
        let paths = json!({ "config_path": self.config_path, "db_path": self.db_path });
        let heartbeat = self.heartbeat.map(|heartbeat| {
            json!({
                "key": "heartbeat",
                "value": {
                    "ts": heartbeat.at,
                    "stale_after_s": heartbeat.stale_after,
                    "config_path": self.config_path,
                    "db_path": self.db_path,
                },
                "updated_ts": heartbeat.at,
            })
        });
        let is_launchd = self.service.kind == ServiceKind::Launchd;
        json!({
            "paths": paths,
            "launchd": {
                "platform": self.service.platform,
                "label": LAUNCHD_LABEL,
                "loaded": is_launchd && self.service.loaded,
                "detail": self.service.detail,
            },
            "service": self.service,
            "heartbeat": heartbeat,
            "heartbeat_stale": self.heartbeat_stale,
            "watch_counts": self.watch_counts,
        })
    }
}
