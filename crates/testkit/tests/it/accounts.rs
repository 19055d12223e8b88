//! Throw-away accounts.

use std::process::{Command, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::process::is_alive;
use remote_sandbox_testkit::{Home, Shell, Sshd, TestUser, wait_until_blocking};

fn passwd_has(name: &str) -> bool {
    std::fs::read_to_string("/etc/passwd")
        .unwrap()
        .lines()
        .any(|line| line.starts_with(&format!("{name}:")))
}

#[test]
fn account_logs_in_with_each_shell() {
    let sshd = Sshd::start();
    for (shell, answer) in [
        (Shell::Bash, "bash"),
        (Shell::Fish, "fish"),
        (Shell::Zsh, "zsh"),
        (Shell::Tcsh, "tcsh"),
        (Shell::BusyboxAsh, "ash"),
    ] {
        let Some(user) = TestUser::builder().shell(shell).create() else {
            continue;
        };
        let question = match shell {
            Shell::Bash => "test -n \"$BASH_VERSION\" && echo bash",
            Shell::Fish => "test -n \"$FISH_VERSION\"; and echo fish",
            Shell::Zsh => "test -n \"$ZSH_VERSION\" && echo zsh",
            Shell::Tcsh => "if ( $?tcsh ) echo tcsh",
            _ => "tr '\\0' ' ' < /proc/$$/cmdline | grep -q 'busybox ash' && echo ash",
        };
        let output = sshd.ssh(user.name(), sshd.port(), question);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), answer, "{output:?}\n{}", sshd.log());
    }
}

#[test]
fn account_with_nologin_refuses_commands() {
    let Some(user) = TestUser::builder().shell(Shell::Nologin).create() else {
        return;
    };
    let sshd = Sshd::start();
    let output = sshd.ssh(user.name(), sshd.port(), "echo never");
    assert_eq!(output.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("never\n"));
    assert_eq!(sshd.accepted_auth_count(), 1);
}

#[test]
fn account_home_is_as_asked() {
    let Some(missing) = TestUser::builder().home(Home::Missing).create() else {
        return;
    };
    assert!(!missing.home().exists());
    let read_only = TestUser::builder().home(Home::ReadOnly).create().unwrap();
    let sshd = Sshd::start();
    let output = sshd.ssh(read_only.name(), sshd.port(), "touch ~/file; echo $?");
    assert_ne!(output.stdout, b"0\n");
    let made = TestUser::create().unwrap();
    let output = sshd.ssh(made.name(), sshd.port(), "touch ~/file; echo $?");
    assert_eq!(output.stdout, b"0\n");
    assert!(made.home().join("file").exists());
}

#[test]
fn account_and_its_processes_vanish_when_dropped() {
    let Some(user) = TestUser::create() else {
        return;
    };
    let (name, home) = (user.name().to_owned(), user.home().to_owned());
    assert!(passwd_has(&name));
    let mut sleeper = Command::new("su")
        .args([&name, "-c", "exec sleep 600"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until_blocking(Duration::from_secs(10), || !user
        .pids()
        .is_empty()));
    let pids = user.pids();

    drop(user);

    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(!passwd_has(&name));
    assert!(!home.exists());
    sleeper.wait().unwrap();
}

#[test]
fn current_user_is_the_one_who_runs_the_tests() {
    let output = Command::new("id").arg("-un").output().unwrap();
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(TestUser::current().name(), name);
    drop(TestUser::current());
    assert!(passwd_has(&name));
}
