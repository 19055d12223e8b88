#![expect(
    clippy::disallowed_methods,
    reason = "the script is proven by running it, with stand-in tools on disk and a stopwatch"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rstest::rstest;
use tempfile::TempDir;

use super::samples::nonce;
use super::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name))
    };
}

/// A directory with tools, each a shell program.
fn tools(all: &[(&str, &str)], files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, body) in all {
        let path = directory.path().join(name);
        fs::write(&path, format!("#!/bin/sh\nhere=${{0%/*}}\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// The shells of this machine out of those a host may have as `sh`.
fn shells() -> Vec<Vec<&'static str>> {
    let all = [vec!["dash"], vec!["busybox", "sh"], vec!["bash", "--posix"]];
    let is_here = |shell: &Vec<&str>| {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args(["-c", "exit 7"]);
        let found = command
            .status()
            .is_ok_and(|status| status.code() == Some(7));
        if !found {
            println!("skipped: this machine has no {}", shell.join(" "));
        }
        found
    };
    all.into_iter().filter(is_here).collect()
}

fn run(shell: &[&str], directory: &Path, limit_s: u64) -> (Resources, Duration) {
    let limit = format!("\nlimit={limit_s}\n");
    // What this machine's own kernel knows of GPUs must not matter.
    let script = probe_script(&nonce())
        .replace("\nlimit=5\n", &limit)
        .replace("/sys/class/", &format!("{}/sys/", directory.display()));
    let start = Instant::now();
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", &script])
        .env(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()),
        )
        .env("HOME", directory)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{shell:?}");
    assert!(output.stderr.is_empty(), "{shell:?}");
    assert!(output.stdout.len() < 700_000, "{shell:?}");
    (
        parse_report(&nonce(), &output.stdout).unwrap(),
        start.elapsed(),
    )
}

const AMD_SMI: &str = "case $1 in monitor) cat \"$here/monitor\" ;; static) cat \"$here/static\" ;; \
    process) cat \"$here/process\" ;; esac";

#[test]
fn script_asks_amd_smi_and_finds_the_owners_of_processes() {
    let ours = std::process::id();
    let process = fixture!("amd_smi_process_rocm_6.2.json").replace("420157", &ours.to_string());
    let directory = tools(
        &[("amd-smi", AMD_SMI)],
        &[
            ("monitor", fixture!("amd_smi_monitor_rocm_6.3.json")),
            ("static", fixture!("amd_smi_static_rocm_7.json")),
            ("process", &process),
        ],
    );
    for shell in shells() {
        let (resources, _) = run(&shell, directory.path(), 5);
        assert_eq!(resources.gpu_error, None, "{shell:?}");
        let first = &resources.gpu[0];
        assert_eq!(first.vendor, GpuVendor::Amd);
        assert_eq!(first.name.as_deref(), Some("AMD Radeon RX 7800 XT"));
        let list = first.processes.as_ref().unwrap();
        assert!(list[0].ours, "{shell:?} {list:?}");
        assert!(list[0].user.is_some(), "{shell:?} {list:?}");
        assert!(!list[1].ours, "{shell:?} {list:?}");
        assert_eq!(list[1].user, None, "{shell:?}");
    }
}

#[test]
fn script_names_processes_that_only_the_kernel_knows() {
    let none = fixture!("amd_smi_process_none_rocm_6.3.json");
    let monitor = fixture!("amd_smi_monitor_rocm_6.3.json");
    let directory = tools(
        &[("amd-smi", AMD_SMI)],
        &[("monitor", monitor), ("static", "[]"), ("process", none)],
    );
    let is_free = |shell: &[&str]| run(shell, directory.path(), 5).0.gpu[0].is_free(None);
    let process = directory.path().join("sys/kfd/kfd/proc/4194305");
    fs::create_dir_all(&process).unwrap();
    for shell in shells() {
        fs::write(process.join("vram_26967"), "0\n").unwrap();
        assert!(is_free(&shell), "{shell:?}");
        fs::write(process.join("vram_26967"), "4096\n").unwrap();
        assert!(!is_free(&shell), "{shell:?}");
    }
}

#[test]
fn script_asks_rocm_smi_when_amd_smi_fails() {
    let rocm = "case $1 in --showpidgpus) cat \"$here/pids\" ;; *) cat \"$here/cards\" ;; esac";
    let directory = tools(
        &[
            ("amd-smi", "echo 'ImportError: no module' >&2; exit 1"),
            ("rocm-smi", rocm),
        ],
        &[
            ("cards", fixture!("rocm_smi_rx7900xt.json")),
            ("pids", "PID 1 is using 1 DRM device(s):\n0\n"),
        ],
    );
    for shell in shells() {
        let (resources, _) = run(&shell, directory.path(), 5);
        assert_eq!(resources.gpu_error, None, "{shell:?}");
        let gpu = &resources.gpu[0];
        assert_eq!(gpu.name.as_deref(), Some("Radeon RX 7900 XT"));
        let first = &gpu.processes.as_ref().unwrap()[0];
        assert_eq!((first.pid, first.user.as_deref()), (Some(1), Some("root")));
    }
}

/// A process of another user, ended with the test.
struct Foreign(std::process::Child);

impl Foreign {
    /// `None` where this user may not start one.
    fn start() -> Option<Self> {
        let mut command = Command::new("sleep");
        let child = command.arg("60").uid(65_534).spawn();
        child.map(Foreign).ok()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn script_tells_a_process_of_another_user_from_our_own() {
    let Some(foreign) = Foreign::start() else {
        println!("skipped: only root can start a process of another user");
        return;
    };
    let (ours, theirs) = (std::process::id(), foreign.0.id());
    let processes = format!("GPU-a, {ours}, train, 1\nGPU-b, {theirs}, train, 1\n");
    let gpus = "0, GPU-a, T4, 0, 1, 15360\n1, GPU-b, T4, 0, 1, 15360\n";
    let body = "case $1 in *compute-apps*) cat \"$here/processes\" ;; *query-gpu*) cat \"$here/gpus\" ;; esac";
    let directory = tools(
        &[("nvidia-smi", body)],
        &[("gpus", gpus), ("processes", &processes)],
    );
    for shell in shells() {
        let (resources, _) = run(&shell, directory.path(), 5);
        let free: Vec<bool> = resources.gpu.iter().map(|gpu| gpu.is_free(None)).collect();
        assert_eq!(free, [true, false], "{shell:?} {:?}", resources.gpu);
        let process = &resources.gpu[1].processes.as_ref().unwrap()[0];
        assert_eq!(process.user.as_deref(), Some("nobody"), "{shell:?}");
    }
}

#[test]
fn script_asks_npu_smi() {
    let directory = tools(
        &[("npu-smi", "[ \"$*\" = info ] && cat \"$here/table\"")],
        &[("table", fixture!("npu_smi_26.0.rc2_910c.txt"))],
    );
    for shell in shells() {
        let (resources, _) = run(&shell, directory.path(), 5);
        let indices: Vec<u32> = resources.gpu.iter().map(|gpu| gpu.index).collect();
        assert_eq!(indices, [0, 1, 15], "{shell:?}");
        assert!(
            resources
                .gpu
                .iter()
                .all(|gpu| gpu.vendor == GpuVendor::Ascend)
        );
    }
}

#[test]
fn script_asks_for_the_table_only_when_a_gpu_is_divided() {
    let nvidia = "echo \"[$*]\" >>\"$here/calls\"\ncase $* in *query-gpu*) cat \"$here/gpus\" ;; -L) \
        cat \"$here/list\" ;; '') cat \"$here/table\" ;; esac";
    let gpus =
        "0, GPU-a, NVIDIA A100, 0, 20481, 81920\n1, GPU-b, NVIDIA A100, [N/A], 24205, 81920\n";
    let list = "GPU 1: A (UUID: GPU-b)\n  MIG 2g.20gb     Device  2: (UUID: MIG-c)\n";
    let table = fixture!("nvidia_mig_table_a100.txt");
    let directory = tools(
        &[("nvidia-smi", nvidia)],
        &[("gpus", gpus), ("list", list), ("table", table)],
    );
    for shell in shells() {
        let (resources, _) = run(&shell, directory.path(), 5);
        let parts = &resources.gpu[1].instances;
        assert_eq!(parts.len(), 1, "{shell:?}");
        assert_eq!(parts[0].mem_used_mb, Some(13), "{shell:?}");
        assert!(parts[0].is_free(None), "{shell:?}");
    }
    let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
    assert!(calls.contains("\n[]\n"), "{calls}");
    fs::write(directory.path().join("list"), "GPU 1: A (UUID: GPU-b)\n").unwrap();
    fs::remove_file(directory.path().join("calls")).unwrap();
    run(&["sh"], directory.path(), 5);
    let calls = fs::read_to_string(directory.path().join("calls")).unwrap();
    assert!(!calls.contains("[]"), "{calls}");
}

#[rstest]
#[case::hang("exec sleep 20", "did not answer in time")]
#[case::flood("exec yes '[{\"gpu\": 0},'", "printed more than")]
#[case::flood_without_lines("exec cat /dev/zero", "")]
fn script_is_as_slow_as_the_slowest_tool(#[case] body: &str, #[case] error: &str) {
    let names = ["nvidia-smi", "amd-smi", "rocm-smi", "npu-smi"];
    let directory = tools(&names.map(|name| (name, body)), &[]);
    for shell in shells() {
        let (resources, took) = run(&shell, directory.path(), 1);
        // Nine calls of a second each, in two rounds: the older tool of AMD is asked when the newer gives nothing.
        assert!(took < Duration::from_secs(6), "{shell:?} {took:?}");
        assert!(resources.gpu.is_empty(), "{shell:?}");
        let told = resources.gpu_error.unwrap();
        assert!(told.contains(error), "{shell:?} {told}");
        assert!(resources.memory.total_mb.is_some(), "{shell:?}");
    }
}
