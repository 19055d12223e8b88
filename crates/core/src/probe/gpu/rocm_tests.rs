use super::super::super::samples::read;
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../fixtures/", $name))
    };
}

fn host(verdict: &str, cards: &str, processes: (&str, &str)) -> Gpus {
    let sections = [
        ("rocm", verdict, cards),
        ("rocm_processes", processes.0, processes.1),
        ("rocm_owners", "0", "self 5\nd 9 5 5 0 x /proc/28154"),
    ];
    read(&sections, |report| {
        let section = report.section("rocm").unwrap();
        gpus(report, &section, &Owners::read(report))
    })
}

fn pids(gpu: &Gpu) -> Option<Vec<u32>> {
    let list = gpu.processes.as_ref()?;
    Some(list.iter().filter_map(|process| process.pid).collect())
}

const TWO: &str = r#"{"card0": {}, "card1": {}}"#;

#[test]
fn card_of_a_present_version_is_read() {
    let none = "No KFD PIDs currently running";
    let found = host("0", fixture!("rocm_smi_rx7900xt.json"), ("0", none));
    assert_eq!(found.error, None);
    let gpu = &found.readable[0];
    assert_eq!(gpu.name.as_deref(), Some("Radeon RX 7900 XT"));
    assert_eq!(gpu.util_pct, Some(0.0));
    assert_eq!(
        (gpu.mem_used_mb, gpu.mem_total_mb),
        (Some(26), Some(20_464))
    );
    assert!(gpu.is_free(None));
}

#[test]
fn card_of_an_older_version_is_read() {
    let found = host("0", fixture!("rocm_smi_mi200_rocm_5.json"), ("1", ""));
    assert_eq!(found.readable.len(), 1, "`system` is no card");
    let gpu = &found.readable[0];
    assert_eq!(gpu.util_pct, Some(100.0));
    assert_eq!(gpu.temperature_c, Some(41.0));
    assert_eq!(
        gpu.name.as_deref(),
        Some("AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2")
    );
    assert_eq!(gpu.processes, None);
    assert!(!gpu.is_free(None));
}

#[test]
fn processes_are_read_with_one_index_per_line() {
    let found = host("0", TWO, ("0", fixture!("rocm_smi_pidgpus_rocm_6.txt")));
    assert_eq!(pids(&found.readable[0]), Some(vec![1_949_829, 10_678]));
    assert_eq!(pids(&found.readable[1]), Some(vec![79_301, 1_949_829]));
}

#[test]
fn processes_are_read_with_all_indices_on_one_line() {
    let found = host("0", TWO, ("0", fixture!("rocm_smi_pidgpus_rocm_5.txt")));
    assert_eq!(pids(&found.readable[0]), Some(vec![28_156, 28_154]));
    assert_eq!(pids(&found.readable[1]), Some(vec![28_156]));
    let first = found.readable[0].processes.as_ref().unwrap();
    assert_eq!(
        first.iter().map(|process| process.ours).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn processes_are_unknown_when_the_tool_says_nothing_of_them() {
    for (verdict, text) in [
        ("0", ""),
        ("0", "=== log ==="),
        ("hung", "PID 1 is"),
        ("2", ""),
    ] {
        let found = host("0", TWO, (verdict, text));
        assert_eq!(pids(&found.readable[0]), None, "{verdict} {text}");
    }
}

#[test]
fn cards_are_sorted_by_index() {
    let text = r#"{"card10": {}, "card2": {}}"#;
    let found = host("0", text, ("0", ""));
    let indices: Vec<u32> = found.readable.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [2, 10]);
}

#[test]
fn values_that_are_not_numbers_are_unknown() {
    let text = r#"{"card0": {"GPU use (%)": "N/A", "VRAM Total Memory (B)": "N/A", "Card Series": "N/A"}}"#;
    let found = host("0", text, ("0", ""));
    assert_eq!(found.readable, [Gpu::unknown(GpuVendor::Amd, 0)]);
}

#[test]
fn complaint_of_the_tool_is_the_error() {
    let text = "ERROR:root:Driver not initialized (amdgpu not found in modules)";
    let found = host("0", text, ("0", ""));
    assert_eq!(found.error.as_deref(), Some(text));
}
