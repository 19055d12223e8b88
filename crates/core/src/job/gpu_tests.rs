use std::num::NonZeroU32;

use super::super::JobState;
use super::super::testing::*;
use super::*;

const NVIDIA: &str = r#"#!/bin/sh
case $1 in
--query-compute-apps*) echo 'GPU-b, 4711' ;;
*) printf '%s\n' '0, GPU-a, 3, 81920, [N/A]' '1, GPU-b, 3, 81920, [N/A]' '2, GPU-c, 60000, 81920, [N/A]' \
  '3, GPU-d, 500, 81920, Disabled' '4, GPU-e, 3, 81920, Enabled' ;;
esac
"#;

const ROCM: &str = r#"#!/bin/sh
case $1 in
--showpidgpus) printf '%s\n' '== GPUs Indexed by PID ==' 'PID 79301 is using 1 DRM device(s):' '1 ' 'PID 9 is using 0 DRM device(s)' ;;
*) printf '%s\n' '' 'device,VRAM Total Memory (B),VRAM Total Used Memory (B)' card0,68702699520,60702699520 \
  card1,68702699520,10960896 card2,68702699520,10960896 ;;
esac
"#;

const ASCEND: &str = include_str!("../probe/fixtures/npu_smi_25.2.0_910b2.txt");
const ASCEND_PAIRS: &str = include_str!("../probe/fixtures/npu_smi_26.0.rc2_910c.txt");

fn gpus(wish: &str) -> JobSpec {
    let show = "echo $CUDA_VISIBLE_DEVICES/$ROCR_VISIBLE_DEVICES/$ASCEND_RT_VISIBLE_DEVICES; exec sleep 60";
    job(show).with_gpus(GpuWish::parse(wish).unwrap())
}

fn hosts(tools: &[(&str, &str)]) -> Vec<Host> {
    let hosts = [
        Some(Host::full("dash", &["dash"])),
        Some(Host::full("bash", &["bash", "--posix"])),
        Host::sparse("busybox alone", "busybox"),
    ];
    let mut hosts: Vec<Host> = hosts.into_iter().flatten().collect();
    for host in &mut hosts {
        for (name, script) in tools {
            host.install(name, script);
        }
    }
    hosts
}

fn table(text: &str) -> String {
    format!("#!/bin/sh\ncat <<'E'\n{text}\nE\n")
}

fn first_line(host: &Host, spec: &JobSpec, started: &JobStarted) -> String {
    let mut line = String::new();
    until("the command speaks", || {
        let text = host.look(spec, &started.log_file).log.text;
        line = String::from_utf8_lossy(&text)
            .lines()
            .next()
            .unwrap_or("")
            .to_owned();
        !line.is_empty()
    });
    line
}

#[test]
fn free_gpus_are_taken_and_nobody_else_gets_them() {
    for host in hosts(&[("nvidia-smi", NVIDIA)]) {
        let first = gpus("1");
        let started = host.started(&first);
        let claimed = |indices: &[u32]| {
            Some(ClaimedGpus {
                vendor: GpuVendor::Nvidia,
                indices: indices.to_vec(),
            })
        };
        assert_eq!(started.gpus, claimed(&[0]), "{}", host.name);
        assert_eq!(first_line(&host, &first, &started), "0//");
        // Two are free by memory and process, but one of them is taken and does not count.
        assert_eq!(
            host.refused(&gpus("2")),
            StartRefusal::NoFreeGpu {
                free: 1,
                present: 5
            },
            "{}",
            host.name
        );
        let second = gpus("auto");
        assert_eq!(host.started(&second).gpus, claimed(&[3]), "{}", host.name);
        assert!(
            matches!(host.refused(&gpus("auto")), StartRefusal::NoFreeGpu { .. }),
            "{}",
            host.name
        );
        // With its job, a GPU is free again, though nobody gave it back.
        let group = format!("-{}", started.process.pid);
        std::process::Command::new("kill")
            .args(["-KILL", "--", &group])
            .status()
            .unwrap();
        until("it is gone", || {
            host.judge(&first, &started.log_file).state != JobState::Running
        });
        assert_eq!(
            host.started(&gpus("1")).gpus,
            claimed(&[0]),
            "{}",
            host.name
        );
    }
}

#[test]
fn two_laptops_at_once_never_get_the_same_gpu() {
    let mut host = Host::full("dash", &["dash"]);
    let many: String = (0..8)
        .map(|at| format!("echo '{at}, GPU-{at}, 3, 81920, [N/A]'; "))
        .collect();
    host.install(
        "nvidia-smi",
        &format!("#!/bin/sh\ncase $1 in --query-g*) {many};; esac\n"),
    );
    let specs: Vec<JobSpec> = (0..6)
        .map(|_| job("exec sleep 60").with_gpus(GpuWish::Count(NonZeroU32::new(2).unwrap())))
        .collect();
    let mut taken: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = specs
            .iter()
            .map(|spec| scope.spawn(|| host.start(spec)))
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| match thread.join().unwrap() {
                StartVerdict::Started(started) => started.gpus,
                _ => None,
            })
            .flat_map(|gpus| gpus.indices)
            .collect()
    });
    let count = taken.len();
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), count, "{taken:?}");
    assert!(count >= 4, "{taken:?}");
}

#[test]
fn tools_of_other_vendors_are_read() {
    for host in hosts(&[("rocm-smi", ROCM)]) {
        let spec = gpus("1");
        let started = host.started(&spec);
        let expected = ClaimedGpus {
            vendor: GpuVendor::Amd,
            indices: vec![2],
        };
        assert_eq!(started.gpus, Some(expected), "{}", host.name);
        assert_eq!(first_line(&host, &spec, &started), "/2/", "{}", host.name);
    }
    for host in hosts(&[("npu-smi", &table(ASCEND))]) {
        let spec = gpus("2");
        let started = host.started(&spec);
        let expected = ClaimedGpus {
            vendor: GpuVendor::Ascend,
            indices: vec![0, 1],
        };
        assert_eq!(started.gpus, Some(expected), "{}", host.name);
        assert_eq!(first_line(&host, &spec, &started), "//0,1", "{}", host.name);
    }
    for host in hosts(&[("npu-smi", &table(ASCEND_PAIRS))]) {
        let expected = ClaimedGpus {
            vendor: GpuVendor::Ascend,
            indices: vec![1],
        };
        assert_eq!(
            host.started(&gpus("1")).gpus,
            Some(expected),
            "{}",
            host.name
        );
    }
}

#[test]
fn job_that_leaves_it_to_us_goes_without_where_there_is_no_gpu() {
    for host in hosts(&[]) {
        assert_eq!(host.started(&gpus("auto")).gpus, None, "{}", host.name);
    }
}

#[test]
fn tool_that_fails_or_hangs_refuses_the_start_and_is_named() {
    let failing = "#!/bin/sh\necho 'NVIDIA-SMI has failed: no driver'; exit 9\n";
    for host in hosts(&[("nvidia-smi", failing)]) {
        for wish in ["auto", "1"] {
            let refusal = host.refused(&gpus(wish));
            let words = refusal.to_string();
            assert!(
                words.contains("`nvidia-smi`") && words.contains("no driver"),
                "{}: {words}",
                host.name
            );
        }
    }
    let mut host = Host::full("dash", &["dash"]);
    host.install("nvidia-smi", "#!/bin/sh\nexec sleep 60\n");
    let words = host.refused(&gpus("auto")).to_string();
    assert!(words.contains("`nvidia-smi`"), "{words}");
    assert!(words.contains("10 seconds"), "{words}");
}

#[test]
fn tool_that_knows_of_no_device_is_no_failure() {
    let none = "#!/bin/sh\necho 'No devices were found'; exit 6\n";
    for host in hosts(&[("nvidia-smi", none)]) {
        assert_eq!(host.started(&gpus("auto")).gpus, None, "{}", host.name);
        let none_free = StartRefusal::NoFreeGpu {
            free: 0,
            present: 0,
        };
        assert_eq!(host.refused(&gpus("1")), none_free, "{}", host.name);
    }
}
