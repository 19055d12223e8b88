//! How idle a host is, as one number.

use super::text::fraction;
use super::{Cpu, Gpu, Memory};

/// What the score is made of.
#[derive(Debug, Clone, Copy)]
pub struct Readings<'host> {
    /// Processors and their load.
    pub cpu: &'host Cpu,
    /// Main memory.
    pub memory: &'host Memory,
    /// The GPUs that could be read.
    pub gpus: &'host [Gpu],
    /// Whether the host has GPUs that could not be read.
    pub gpus_unreadable: bool,
}

/// From 0 (busy) to 1 (idle) with three decimals, or `None` when nothing is known.
///
/// An unknown part counts as busy. On a host without GPUs, processors and memory share the whole weight.
pub fn idle_score(readings: &Readings<'_>) -> Option<f64> {
    let cpu = cpu_busy(readings.cpu);
    let memory = memory_busy(readings.memory);
    let gpus_known = readings.gpus.iter().any(is_partly_known);
    if cpu.is_none() && memory.is_none() && !gpus_known {
        return None;
    }
    let cpu = idle(cpu);
    let memory = idle(memory);
    let score = match gpu_idle(readings.gpus, readings.gpus_unreadable) {
        Some(gpu) => 0.25 * cpu + 0.25 * memory + 0.5 * gpu,
        None => 0.5 * cpu + 0.5 * memory,
    };
    Some((score.clamp(0.0, 1.0) * 1000.0).round() / 1000.0)
}

fn idle(busy: Option<f64>) -> f64 {
    busy.map_or(0.0, |busy| 1.0 - busy.clamp(0.0, 1.0))
}

fn cpu_busy(cpu: &Cpu) -> Option<f64> {
    let by_load = cpu
        .load_1m
        .zip(cpu.count.filter(|count| *count > 0))
        .map(|(load, count)| load / f64::from(count));
    let by_time = cpu.util_pct.map(|share| share / 100.0);
    match (by_load, by_time) {
        (Some(load), Some(time)) => Some(load.max(time)),
        (one, other) => one.or(other),
    }
}

fn memory_busy(memory: &Memory) -> Option<f64> {
    fraction(memory.used_mb?, memory.total_mb?)
}

// `None` for a host without GPUs. What could not be read counts as one busy GPU beside those that could.
fn gpu_idle(gpus: &[Gpu], unreadable: bool) -> Option<f64> {
    let count = gpus.len() + usize::from(unreadable);
    let sum: f64 = gpus.iter().map(|gpu| idle(gpu_busy(gpu))).sum();
    (count > 0).then(|| sum / count as f64)
}

// Both figures are needed: a job that holds the memory between two kernels shows no utilisation.
fn gpu_busy(gpu: &Gpu) -> Option<f64> {
    let time = gpu.util_pct? / 100.0;
    let memory = fraction(gpu.mem_used_mb?, gpu.mem_total_mb?)?;
    Some(time.max(memory))
}

fn is_partly_known(gpu: &Gpu) -> bool {
    gpu.util_pct.is_some() || gpu.mem_used_mb.is_some()
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
