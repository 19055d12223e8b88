//! Huawei Ascend: the tables of `npu-smi info`.

use super::super::report::{Report, Section, Verdict};
use super::super::text::clean;
use super::device::{Gpu, GpuProcess, GpuVendor, MOST_PROCESSES};
use super::field::{celsius_or_unknown, mebibytes, name, share};
use super::owners::Owners;
use super::{Gpus, NOT_REACHED, Presence, bounded, fault};

const TOOL: &str = "npu-smi";

/// Reads the chips with their processes.
pub(super) fn gpus(report: &Report<'_>, presence: Presence<'_>, owners: &Owners) -> Gpus {
    if presence.tool.is_none() {
        return if presence.has_device {
            Gpus::unreadable("an Ascend device is present but npu-smi was not found")
        } else {
            Gpus::default()
        };
    }
    let Some(section) = report.section("ascend") else {
        return Gpus::unreadable(NOT_REACHED);
    };
    let table = Table::read(&section, owners);
    let found = table.gpus(&section);
    // A tool that is installed where no device is says so in many ways.
    if found.readable.is_empty()
        && !presence.has_device
        && matches!(section.verdict, Verdict::Exited(_))
    {
        return Gpus::default();
    }
    bounded(TOOL, found)
}

/// One chip: a card can have several.
struct Chip {
    card: u32,
    chip: u32,
    is_healthy: bool,
    gpu: Gpu,
}

/// The first of the two lines about a chip.
struct Upper<'line> {
    card: u32,
    product: &'line str,
    health: &'line str,
    temperature_c: Option<f64>,
}

#[derive(Default)]
struct Table<'line> {
    chips: Vec<Chip>,
    /// Cards whose processes were told, or told to be none.
    told: Vec<u32>,
    processes: Vec<(u32, u32, GpuProcess)>,
    complaint: Option<&'line str>,
    unhealthy: Option<String>,
}

impl<'line> Table<'line> {
    fn read(section: &Section<'line>, owners: &Owners) -> Self {
        let mut table = Table::default();
        let mut upper: Option<Upper<'line>> = None;
        let mut in_processes = false;
        for line in section.lines() {
            let Some(row) = line.strip_prefix('|') else {
                if !line.starts_with('+') && table.complaint.is_none() {
                    table.complaint = Some(line);
                }
                continue;
            };
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            if row.contains("Process id") {
                in_processes = true;
            } else if in_processes {
                table.take_process(&cells, owners);
            } else if let Some(above) = upper.take() {
                table.take_chip(&above, &cells);
            } else {
                upper = upper_line(&cells);
            }
        }
        table
    }

    fn take_chip(&mut self, upper: &Upper<'_>, cells: &[&str]) {
        let Some((chip, gpu)) = lower_line(upper, cells, self.chips.len()) else {
            return;
        };
        let is_healthy = upper.health == "OK";
        if !is_healthy && self.unhealthy.is_none() {
            let health = clean(upper.health);
            self.unhealthy = Some(format!("NPU {} reports the health {health}", upper.card));
        }
        self.chips.push(Chip {
            card: upper.card,
            chip,
            is_healthy,
            gpu,
        });
    }

    // "2       0    | 1333928    | python   | 37709": card and chip, pid, name, memory.
    fn take_process(&mut self, cells: &[&str], owners: &Owners) {
        let first = cells.first().copied().unwrap_or_default();
        if let Some(card) = first.strip_prefix("No running processes found in NPU") {
            self.told.extend(card.trim().parse::<u32>());
            return;
        }
        let mut place = first.split_whitespace().map(str::parse::<u32>);
        if let (Some(Ok(card)), Some(Ok(chip))) = (place.next(), place.next()) {
            let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
            let pid = cell(1).parse().ok();
            let process = owners.process(pid, name(cell(2)), mebibytes(cell(3)));
            self.told.push(card);
            self.processes.push((card, chip, process));
        }
    }

    fn gpus(self, section: &Section<'_>) -> Gpus {
        let complaint = self.complaint.map(clean).filter(|text| !text.is_empty());
        let listed_none = self.chips.is_empty();
        // A broken chip is not one that a job could have.
        let healthy = self.chips.into_iter().filter(|chip| chip.is_healthy);
        let with_processes = healthy.map(|mut chip| {
            chip.gpu.processes = self.told.contains(&chip.card).then(|| {
                let here = |(card, part, _): &&(u32, u32, GpuProcess)| {
                    (*card, *part) == (chip.card, chip.chip)
                };
                let all = self.processes.iter().filter(here);
                all.take(MOST_PROCESSES)
                    .map(|(.., process)| process.clone())
                    .collect()
            });
            chip.gpu
        });
        let error = fault(TOOL, section.verdict, complaint.clone())
            .or(self.unhealthy)
            .or_else(|| {
                listed_none.then(|| complaint.unwrap_or_else(|| format!("{TOOL} listed no device")))
            });
        Gpus {
            readable: with_processes.collect(),
            error,
        }
    }
}

// "0     910B2  | OK   | 98.1    32    0    / 0": card, product, health, power, temperature, huge pages.
fn upper_line<'line>(cells: &[&'line str]) -> Option<Upper<'line>> {
    let (card, product) = cells.first()?.split_once(char::is_whitespace)?;
    let mut figures = cells.get(2)?.split_whitespace();
    let heat = figures.nth(1).and_then(|word| word.parse().ok());
    Some(Upper {
        card: card.parse().ok()?,
        product: product.trim(),
        health: cells.get(1)?,
        temperature_c: heat.and_then(celsius_or_unknown),
    })
}

// "0   15  | 0000:83:00.0  | 0    0    / 0    31877/ 65536": chip, index, bus, share, memory, and for some HBM.
fn lower_line(upper: &Upper<'_>, cells: &[&str], position: usize) -> Option<(u32, Gpu)> {
    let mut place = cells.first()?.split_whitespace().map(str::parse::<u32>);
    let chip = place.next()?.ok()?;
    // Where the tool tells no index of its own, devices are counted in the order of the list.
    let index = match place.next() {
        Some(index) => index.ok()?,
        None => u32::try_from(position).ok()?,
    };
    let figures = cells.get(2)?.replace('/', " ");
    let figures: Vec<&str> = figures.split_whitespace().collect();
    let pairs = figures.get(1..).unwrap_or_default().chunks_exact(2);
    let mut sizes = pairs.filter_map(|pair| match pair {
        [used, total] => Some((
            mebibytes(used),
            mebibytes(total).filter(|total| *total > 0)?,
        )),
        _ => None,
    });
    let memory = sizes.next_back();
    let gpu = Gpu {
        name: name(upper.product),
        util_pct: figures.first().and_then(|word| share(word)),
        mem_used_mb: memory.and_then(|(used, _)| used),
        mem_total_mb: memory.map(|(_, total)| total),
        temperature_c: upper.temperature_c,
        ..Gpu::unknown(GpuVendor::Ascend, index)
    };
    Some((chip, gpu))
}

#[cfg(test)]
#[path = "ascend_tests.rs"]
mod tests;
