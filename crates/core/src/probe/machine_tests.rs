//! What the script starts on a machine without GPUs, and what it makes of disks and processors.
#![expect(
    clippy::disallowed_methods,
    reason = "the script is proven by running it, with stand-in tools on disk and a stopwatch"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rstest::rstest;

use super::tests::{add_files, add_program, run, script, shells};

/// Puts a stand-in of that name into the directory that notes each call and then is the real one.
fn add_noted(directory: &Path, name: &str, before: &str) {
    let body = format!(
        "printf '%s\\n' \"{name} $*\" >>\"$here/calls\"\n{before}\n\
         for real in /usr/bin/{name} /bin/{name}; do [ ! -x $real ] || exec $real \"$@\"; done"
    );
    add_program(directory, name, &body);
}

fn calls(directory: &Path) -> Vec<String> {
    let noted = fs::read_to_string(directory.join("calls")).unwrap_or_default();
    let _ = fs::remove_file(directory.join("calls"));
    let mut calls: Vec<String> = noted.lines().map(str::to_owned).collect();
    calls.sort();
    calls
}

#[cfg(target_os = "linux")]
#[test]
fn script_starts_two_programs_where_there_is_no_gpu_tool() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "cat", "df", "getconf", "grep", "id", "ls", "nproc", "sleep", "sysctl", "uptime",
    ] {
        add_noted(directory.path(), name, "");
    }
    let home = directory.path().display();
    for shell in shells() {
        let resources = run(shell, directory.path(), &script(5)).resources();
        assert!(resources.cpu.count.is_some(), "{shell:?}");
        let expected = [format!("df -kP /tmp {home}"), "sleep 0.1".to_owned()];
        assert_eq!(calls(directory.path()), expected, "{shell:?}");
    }
}

#[rstest]
#[case::hangs("exec sleep 20")]
#[case::hangs_with_a_child("sleep 20")]
#[case::fails("exit 1")]
#[case::floods("exec yes")]
fn script_shows_the_disk_that_answers_when_the_other_does_not(#[case] body: &str) {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().display();
    add_noted(
        directory.path(),
        "df",
        &format!("case $* in *{home}*) {body} ;; esac"),
    );
    for shell in shells() {
        let run = run(shell, directory.path(), &script(1));
        assert!(run.took < Duration::from_secs(8), "{shell:?}");
        let disks = run.resources().disk;
        assert_eq!(disks.len(), 2, "{shell:?}");
        assert_eq!(disks[0].total_mb, None, "{shell:?}");
        assert_eq!(disks[1].path, "/tmp", "{shell:?}");
        assert!(disks[1].total_mb.unwrap() > 0, "{shell:?}");
    }
}

#[test]
fn script_ends_when_no_df_can_be_killed() {
    let directory = tempfile::tempdir().unwrap();
    add_program(
        directory.path(),
        "df",
        "echo $$ >>\"$here/pids\"\nexec sleep 20",
    );
    let script = script(1)
        .replace("kill -STOP \"$tool\"", ": stop")
        .replace("kill -KILL \"$tool\"", ": kill");
    for shell in shells() {
        let run = run(shell, directory.path(), &script);
        assert!(run.took < Duration::from_secs(8), "{shell:?}");
        let resources = run.resources();
        assert!(resources.memory.total_mb.is_some(), "{shell:?}");
        assert!(
            resources.disk.iter().all(|disk| disk.total_mb.is_none()),
            "{shell:?}"
        );
    }
    let pids = fs::read_to_string(directory.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), shells().len() * 3);
    for pid in pids.lines() {
        let ended = Command::new("kill").args(["-KILL", pid]).status().unwrap();
        assert!(ended.success(), "process {pid} was to be still there");
    }
}

#[test]
fn script_waits_for_a_df_that_is_a_little_slow() {
    let directory = tempfile::tempdir().unwrap();
    add_noted(directory.path(), "df", "sleep 0.3");
    for shell in shells() {
        let disks = run(shell, directory.path(), &script(5)).resources().disk;
        assert!(
            disks.iter().all(|disk| disk.total_mb.is_some()),
            "{shell:?}"
        );
        assert_eq!(calls(directory.path()).len(), 1, "{shell:?}");
    }
}

#[rstest]
#[case::all_of_a_small_machine("0-1", "0-1", 2)]
#[case::more_allowed_than_running("0-127", "0-1", 2)]
#[case::some_of_many("1,3,8-11", "0-63", 6)]
#[case::one("7", "0-63", 1)]
#[case::lists_of_different_machines("5,7", "0-1", 77)]
#[case::lists_that_overlap("0-1,5", "0-3", 77)]
#[case::no_list("", "0-1", 77)]
#[case::no_numbers("-", "0-1", 77)]
#[case::words("all", "0-1", 77)]
#[case::too_long("0,2,4,6,8,10,12,14,16,18,20,22,24", "0-63", 77)]
fn script_counts_processors_as_nproc_does(
    #[case] allowed: &str,
    #[case] online: &str,
    #[case] expected: u32,
) {
    let directory = tempfile::tempdir().unwrap();
    add_program(directory.path(), "nproc", "echo 77");
    let status = format!("Name:\tsh\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n");
    add_files(
        directory.path(),
        &[
            ("status", status.as_str()),
            ("online", &format!("{online}\n")),
        ],
    );
    let place = directory.path().display();
    let script = script(5)
        .replace("/proc/self/status", &format!("{place}/status"))
        .replace("/sys/devices/system/cpu/online", &format!("{place}/online"))
        .replace("/proc/self/cgroup", "/no-such-file");
    for shell in shells() {
        let resources = run(shell, directory.path(), &script).resources();
        assert_eq!(resources.cpu.count, Some(expected), "{shell:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn script_counts_as_many_processors_as_the_real_nproc() {
    let directory = tempfile::tempdir().unwrap();
    let told = Command::new("nproc")
        .env_remove("OMP_NUM_THREADS")
        .env_remove("OMP_THREAD_LIMIT")
        .output()
        .unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let script = script(5).replace("/proc/self/cgroup", "/no-such-file");
    for shell in shells() {
        let resources = run(shell, directory.path(), &script).resources();
        assert_eq!(resources.cpu.count, told.trim().parse().ok(), "{shell:?}");
    }
}
