//! What a supervisor is told when it is started.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Grant, Level, Network};

/// What the commands of a sandbox may use up; nothing means no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all of them together, where that can be had, else of each process.
    pub memory_mb: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Processors, in hundredths of one.
    pub cpu_percent: Option<u64>,
}

/// Everything a supervisor needs to know. It holds no secret: anybody can read a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorPlan {
    /// The wall.
    #[serde(flatten)]
    pub level: Level,
    /// Whether commands reach the network.
    pub network: Network,
    /// Where commands begin.
    pub home: PathBuf,
    /// What commands may do with which files, for Landlock.
    pub grants: Vec<Grant>,
    /// What commands may use up.
    pub limits: Limits,
}
