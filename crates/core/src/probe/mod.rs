//! What a host has and how busy it is: the script that asks, and the reader of its report.
//!
//! The script is one POSIX `sh` program, sent in one round trip. Each figure of the report may be missing; a missing
//! figure is `None`, and never zero, because zero would read as "idle".

mod choose;
mod gpu;
mod proc;
mod report;
mod score;
mod script;
mod text;

pub use choose::{Candidate, Choice, Chosen, Wanted, choose};
pub use gpu::{Gpu, GpuInstance, GpuProcess, GpuVendor, visible_devices_variables};
pub use score::{Readings, idle_score};
pub use script::{Nonce, TOOL_LIMIT, probe_script};

use serde::Serialize;

/// Why a probe gave nothing to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The nonce could be confused with other text, or could break out of its place in the script.
    #[error("a probe nonce is 8 to 64 characters of a-z and 0-9")]
    InvalidNonce,
    /// Not one section of the expected report is there.
    #[error("the {size_bytes} bytes that came back hold no section of the probe report")]
    NoReport {
        /// How much came back instead.
        size_bytes: usize,
    },
}

/// What one probe learned about a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resources {
    /// Processors and their load.
    pub cpu: Cpu,
    /// Main memory.
    pub memory: Memory,
    /// The file systems of the home directory and of `/tmp`.
    pub disk: Vec<Disk>,
    /// The GPUs that could be read.
    pub gpu: Vec<Gpu>,
    /// Why GPUs that should be there could not be read, or not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_error: Option<String>,
    /// From 0 (busy) to 1 (idle); `None` when nothing is known.
    pub idle_score: Option<f64>,
}

/// Processors and their load.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// Load average over one minute.
    pub load_1m: Option<f64>,
    /// Load average over five minutes.
    pub load_5m: Option<f64>,
    /// Load average over fifteen minutes.
    pub load_15m: Option<f64>,
    /// Usable processors: those online, or fewer where a cgroup quota allows less.
    pub count: Option<u32>,
    /// Share of processor time in use during the probe.
    pub util_pct: Option<f64>,
}

/// Main memory in MiB.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Memory {
    /// All of it, or the cgroup limit where that is lower.
    pub total_mb: Option<u64>,
    /// What cannot be had without swapping.
    pub used_mb: Option<u64>,
    /// What a new process can still take, reclaimable caches included.
    pub free_mb: Option<u64>,
    /// Used share of the total.
    pub used_pct: Option<f64>,
}

/// One file system in MiB.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disk {
    /// The directory that was asked about.
    pub path: String,
    /// Size of the file system that holds it.
    pub total_mb: Option<u64>,
    /// What the user may still write.
    pub free_mb: Option<u64>,
    /// Used share of what the user may write at all.
    pub used_pct: Option<f64>,
}

/// Reads what the script of the same nonce printed.
pub fn parse_report(nonce: &Nonce, bytes: &[u8]) -> Result<Resources, ProbeError> {
    let text = report::readable_text(bytes);
    let report = report::Report::split(nonce, &text).ok_or(ProbeError::NoReport {
        size_bytes: bytes.len(),
    })?;
    let cpu = proc::cpu(&report);
    let memory = proc::memory(&report);
    let gpus = gpu::gpus(&report);
    let idle_score = idle_score(&Readings {
        cpu: &cpu,
        memory: &memory,
        gpus: &gpus.readable,
        gpus_unreadable: gpus.error.is_some(),
    });
    Ok(Resources {
        cpu,
        memory,
        disk: proc::disks(&report),
        gpu: gpus.readable,
        gpu_error: gpus.error,
        idle_score,
    })
}

#[cfg(test)]
mod samples;

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "vendor_tests.rs"]
mod vendor_tests;
