//! GPUs and their processes out of a report.

use super::report::{Report, Section, Verdict};
use super::text::{clean, one_decimal, percent};
use super::{Gpu, GpuProcess};

/// Most GPUs taken from one host.
const MOST_GPUS: usize = 64;

/// Most processes taken for one GPU.
const MOST_PROCESSES: usize = 64;

const NOT_REACHED: &str = "the probe ended before it had read the GPUs";

/// What is known of the GPUs of a host.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Gpus {
    /// Those that were listed.
    pub(super) readable: Vec<Gpu>,
    /// Why some or all could not be read.
    pub(super) error: Option<String>,
}

/// Reads the GPUs; a host without any gives neither a GPU nor an error.
pub(super) fn gpus(report: &Report<'_>) -> Gpus {
    let driver = report.section("gpu_driver");
    let fact = |key: &str| driver.and_then(|section| section.value(key));
    let has_device = fact("device") == Some("yes");
    match fact("tool") {
        Some("yes") => match report.section("gpus") {
            Some(list) => with_processes(
                read_list(&list, has_device),
                report.section("gpu_processes"),
            ),
            None => unreadable(NOT_REACHED),
        },
        Some("no") if has_device => {
            unreadable("an NVIDIA driver is loaded but nvidia-smi was not found")
        }
        Some("no") if fact("device") == Some("no") => Gpus::default(),
        _ => unreadable(NOT_REACHED),
    }
}

fn unreadable(reason: &str) -> Gpus {
    Gpus {
        readable: Vec::new(),
        error: Some(reason.to_owned()),
    }
}

/// A GPU with the name by which its processes refer to it.
struct Row {
    uuid: String,
    gpu: Gpu,
}

struct List {
    rows: Vec<Row>,
    error: Option<String>,
}

fn read_list(section: &Section<'_>, has_device: bool) -> List {
    let mut rows = Vec::new();
    let mut complaint = None;
    let mut says_none = false;
    for line in section.lines() {
        if let Some(row) = row(line) {
            rows.push(row);
        } else if line.starts_with("No devices were found") {
            says_none = true;
        } else if !is_warning(line) && complaint.is_none() {
            complaint = Some(clean(line)).filter(|text| !text.is_empty());
        }
    }
    let listed_all = rows.len() <= MOST_GPUS;
    rows.truncate(MOST_GPUS);
    let error = match section.verdict {
        Verdict::Hung => Some("nvidia-smi did not answer in time and was stopped".to_owned()),
        Verdict::Cut => Some("nvidia-smi printed more than the probe reads".to_owned()),
        Verdict::Lost => Some(NOT_REACHED.to_owned()),
        Verdict::Exited(_) if !listed_all => {
            Some(format!("nvidia-smi listed more than {MOST_GPUS} GPUs"))
        }
        Verdict::Exited(_) if says_none && rows.is_empty() && complaint.is_none() => {
            has_device.then(|| "a GPU device is present but nvidia-smi found none".to_owned())
        }
        Verdict::Exited(0) => complaint.or_else(|| {
            (rows.is_empty() && has_device)
                .then(|| "a GPU device is present but nvidia-smi listed none".to_owned())
        }),
        Verdict::Exited(status) => Some(
            complaint.unwrap_or_else(|| format!("nvidia-smi failed with exit status {status}")),
        ),
    };
    List { rows, error }
}

// Remarks such as the one about a corrupted infoROM stand beside a complete list.
fn is_warning(line: &str) -> bool {
    line.get(..8)
        .is_some_and(|word| word.eq_ignore_ascii_case("warning:"))
}

// index, uuid, name, utilisation, memory used, memory total: the name may hold commas, so both ends are taken first.
fn row(line: &str) -> Option<Row> {
    let (index, rest) = line.split_once(',')?;
    let (uuid, rest) = rest.split_once(',')?;
    let (rest, mem_total) = rest.rsplit_once(',')?;
    let (rest, mem_used) = rest.rsplit_once(',')?;
    let (name, utilisation) = rest.rsplit_once(',')?;
    let mem_used_mb = mebibytes(mem_used);
    let mem_total_mb = mebibytes(mem_total).filter(|total| *total > 0);
    Some(Row {
        uuid: uuid.trim().to_owned(),
        gpu: Gpu {
            index: index.trim().parse().ok()?,
            name: name_or_unknown(name),
            util_pct: share(utilisation),
            mem_used_mb,
            mem_total_mb,
            mem_used_pct: mem_used_mb
                .zip(mem_total_mb)
                .and_then(|(used, total)| percent(used, total)),
            processes: None,
        },
    })
}

// Whatever is not a number ("[N/A]", "[Not Supported]", "ERR!", "[Insufficient Permissions]") is unknown.
fn mebibytes(field: &str) -> Option<u64> {
    let field = field.trim();
    let digits = field.strip_suffix("MiB").unwrap_or(field).trim_end();
    digits.parse().ok()
}

fn share(field: &str) -> Option<f64> {
    let field = field.trim();
    let number = field.strip_suffix('%').unwrap_or(field).trim_end();
    let share: f64 = number.parse().ok()?;
    (0.0..=100.0)
        .contains(&share)
        .then(|| one_decimal(share.abs()))
}

fn name_or_unknown(field: &str) -> Option<String> {
    let name = clean(field);
    let is_placeholder = name.starts_with('[') && name.ends_with(']');
    let is_known = !name.is_empty() && !is_placeholder && name != "N/A" && name != "ERR!";
    is_known.then_some(name)
}

fn with_processes(list: List, section: Option<Section<'_>>) -> Gpus {
    let List { mut rows, error } = list;
    if let Some(section) = section.filter(|section| section.verdict == Verdict::Exited(0)) {
        attach_processes(&mut rows, &section);
    }
    Gpus {
        readable: rows.into_iter().map(|row| row.gpu).collect(),
        error,
    }
}

fn attach_processes(rows: &mut [Row], section: &Section<'_>) {
    let mut lists: Vec<Vec<GpuProcess>> = rows.iter().map(|_| Vec::new()).collect();
    let mut has_stray = false;
    for (owner, process) in section.lines().filter_map(process) {
        let place = place_of(rows, owner);
        match place.and_then(|place| lists.get_mut(place)) {
            Some(list) if list.len() < MOST_PROCESSES => list.push(process),
            Some(_) => {}
            None => has_stray = true,
        }
    }
    for (row, list) in rows.iter_mut().zip(lists) {
        // A process of no listed GPU may run on any of them: an empty list is no proof that a GPU is unused.
        let is_doubtful = has_stray && list.is_empty();
        row.gpu.processes = (!is_doubtful).then_some(list);
    }
}

// A MIG slice is named "MIG-GPU-<uuid of the GPU>/..." by older drivers, and by a uuid of its own by newer ones.
fn place_of(rows: &[Row], owner: &str) -> Option<usize> {
    let parent = owner
        .strip_prefix("MIG-GPU-")
        .and_then(|rest| rest.split('/').next());
    let is_owner = |row: &Row| match parent {
        Some(parent) => row.uuid.strip_prefix("GPU-") == Some(parent),
        None => row.uuid == owner,
    };
    let only = (owner.starts_with("MIG-") && rows.len() == 1).then_some(0);
    rows.iter().position(is_owner).or(only)
}

// gpu uuid, pid, name, memory used: again a name may hold commas.
fn process(line: &str) -> Option<(&str, GpuProcess)> {
    let (owner, rest) = line.split_once(',')?;
    let (pid, rest) = rest.split_once(',')?;
    let (name, mem_used) = rest.rsplit_once(',')?;
    let owner = owner.trim();
    if !owner.starts_with("GPU-") && !owner.starts_with("MIG-") {
        return None;
    }
    let process = GpuProcess {
        pid: pid.trim().parse().ok(),
        name: name_or_unknown(name),
        mem_used_mb: mebibytes(mem_used),
    };
    Some((owner, process))
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
