//! GPUs and their processes out of a report, one file per vendor.

mod amd;
mod ascend;
mod device;
mod field;
mod mig;
mod nvidia;
mod owners;
mod rocm;

pub use device::{Gpu, GpuInstance, GpuProcess, GpuVendor, visible_devices_variables};

use super::report::{Report, Section, Verdict};
use owners::Owners;

/// Most GPUs taken from one tool.
const MOST_GPUS: usize = 64;

const NOT_REACHED: &str = "the probe ended before it had read the GPUs";

/// What is known of the GPUs of a host.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Gpus {
    /// Those that were listed.
    pub(super) readable: Vec<Gpu>,
    /// Why some or all could not be read.
    pub(super) error: Option<String>,
}

impl Gpus {
    fn unreadable(reason: impl Into<String>) -> Self {
        Gpus {
            readable: Vec::new(),
            error: Some(reason.into()),
        }
    }

    fn join(mut self, other: Gpus) -> Self {
        self.readable.extend(other.readable);
        self.error = match (self.error, other.error) {
            (Some(one), Some(two)) if one != two => Some(format!("{one}; {two}")),
            (one, two) => one.or(two),
        };
        self
    }
}

/// What the script found out about one vendor without running its tool.
#[derive(Debug, Clone, Copy)]
struct Presence<'text> {
    /// The tool: its name or `yes`; `None` when there is none.
    tool: Option<&'text str>,
    /// Whether a device of the vendor can be seen.
    has_device: bool,
}

impl<'text> Presence<'text> {
    /// `None` when the script did not get so far.
    fn of(driver: &Section<'text>, prefix: &str) -> Option<Self> {
        let tool = driver.value(&format!("{prefix}tool"))?;
        let device = driver.value(&format!("{prefix}device"))?;
        Some(Presence {
            tool: (tool != "no").then_some(tool),
            has_device: device != "no",
        })
    }
}

/// Reads the GPUs; a host without any gives neither a GPU nor an error.
pub(super) fn gpus(report: &Report<'_>) -> Gpus {
    let Some(driver) = report.section("gpu_driver") else {
        return Gpus::unreadable(NOT_REACHED);
    };
    let owners = Owners::read(report);
    // The script tells of NVIDIA last: where that is known, the others were looked for.
    let nvidia = match Presence::of(&driver, "") {
        Some(presence) => nvidia::gpus(report, presence, &owners),
        None => return Gpus::unreadable(NOT_REACHED),
    };
    let amd = Presence::of(&driver, "amd_").map_or_else(Gpus::default, |presence| {
        amd::gpus(report, presence, &owners)
    });
    let ascend = Presence::of(&driver, "ascend_").map_or_else(Gpus::default, |presence| {
        ascend::gpus(report, presence, &owners)
    });
    nvidia.join(amd).join(ascend)
}

/// Why a tool's own list cannot be relied on; `None` when it ended by itself without a fault.
fn fault(tool: &str, verdict: Verdict, complaint: Option<String>) -> Option<String> {
    match verdict {
        Verdict::Hung => Some(format!("{tool} did not answer in time and was stopped")),
        Verdict::Cut => Some(format!("{tool} printed more than the probe reads")),
        Verdict::Lost => Some(NOT_REACHED.to_owned()),
        Verdict::Exited(0) => None,
        Verdict::Exited(status) => {
            Some(complaint.unwrap_or_else(|| format!("{tool} failed with exit status {status}")))
        }
    }
}

/// Fits devices to the bound, and says so.
fn bounded(tool: &str, mut gpus: Gpus) -> Gpus {
    if gpus.readable.len() > MOST_GPUS {
        gpus.readable.truncate(MOST_GPUS);
        let cut = format!("{tool} listed more than {MOST_GPUS} GPUs");
        gpus.error = gpus.error.or(Some(cut));
    }
    gpus
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
