use proptest::prelude::*;
use rstest::rstest;

use super::super::GpuVendor;
use super::*;

fn cpu(load_1m: f64, count: u32, util_pct: f64) -> Cpu {
    Cpu {
        load_1m: Some(load_1m),
        count: Some(count),
        util_pct: Some(util_pct),
        ..Cpu::default()
    }
}

fn memory(used_mb: u64, total_mb: u64) -> Memory {
    Memory {
        total_mb: Some(total_mb),
        used_mb: Some(used_mb),
        ..Memory::default()
    }
}

fn gpu(util_pct: Option<f64>, mem_used_mb: Option<u64>) -> Gpu {
    Gpu {
        vendor: GpuVendor::Nvidia,
        index: 0,
        name: None,
        uuid: None,
        util_pct,
        mem_used_mb,
        mem_total_mb: Some(1000),
        temperature_c: None,
        processes: None,
        instances: Vec::new(),
    }
}

fn score(cpu: &Cpu, memory: &Memory, gpus: &[Gpu], gpus_unreadable: bool) -> Option<f64> {
    idle_score(&Readings {
        cpu,
        memory,
        gpus,
        gpus_unreadable,
    })
}

#[rstest]
#[case::idle(0.0, 0.0, 0, 1.0)]
#[case::load_counts(4.0, 10.0, 0, 0.75)]
#[case::time_counts_when_higher(0.8, 90.0, 0, 0.55)]
#[case::load_is_capped(80.0, 0.0, 0, 0.5)]
#[case::memory_counts(0.0, 0.0, 500, 0.75)]
#[case::all_busy(8.0, 100.0, 1000, 0.0)]
fn score_without_gpus_shares_the_weight(
    #[case] load: f64,
    #[case] util: f64,
    #[case] used: u64,
    #[case] expected: f64,
) {
    let found = score(&cpu(load, 8, util), &memory(used, 1000), &[], false);
    assert_eq!(found, Some(expected));
}

#[rstest]
#[case::idle(&[gpu(Some(0.0), Some(0))], false, 1.0)]
#[case::busy(&[gpu(Some(100.0), Some(0))], false, 0.5)]
#[case::full_memory_is_busy(&[gpu(Some(0.0), Some(1000))], false, 0.5)]
#[case::mean(&[gpu(Some(100.0), Some(0)), gpu(Some(0.0), Some(500))], false, 0.625)]
#[case::unknown_time_is_busy(&[gpu(None, Some(0))], false, 0.5)]
#[case::unknown_memory_is_busy(&[gpu(Some(0.0), None)], false, 0.5)]
#[case::unreadable_is_busy(&[], true, 0.5)]
#[case::partly_unreadable(&[gpu(Some(0.0), Some(0))], true, 0.75)]
fn score_gives_gpus_half_of_the_weight(
    #[case] gpus: &[Gpu],
    #[case] unreadable: bool,
    #[case] expected: f64,
) {
    let found = score(&cpu(0.0, 8, 0.0), &memory(0, 1000), gpus, unreadable);
    assert_eq!(found, Some(expected));
}

#[test]
fn score_counts_unknown_parts_as_busy() {
    let known = cpu(0.0, 8, 0.0);
    assert_eq!(score(&known, &Memory::default(), &[], false), Some(0.5));
    assert_eq!(score(&Cpu::default(), &memory(0, 1), &[], false), Some(0.5));
}

#[test]
fn score_takes_one_figure_of_the_processors_when_the_other_is_unknown() {
    let load_only = Cpu {
        util_pct: None,
        ..cpu(4.0, 8, 0.0)
    };
    let time_only = Cpu {
        count: None,
        ..cpu(4.0, 8, 20.0)
    };
    assert_eq!(score(&load_only, &memory(0, 1), &[], false), Some(0.75));
    assert_eq!(score(&time_only, &memory(0, 1), &[], false), Some(0.9));
}

#[rstest]
#[case::no_gpus(&[], false)]
#[case::unreadable(&[], true)]
#[case::blank_gpu(&[gpu(None, None)], false)]
fn score_is_unknown_when_nothing_is_known(#[case] gpus: &[Gpu], #[case] unreadable: bool) {
    let found = score(&Cpu::default(), &Memory::default(), gpus, unreadable);
    assert_eq!(found, None);
}

#[test]
fn score_is_zero_and_known_when_only_a_busy_gpu_is_known() {
    let gpus = [gpu(Some(100.0), Some(0))];
    let found = score(&Cpu::default(), &Memory::default(), &gpus, false);
    assert_eq!(found, Some(0.0));
}

#[derive(Debug, Clone)]
struct Host {
    load: f64,
    util: f64,
    used: u64,
    gpus: Vec<(f64, u64)>,
}

impl Host {
    fn score(&self) -> f64 {
        let gpus: Vec<Gpu> = self
            .gpus
            .iter()
            .map(|(util, used)| gpu(Some(*util), Some(*used)))
            .collect();
        let cpu = cpu(self.load, 8, self.util);
        score(&cpu, &memory(self.used, 1000), &gpus, false).unwrap()
    }
}

fn host() -> impl Strategy<Value = Host> {
    let gpus = prop::collection::vec((0.0..=100.0, 0_u64..=1000), 0..5);
    (0.0..20.0, 0.0..=100.0, 0_u64..=1000, gpus).prop_map(|(load, util, used, gpus)| Host {
        load,
        util,
        used,
        gpus,
    })
}

proptest! {
    #[test]
    fn score_lies_between_zero_and_one_for_any_figures(
        load in prop::option::of(any::<f64>()),
        util in prop::option::of(any::<f64>()),
        count in prop::option::of(any::<u32>()),
        sizes in prop::option::of((any::<u64>(), any::<u64>())),
        unreadable in any::<bool>(),
        gpus in prop::collection::vec((prop::option::of(any::<f64>()), prop::option::of(any::<u64>())), 0..5),
    ) {
        let cpu = Cpu { load_1m: load, count, util_pct: util, ..Cpu::default() };
        let memory = sizes.map_or_else(Memory::default, |(used, total)| memory(used, total));
        let gpus: Vec<Gpu> = gpus.into_iter().map(|(util, used)| gpu(util, used)).collect();
        if let Some(score) = score(&cpu, &memory, &gpus, unreadable) {
            prop_assert!((0.0..=1.0).contains(&score));
        }
    }

    #[test]
    fn score_never_rises_with_more_load(
        before in host(),
        load in 0.0..5.0_f64,
        util in 0.0..50.0_f64,
        used in 0_u64..500,
        on_gpu in (0.0..50.0_f64, 0_u64..500),
    ) {
        let mut after = before.clone();
        after.load += load;
        after.util = (after.util + util).min(100.0);
        after.used += used;
        if let Some(first) = after.gpus.first_mut() {
            first.0 = (first.0 + on_gpu.0).min(100.0);
            first.1 += on_gpu.1;
        }
        prop_assert!(after.score() <= before.score());
    }
}
