use rstest::rstest;

use super::super::super::samples::read;
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../fixtures/", $name))
    };
}

const OWNERS: (&str, &str, &str) = (
    "amd_owners",
    "0",
    "self 1000\nd 9 1000 1 0 x /proc/420157\nd 9 1001 1 0 x /proc/420315",
);

fn host(device: bool, sections: &[(&str, &str, &str)]) -> Gpus {
    let mut all = vec![OWNERS];
    all.extend(sections);
    let presence = Presence {
        tool: Some("yes"),
        has_device: device,
    };
    read(&all, |report| gpus(report, presence, &Owners::read(report)))
}

const MONITOR: (&str, &str, &str) = (
    "amd_monitor",
    "0",
    fixture!("amd_smi_monitor_rocm_6.3.json"),
);
const NOBODY: (&str, &str, &str) = (
    "amd_processes",
    "0",
    fixture!("amd_smi_process_none_rocm_6.3.json"),
);

#[test]
fn monitor_of_rocm_6_is_read() {
    let found = host(true, &[MONITOR, NOBODY]);
    assert_eq!(found.error, None);
    let first = &found.readable[0];
    assert_eq!((first.vendor, first.index), (GpuVendor::Amd, 0));
    assert_eq!(first.util_pct, Some(0.0));
    assert_eq!(
        (first.mem_used_mb, first.mem_total_mb),
        (Some(283), Some(196_300))
    );
    assert_eq!(first.temperature_c, Some(55.0));
    assert_eq!(first.processes.as_deref(), Some(&[][..]));
    assert!(first.is_free(None));
}

#[test]
fn values_that_are_not_numbers_are_unknown() {
    let found = host(true, &[MONITOR, NOBODY]);
    let second = &found.readable[1];
    assert_eq!(second, &Gpu::unknown(GpuVendor::Amd, 1));
    assert!(!second.is_free(None));
    let blank = fixture!("amd_smi_metric_no_values_rocm_7.json");
    let found = host(true, &[("amd_monitor", "0", blank)]);
    assert_eq!(found.readable, [Gpu::unknown(GpuVendor::Amd, 0)]);
}

#[test]
fn metric_of_rocm_7_is_read_with_its_name() {
    let found = host(
        true,
        &[
            ("amd_monitor", "0", fixture!("amd_smi_metric_rocm_7.json")),
            ("amd_static", "0", fixture!("amd_smi_static_rocm_7.json")),
        ],
    );
    let gpu = &found.readable[0];
    assert_eq!(gpu.name.as_deref(), Some("AMD Radeon RX 7800 XT"));
    assert_eq!(gpu.util_pct, Some(2.0));
    assert_eq!(
        (gpu.mem_used_mb, gpu.mem_total_mb),
        (Some(14_569), Some(16_368))
    );
    assert_eq!(gpu.temperature_c, Some(41.0));
    assert_eq!(gpu.processes, None);
}

#[test]
fn metric_without_memory_leaves_memory_unknown() {
    let text = fixture!("amd_smi_metric_2025.json");
    let found = host(true, &[("amd_monitor", "0", text)]);
    assert_eq!(found.readable[0].util_pct, Some(42.0));
    assert_eq!(found.readable[0].mem_used_mb, None);
}

#[test]
fn processes_are_told_with_their_owners() {
    let text = fixture!("amd_smi_process_rocm_6.2.json");
    let found = host(true, &[MONITOR, ("amd_processes", "0", text)]);
    let list = found.readable[0].processes.as_ref().unwrap();
    let facts: Vec<_> = list
        .iter()
        .map(|process| (process.pid, process.name.as_deref(), process.ours))
        .collect();
    assert_eq!(
        facts,
        [
            (Some(420_157), Some("TransferBench"), true),
            (Some(420_315), Some("rvs"), false),
        ]
    );
    assert!(!found.readable[0].is_free(None));
}

#[rstest]
#[case::hung("hung")]
#[case::failed("1")]
#[case::cut("cut")]
fn processes_are_unknown_when_they_could_not_be_listed(#[case] verdict: &str) {
    let found = host(true, &[MONITOR, (NOBODY.0, verdict, NOBODY.2)]);
    assert_eq!(found.readable[0].processes, None);
}

#[test]
fn processes_of_another_form_are_unknown() {
    let text = r#"[{"gpu": 0, "process_list": [{"process_info": "123 server"}]}]"#;
    let found = host(true, &[MONITOR, ("amd_processes", "0", text)]);
    assert_eq!(found.readable[0].processes, None);
}

#[rstest]
#[case::foreign("420315", false)]
#[case::unknown_owner("99", false)]
#[case::ours("420157", true)]
#[case::nobody("", true)]
fn empty_list_is_doubted_when_the_kernel_knows_a_foreign_process(
    #[case] kernel: &str,
    #[case] free: bool,
) {
    let found = host(true, &[MONITOR, NOBODY, ("kfd", "0", kernel)]);
    assert_eq!(found.readable[0].is_free(None), free);
}

#[rstest]
#[case::no_json("0", "unable to open /dev/kfd", "unable to open /dev/kfd")]
#[case::failed("255", "AMDSMI: driver not loaded", "AMDSMI: driver not loaded")]
#[case::none("0", "[]", "amd-smi listed no GPU")]
#[case::hung("hung", "", "amd-smi did not answer in time and was stopped")]
#[case::flood("cut", "[", "amd-smi printed more than the probe reads")]
fn unreadable_gpus_are_an_error(#[case] verdict: &str, #[case] text: &str, #[case] error: &str) {
    let found = host(true, &[("amd_monitor", verdict, text)]);
    assert!(found.readable.is_empty());
    assert_eq!(found.error.as_deref(), Some(error));
}

#[test]
fn tool_without_a_driver_is_no_error_unless_it_hung() {
    let failed = ("amd_monitor", "255", "driver not loaded");
    assert_eq!(host(false, &[failed]), Gpus::default());
    assert!(host(false, &[("amd_monitor", "hung", "")]).error.is_some());
}

#[test]
fn older_tool_is_taken_when_the_newer_fails() {
    let failed = ("amd_monitor", "1", "unrecognized arguments");
    let older = ("rocm", "0", fixture!("rocm_smi_rx7900xt.json"));
    let found = host(true, &[failed, older]);
    assert_eq!(found.error, None);
    assert_eq!(found.readable[0].name.as_deref(), Some("Radeon RX 7900 XT"));
}

#[test]
fn device_without_a_tool_is_an_error() {
    let presence = Presence {
        tool: None,
        has_device: true,
    };
    let found = read(&[OWNERS], |report| {
        gpus(report, presence, &Owners::default())
    });
    assert!(
        found
            .error
            .unwrap()
            .contains("neither amd-smi nor rocm-smi")
    );
}

#[test]
fn too_many_gpus_are_cut_and_said() {
    let row = |index| format!("{{\"gpu\": {index}}}");
    let rows: Vec<String> = (0..65).map(row).collect();
    let text = format!("[{}]", rows.join(","));
    let found = host(true, &[("amd_monitor", "0", &text)]);
    assert_eq!(found.readable.len(), 64);
    assert_eq!(
        found.error.as_deref(),
        Some("amd-smi listed more than 64 GPUs")
    );
}
