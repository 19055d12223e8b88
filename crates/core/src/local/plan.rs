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
    /// What was asked for, in one word, by which a later server tells whether it would ask for the same.
    pub terms: String,
}

/// What was asked for, in one word: wall, network, what may be read, limits.
pub fn terms_of(level: Level, network: Network, readable: &[PathBuf], limits: &Limits) -> String {
    let asked = format!("{level:?} {network:?} {readable:?} {limits:?}");
    let mark = mark_of(asked.as_bytes());
    format!("{}-{mark:016x}", level.word())
}

/// A number that tells texts apart; not for keeping secrets.
pub fn mark_of(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |mark, byte| {
        (mark ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
