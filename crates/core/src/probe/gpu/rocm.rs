//! AMD: `rocm-smi`, the older tool.

use serde_json::Value;

use super::super::report::{Report, Section, Verdict};
use super::super::text::clean;
use super::device::{Gpu, GpuProcess, GpuVendor, MOST_PROCESSES};
use super::field::{celsius_or_unknown, name, share};
use super::owners::Owners;
use super::{Gpus, bounded, fault};

const TOOL: &str = "rocm-smi";

/// Reads the GPUs with their processes.
pub(super) fn gpus(report: &Report<'_>, section: &Section<'_>, owners: &Owners) -> Gpus {
    let mut gpus = bounded(TOOL, read_cards(section));
    let processes = report.section("rocm_processes");
    if let Some(section) = processes.filter(|section| section.verdict == Verdict::Exited(0)) {
        attach_processes(&mut gpus.readable, &section, owners);
    }
    gpus
}

fn read_cards(section: &Section<'_>) -> Gpus {
    let value = section.json();
    let cards = value.as_ref().and_then(Value::as_object);
    let complaint = match cards {
        Some(_) => None,
        None => section.lines().next().map(clean),
    };
    let mut readable: Vec<Gpu> = cards
        .into_iter()
        .flatten()
        .filter_map(|(card, facts)| gpu(card, facts))
        .collect();
    readable.sort_by_key(|gpu| gpu.index);
    let error = fault(TOOL, section.verdict, complaint.clone()).or_else(|| {
        let listed_none = || format!("{TOOL} listed no GPU");
        readable
            .is_empty()
            .then(|| complaint.unwrap_or_else(listed_none))
    });
    Gpus { readable, error }
}

fn gpu(card: &str, facts: &Value) -> Option<Gpu> {
    let index = card.strip_prefix("card")?.parse().ok()?;
    // The case of some keys changed between versions.
    let fact = |key: &str| {
        let mut all = facts.as_object()?.iter();
        all.find(|(found, _)| found.eq_ignore_ascii_case(key))?
            .1
            .as_str()
    };
    let mebibytes = |key: &str| {
        let bytes: u64 = fact(key)?.trim().parse().ok()?;
        Some(bytes / 1_048_576)
    };
    let degrees = |sensor: &str| {
        let text = fact(&format!("Temperature (Sensor {sensor}) (C)"))?;
        celsius_or_unknown(text.trim().parse().ok()?)
    };
    Some(Gpu {
        name: fact("Card Series").and_then(name),
        util_pct: fact("GPU use (%)").and_then(share),
        mem_used_mb: mebibytes("VRAM Total Used Memory (B)"),
        mem_total_mb: mebibytes("VRAM Total Memory (B)").filter(|total| *total > 0),
        temperature_c: degrees("junction").or_else(|| degrees("edge")),
        ..Gpu::unknown(GpuVendor::Amd, index)
    })
}

// "PID 28156 is using 2 DRM device(s):" is followed by that many indices, on one line or on several.
fn attach_processes(gpus: &mut [Gpu], section: &Section<'_>, owners: &Owners) {
    let mut lists: Vec<Vec<GpuProcess>> = gpus.iter().map(|_| Vec::new()).collect();
    let mut says_something = false;
    let mut current = None;
    for line in section.lines() {
        if line.starts_with("No KFD PIDs") {
            says_something = true;
        } else if let Some(rest) = line.strip_prefix("PID ") {
            says_something = true;
            current = rest
                .split_whitespace()
                .next()
                .and_then(|pid| pid.parse().ok());
        } else if let Some(pid) = current {
            for index in line
                .split_whitespace()
                .map_while(|word| word.parse::<u32>().ok())
            {
                let place = gpus.iter().position(|gpu| gpu.index == index);
                if let Some(list) = place.and_then(|place| lists.get_mut(place))
                    && list.len() < MOST_PROCESSES
                {
                    list.push(owners.process(Some(pid), None, None));
                }
            }
        }
    }
    if says_something {
        for (gpu, list) in gpus.iter_mut().zip(lists) {
            gpu.processes = Some(list);
        }
    }
}

#[cfg(test)]
#[path = "rocm_tests.rs"]
mod tests;
