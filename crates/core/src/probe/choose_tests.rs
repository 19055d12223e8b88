use rstest::rstest;

use super::super::{Cpu, GpuInstance, GpuProcess, GpuVendor, Memory};
use super::*;

fn gpu(vendor: GpuVendor, index: u32, used: u64) -> Gpu {
    Gpu {
        vendor,
        index,
        name: None,
        uuid: None,
        util_pct: Some(0.0),
        mem_used_mb: Some(used),
        mem_total_mb: Some(24_000),
        temperature_c: None,
        processes: Some(Vec::new()),
        instances: Vec::new(),
    }
}

fn nvidia(index: u32, used: u64) -> Gpu {
    gpu(GpuVendor::Nvidia, index, used)
}

fn host(idle_score: Option<f64>, gpu: Vec<Gpu>) -> Resources {
    Resources {
        cpu: Cpu::default(),
        memory: Memory::default(),
        disk: Vec::new(),
        gpu,
        gpu_error: None,
        idle_score,
    }
}

fn candidate<'host>(name: &'host str, resources: &'host Resources) -> Candidate<'host> {
    Candidate {
        name,
        resources: Ok(resources),
    }
}

fn gpus_wanted(count: Option<u32>, free_mb: Option<u64>) -> Wanted {
    Wanted {
        min_free_gpus: count,
        min_gpu_free_mb: free_mb,
        tag: None,
    }
}

#[test]
fn idlest_host_is_chosen_and_the_others_are_explained() {
    let (busy, idle) = (host(Some(0.25), vec![]), host(Some(0.9), vec![]));
    let blank = host(None, vec![]);
    let dead = Candidate {
        name: "dead",
        resources: Err("connection refused".to_owned()),
    };
    let candidates = [
        candidate("busy", &busy),
        candidate("idle", &idle),
        dead,
        candidate("blank", &blank),
    ];
    let choice = choose(&Wanted::default(), &candidates);
    assert_eq!(choice.chosen.unwrap().name, "idle");
    assert_eq!(
        choice.others,
        [
            "busy: fits, idle_score 0.25 with 0 free GPUs",
            "dead: connection refused",
            "blank: its load is not known",
        ]
    );
}

#[test]
fn of_equally_idle_hosts_the_one_with_more_free_gpus_is_chosen_then_the_first() {
    let (one, two) = (
        host(Some(0.5), vec![nvidia(0, 0)]),
        host(Some(0.5), vec![nvidia(0, 0), nvidia(1, 0)]),
    );
    let wanted = Wanted::default();
    let choice = choose(&wanted, &[candidate("one", &one), candidate("two", &two)]);
    assert_eq!(choice.chosen.unwrap().name, "two");
    let choice = choose(&wanted, &[candidate("a", &one), candidate("b", &one)]);
    assert_eq!(choice.chosen.unwrap().name, "a");
}

#[rstest]
#[case::nothing(None, None, true)]
#[case::one(Some(1), None, true)]
#[case::two(Some(2), None, false)]
#[case::zero(Some(0), Some(99_999), true)]
#[case::size_alone_asks_for_one(None, Some(10_000), true)]
#[case::too_large(None, Some(24_001), false)]
#[case::two_that_have_room(Some(2), Some(10_000), true)]
#[case::three_that_have_room(Some(3), Some(10_000), false)]
fn host_must_have_the_gpus_asked_for(
    #[case] count: Option<u32>,
    #[case] free_mb: Option<u64>,
    #[case] fits: bool,
) {
    let mut foreign = nvidia(2, 0);
    foreign.processes = Some(vec![GpuProcess {
        pid: Some(1),
        name: None,
        mem_used_mb: None,
        user: Some("bob".to_owned()),
        ours: false,
    }]);
    let resources = host(Some(0.1), vec![nvidia(0, 100), nvidia(1, 12_000), foreign]);
    let choice = choose(&gpus_wanted(count, free_mb), &[candidate("h", &resources)]);
    assert_eq!(choice.chosen.is_some(), fits, "{:?}", choice.others);
}

#[test]
fn shortage_names_numbers_and_the_fault_of_the_tool() {
    let mut resources = host(Some(1.0), vec![nvidia(0, 20_000)]);
    resources.gpu_error = Some("nvidia-smi hung".to_owned());
    let wanted = gpus_wanted(Some(2), Some(8_000));
    let choice = choose(&wanted, &[candidate("h", &resources)]);
    assert_eq!(choice.chosen, None);
    assert_eq!(
        choice.others,
        ["h: 0 of 1 GPUs free with 8000 MB free, 2 wanted; nvidia-smi hung"]
    );
}

fn environment_of(gpus: Vec<Gpu>) -> Vec<(&'static str, String)> {
    let resources = host(Some(1.0), gpus);
    let choice = choose(&Wanted::default(), &[candidate("h", &resources)]);
    choice.chosen.unwrap().free_gpus_env.into_iter().collect()
}

#[test]
fn free_gpus_are_named_by_the_variable_of_their_vendor() {
    let found = environment_of(vec![
        nvidia(0, 20_000),
        nvidia(1, 0),
        nvidia(3, 0),
        gpu(GpuVendor::Ascend, 15, 0),
        gpu(GpuVendor::Amd, 2, 0),
    ]);
    let expected = [
        ("ASCEND_RT_VISIBLE_DEVICES", "15"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("CUDA_VISIBLE_DEVICES", "1,3"),
        ("ROCR_VISIBLE_DEVICES", "2"),
    ];
    assert_eq!(found, expected.map(|(name, list)| (name, list.to_owned())));
}

#[test]
fn free_part_of_a_divided_gpu_is_named_by_its_uuid() {
    let mut divided = nvidia(0, 0);
    let part = |uuid: &str, used| GpuInstance {
        profile: "1g.5gb".to_owned(),
        uuid: uuid.to_owned(),
        mem_used_mb: Some(used),
        mem_total_mb: Some(4_864),
        processes: Some(Vec::new()),
    };
    divided.instances = vec![part("MIG-a", 4_000), part("MIG-b", 3)];
    let found = environment_of(vec![divided]);
    assert_eq!(found, [("CUDA_VISIBLE_DEVICES", "MIG-b".to_owned())]);
}

#[test]
fn no_variables_are_told_when_nothing_is_free() {
    assert_eq!(environment_of(vec![nvidia(0, 20_000)]), []);
}

#[test]
fn tags_are_compared_whole() {
    let wanted = Wanted {
        tag: Some("gpu".to_owned()),
        ..Wanted::default()
    };
    assert_eq!(wanted.refuses_tags(&["gpu".to_owned()]), None);
    assert_eq!(
        wanted.refuses_tags(&["gpus".to_owned()]).as_deref(),
        Some("has no tag `gpu`")
    );
    assert_eq!(Wanted::default().refuses_tags(&[]), None);
}
