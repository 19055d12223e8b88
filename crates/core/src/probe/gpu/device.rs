//! GPUs as the rest of the program sees them, and when one is free.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::super::text::percent;

/// Most processes taken for one device; a list of this length may have lost some.
pub(super) const MOST_PROCESSES: usize = 64;

/// Most processes of one device that are shown.
const MOST_SHOWN: usize = 8;

/// What drivers keep for themselves on an unused device: up to a tenth of its memory, or this much of a small one.
const KEPT_BY_DRIVER_MB: u64 = 512;

/// Who made a GPU, and so which tool and which variable it goes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuVendor {
    /// NVIDIA, read with `nvidia-smi`.
    Nvidia,
    /// AMD, read with `amd-smi` or `rocm-smi`.
    Amd,
    /// Huawei Ascend, read with `npu-smi`.
    Ascend,
}

/// The variables by which a process is told which devices of a vendor to use; setting one is enough, the first is preferred.
pub fn visible_devices_variables(vendor: GpuVendor) -> &'static [&'static str] {
    match vendor {
        GpuVendor::Nvidia => &["CUDA_VISIBLE_DEVICES"],
        GpuVendor::Amd => &["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"],
        GpuVendor::Ascend => &["ASCEND_RT_VISIBLE_DEVICES"],
    }
}

/// One GPU, or one chip of an accelerator card.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Who made it.
    pub vendor: GpuVendor,
    /// Its index among the devices of this vendor, as the variable of visible devices counts.
    pub index: u32,
    /// The product name.
    pub name: Option<String>,
    /// The name that is unique in the world, where the tool tells it.
    pub uuid: Option<String>,
    /// Share of time in which a kernel ran.
    pub util_pct: Option<f64>,
    /// Memory in use, in MiB.
    pub mem_used_mb: Option<u64>,
    /// Memory of the device, in MiB.
    pub mem_total_mb: Option<u64>,
    /// Temperature of its hottest known spot, in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// The compute processes on it; `None` when they could not be listed.
    pub processes: Option<Vec<GpuProcess>>,
    /// The parts it is divided into, when it is.
    pub instances: Vec<GpuInstance>,
}

/// A part of a divided GPU (MIG) that works as a device of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuInstance {
    /// Its size, such as `1g.10gb`.
    pub profile: String,
    /// The name by which a process asks for it.
    pub uuid: String,
    /// Memory in use, in MiB.
    pub mem_used_mb: Option<u64>,
    /// Memory of the instance, in MiB.
    pub mem_total_mb: Option<u64>,
    /// The compute processes on it; `None` when they could not be listed.
    pub processes: Option<Vec<GpuProcess>>,
}

/// One compute process on a GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuProcess {
    /// Its process id on the host.
    pub pid: Option<u32>,
    /// The path of its program.
    pub name: Option<String>,
    /// GPU memory it holds, in MiB.
    pub mem_used_mb: Option<u64>,
    /// Whose process it is; `None` when the host does not say.
    pub user: Option<String>,
    /// Whether it is the login user's own; a process of an unknown owner is not.
    pub ours: bool,
}

impl Gpu {
    /// A device of which nothing but its place is known.
    pub(super) fn unknown(vendor: GpuVendor, index: u32) -> Self {
        Gpu {
            vendor,
            index,
            name: None,
            uuid: None,
            util_pct: None,
            mem_used_mb: None,
            mem_total_mb: None,
            temperature_c: None,
            processes: None,
            instances: Vec::new(),
        }
    }

    /// Used share of the memory.
    pub fn mem_used_pct(&self) -> Option<f64> {
        self.mem_used_mb
            .zip(self.mem_total_mb)
            .and_then(|(used, total)| percent(used, total))
    }

    /// Whether a new job can have it: its memory is free and no foreign process holds it.
    ///
    /// Memory is free when at least `min_free_mb` are, or, when nothing is asked for, when no more is in use than
    /// drivers keep: a tenth of it or 512 MiB. What is unknown is not free, and a divided GPU is not free as a whole.
    pub fn is_free(&self, min_free_mb: Option<u64>) -> bool {
        self.instances.is_empty()
            && is_unheld(self.processes.as_deref())
            && has_room(self.mem_used_mb, self.mem_total_mb, min_free_mb)
    }

    /// How many devices a new job can have here: 0 or 1, or the free parts of a divided GPU.
    pub fn free_devices(&self, min_free_mb: Option<u64>) -> usize {
        let free_parts = self
            .instances
            .iter()
            .filter(|part| part.is_free(min_free_mb));
        usize::from(self.is_free(min_free_mb)) + free_parts.count()
    }
}

impl GpuInstance {
    /// Whether a new job can have it, by the same rule as [`Gpu::is_free`].
    pub fn is_free(&self, min_free_mb: Option<u64>) -> bool {
        is_unheld(self.processes.as_deref())
            && has_room(self.mem_used_mb, self.mem_total_mb, min_free_mb)
    }
}

fn is_unheld(processes: Option<&[GpuProcess]>) -> bool {
    processes
        .is_some_and(|list| list.len() < MOST_PROCESSES && list.iter().all(|process| process.ours))
}

fn has_room(used_mb: Option<u64>, total_mb: Option<u64>, min_free_mb: Option<u64>) -> bool {
    let Some((used, total)) = used_mb.zip(total_mb) else {
        return false;
    };
    match min_free_mb {
        Some(wanted) => total.saturating_sub(used) >= wanted,
        None => used <= (total / 10).max(KEPT_BY_DRIVER_MB),
    }
}

impl Serialize for Gpu {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Gpu", 12)?;
        fields.serialize_field("index", &self.index)?;
        fields.serialize_field("vendor", &self.vendor)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("util_pct", &self.util_pct)?;
        fields.serialize_field("mem_used_mb", &self.mem_used_mb)?;
        fields.serialize_field("mem_total_mb", &self.mem_total_mb)?;
        fields.serialize_field("mem_used_pct", &self.mem_used_pct())?;
        if let Some(temperature) = self.temperature_c {
            fields.serialize_field("temperature_c", &temperature)?;
        }
        fields.serialize_field("free", &self.is_free(None))?;
        if !self.instances.is_empty() {
            fields.serialize_field("mig", &self.instances)?;
        }
        serialize_processes::<S>(&mut fields, self.processes.as_deref())?;
        fields.end()
    }
}

impl Serialize for GpuInstance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("GpuInstance", 7)?;
        fields.serialize_field("profile", &self.profile)?;
        fields.serialize_field("uuid", &self.uuid)?;
        fields.serialize_field("mem_used_mb", &self.mem_used_mb)?;
        fields.serialize_field("mem_total_mb", &self.mem_total_mb)?;
        fields.serialize_field("free", &self.is_free(None))?;
        serialize_processes::<S>(&mut fields, self.processes.as_deref())?;
        fields.end()
    }
}

// A count stands for the processes that are not shown.
fn serialize_processes<S: Serializer>(
    fields: &mut S::SerializeStruct,
    processes: Option<&[GpuProcess]>,
) -> Result<(), S::Error> {
    let shown = processes.map(|list| list.get(..MOST_SHOWN).unwrap_or(list));
    fields.serialize_field("processes", &shown)?;
    match processes {
        Some(list) if list.len() > MOST_SHOWN => {
            fields.serialize_field("process_count", &list.len())
        }
        _ => Ok(()),
    }
}

impl Serialize for GpuProcess {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("GpuProcess", 5)?;
        fields.serialize_field("pid", &self.pid)?;
        fields.serialize_field("name", &self.name.as_deref().map(file_name))?;
        fields.serialize_field("mem_used_mb", &self.mem_used_mb)?;
        fields.serialize_field("user", &self.user)?;
        if self.ours {
            fields.serialize_field("ours", &true)?;
        }
        fields.end()
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
