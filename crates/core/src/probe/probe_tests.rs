use proptest::prelude::*;

use super::samples::{nonce, report_text};
use super::*;

const LINUX: &str = include_str!("../../tests/fixtures/probe/report_linux.txt");
const MACOS: &str = include_str!("../../tests/fixtures/probe/report_macos.txt");

fn json(text: &str) -> String {
    serde_json::to_string(&parse_report(&nonce(), text.as_bytes()).unwrap()).unwrap()
}

#[test]
fn report_of_a_linux_host_has_the_documented_shape() {
    assert_eq!(
        json(LINUX),
        concat!(
            r#"{"cpu":{"load_1m":2.0,"load_5m":1.75,"load_15m":1.5,"count":8,"util_pct":25.0},"#,
            r#""memory":{"total_mb":64000,"used_mb":16000,"free_mb":48000,"used_pct":25.0},"#,
            r#""disk":[{"path":"/home/ann","total_mb":1024000,"free_mb":512000,"used_pct":50.0},"#,
            r#"{"path":"/tmp","total_mb":null,"free_mb":null,"used_pct":null}],"#,
            r#""gpu":[{"index":0,"vendor":"nvidia","name":"NVIDIA L4","util_pct":40.0,"mem_used_mb":4607,"#,
            r#""mem_total_mb":23034,"mem_used_pct":20.0,"free":false,"#,
            r#""processes":[{"pid":41233,"name":"python3","mem_used_mb":4600,"user":null}]}],"#,
            r#""idle_score":0.675}"#,
        )
    );
}

#[test]
fn report_of_a_mac_leaves_utilisation_unknown_and_has_no_gpu_error() {
    assert_eq!(
        json(MACOS),
        concat!(
            r#"{"cpu":{"load_1m":2.4,"load_5m":2.11,"load_15m":1.98,"count":12,"util_pct":null},"#,
            r#""memory":{"total_mb":32768,"used_mb":20480,"free_mb":12288,"used_pct":62.5},"#,
            r#""disk":[{"path":"/Users/ann","total_mb":948584,"free_mb":390625,"used_pct":55.6}],"#,
            r#""gpu":[],"idle_score":0.588}"#,
        )
    );
}

#[test]
fn report_is_refused_when_no_section_carries_the_nonce() {
    let other = Nonce::parse("otherone").unwrap();
    let error = parse_report(&other, LINUX.as_bytes()).unwrap_err();
    assert_eq!(
        error,
        ProbeError::NoReport {
            size_bytes: LINUX.len()
        }
    );
}

#[test]
fn report_that_breaks_off_before_the_gpus_does_not_look_idle() {
    let end = LINUX.find("@@n0nce5a3 begin gpu_driver").unwrap();
    let resources = parse_report(&nonce(), &LINUX.as_bytes()[..end]).unwrap();
    assert_eq!(
        resources.gpu_error.as_deref(),
        Some("the probe ended before it had read the GPUs")
    );
    assert_eq!(resources.idle_score, Some(0.375));
}

#[test]
fn report_with_nothing_known_has_no_score() {
    let text = report_text(&[("load", "1", ""), ("gpu_driver", "0", "tool no\ndevice no")]);
    let resources = parse_report(&nonce(), text.as_bytes()).unwrap();
    assert_eq!(resources.idle_score, None);
    assert_eq!(resources.cpu, Cpu::default());
    assert_eq!(resources.memory, Memory::default());
    assert!(resources.disk.is_empty());
}

#[test]
fn report_past_the_bound_is_not_looked_at() {
    let mut text = report_text(&[("load", "0", "0.5 0.5 0.5")]);
    text.push_str(&"x".repeat(2 << 20));
    text.push_str(&report_text(&[("count", "0", "4")]));
    let resources = parse_report(&nonce(), text.as_bytes()).unwrap();
    assert_eq!(resources.cpu.load_1m, Some(0.5));
    assert_eq!(resources.cpu.count, None);
}

fn assert_sound(resources: &Resources) {
    if let Some(score) = resources.idle_score {
        assert!((0.0..=1.0).contains(&score), "score {score}");
    }
    for gpu in &resources.gpu {
        for share in [gpu.util_pct, gpu.mem_used_pct()].into_iter().flatten() {
            assert!((0.0..=100.0).contains(&share), "share {share}");
        }
    }
    assert!(serde_json::to_string(resources).is_ok());
}

fn section_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "load",
        "count",
        "meminfo",
        "cgroup",
        "sysctl",
        "vm_stat",
        "stat",
        "gpu_driver",
        "gpus",
        "gpu_processes",
        "nvidia_list",
        "nvidia_table",
        "nvidia_owners",
        "amd_monitor",
        "amd_static",
        "amd_processes",
        "kfd",
        "rocm",
        "rocm_processes",
        "ascend",
        "disk_home",
        "disk_tmp",
    ])
}

fn body() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        prop::sample::select(vec![
            "cpu",
            "memory",
            "path",
            "tool",
            "device",
            "yes",
            "no",
            ",",
            "GPU-1,",
            "MIG-",
            "kB",
            "50%",
            "-1",
            "[N/A],",
            "ERR!",
            "\n",
            "MemTotal:",
            "MemAvailable:",
            "hw.memsize:",
            "page size of ",
            "Pages free:",
            "load average:",
            "0,",
            "amd_tool",
            "amd_device",
            "ascend_tool",
            "ascend_device",
            "|",
            "/",
            "Process id",
            "[{\"gpu\":",
            "}]",
            "\"vram_used\":",
            "{\"card0\":",
            "PID 7 is",
            "GPU 0:",
            "MIG 1g Device 0: (UUID: MIG-1)",
            "MIG devices:",
            "Processes:",
            "self 7",
            "/proc/7",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ];
    prop::collection::vec(word, 0..30).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn report_of_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut whole = b"@@n0nce5a3 begin gpus\n".to_vec();
        whole.extend(bytes);
        assert_sound(&parse_report(&nonce(), &whole).unwrap());
    }

    #[test]
    fn report_of_any_sections_is_sound(
        sections in prop::collection::vec((section_name(), "0|1|hung|cut|lost|x", body()), 1..14),
    ) {
        let text: String = sections
            .iter()
            .map(|(name, verdict, body)| report_text(&[(name, verdict, body)]))
            .collect();
        assert_sound(&parse_report(&nonce(), text.as_bytes()).unwrap());
    }

    #[test]
    fn report_cut_anywhere_never_looks_idler(end in 40..LINUX.len()) {
        let whole = parse_report(&nonce(), LINUX.as_bytes()).unwrap().idle_score.unwrap();
        // Only whole lines: a figure that lost its last digits is another figure.
        let end = LINUX[..end].rfind('\n').map_or(0, |newline| newline + 1);
        if let Ok(resources) = parse_report(&nonce(), &LINUX.as_bytes()[..end]) {
            prop_assert!(resources.idle_score.unwrap_or(0.0) <= whole);
        }
    }
}
