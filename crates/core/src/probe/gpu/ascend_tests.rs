use rstest::rstest;

use super::super::super::samples::read;
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../fixtures/", $name))
    };
}

fn host(device: bool, verdict: &str, table: &str) -> Gpus {
    let sections = [
        ("ascend", verdict, table),
        (
            "ascend_owners",
            "0",
            "self 1000\nd 9 1000 1 0 x /proc/632268",
        ),
    ];
    let presence = Presence {
        tool: Some("yes"),
        has_device: device,
    };
    read(&sections, |report| {
        gpus(report, presence, &Owners::read(report))
    })
}

fn table(table: &str) -> Gpus {
    host(true, "0", table)
}

#[test]
fn chips_of_a_910b_are_counted_in_order() {
    let found = table(fixture!("npu_smi_25.2.0_910b2.txt"));
    assert_eq!(found.error, None);
    let indices: Vec<u32> = found.readable.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [0, 1, 2]);
    let first = &found.readable[0];
    assert_eq!(first.vendor, GpuVendor::Ascend);
    assert_eq!(first.name.as_deref(), Some("910B2"));
    assert_eq!(first.util_pct, Some(0.0));
    assert_eq!(
        (first.mem_used_mb, first.mem_total_mb),
        (Some(3_382), Some(65_536))
    );
    assert_eq!(first.temperature_c, Some(32.0));
    assert!(first.is_free(None));
    let busy = found.readable[2].processes.as_ref().unwrap();
    assert_eq!(busy[0].pid, Some(1_333_928));
    assert_eq!(
        (busy[0].name.as_ref(), busy[0].mem_used_mb),
        (None, Some(37_709))
    );
    assert!(!found.readable[2].is_free(None));
}

#[test]
fn chips_of_a_910c_have_the_index_of_the_tool() {
    let found = table(fixture!("npu_smi_26.0.rc2_910c.txt"));
    let indices: Vec<u32> = found.readable.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [0, 1, 15]);
    let ours = &found.readable[0].processes.as_ref().unwrap()[0];
    assert_eq!(ours.name.as_deref(), Some("python3.1"));
    assert!(ours.ours);
    assert!(found.readable[0].is_free(None));
    assert_eq!(found.readable[1].processes.as_deref(), Some(&[][..]));
    assert_eq!(
        found.readable[2].processes, None,
        "nothing was said of NPU 7"
    );
    assert!(!found.readable[2].is_free(None));
    assert_eq!(found.readable[2].mem_used_mb, Some(31_877));
}

#[test]
fn chips_of_a_310p_have_one_memory_column() {
    let found = table(fixture!("npu_smi_24.1.rc2_310p3.txt"));
    let memory: Vec<_> = found
        .readable
        .iter()
        .map(|gpu| (gpu.index, gpu.mem_used_mb, gpu.mem_total_mb))
        .collect();
    assert_eq!(
        memory,
        [
            (0, Some(1_397), Some(44_280)),
            (1, Some(1_520), Some(43_693))
        ]
    );
}

#[rstest]
#[case::in_use("0", fixture!("npu_smi_driver_8.0.0_used.txt"), "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)")]
#[case::failed("1", "", "npu-smi failed with exit status 1")]
#[case::silent("0", "", "npu-smi listed no device")]
#[case::hung("hung", "", "npu-smi did not answer in time and was stopped")]
#[case::flood("cut", "", "npu-smi printed more than the probe reads")]
fn unreadable_devices_are_an_error(#[case] verdict: &str, #[case] text: &str, #[case] error: &str) {
    let found = host(true, verdict, text);
    assert!(found.readable.is_empty());
    assert_eq!(found.error.as_deref(), Some(error));
}

#[test]
fn tool_without_a_device_is_no_error_unless_it_hung() {
    let complaint = fixture!("npu_smi_driver_8.0.0_used.txt");
    assert_eq!(host(false, "1", complaint), Gpus::default());
    assert!(host(false, "hung", "").error.is_some());
}

#[test]
fn broken_chip_is_an_error_and_not_offered() {
    let text = fixture!("npu_smi_25.2.0_910b2.txt").replacen("| OK   ", "| Alarm", 1);
    let found = table(&text);
    let indices: Vec<u32> = found.readable.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [1, 2]);
    assert_eq!(
        found.error.as_deref(),
        Some("NPU 0 reports the health Alarm")
    );
}

#[test]
fn values_that_are_not_numbers_are_unknown() {
    let text = fixture!("npu_smi_25.2.0_910b2.txt").replace(
        "0           0    / 0          3382 / 65536",
        "NA          NA   / NA         NA   / NA   ",
    );
    let first = &table(&text).readable[0];
    assert_eq!(
        (first.util_pct, first.mem_used_mb, first.mem_total_mb),
        (None, None, None)
    );
    assert!(!first.is_free(None));
}
