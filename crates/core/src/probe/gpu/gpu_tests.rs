use super::super::samples::read;
use super::*;

const FACTS: &str =
    "amd_tool yes\namd_device yes\nascend_tool yes\nascend_device yes\ntool yes\ndevice yes";
const NVIDIA: &str = "0, GPU-1, T4, 0, 0, 15360";
const ASCEND: &str = include_str!("../fixtures/npu_smi_24.1.rc2_310p3.txt");
const AMD: &str = include_str!("../fixtures/amd_smi_monitor_rocm_6.3.json");

#[test]
fn gpus_of_all_vendors_stand_side_by_side() {
    let sections = [
        ("gpu_driver", "0", FACTS),
        ("gpus", "0", NVIDIA),
        ("amd_monitor", "0", AMD),
        ("ascend", "0", ASCEND),
    ];
    let found = read(&sections, gpus);
    let vendors: Vec<_> = found
        .readable
        .iter()
        .map(|gpu| (gpu.vendor, gpu.index))
        .collect();
    use GpuVendor::{Amd, Ascend, Nvidia};
    assert_eq!(
        vendors,
        [(Nvidia, 0), (Amd, 0), (Amd, 1), (Ascend, 0), (Ascend, 1)]
    );
    assert_eq!(found.error, None);
}

#[test]
fn errors_of_vendors_are_joined() {
    let sections = [
        ("gpu_driver", "0", FACTS),
        ("gpus", "0", NVIDIA),
        ("amd_monitor", "hung", ""),
        ("ascend", "cut", ""),
    ];
    let found = read(&sections, gpus);
    assert_eq!(found.readable.len(), 1);
    assert_eq!(
        found.error.as_deref(),
        Some(
            "amd-smi did not answer in time and was stopped; npu-smi printed more than the probe reads"
        )
    );
}

#[test]
fn vendor_whose_list_did_not_come_is_an_error() {
    let sections = [("gpu_driver", "0", FACTS), ("gpus", "0", NVIDIA)];
    assert_eq!(read(&sections, gpus).error.as_deref(), Some(NOT_REACHED));
}

#[test]
fn report_that_breaks_off_in_the_facts_is_an_error() {
    let sections = [("gpu_driver", "lost", "amd_tool no\namd_device no")];
    assert_eq!(read(&sections, gpus), Gpus::unreadable(NOT_REACHED));
}
