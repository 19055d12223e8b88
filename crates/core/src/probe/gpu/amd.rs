//! AMD: the JSON of `amd-smi`, whose form differs between versions, and `rocm-smi` where that fails.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::report::{Report, Section, Verdict};
use super::super::text::clean;
use super::device::{Gpu, GpuProcess, GpuVendor, MOST_PROCESSES};
use super::field::{celsius_or_unknown, name, percent_or_unknown};
use super::owners::Owners;
use super::{Gpus, NOT_REACHED, Presence, bounded, fault, rocm};

const TOOL: &str = "amd-smi";

/// Reads the GPUs with their processes.
pub(super) fn gpus(report: &Report<'_>, presence: Presence<'_>, owners: &Owners) -> Gpus {
    if presence.tool.is_none() {
        return if presence.has_device {
            Gpus::unreadable("an AMD GPU is present but neither amd-smi nor rocm-smi was found")
        } else {
            Gpus::default()
        };
    }
    let newer = report
        .section("amd_monitor")
        .map(|section| with_details(report, &section, owners));
    let older = report
        .section("rocm")
        .map(|section| rocm::gpus(report, &section, owners));
    let mut gpus = match (newer, older) {
        (Some(newer), Some(older)) if newer.readable.is_empty() => older,
        (Some(gpus), _) | (None, Some(gpus)) => gpus,
        (None, None) => return Gpus::unreadable(NOT_REACHED),
    };
    let failed_plainly = ["amd_monitor", "rocm"].iter().all(|name| {
        let section = report.section(name);
        section.is_none_or(|section| matches!(section.verdict, Verdict::Exited(_)))
    });
    // A tool that is installed where no driver is loaded complains about just that.
    if gpus.readable.is_empty() && failed_plainly && !presence.has_device {
        return Gpus::default();
    }
    doubt_empty_lists(report, &mut gpus.readable, owners);
    gpus
}

fn with_details(report: &Report<'_>, section: &Section<'_>, owners: &Owners) -> Gpus {
    let mut gpus = bounded(TOOL, read_monitor(section));
    if let Some(value) = report
        .section("amd_static")
        .and_then(|section| section.json())
    {
        for row in rows(&value) {
            let product = row.get("asic").and_then(|asic| asic.get("market_name"));
            if let Some(gpu) = device(&mut gpus.readable, row) {
                gpu.name = product.and_then(Value::as_str).and_then(name);
            }
        }
    }
    let processes = report.section("amd_processes");
    if let Some(section) = processes.filter(|section| section.verdict == Verdict::Exited(0))
        && let Some(value) = section.json()
    {
        for row in rows(&value) {
            if let Some(gpu) = device(&mut gpus.readable, row) {
                gpu.processes = read_processes(row, owners);
            }
        }
    }
    gpus
}

fn read_monitor(section: &Section<'_>) -> Gpus {
    let value = section.json();
    let complaint = match &value {
        Some(_) => None,
        None => section.lines().next().map(clean),
    };
    let readable: Vec<Gpu> = value.iter().flat_map(rows).filter_map(gpu).collect();
    let error = fault(TOOL, section.verdict, complaint.clone()).or_else(|| {
        let listed_none = || format!("{TOOL} listed no GPU");
        readable
            .is_empty()
            .then(|| complaint.unwrap_or_else(listed_none))
    });
    Gpus { readable, error }
}

// A list of devices, or an object that holds it.
fn rows(value: &Value) -> &[Value] {
    value
        .get("gpu_data")
        .unwrap_or(value)
        .as_array()
        .map_or(&[], Vec::as_slice)
}

fn index(row: &Value) -> Option<u32> {
    row.get("gpu")?.as_u64()?.try_into().ok()
}

fn device<'list>(gpus: &'list mut [Gpu], row: &Value) -> Option<&'list mut Gpu> {
    let index = index(row)?;
    gpus.iter_mut().find(|gpu| gpu.index == index)
}

fn gpu(row: &Value) -> Option<Gpu> {
    // `monitor` is flat, `metric` is not.
    let first = |paths: &[&str]| paths.iter().find_map(|path| quantity(row.pointer(path)?));
    let busy = first(&["/gfx", "/gfx_util", "/usage/gfx_activity"]);
    let heat = first(&[
        "/hotspot_temperature",
        "/temperature/hotspot",
        "/temperature/edge",
    ]);
    let used = first(&["/vram_used", "/mem_usage/used_vram"]);
    let total = first(&["/vram_total", "/mem_usage/total_vram"]);
    Some(Gpu {
        util_pct: busy.and_then(|quantity| percent_or_unknown(quantity.value)),
        temperature_c: heat.and_then(|quantity| celsius_or_unknown(quantity.value)),
        mem_used_mb: used.and_then(|quantity| quantity.mebibytes("MB")),
        mem_total_mb: total
            .and_then(|quantity| quantity.mebibytes("MB"))
            .filter(|total| *total > 0),
        ..Gpu::unknown(GpuVendor::Amd, index(row)?)
    })
}

/// A number with its unit.
struct Quantity<'value> {
    value: f64,
    unit: Option<&'value str>,
}

impl Quantity<'_> {
    fn mebibytes(&self, usual_unit: &str) -> Option<u64> {
        let factor = match self.unit.unwrap_or(usual_unit) {
            "B" => 1.0 / 1_048_576.0,
            "KB" | "KiB" => 1.0 / 1024.0,
            "MB" | "MiB" => 1.0,
            "GB" | "GiB" => 1024.0,
            _ => return None,
        };
        let size = (self.value * factor).round();
        (0.0..1e12).contains(&size).then_some(size as u64)
    }
}

// {"value": 3, "unit": "MB"}, or the bare number.
fn quantity(value: &Value) -> Option<Quantity<'_>> {
    let number = value.get("value").unwrap_or(value);
    let text = || number.as_str()?.trim().parse().ok();
    Some(Quantity {
        value: number.as_f64().or_else(text)?,
        unit: value.get("unit").and_then(Value::as_str),
    })
}

// `None` unless every entry is a process or says that there is none.
fn read_processes(row: &Value, owners: &Owners) -> Option<Vec<GpuProcess>> {
    let mut found = Vec::new();
    for entry in row.get("process_list")?.as_array()? {
        let process = entry.get("process_info")?;
        if process
            .as_str()
            .is_some_and(|text| text.starts_with("No running process"))
        {
            continue;
        }
        let pid = process.get("pid")?.as_u64()?.try_into().ok()?;
        let program = process.get("name").and_then(Value::as_str).and_then(name);
        let held = process
            .pointer("/memory_usage/vram_mem")
            .or_else(|| process.get("mem_usage"));
        let held = held.and_then(quantity);
        let mem_used_mb = held.and_then(|quantity| quantity.mebibytes("B"));
        if found.len() < MOST_PROCESSES {
            found.push(owners.process(Some(pid), program, mem_used_mb));
        }
    }
    Some(found)
}

// The tools show a plain user only some of the processes; the kernel names all that hold memory. One that is on no
// list may be on any GPU.
fn doubt_empty_lists(report: &Report<'_>, gpus: &mut [Gpu], owners: &Owners) {
    let Some(section) = report.section("kfd") else {
        return;
    };
    let listed: BTreeSet<u32> = gpus
        .iter()
        .flat_map(|gpu| gpu.processes.iter().flatten())
        .filter_map(|process| process.pid)
        .collect();
    let mut known = section.lines().filter_map(|line| line.parse().ok());
    let has_stray = known.any(|pid: u32| !listed.contains(&pid) && !owners.is_ours(pid));
    for gpu in gpus {
        if has_stray && gpu.processes.as_ref().is_some_and(Vec::is_empty) {
            gpu.processes = None;
        }
    }
}

#[cfg(test)]
#[path = "amd_tests.rs"]
mod tests;
