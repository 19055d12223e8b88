use super::super::super::samples::read;
use super::super::GpuVendor;
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../fixtures/", $name))
    };
}

fn gpus(count: u32) -> Vec<Gpu> {
    let all = 0..count;
    all.map(|index| Gpu::unknown(GpuVendor::Nvidia, index))
        .collect()
}

fn divided(count: u32, list: &str, table: Option<(&str, &str)>) -> Vec<Gpu> {
    let mut sections = vec![
        ("nvidia_list", "0", list),
        ("instances_owners", "0", "self 7\nd 9 7 7 0 x /proc/46505"),
    ];
    if let Some((verdict, table)) = table {
        sections.push(("nvidia_table", verdict, table));
    }
    read(&sections, |report| {
        let mut all = gpus(count);
        attach(report, &mut all, &Owners::read(report));
        all
    })
}

fn profiles(gpu: &Gpu) -> Vec<&str> {
    gpu.instances
        .iter()
        .map(|part| part.profile.as_str())
        .collect()
}

#[test]
fn instances_of_driver_520_are_listed() {
    let gpus = divided(1, fixture!("nvidia_mig_list_driver_520.61.txt"), None);
    assert_eq!(profiles(&gpus[0]), ["2g.20gb"]);
    let part = &gpus[0].instances[0];
    assert_eq!(part.uuid, "MIG-a65afc88-50b5-5ccf-b0a8-f93b3247ae9e");
    assert_eq!(
        (part.mem_used_mb, part.processes.as_ref()),
        (None, None),
        "what was not told is unknown"
    );
    assert!(!part.is_free(None));
}

#[test]
fn instances_of_driver_535_are_listed() {
    let gpus = divided(1, fixture!("nvidia_mig_list_driver_535.216.txt"), None);
    assert_eq!(profiles(&gpus[0]), ["1g.10gb"; 7]);
}

#[test]
fn undivided_gpus_beside_a_divided_one_stay_whole() {
    let gpus = divided(4, fixture!("nvidia_mig_list_some_gpus.txt"), None);
    let counts: Vec<usize> = gpus.iter().map(|gpu| gpu.instances.len()).collect();
    assert_eq!(counts, [4, 0, 0, 0]);
}

const LIST: &str = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)\n\
    GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n\
    MIG 2g.20gb     Device  0: (UUID: MIG-a)\n\
    MIG 2g.20gb     Device  1: (UUID: MIG-b)\n\
    MIG 2g.20gb     Device  2: (UUID: MIG-c)";

#[test]
fn table_tells_memory_and_processes_of_each_instance() {
    let gpus = divided(2, LIST, Some(("0", fixture!("nvidia_mig_table_a100.txt"))));
    assert!(gpus[0].instances.is_empty());
    let parts = &gpus[1].instances;
    let memory: Vec<_> = parts
        .iter()
        .map(|part| (part.mem_used_mb, part.mem_total_mb))
        .collect();
    assert_eq!(
        memory,
        [
            (Some(14_366), Some(19_968)),
            (Some(9_826), Some(19_968)),
            (Some(13), Some(19_968)),
        ]
    );
    let pids = |part: &GpuInstance| -> Vec<Option<u32>> {
        let all = part.processes.as_ref().unwrap().iter();
        all.map(|process| process.pid).collect()
    };
    assert_eq!(pids(&parts[0]), [Some(34_965), Some(56_597)]);
    let second = &parts[1].processes.as_ref().unwrap()[0];
    assert_eq!(second.name.as_deref(), Some("python"));
    assert_eq!(second.mem_used_mb, Some(9_807));
    assert!(second.ours);
    assert!(!parts[0].processes.as_ref().unwrap()[0].ours);
    assert!(parts[2].is_free(None), "13 MiB and no process");
    assert_eq!(gpus[1].free_devices(None), 1);
}

#[test]
fn instances_are_unknown_when_the_table_hung_or_broke_off() {
    for verdict in ["hung", "cut", "lost", "9"] {
        let table = fixture!("nvidia_mig_table_a100.txt");
        let gpus = divided(2, LIST, Some((verdict, table)));
        assert_eq!(gpus[1].instances.len(), 3, "{verdict}");
        assert_eq!(gpus[1].free_devices(None), 0, "{verdict}");
    }
}

#[test]
fn processes_are_unknown_when_the_table_has_none() {
    let table = fixture!("nvidia_mig_table_a100.txt");
    let cut = &table[..table.find("| Processes:").unwrap()];
    let gpus = divided(2, LIST, Some(("0", cut)));
    assert_eq!(gpus[1].instances[2].mem_used_mb, Some(13));
    assert_eq!(gpus[1].instances[2].processes, None);
}

#[test]
fn instances_are_bounded_and_need_a_known_gpu() {
    let line = "MIG 1g.10gb Device 0: (UUID: MIG-a)\n";
    let many = format!("GPU 0: A (UUID: GPU-0)\n{}", line.repeat(99));
    assert_eq!(divided(1, &many, None)[0].instances.len(), MOST_INSTANCES);
    let stray = format!("GPU 9: A (UUID: GPU-9)\n{line}");
    assert!(divided(1, &stray, None)[0].instances.is_empty());
}
