use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;
use tempfile::TempDir;

use super::*;

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([7; 16])
}

/// Runs the script with the tools of a folder alone.
fn run(shell: &[&str], path: &str) -> CheckUp {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, checkup_script(&mark())).unwrap();
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .env_clear()
        .env("PATH", path)
        .env("HOME", folder.path())
        .env("SHELL", "/bin/some")
        .stdin(Stdio::from(fs::File::open(&script).unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    parse_checkup(&mark(), &output.stdout).unwrap()
}

#[rstest]
#[case(&["/bin/sh"])]
#[case(&["/bin/bash", "--posix"])]
#[case(&["/bin/busybox", "sh"])]
fn checkup_finds_what_a_machine_has(#[case] shell: &[&str]) {
    if !Path::new(shell[0]).exists() {
        println!("skipped: this machine has no {}", shell[0]);
        return;
    }
    let found = run(shell, "/usr/bin:/bin");
    assert_eq!(found.login_shell, "/bin/some");
    assert!(!found.system.is_empty());
    assert!(
        matches!(&found.bash, Tool::Present(words) if words.contains("bash")),
        "{found:?}"
    );
    assert!(found.time_s.unwrap() > 1_700_000_000);
    assert_ne!(found.timeout, TimeoutProgram::Unknown);
    assert_eq!(found.disk.len(), 2, "{found:?}");
    assert_eq!(found.disk[0].place, "home");
    assert!(found.disk[0].used_percent.is_some());
    assert_eq!(found.inodes.len(), 2, "{found:?}");
}

#[test]
fn checkup_says_absent_where_nothing_is_installed() {
    let found = run(&["/bin/sh"], "/nonexistent");
    let bare = CheckUp {
        login_shell: "/bin/some".to_owned(),
        timeout: TimeoutProgram::Absent,
        ..CheckUp::default()
    };
    assert_eq!(found, bare);
}

#[test]
fn report_is_refused_when_it_did_not_come_whole() {
    let text = format!("RSMCP:{}:bash:have:x\n", mark());
    assert_eq!(
        parse_checkup(&mark(), text.as_bytes()),
        Err(CheckUpError::Incomplete)
    );
    let other = RunToken::from_uuid_bytes([8; 16]);
    let text = format!("RSMCP:{other}:end:\n");
    assert!(parse_checkup(&mark(), text.as_bytes()).is_err());
}

#[rstest]
#[case::gnu("home /dev/sda1 1000 600 400 60% /home", 400, Some(60))]
#[case::blank_in_name("home my disk 1000 600 400 60% /home", 400, Some(60))]
#[case::reserve("home /dev/sda1 1000 1000 -5 101% /", 0, Some(101))]
fn disk_is_read_whatever_its_name(
    #[case] line: &str,
    #[case] free: u64,
    #[case] used: Option<u64>,
) {
    let filled = disk(line).unwrap();
    assert_eq!((filled.free, filled.used_percent), (free, used));
}

#[rstest]
#[case::gnu("/tmp /dev/sda1 1000 600 400 60% /", Some((400, Some(60))))]
#[case::macos("/tmp /dev/disk1 9 8 1 80% 55 45 55% /", Some((45, Some(55))))]
#[case::no_limit("/tmp /dev/sda1 0 0 0 - /", Some((0, None)))]
#[case::nothing("/tmp ", None)]
#[case::words("/tmp df: unknown option", None)]
fn inodes_are_read_as_systems_write_them(
    #[case] line: &str,
    #[case] expected: Option<(u64, Option<u64>)>,
) {
    let read = inodes(line).map(|filled| (filled.free, filled.used_percent));
    assert_eq!(read, expected);
}

#[test]
fn words_of_a_host_are_cleaned_and_cut() {
    let text = format!(
        "RSMCP:{m}:tmux:have:\x1b]0;x\x07{}\nRSMCP:{m}:end:\n",
        "y".repeat(5000),
        m = mark()
    );
    let found = parse_checkup(&mark(), text.as_bytes()).unwrap();
    let Tool::Present(words) = found.tmux else {
        panic!("tmux is there");
    };
    assert!(!words.contains('\x1b') && words.chars().count() <= LONGEST_WORDS + 1);
}
