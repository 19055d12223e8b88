use rstest::rstest;

use super::*;

fn process(ours: bool) -> GpuProcess {
    GpuProcess {
        pid: Some(7),
        name: Some("/opt/conda/bin/python3".to_owned()),
        mem_used_mb: Some(100),
        user: Some("ann".to_owned()),
        ours,
    }
}

fn gpu(used: Option<u64>, total: Option<u64>, processes: Option<Vec<GpuProcess>>) -> Gpu {
    Gpu {
        mem_used_mb: used,
        mem_total_mb: total,
        processes,
        ..Gpu::unknown(GpuVendor::Nvidia, 3)
    }
}

#[rstest]
#[case::empty(Some(0), Some(81_920), true)]
#[case::a_tenth(Some(8_192), Some(81_920), true)]
#[case::more_than_a_tenth(Some(8_193), Some(81_920), false)]
#[case::idle_ascend(Some(3_419), Some(65_536), true)]
#[case::small_but_kept(Some(512), Some(4_096), true)]
#[case::small_and_used(Some(513), Some(4_096), false)]
#[case::unknown_use(None, Some(81_920), false)]
#[case::unknown_size(Some(0), None, false)]
fn gpu_is_free_when_no_more_is_used_than_drivers_keep(
    #[case] used: Option<u64>,
    #[case] total: Option<u64>,
    #[case] free: bool,
) {
    assert_eq!(gpu(used, total, Some(Vec::new())).is_free(None), free);
}

#[rstest]
#[case::nobody(Some(vec![]), true)]
#[case::ours(Some(vec![process(true)]), true)]
#[case::foreign(Some(vec![process(true), process(false)]), false)]
#[case::unknown(None, false)]
#[case::maybe_cut(Some(vec![process(true); MOST_PROCESSES]), false)]
fn gpu_is_free_when_no_foreign_process_holds_it(
    #[case] processes: Option<Vec<GpuProcess>>,
    #[case] free: bool,
) {
    assert_eq!(gpu(Some(0), Some(81_920), processes).is_free(None), free);
}

#[rstest]
#[case::enough(41_920, true)]
#[case::not_enough(41_921, false)]
fn gpu_is_free_when_the_memory_asked_for_is(#[case] wanted: u64, #[case] free: bool) {
    let half_used_by_us = gpu(Some(40_000), Some(81_920), Some(vec![process(true)]));
    assert!(!half_used_by_us.is_free(None));
    assert_eq!(half_used_by_us.is_free(Some(wanted)), free);
}

#[test]
fn divided_gpu_is_free_only_by_its_parts() {
    let part = |used| GpuInstance {
        profile: "1g.10gb".to_owned(),
        uuid: "MIG-1".to_owned(),
        mem_used_mb: Some(used),
        mem_total_mb: Some(9_728),
        processes: Some(Vec::new()),
    };
    let mut whole = gpu(Some(0), Some(81_920), Some(Vec::new()));
    assert_eq!(whole.free_devices(None), 1);
    whole.instances = vec![part(13), part(9_000), part(13)];
    assert!(!whole.is_free(None));
    assert_eq!(whole.free_devices(None), 2);
    assert_eq!(whole.free_devices(Some(20_000)), 0);
}

#[rstest]
#[case(GpuVendor::Nvidia, "CUDA_VISIBLE_DEVICES")]
#[case(GpuVendor::Amd, "ROCR_VISIBLE_DEVICES")]
#[case(GpuVendor::Ascend, "ASCEND_RT_VISIBLE_DEVICES")]
fn every_vendor_has_its_variable(#[case] vendor: GpuVendor, #[case] first: &str) {
    assert_eq!(visible_devices_variables(vendor).first(), Some(&first));
}

#[test]
fn shown_gpu_names_few_processes_and_counts_the_rest() {
    let busy = gpu(Some(9_000), Some(10_000), Some(vec![process(false); 9]));
    let shown = serde_json::to_value(&busy).unwrap();
    assert_eq!(shown["vendor"], "nvidia");
    assert_eq!(shown["mem_used_pct"], 90.0);
    assert_eq!(shown["free"], false);
    assert_eq!(shown["process_count"], 9);
    assert_eq!(shown["processes"].as_array().unwrap().len(), MOST_SHOWN);
    let expected =
        serde_json::json!({"pid": 7, "name": "python3", "mem_used_mb": 100, "user": "ann"});
    assert_eq!(shown["processes"][0], expected);
    for absent in ["mig", "temperature_c", "uuid"] {
        assert!(shown.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn shown_process_says_when_it_is_ours() {
    assert_eq!(serde_json::to_value(process(true)).unwrap()["ours"], true);
}
