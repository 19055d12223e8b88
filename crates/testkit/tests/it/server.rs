//! The real OpenSSH server and its keys.

use std::process::Stdio;
use std::time::Duration;

use remote_sandbox_testkit::process::{is_alive, is_root};
use remote_sandbox_testkit::{
    ClientKey, KeyFormat, KeyType, Sshd, TestUser, skip, wait_until_blocking,
};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn sshd_runs_a_command_and_counts_what_happened() {
    let sshd = Sshd::start();
    assert_eq!(sshd.connection_count(), 0);
    let user = TestUser::current();

    let output = sshd.ssh(user.name(), sshd.port(), "echo out; echo err >&2; exit 7");

    assert_eq!(output.status.code(), Some(7), "{output:?}\n{}", sshd.log());
    assert_eq!(output.stdout, b"out\n");
    assert_eq!(output.stderr, b"err\n");
    assert_eq!(sshd.connection_count(), 1);
    assert_eq!(sshd.accepted_auth_count(), 1);
    assert_eq!(sshd.failed_auth_count(), 0);
}

#[test]
fn sshd_counts_a_failure_when_the_key_is_unknown() {
    let sshd = Sshd::start();
    let user = TestUser::current();
    let stranger = ClientKey::ed25519(sshd.dir(), "stranger");

    let status = sshd
        .ssh_command(user.name(), sshd.port())
        .args(["-o", "IdentityFile=none", "-i"])
        .arg(stranger.private_path())
        .arg("true")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();

    // Both the right and the wrong key were named, the right one first.
    assert!(status.success());
    assert_eq!(sshd.failed_auth_count(), 0);

    let mut only_stranger = std::process::Command::new("ssh");
    only_stranger.args([
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
    ]);
    only_stranger.args([
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "IdentitiesOnly=yes",
        "-i",
    ]);
    only_stranger.arg(stranger.private_path());
    only_stranger.args(["-p", &sshd.port().to_string()]);
    only_stranger.arg(format!("{}@127.0.0.1", user.name()));
    let output = only_stranger.arg("true").output().unwrap();

    assert_eq!(output.status.code(), Some(255));
    assert_eq!(sshd.failed_auth_count(), 1, "{}", sshd.log());
    assert_eq!(sshd.accepted_auth_count(), 1);
}

#[test]
fn sshd_sessions_freeze_thaw_and_die_by_command() {
    let sshd = Sshd::start();
    let user = TestUser::current();
    let mut client = sshd
        .ssh_command(user.name(), sshd.port())
        .arg("echo up; exec sleep 600")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until_blocking(LIMIT, || !sshd
        .command_pids()
        .is_empty()));
    let sessions = sshd.session_pids();
    let commands = sshd.command_pids();
    assert!(!sessions.is_empty());
    assert!(
        sessions.iter().all(|pid| !commands.contains(pid)),
        "{sessions:?} {commands:?}"
    );

    sshd.freeze_sessions();
    assert!(sessions.iter().all(|pid| process_state(*pid) == 'T'));
    sshd.thaw_sessions();
    assert!(sessions.iter().all(|pid| process_state(*pid) != 'T'));

    sshd.kill_sessions();
    assert!(sshd.session_pids().is_empty());
    assert_eq!(client.wait().unwrap().code(), Some(255));
    assert_eq!(
        sshd.ssh(user.name(), sshd.port(), "echo again").stdout,
        b"again\n"
    );

    let orphans = sshd.command_pids();
    drop(sshd);
    assert!(orphans.iter().all(|pid| !is_alive(*pid)));
}

#[test]
fn sshd_keeps_its_port_and_changes_its_key_when_told_so() {
    let mut sshd = Sshd::builder()
        .host_key_algorithms(&[KeyType::Ed25519, KeyType::Ecdsa, KeyType::Rsa])
        .start();
    let user = TestUser::current();
    let (port, keys) = (sshd.port(), sshd.host_public_keys());
    assert_eq!(keys.len(), 3);

    sshd.restart();
    assert_eq!((sshd.port(), sshd.host_public_keys()), (port, keys.clone()));
    assert!(sshd.ssh(user.name(), port, "true").status.success());

    sshd.restart_with_new_host_key();
    assert_eq!(sshd.port(), port);
    assert!(
        sshd.host_public_keys()
            .iter()
            .all(|key| !keys.contains(key))
    );
    assert!(sshd.ssh(user.name(), port, "true").status.success());
    assert_eq!(sshd.connection_count(), 2);

    sshd.stop();
    assert_eq!(sshd.ssh(user.name(), port, "true").status.code(), Some(255));
}

#[test]
fn sshd_obeys_extra_lines_and_sets_the_environment() {
    let sshd = Sshd::builder()
        .max_sessions(1)
        .session_environment("FLAVOUR", "vanilla")
        .extra_config("Banner none")
        .start();
    let output = sshd.ssh(TestUser::current().name(), sshd.port(), "echo $FLAVOUR");
    assert_eq!(output.stdout, b"vanilla\n", "{}", sshd.log());
}

#[test]
fn sshd_processes_are_gone_when_it_is_dropped() {
    let sshd = Sshd::start();
    let daemon = sshd.daemon_pid().unwrap();
    let dir = sshd.dir().to_owned();
    assert!(is_alive(daemon));
    drop(sshd);
    assert!(!is_alive(daemon));
    assert!(!dir.exists());
}

#[test]
fn client_keys_of_every_type_and_format_open_a_session() {
    let mut sshd = Sshd::builder()
        .extra_config("PubkeyAcceptedAlgorithms +ssh-rsa")
        .start();
    let user = TestUser::current();
    let cases = [
        (KeyType::Ed25519, KeyFormat::OpenSsh, "OPENSSH PRIVATE KEY"),
        (KeyType::Ecdsa, KeyFormat::OpenSsh, "OPENSSH PRIVATE KEY"),
        (KeyType::Rsa, KeyFormat::OpenSsh, "OPENSSH PRIVATE KEY"),
        (KeyType::Ecdsa, KeyFormat::Pem, "EC PRIVATE KEY"),
        (KeyType::Rsa, KeyFormat::Pem, "RSA PRIVATE KEY"),
        (KeyType::Rsa, KeyFormat::Pkcs8, "BEGIN PRIVATE KEY"),
    ];
    for (number, (key_type, format, heading)) in cases.into_iter().enumerate() {
        let name = format!("case_{number}");
        let key = ClientKey::generate(sshd.dir(), &name, key_type, format, None).unwrap();
        let text = std::fs::read_to_string(key.private_path()).unwrap();
        assert!(text.lines().next().unwrap().contains(heading), "{name}");
        assert!(key.public_path().exists());
        sshd.authorize(&key);
        let before = sshd.accepted_auth_count();
        let output = std::process::Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o"])
            .args(["StrictHostKeyChecking=no", "-o"])
            .args(["UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"])
            .arg("-i")
            .arg(key.private_path())
            .args(["-p", &sshd.port().to_string()])
            .arg(format!("{}@127.0.0.1", user.name()))
            .arg("true")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{key_type:?} {format:?}: {output:?}"
        );
        assert_eq!(sshd.accepted_auth_count(), before + 1);
    }
}

#[test]
fn encrypted_and_rare_keys_are_written_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    for (name, key_type, format, heading) in [
        (
            "a",
            KeyType::Ed25519,
            KeyFormat::Pkcs8,
            "BEGIN ENCRYPTED PRIVATE KEY",
        ),
        (
            "b",
            KeyType::Rsa,
            KeyFormat::Pkcs8,
            "BEGIN ENCRYPTED PRIVATE KEY",
        ),
        (
            "c",
            KeyType::Dsa,
            KeyFormat::OpenSsh,
            "BEGIN OPENSSH PRIVATE KEY",
        ),
    ] {
        let key = ClientKey::generate(dir.path(), name, key_type, format, Some("open sesame"));
        let Some(key) = key else { continue };
        assert_eq!(key.passphrase(), Some("open sesame"));
        let text = std::fs::read_to_string(key.private_path()).unwrap();
        assert!(text.contains(heading), "{text}");
        let right = russh::keys::load_secret_key(key.private_path(), Some("open sesame")).unwrap();
        let public = right.public_key().to_openssh().unwrap();
        let kind_and_data = |line: &str| {
            let mut words = line.split_whitespace();
            (
                words.next().unwrap().to_owned(),
                words.next().unwrap().to_owned(),
            )
        };
        assert_eq!(kind_and_data(&public), kind_and_data(key.public_line()));
        assert!(russh::keys::load_secret_key(key.private_path(), Some("wrong")).is_err());
    }
}

#[test]
fn a_password_is_asked_for_and_taken_when_enabled() {
    if !is_root() {
        return skip("password logins need root");
    }
    let Some(user) = TestUser::builder().password("s3cret word").create() else {
        return;
    };
    let sshd = Sshd::builder().password_auth().user(&user).start();
    let helper = sshd.dir().join("askpass");
    std::fs::write(&helper, "#!/bin/sh\necho 's3cret word'\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&helper, mode).unwrap();
    let output = std::process::Command::new("ssh")
        .env("SSH_ASKPASS", &helper)
        .env("SSH_ASKPASS_REQUIRE", "force")
        .args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o"])
        .args([
            "UserKnownHostsFile=/dev/null",
            "-o",
            "PubkeyAuthentication=no",
        ])
        .args(["-p", &sshd.port().to_string()])
        .arg(format!("{}@127.0.0.1", user.name()))
        .arg("id -un")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        user.name(),
        "{output:?}\n{}",
        sshd.log()
    );
    assert!(sshd.log().contains("Accepted password for"));
    let other = sshd.ssh("root", sshd.port(), "true");
    assert_eq!(
        other.status.code(),
        Some(255),
        "only the named user may log in"
    );
}

#[test]
fn keyboard_interactive_is_offered_when_enabled() {
    let Some(user) = TestUser::builder().password("s3cret word").create() else {
        return;
    };
    let sshd = Sshd::builder().keyboard_interactive().start();
    let helper = sshd.dir().join("askpass");
    std::fs::write(&helper, "#!/bin/sh\necho 's3cret word'\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&helper, mode).unwrap();
    let output = std::process::Command::new("ssh")
        .env("SSH_ASKPASS", &helper)
        .env("SSH_ASKPASS_REQUIRE", "force")
        .args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o"])
        .args(["UserKnownHostsFile=/dev/null", "-o"])
        .args(["PreferredAuthentications=keyboard-interactive"])
        .args(["-p", &sshd.port().to_string()])
        .arg(format!("{}@127.0.0.1", user.name()))
        .arg("id -un")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let log = sshd.log();
    assert!(
        log.contains("Accepted keyboard-interactive"),
        "{output:?}\n{log}"
    );
    assert_eq!(sshd.accepted_auth_count(), 1, "{log}");
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert_eq!(name, user.name(), "{output:?}\n{log}");
}

fn process_state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}
