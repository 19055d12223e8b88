#![expect(
    clippy::disallowed_methods,
    reason = "the script is proven by running it, with stand-in tools on disk and a stopwatch"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rstest::rstest;
use tempfile::TempDir;

use super::super::samples::nonce;
use super::super::{Resources, parse_report};
use super::*;

const HEALTHY: &str = include_str!("../../tests/fixtures/probe/gpus_healthy.csv");
const PROCESSES: &str = include_str!("../../tests/fixtures/probe/processes_healthy.csv");

/// The shells of this machine out of those a host may have as `sh`.
pub(super) fn shells() -> Vec<&'static [&'static str]> {
    let all: [&[&str]; 7] = [
        &["sh"],
        &["dash"],
        &["busybox", "sh"],
        &["bash", "--posix"],
        &["zsh", "--emulate", "sh"],
        &["ksh"],
        &["mksh"],
    ];
    all.into_iter()
        .filter(|shell| {
            let found = Command::new(shell[0])
                .args(&shell[1..])
                .args(["-c", "exit 7"])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.code() == Some(7));
            if !found {
                println!("skipped: this machine has no {}", shell.join(" "));
            }
            found
        })
        .collect()
}

/// Puts a shell program of that name into the directory.
pub(super) fn add_program(directory: &Path, name: &str, body: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\nhere=${{0%/*}}\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether the condition comes true within a generous time.
fn comes_true(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A directory with a stand-in `nvidia-smi`.
fn stand_in(body: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("gpus.csv"), HEALTHY).unwrap();
    fs::write(directory.path().join("processes.csv"), PROCESSES).unwrap();
    add_program(directory.path(), "nvidia-smi", body);
    directory
}

pub(super) struct Run {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    pub(super) took: Duration,
}

impl Run {
    pub(super) fn resources(&self) -> Resources {
        parse_report(&nonce(), &self.stdout).unwrap()
    }
}

/// Runs the script, and waits until nobody holds its output open any more.
pub(super) fn run(shell: &[&str], directory: &Path, script: &str) -> Run {
    let start = Instant::now();
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", script])
        .env(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", directory.display()),
        )
        .env("HOME", directory)
        .env("OMP_NUM_THREADS", "77777")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{shell:?}");
    Run {
        stdout: output.stdout,
        stderr: output.stderr,
        took: start.elapsed(),
    }
}

pub(super) fn script(limit_s: u64) -> String {
    script_with_limit(&nonce(), Duration::from_secs(limit_s))
}

#[rstest]
#[case("")]
#[case("short")]
#[case("Uppercase1")]
#[case("with space")]
#[case("quote'quote")]
#[case("newline\nnewline")]
#[case("ünïcödé1")]
#[case("0123456789012345678901234567890123456789012345678901234567890123456789")]
fn nonce_refuses_what_is_not_a_plain_word(#[case] text: &str) {
    assert_eq!(Nonce::parse(text), Err(ProbeError::InvalidNonce));
}

#[test]
fn script_carries_the_nonce_and_the_limit() {
    let script = probe_script(&nonce());
    assert!(script.contains("\nnonce=n0nce5a3\nlimit=5\n"));
    assert!(!script.contains("@NONCE@") && !script.contains("@LIMIT@"));
    assert!(script.is_ascii());
}

#[test]
fn script_reads_a_healthy_host_in_every_shell() {
    let directory = stand_in(
        "case $1 in *compute-apps*) cat \"$here/processes.csv\" ;; *) cat \"$here/gpus.csv\" ;; esac",
    );
    for shell in shells() {
        let run = run(shell, directory.path(), &script(5));
        let resources = run.resources();
        assert!(run.stderr.is_empty(), "{shell:?}");
        assert_eq!(resources.gpu.len(), 4, "{shell:?}");
        assert_eq!(resources.gpu_error, None, "{shell:?}");
        let processes = resources.gpu[0].processes.as_ref().unwrap();
        assert_eq!(processes[0].pid, Some(41233), "{shell:?}");
        assert!(resources.cpu.load_1m.is_some(), "{shell:?}");
        assert!(resources.cpu.count.unwrap() < 77_777, "{shell:?}");
        assert!(resources.memory.total_mb.unwrap() > 0, "{shell:?}");
        assert_eq!(resources.disk.len(), 2, "{shell:?}");
        assert!(resources.disk[0].total_mb.unwrap() > 0, "{shell:?}");
        assert_eq!(resources.disk[1].path, "/tmp", "{shell:?}");
        if cfg!(target_os = "linux") {
            assert!(resources.cpu.util_pct.is_some(), "{shell:?}");
        }
        assert!(run.took < Duration::from_secs(4), "{:?}", run.took);
    }
}

#[test]
fn script_gives_up_on_a_hanging_tool_whose_child_keeps_the_output_open() {
    let directory = stand_in("printf '0, GPU-1, half a row'\nsleep 20\n");
    for shell in shells() {
        let run = run(shell, directory.path(), &script(1));
        let resources = run.resources();
        assert!(
            run.took < Duration::from_secs(8),
            "{shell:?} {:?}",
            run.took
        );
        assert_eq!(
            resources.gpu_error.as_deref(),
            Some("nvidia-smi did not answer in time and was stopped"),
            "{shell:?}"
        );
        assert!(resources.gpu.is_empty(), "{shell:?}");
        assert!(resources.memory.total_mb.is_some(), "{shell:?}");
    }
}

#[test]
fn script_gives_up_on_a_tool_that_cannot_be_killed() {
    let directory = stand_in("echo $$ >>\"$here/pids\"\nexec sleep 20\n");
    // A process stuck in the kernel takes no signal; leaving the signals out looks the same from here.
    let script = script(1)
        .replace("kill -STOP \"$tool\"", ": stop")
        .replace("kill -KILL \"$tool\"", ": kill");
    for shell in shells() {
        let run = run(shell, directory.path(), &script);
        assert!(
            run.took < Duration::from_secs(8),
            "{shell:?} {:?}",
            run.took
        );
        assert!(run.resources().gpu_error.is_some(), "{shell:?}");
    }
    let pids = fs::read_to_string(directory.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), shells().len() * 3);
    for pid in pids.lines() {
        let ended = Command::new("kill").args(["-KILL", pid]).status().unwrap();
        assert!(ended.success(), "process {pid} was to be still there");
    }
}

#[test]
fn script_kills_the_tool_that_hangs() {
    let directory = stand_in("echo $$ >>\"$here/pids\"\nexec sleep 20\n");
    for shell in shells() {
        run(shell, directory.path(), &script(1));
    }
    let pids = fs::read_to_string(directory.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), shells().len() * 3);
    for pid in pids.lines() {
        // The signal goes out just after the verdict; the script does not wait for it.
        let ended = comes_true(|| {
            let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            !command.contains("sleep")
        });
        assert!(ended, "process {pid} still runs");
    }
}

#[test]
fn script_reports_a_failing_tool() {
    let directory =
        stand_in("echo 'Failed to initialize NVML: Driver/library version mismatch' >&2\nexit 18");
    for shell in shells() {
        let resources = run(shell, directory.path(), &script(5)).resources();
        assert_eq!(
            resources.gpu_error.as_deref(),
            Some("Failed to initialize NVML: Driver/library version mismatch"),
            "{shell:?}"
        );
    }
}

#[rstest]
#[case::lines("yes '0, GPU-1, T4, 0, 0, 15360' | head -c 104857600")]
#[case::endless_lines("exec yes '0, GPU-1, T4, 0, 0, 15360'")]
#[case::one_line("head -c 104857600 /dev/zero | tr '\\0' x")]
#[case::zeros("exec cat /dev/zero")]
fn script_bounds_a_flood(#[case] body: &str) {
    let directory = stand_in(body);
    for shell in shells() {
        let run = run(shell, directory.path(), &script(1));
        assert!(run.stdout.len() < 200_000, "{shell:?} {}", run.stdout.len());
        assert!(
            run.took < Duration::from_secs(8),
            "{shell:?} {:?}",
            run.took
        );
        let resources = run.resources();
        assert!(resources.gpu_error.is_some(), "{shell:?}");
        assert_eq!(resources.disk.len(), 2, "{shell:?}");
    }
}

#[test]
fn script_cannot_be_misled_by_marks_of_the_tool() {
    let directory = stand_in(
        "echo '@@abcdefgh end 0'; echo '@@ end 0'; echo ' @@n0nce5a3 end 0'; echo '@@n0nce5a3'; exit 4",
    );
    for shell in shells() {
        let resources = run(shell, directory.path(), &script(5)).resources();
        assert_eq!(
            resources.gpu_error.as_deref(),
            Some("@@abcdefgh end 0"),
            "{shell:?}"
        );
    }
}

#[test]
fn script_runs_from_standard_input_too() {
    let directory = stand_in("cat \"$here/gpus.csv\"; cat");
    let path = directory.path().join("probe");
    fs::write(&path, script(5)).unwrap();
    for shell in shells() {
        let output = Command::new(shell[0])
            .args(&shell[1..])
            .arg("-s")
            .stdin(fs::File::open(&path).unwrap())
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", directory.path().display()),
            )
            .output()
            .unwrap();
        let resources = parse_report(&nonce(), &output.stdout).unwrap();
        assert_eq!(resources.gpu.len(), 4, "{shell:?}");
    }
}

#[test]
fn script_leaves_figures_unknown_when_sleep_takes_no_fractions() {
    let directory = stand_in("cat \"$here/gpus.csv\"");
    add_program(
        directory.path(),
        "sleep",
        "case $1 in *.*) exit 1 ;; esac\nexec /bin/sleep \"$1\"",
    );
    let resources = run(&["sh"], directory.path(), &script(5)).resources();
    assert_eq!(resources.cpu.util_pct, None);
    assert_eq!(resources.gpu.len(), 4);
}

#[test]
fn script_leaves_nothing_behind_when_tools_answer() {
    let directory = stand_in("cat \"$here/gpus.csv\"");
    // A number of seconds of its own tells these sleeps from those of others.
    let mark = 600 + u64::from(std::process::id() % 1000);
    for shell in shells() {
        run(shell, directory.path(), &script(mark));
    }
    let sleeps = || {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let commands =
            processes.map(|process| fs::read(process.path().join("cmdline")).unwrap_or_default());
        commands
            .filter(|command| *command == format!("sleep\0{mark}\0").as_bytes())
            .count()
    };
    assert!(comes_true(|| sleeps() == 0), "{} are left", sleeps());
}

/// Writes files below a directory, each with the directories above it.
pub(super) fn add_files(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[rstest]
#[case::second_version(&[
    ("proc", "0::/user.slice/job\n"),
    ("fs/user.slice/cpu.max", "100000 100000\n"),
    ("fs/user.slice/memory.max", "max\n"),
    ("fs/user.slice/job/cpu.max", "max 100000\n"),
    ("fs/user.slice/job/memory.max", "104857600\n"),
    ("fs/user.slice/job/memory.current", "52428800\n"),
    ("fs/user.slice/job/memory.stat", "anon 1\ninactive_file 20971520\nactive_file 2\n"),
])]
#[case::first_version_seen_from_a_container(&[
    ("proc", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n"),
    ("fs/cpu/cpu.cfs_quota_us", "50000\n"),
    ("fs/cpu/cpu.cfs_period_us", "100000\n"),
    ("fs/memory/memory.limit_in_bytes", "104857600\n"),
    ("fs/memory/memory.usage_in_bytes", "52428800\n"),
    ("fs/memory/memory.stat", "inactive_file 3\ntotal_inactive_file 20971520\n"),
])]
fn script_finds_the_limits_of_a_cgroup(#[case] files: &[(&str, &str)]) {
    let directory = stand_in("exit 1");
    add_files(directory.path(), files);
    let place = directory.path().display();
    let script = script(5)
        .replace("/proc/self/cgroup", &format!("{place}/proc"))
        .replace("/sys/fs/cgroup", &format!("{place}/fs"));
    for shell in shells() {
        let resources = run(shell, directory.path(), &script).resources();
        assert_eq!(resources.cpu.count, Some(1), "{shell:?}");
        let memory = resources.memory;
        assert_eq!(memory.total_mb, Some(100), "{shell:?}");
        assert_eq!(memory.used_mb, Some(30), "{shell:?}");
    }
}

#[test]
fn script_takes_no_limit_from_a_cgroup_without_one() {
    let directory = stand_in("exit 1");
    let files = [
        ("proc", "5:memory:/\n0::/\n"),
        ("fs/cpu.max", "max 100000\n"),
        ("fs/memory.max", "max\n"),
        ("fs/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ];
    add_files(directory.path(), &files);
    let place = directory.path().display();
    let script = script(5)
        .replace("/proc/self/cgroup", &format!("{place}/proc"))
        .replace("/sys/fs/cgroup", &format!("{place}/fs"));
    for shell in shells() {
        let stdout = String::from_utf8(run(shell, directory.path(), &script).stdout).unwrap();
        assert!(stdout.contains("cpu max 100000"), "{shell:?}");
        assert!(!stdout.contains("\nmemory "), "{shell:?}");
    }
}

#[test]
fn script_asks_sysctl_when_there_is_no_proc() {
    let directory = stand_in("exit 1");
    add_program(
        directory.path(),
        "sysctl",
        "case $* in *vm.loadavg) echo '{ 1.50 1.25 1.00 }' ;; \
            *) echo 'hw.memsize: 1073741824'; exit 1 ;; esac",
    );
    add_program(
        directory.path(),
        "vm_stat",
        "echo '(page size of 16384 bytes)'; echo 'Pages free: 16384.'; \
            echo 'Pages inactive: 8192.'; echo 'Pages speculative: 8192.'",
    );
    let script = script(5).replace("/proc/", "/no-such-proc/");
    for shell in shells() {
        let resources = run(shell, directory.path(), &script).resources();
        assert_eq!(resources.cpu.load_15m, Some(1.0), "{shell:?}");
        assert_eq!(resources.cpu.util_pct, None, "{shell:?}");
        assert_eq!(resources.memory.total_mb, Some(1024), "{shell:?}");
        assert_eq!(resources.memory.free_mb, Some(512), "{shell:?}");
    }
}
