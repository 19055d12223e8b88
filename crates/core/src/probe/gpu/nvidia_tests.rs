use rstest::rstest;

use super::super::super::samples::read;
use super::super::{MOST_GPUS, gpus};
use super::*;

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/probe/", $name))
    };
}

fn host(device: &str, status: &str, list: &str, processes: (&str, &str)) -> Gpus {
    let driver = format!("tool yes\ndevice {device}");
    let (processes_status, processes) = processes;
    let sections = [
        ("gpu_driver", "0", driver.as_str()),
        ("gpus", status, list),
        ("gpu_processes", processes_status, processes),
    ];
    read(&sections, gpus)
}

fn list(status: &str, list: &str) -> Gpus {
    host("yes", status, list, ("0", ""))
}

#[test]
fn healthy_gpus_are_read_with_their_processes() {
    let list = sample!("gpus_healthy.csv");
    let gpus = host("yes", "0", list, ("0", sample!("processes_healthy.csv")));
    assert_eq!(gpus.error, None);
    assert_eq!(gpus.readable.len(), 4);
    let serving = &gpus.readable[1];
    assert_eq!(serving.name.as_deref(), Some("NVIDIA A100-SXM4-80GB"));
    assert_eq!(serving.util_pct, Some(0.0));
    assert_eq!(serving.mem_used_mb, Some(79_872));
    assert_eq!(serving.mem_used_pct(), Some(97.5));
    let process = &serving.processes.as_ref().unwrap()[0];
    assert_eq!(process.pid, Some(2718));
    assert_eq!(process.name.as_deref(), Some("/srv/models, large/serve"));
    assert_eq!(process.mem_used_mb, Some(79_800));
    assert_eq!(gpus.readable[2].processes.as_deref(), Some(&[][..]));
    let hidden = &gpus.readable[3].processes.as_ref().unwrap()[0];
    assert_eq!(
        (hidden.pid, hidden.name.as_ref(), hidden.mem_used_mb),
        (None, None, None)
    );
}

#[test]
fn values_that_are_not_numbers_are_unknown() {
    let gpus = list("0", sample!("gpus_unknown_values.csv"));
    assert_eq!(gpus.error, None);
    let figures: Vec<_> = gpus
        .readable
        .iter()
        .map(|gpu| {
            (
                gpu.util_pct,
                gpu.mem_used_mb,
                gpu.mem_total_mb,
                gpu.mem_used_pct(),
            )
        })
        .collect();
    assert_eq!(
        figures,
        [
            (None, Some(11), Some(4743), Some(0.2)),
            (None, None, None, None),
            (None, None, Some(15_360), None),
            (None, Some(100), Some(15_360), Some(0.7)),
            (None, None, Some(15_360), None),
            (None, Some(99), None, None),
        ]
    );
    assert_eq!(gpus.readable[4].name, None);
}

#[test]
fn name_with_commas_is_kept_whole() {
    let gpus = list("0", sample!("gpus_comma_in_name.csv"));
    let gpu = &gpus.readable[0];
    assert_eq!(
        gpu.name.as_deref(),
        Some("Graphics Device, Rev. 2, engineering sample")
    );
    assert_eq!(gpu.util_pct, Some(7.0));
    assert_eq!(
        (gpu.mem_used_mb, gpu.mem_total_mb),
        (Some(1024), Some(49_140))
    );
}

#[test]
fn units_are_taken_when_the_tool_prints_them() {
    let gpus = list("0", sample!("gpus_with_units.csv"));
    let gpu = &gpus.readable[0];
    assert_eq!(gpu.util_pct, Some(55.0));
    assert_eq!(gpu.mem_used_pct(), Some(50.0));
}

#[test]
fn sixteen_gpus_are_all_listed() {
    let gpus = list("0", sample!("gpus_sixteen.csv"));
    let indices: Vec<u32> = gpus.readable.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, (0..16).collect::<Vec<u32>>());
    assert_eq!(gpus.readable[15].util_pct, Some(75.0));
    assert_eq!(gpus.error, None);
}

#[test]
fn too_many_gpus_are_cut_and_said() {
    let row = "1, GPU-1, T4, 0, 0, 15360\n";
    let gpus = list("0", &row.repeat(MOST_GPUS + 1));
    assert_eq!(gpus.readable.len(), MOST_GPUS);
    assert_eq!(
        gpus.error.as_deref(),
        Some("nvidia-smi listed more than 64 GPUs")
    );
}

#[test]
fn mig_processes_of_older_drivers_belong_to_the_parent() {
    let processes = sample!("processes_mig_old.csv");
    let gpus = host("yes", "0", sample!("gpus_mig.csv"), ("0", processes));
    let counts: Vec<_> = gpus
        .readable
        .iter()
        .map(|gpu| gpu.processes.as_ref().map(Vec::len))
        .collect();
    assert_eq!(counts, [Some(2), Some(0)]);
    assert_eq!(gpus.readable[0].util_pct, None);
}

#[test]
fn mig_process_of_unknown_parent_leaves_empty_lists_unknown() {
    let processes = sample!("processes_mig_new.csv");
    let gpus = host("yes", "0", sample!("gpus_mig.csv"), ("0", processes));
    assert_eq!(gpus.readable[0].processes, None);
    assert_eq!(gpus.readable[1].processes, None);
}

#[test]
fn mig_process_belongs_to_the_only_gpu() {
    let one = sample!("gpus_mig.csv").lines().next().unwrap();
    let gpus = host("yes", "0", one, ("0", sample!("processes_mig_new.csv")));
    assert_eq!(gpus.readable[0].processes.as_ref().map(Vec::len), Some(1));
}

#[rstest]
#[case::hung("hung")]
#[case::failed("9")]
#[case::cut("cut")]
fn processes_are_unknown_when_they_could_not_be_listed(#[case] status: &str) {
    let list = sample!("gpus_healthy.csv");
    let gpus = host("yes", "0", list, (status, sample!("processes_healthy.csv")));
    assert!(gpus.readable.iter().all(|gpu| gpu.processes.is_none()));
    assert_eq!(gpus.error, None);
}

#[test]
fn processes_of_one_gpu_are_bounded() {
    let row = "GPU-dddddddd-0000-4000-8000-000000000000, 1, a, 1\n";
    let list = sample!("gpus_with_warning.txt");
    let gpus = host("yes", "0", list, ("0", &row.repeat(1000)));
    let processes = gpus.readable[0].processes.as_ref().unwrap();
    assert_eq!(processes.len(), MOST_PROCESSES);
}

#[rstest]
#[case::driver_unreachable(
    "9", sample!("gpus_driver_unreachable.txt"),
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is"
)]
#[case::version_mismatch(
    "18", sample!("gpus_version_mismatch.txt"),
    "Failed to initialize NVML: Driver/library version mismatch"
)]
#[case::silent_failure("3", "", "nvidia-smi failed with exit status 3")]
#[case::found_none("6", sample!("gpus_no_devices.txt"), "a GPU device is present but nvidia-smi found none")]
#[case::listed_none("0", "", "a GPU device is present but nvidia-smi listed none")]
#[case::hung("hung", "", "nvidia-smi did not answer in time and was stopped")]
#[case::cut("cut", "", "nvidia-smi printed more than the probe reads")]
#[case::lost("lost", "", "the probe ended before it had read the GPUs")]
fn unreadable_gpus_are_an_error(#[case] status: &str, #[case] body: &str, #[case] error: &str) {
    let gpus = list(status, body);
    assert_eq!(gpus.error.as_deref(), Some(error));
    assert!(gpus.readable.is_empty());
}

#[test]
fn lost_gpu_is_an_error_beside_the_readable_ones() {
    let gpus = list("0", sample!("gpus_one_lost.txt"));
    assert_eq!(gpus.readable.len(), 1);
    assert_eq!(
        gpus.error.as_deref(),
        Some("Unable to determine the device handle for GPU1: 0000:41:00.0: Unknown Error")
    );
}

#[test]
fn warning_beside_the_list_is_no_error() {
    let gpus = list("0", sample!("gpus_with_warning.txt"));
    assert_eq!(gpus.readable.len(), 1);
    assert_eq!(gpus.error, None);
}

#[test]
fn host_without_devices_has_no_gpus_and_no_error() {
    let no_devices = host("no", "6", sample!("gpus_no_devices.txt"), ("0", ""));
    assert_eq!(no_devices, Gpus::default());
    let no_tool = read(&[("gpu_driver", "0", "tool no\ndevice no")], gpus);
    assert_eq!(no_tool, Gpus::default());
}

#[rstest]
#[case::driver_without_tool(
    "tool no\ndevice yes",
    "an NVIDIA driver is loaded but nvidia-smi was not found"
)]
#[case::list_missing("tool yes\ndevice no", "the probe ended before it had read the GPUs")]
#[case::facts_missing("tool no", "the probe ended before it had read the GPUs")]
fn host_whose_gpus_were_not_asked_is_an_error(#[case] driver: &str, #[case] error: &str) {
    let gpus = read(&[("gpu_driver", "0", driver)], gpus);
    assert_eq!(gpus.error.as_deref(), Some(error));
}

#[test]
fn mig_gpu_that_hides_its_memory_is_not_free() {
    let gpus = list(
        "0",
        include_str!("../fixtures/nvidia_mig_csv_driver_535.161.csv"),
    );
    let gpu = &gpus.readable[0];
    assert_eq!(
        (gpu.util_pct, gpu.mem_used_mb, gpu.mem_total_mb),
        (None, None, None)
    );
    assert_eq!(gpu.processes.as_deref(), Some(&[][..]));
    assert!(!gpu.is_free(None));
}

#[test]
fn processes_have_their_owners() {
    let driver = "tool yes\ndevice yes";
    let sections = [
        ("gpu_driver", "0", driver),
        ("gpus", "0", sample!("gpus_healthy.csv")),
        ("gpu_processes", "0", sample!("processes_healthy.csv")),
        ("nvidia_owners", "0", "self 7\nd 9 7 7 0 x /proc/41233"),
        ("nvidia_names", "0", "d 9 ann ann 0 x /proc/41233"),
    ];
    let gpus = read(&sections, gpus);
    let ours = &gpus.readable[0].processes.as_ref().unwrap()[0];
    assert_eq!((ours.user.as_deref(), ours.ours), (Some("ann"), true));
    let foreign = &gpus.readable[1].processes.as_ref().unwrap()[0];
    assert_eq!((foreign.user.as_deref(), foreign.ours), (None, false));
    assert!(gpus.readable[2].is_free(None));
}
