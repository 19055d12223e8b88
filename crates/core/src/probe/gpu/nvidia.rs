//! NVIDIA: the lists of `nvidia-smi`.

use super::super::report::{Report, Section, Verdict};
use super::super::text::clean;
use super::device::{Gpu, GpuProcess, GpuVendor, MOST_PROCESSES};
use super::field::{mebibytes, name, share};
use super::owners::Owners;
use super::{Gpus, NOT_REACHED, Presence, bounded, fault, mig};

const TOOL: &str = "nvidia-smi";

/// Reads the GPUs with their processes and the parts they are divided into.
pub(super) fn gpus(report: &Report<'_>, presence: Presence<'_>, owners: &Owners) -> Gpus {
    if presence.tool.is_none() {
        return if presence.has_device {
            Gpus::unreadable("an NVIDIA driver is loaded but nvidia-smi was not found")
        } else {
            Gpus::default()
        };
    }
    let Some(list) = report.section("gpus") else {
        return Gpus::unreadable(NOT_REACHED);
    };
    let mut gpus = bounded(TOOL, read_list(&list, presence.has_device));
    let processes = report.section("gpu_processes");
    if let Some(section) = processes.filter(|section| section.verdict == Verdict::Exited(0)) {
        attach_processes(&mut gpus.readable, &section, owners);
    }
    mig::attach(report, &mut gpus.readable, owners);
    gpus
}

fn read_list(section: &Section<'_>, has_device: bool) -> Gpus {
    let mut readable = Vec::new();
    let mut complaint = None;
    let mut says_none = false;
    for line in section.lines() {
        if let Some(gpu) = row(line) {
            readable.push(gpu);
        } else if line.starts_with("No devices were found") {
            says_none = true;
        } else if !is_warning(line) && complaint.is_none() {
            complaint = Some(clean(line)).filter(|text| !text.is_empty());
        }
    }
    let finds_none = says_none && readable.is_empty() && complaint.is_none();
    let error = match section.verdict {
        Verdict::Exited(_) if finds_none => {
            has_device.then(|| "a GPU device is present but nvidia-smi found none".to_owned())
        }
        Verdict::Exited(0) => complaint.or_else(|| {
            (readable.is_empty() && has_device)
                .then(|| "a GPU device is present but nvidia-smi listed none".to_owned())
        }),
        verdict => fault(TOOL, verdict, complaint),
    };
    Gpus { readable, error }
}

// Remarks such as the one about a corrupted infoROM stand beside a complete list.
fn is_warning(line: &str) -> bool {
    line.get(..8)
        .is_some_and(|word| word.eq_ignore_ascii_case("warning:"))
}

// index, uuid, name, utilisation, memory used, memory total: the name may hold commas, so both ends are taken first.
fn row(line: &str) -> Option<Gpu> {
    let (index, rest) = line.split_once(',')?;
    let (uuid, rest) = rest.split_once(',')?;
    let (rest, mem_total) = rest.rsplit_once(',')?;
    let (rest, mem_used) = rest.rsplit_once(',')?;
    let (product, utilisation) = rest.rsplit_once(',')?;
    Some(Gpu {
        name: name(product),
        uuid: name(uuid),
        util_pct: share(utilisation),
        mem_used_mb: mebibytes(mem_used),
        mem_total_mb: mebibytes(mem_total).filter(|total| *total > 0),
        ..Gpu::unknown(GpuVendor::Nvidia, index.trim().parse().ok()?)
    })
}

fn attach_processes(gpus: &mut [Gpu], section: &Section<'_>, owners: &Owners) {
    let mut lists: Vec<Vec<GpuProcess>> = gpus.iter().map(|_| Vec::new()).collect();
    let mut has_stray = false;
    for line in section.lines() {
        let Some((device, process)) = process(line, owners) else {
            continue;
        };
        let place = place_of(gpus, device);
        match place.and_then(|place| lists.get_mut(place)) {
            Some(list) if list.len() < MOST_PROCESSES => list.push(process),
            Some(_) => {}
            None => has_stray = true,
        }
    }
    for (gpu, list) in gpus.iter_mut().zip(lists) {
        // A process of no listed GPU may run on any of them: an empty list is no proof that a GPU is unused.
        let is_doubtful = has_stray && list.is_empty();
        gpu.processes = (!is_doubtful).then_some(list);
    }
}

// A MIG slice is named "MIG-GPU-<uuid of the GPU>/..." by older drivers, and by a uuid of its own by newer ones.
fn place_of(gpus: &[Gpu], device: &str) -> Option<usize> {
    let parent = device
        .strip_prefix("MIG-GPU-")
        .and_then(|rest| rest.split('/').next());
    let is_owner = |gpu: &Gpu| {
        let uuid = gpu.uuid.as_deref();
        match parent {
            Some(parent) => uuid.and_then(|uuid| uuid.strip_prefix("GPU-")) == Some(parent),
            None => uuid == Some(device),
        }
    };
    let only = (device.starts_with("MIG-") && gpus.len() == 1).then_some(0);
    gpus.iter().position(is_owner).or(only)
}

// gpu uuid, pid, name, memory used: again a name may hold commas.
fn process<'line>(line: &'line str, owners: &Owners) -> Option<(&'line str, GpuProcess)> {
    let (device, rest) = line.split_once(',')?;
    let (pid, rest) = rest.split_once(',')?;
    let (program, mem_used) = rest.rsplit_once(',')?;
    let device = device.trim();
    if !device.starts_with("GPU-") && !device.starts_with("MIG-") {
        return None;
    }
    let pid = pid.trim().parse().ok();
    Some((
        device,
        owners.process(pid, name(program), mebibytes(mem_used)),
    ))
}

#[cfg(test)]
#[path = "nvidia_tests.rs"]
mod tests;
