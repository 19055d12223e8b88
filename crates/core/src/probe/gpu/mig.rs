//! NVIDIA GPUs that are divided (MIG): the instances of `nvidia-smi -L` and what the plain table says of them.

use super::super::report::{Report, Verdict};
use super::super::text::clean;
use super::device::{Gpu, GpuInstance, GpuProcess, MOST_PROCESSES};
use super::field::{mebibytes, name};
use super::owners::Owners;

/// Most instances of one GPU; hardware has seven.
const MOST_INSTANCES: usize = 16;

/// Adds to each GPU the parts it is divided into.
pub(super) fn attach(report: &Report<'_>, gpus: &mut [Gpu], owners: &Owners) {
    let Some(list) = report.section("nvidia_list") else {
        return;
    };
    let table = report
        .section("nvidia_table")
        .filter(|section| section.verdict == Verdict::Exited(0))
        .map(|section| Table::read(section.lines(), owners));
    let mut current = None;
    for line in list.lines() {
        if let Some(index) = gpu_line(line) {
            current = gpus.iter_mut().find(|gpu| gpu.index == index);
        } else if let Some((number, mut instance)) = instance_line(line)
            && let Some(gpu) = current.as_deref_mut()
            && gpu.instances.len() < MOST_INSTANCES
        {
            if let Some(table) = &table {
                table.describe(gpu.index, number, &mut instance);
            }
            gpu.instances.push(instance);
        }
    }
}

// "GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-...)"
fn gpu_line(line: &str) -> Option<u32> {
    let (index, _) = line.strip_prefix("GPU ")?.split_once(':')?;
    index.trim().parse().ok()
}

// "MIG 2g.20gb     Device  0: (UUID: MIG-...)"
fn instance_line(line: &str) -> Option<(u32, GpuInstance)> {
    let (profile, rest) = line.strip_prefix("MIG ")?.split_once("Device")?;
    let (number, rest) = rest.split_once(':')?;
    let (_, uuid) = rest.split_once("UUID:")?;
    let instance = GpuInstance {
        profile: clean(profile),
        uuid: clean(uuid.trim_end_matches(')')),
        mem_used_mb: None,
        mem_total_mb: None,
        processes: None,
    };
    Some((number.trim().parse().ok()?, instance))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Gpus,
    Instances,
    Processes,
}

struct Measured {
    gpu: u32,
    instance: (u32, u32),
    number: u32,
    mem_used_mb: Option<u64>,
    mem_total_mb: Option<u64>,
}

/// The two tables at the end of what plain `nvidia-smi` prints.
struct Table {
    measured: Vec<Measured>,
    processes: Vec<(u32, (u32, u32), GpuProcess)>,
    lists_processes: bool,
}

impl Table {
    fn read<'line>(lines: impl Iterator<Item = &'line str>, owners: &Owners) -> Self {
        let mut part = Part::Gpus;
        let mut table = Table {
            measured: Vec::new(),
            processes: Vec::new(),
            lists_processes: false,
        };
        for line in lines {
            let row = line.trim_matches('|').trim();
            if row.starts_with("MIG devices:") {
                part = Part::Instances;
            } else if row.starts_with("Processes:") {
                part = Part::Processes;
                table.lists_processes = true;
            } else if part == Part::Instances {
                table.measured.extend(measured(row));
            } else if part == Part::Processes {
                table.processes.extend(process(row, owners));
            }
        }
        table
    }

    fn describe(&self, gpu: u32, number: u32, instance: &mut GpuInstance) {
        let is_it = |row: &&Measured| row.gpu == gpu && row.number == number;
        let Some(row) = self.measured.iter().find(is_it) else {
            return;
        };
        instance.mem_used_mb = row.mem_used_mb;
        instance.mem_total_mb = row.mem_total_mb;
        instance.processes = self.lists_processes.then(|| {
            let here = |(on, part, _): &&(u32, (u32, u32), GpuProcess)| {
                (*on, *part) == (gpu, row.instance)
            };
            let all = self.processes.iter().filter(here);
            all.take(MOST_PROCESSES)
                .map(|(.., process)| process.clone())
                .collect()
        });
    }
}

// "1    3   0   0  |  14366MiB / 19968MiB | 28      0 |  2   0    1    0    0": GPU, GPU instance, compute instance, number.
fn measured(row: &str) -> Option<Measured> {
    let mut cells = row.split('|');
    let mut place = cells.next()?.split_whitespace().map(str::parse::<u32>);
    let (gpu, part, compute, number) = (
        place.next()?.ok()?,
        place.next()?.ok()?,
        place.next()?.ok()?,
        place.next()?.ok()?,
    );
    let (used, total) = cells.next()?.split_once('/')?;
    Some(Measured {
        gpu,
        instance: (part, compute),
        number,
        mem_used_mb: mebibytes(used),
        mem_total_mb: mebibytes(total).filter(|total| *total > 0),
    })
}

// "1    3    0      34965      C   python      14195MiB": GPU, GPU instance, compute instance, pid, type, name, memory.
fn process(row: &str, owners: &Owners) -> Option<(u32, (u32, u32), GpuProcess)> {
    let (rest, mem_used) = row.rsplit_once(char::is_whitespace)?;
    let mut words = rest.split_whitespace();
    let gpu = words.next()?.parse().ok()?;
    let part = words.next()?.parse().ok()?;
    let compute = words.next()?.parse().ok()?;
    let pid = words.next()?.parse().ok();
    let _kind = words.next()?;
    let program: Vec<&str> = words.collect();
    let process = owners.process(pid, name(&program.join(" ")), mebibytes(mem_used));
    Some((gpu, (part, compute), process))
}

#[cfg(test)]
#[path = "mig_tests.rs"]
mod tests;
