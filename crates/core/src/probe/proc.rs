//! Processors, memory and disks out of a report.

use super::report::Report;
use super::text::{clean, one_decimal, percent};
use super::{Cpu, Disk, Memory};

/// More processors than any machine has: a larger count is a misreading.
const MOST_PROCESSORS: u32 = 1 << 16;

/// A load above this is a misreading.
const HIGHEST_LOAD: f64 = 1e6;

/// Reads the processors' figures.
pub(super) fn cpu(report: &Report<'_>) -> Cpu {
    let [load_1m, load_5m, load_15m] = loads(report);
    Cpu {
        load_1m,
        load_5m,
        load_15m,
        count: processor_count(report),
        util_pct: utilisation(report),
    }
}

fn loads(report: &Report<'_>) -> [Option<f64>; 3] {
    let line = report
        .section("load")
        .and_then(|section| section.lines().next())
        .unwrap_or_default();
    // `uptime` has other numbers before its averages, `/proc/loadavg` has some behind them.
    let figures = match line.split_once("load average") {
        Some((_, rest)) => rest.split_once(':').map_or("", |(_, figures)| figures),
        None => line,
    };
    let mut figures = figures
        .split(|character: char| character.is_whitespace() || matches!(character, ',' | '{' | '}'))
        .filter(|word| !word.is_empty())
        .map(load);
    [(); 3].map(|()| figures.next().flatten())
}

fn load(word: &str) -> Option<f64> {
    let plain = word
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let load: f64 = word.parse().ok().filter(|_| plain)?;
    (load <= HIGHEST_LOAD).then_some(load)
}

fn processor_count(report: &Report<'_>) -> Option<u32> {
    let online = report.section("count").and_then(|section| {
        section
            .lines()
            .filter_map(|line| line.parse::<u32>().ok())
            .find(|count| (1..=MOST_PROCESSORS).contains(count))
    })?;
    Some(quota(report).map_or(online, |quota| quota.min(online)))
}

// The tightest quota of all levels, in whole processors, rounded up.
fn quota(report: &Report<'_>) -> Option<u32> {
    let section = report.section("cgroup")?;
    section
        .lines()
        .filter_map(|line| {
            let (quota, period) = line.strip_prefix("cpu ")?.split_once(' ')?;
            let quota: u64 = quota.parse().ok().filter(|quota| *quota > 0)?;
            let period: u64 = period.parse().ok().filter(|period| *period > 0)?;
            u32::try_from(quota.div_ceil(period)).ok()
        })
        .min()
}

fn utilisation(report: &Report<'_>) -> Option<f64> {
    let section = report.section("stat")?;
    let mut samples = section.lines().map(processor_time);
    let before = samples.next().flatten()?;
    let after = samples.next().flatten()?;
    let total = after.total.checked_sub(before.total)?;
    // The kernel may take back some of the time it called waiting.
    let idle = after.idle.saturating_sub(before.idle).min(total);
    percent(total - idle, total)
}

struct ProcessorTime {
    total: u64,
    idle: u64,
}

fn processor_time(line: &str) -> Option<ProcessorTime> {
    // user nice system idle iowait irq softirq steal; what follows is counted in the first two already.
    let ticks = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok())
        .collect::<Option<Vec<u64>>>()?;
    let idle = ticks
        .get(3)?
        .checked_add(ticks.get(4).copied().unwrap_or(0))?;
    let total = ticks
        .iter()
        .try_fold(0_u64, |sum, tick| sum.checked_add(*tick))?;
    Some(ProcessorTime { total, idle })
}

/// Reads the memory's figures.
pub(super) fn memory(report: &Report<'_>) -> Memory {
    let machine = linux_memory(report)
        .or_else(|| bsd_memory(report))
        .unwrap_or_default();
    let (total_kb, free_kb) = within_cgroup(report, machine);
    let used_kb = total_kb
        .zip(free_kb)
        .map(|(total, free)| total.saturating_sub(free));
    Memory {
        total_mb: total_kb.map(|size| size / 1024),
        used_mb: used_kb.map(|size| size / 1024),
        free_mb: free_kb.map(|size| size / 1024),
        used_pct: total_kb
            .zip(used_kb)
            .and_then(|(total, used)| percent(used, total)),
    }
}

/// Total and free in KiB.
type TotalAndFree = (Option<u64>, Option<u64>);

fn linux_memory(report: &Report<'_>) -> Option<TotalAndFree> {
    let section = report.section("meminfo")?;
    let size = |key: &str| -> Option<u64> { section.value(key)?.strip_suffix(" kB")?.parse().ok() };
    let total = size("MemTotal:").filter(|total| *total > 0)?;
    let free = size("MemAvailable:").or_else(|| {
        // Kernels before 3.14 do not estimate it.
        size("MemFree:")?
            .checked_add(size("Buffers:")?)?
            .checked_add(size("Cached:")?)
    });
    Some((Some(total), free.map(|free| free.min(total))))
}

fn bsd_memory(report: &Report<'_>) -> Option<TotalAndFree> {
    let section = report.section("sysctl")?;
    let value = |key: &str| -> Option<u64> {
        section.lines().find_map(|line| {
            let rest = line.strip_prefix(key)?.trim_start();
            rest.strip_prefix([':', '='])?.trim().parse().ok()
        })
    };
    let total = ["hw.memsize", "hw.physmem64", "hw.physmem"]
        .into_iter()
        .find_map(value)
        .filter(|total| *total > 0)?
        / 1024;
    let counted = || {
        let pages = value("vm.stats.vm.v_free_count")?
            .checked_add(value("vm.stats.vm.v_inactive_count")?)?;
        pages.checked_mul(value("hw.pagesize")?)
    };
    let free = mac_free_bytes(report).or_else(counted);
    Some((Some(total), free.map(|bytes| (bytes / 1024).min(total))))
}

fn mac_free_bytes(report: &Report<'_>) -> Option<u64> {
    let section = report.section("vm_stat")?;
    let page_size: u64 = section.lines().find_map(|line| {
        let (_, rest) = line.split_once("page size of ")?;
        rest.split_once(' ')?.0.parse().ok()
    })?;
    ["Pages free:", "Pages inactive:", "Pages speculative:"]
        .into_iter()
        .try_fold(0_u64, |sum, key| {
            let pages: u64 = section.value(key)?.trim_end_matches('.').parse().ok()?;
            sum.checked_add(pages)
        })?
        .checked_mul(page_size)
}

// The lowest limit is the total; the least room at any level is what is free.
fn within_cgroup(report: &Report<'_>, (total, free): TotalAndFree) -> TotalAndFree {
    let Some(section) = report.section("cgroup") else {
        return (total, free);
    };
    section
        .lines()
        .filter_map(|line| cgroup_level(line.strip_prefix("memory ")?))
        .filter(|level| total.is_none_or(|total| level.limit_kb < total))
        .fold((total, free), |(total, free), level| {
            let least = total.map_or(level.limit_kb, |total| total.min(level.limit_kb));
            let room = level
                .used_kb
                .map(|used| level.limit_kb.saturating_sub(used));
            // A level whose use is unknown leaves the room unknown; on a host without figures the level stands alone.
            let free = match (total, free, room) {
                (_, Some(free), Some(room)) => Some(free.min(room)),
                (None, None, room) => room,
                _ => None,
            };
            (Some(least), free.map(|free| free.min(least)))
        })
}

struct CgroupLevel {
    limit_kb: u64,
    used_kb: Option<u64>,
}

fn cgroup_level(figures: &str) -> Option<CgroupLevel> {
    let mut figures = figures.split_whitespace().map(|word| word.parse().ok());
    let limit: u64 = figures.next().flatten().filter(|limit| *limit > 0)?;
    let current: Option<u64> = figures.next().flatten();
    let inactive: u64 = figures.next().flatten().unwrap_or(0);
    Some(CgroupLevel {
        limit_kb: limit / 1024,
        used_kb: current.map(|current| current.saturating_sub(inactive) / 1024),
    })
}

/// Reads the figures of the file systems.
pub(super) fn disks(report: &Report<'_>) -> Vec<Disk> {
    ["disk_home", "disk_tmp"]
        .into_iter()
        .filter_map(|name| {
            let section = report.section(name)?;
            let space = section.lines().find_map(disk_space);
            Some(Disk {
                path: clean(section.value("path")?),
                total_mb: space.as_ref().map(|space| space.total_kb / 1024),
                free_mb: space.as_ref().map(|space| space.free_kb / 1024),
                used_pct: space.and_then(|space| space.used_pct),
            })
        })
        .collect()
}

struct DiskSpace {
    total_kb: u64,
    free_kb: u64,
    used_pct: Option<f64>,
}

// Device names and mount points may hold spaces, so the row is found by its percent sign.
fn disk_space(line: &str) -> Option<DiskSpace> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(4).find_map(|window| {
        let [total, used, free, capacity] = window else {
            return None;
        };
        capacity.strip_suffix('%')?.parse::<u32>().ok()?;
        let total_kb: u64 = total.parse().ok().filter(|total| *total > 0)?;
        let used_kb: u64 = used.parse().ok()?;
        // A file system filled into its reserve shows a negative rest.
        let free_kb = free.parse::<i128>().ok()?.max(0);
        let free_kb = u64::try_from(free_kb).ok()?;
        Some(DiskSpace {
            total_kb,
            free_kb,
            used_pct: percent(used_kb, used_kb.checked_add(free_kb)?).map(one_decimal),
        })
    })
}

#[cfg(test)]
#[path = "proc_tests.rs"]
mod tests;
