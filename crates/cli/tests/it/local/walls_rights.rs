//! Commands have no rights and cannot get any: no capability, no setuid, no namespace, no mount, no device.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::skip;
use rstest::rstest;

use super::support::{Local, Setup, Wall, Who};

async fn start(who: Who, wall: Wall) -> Option<Local> {
    let local = Setup::new().isolation(wall.word()).start_for(who).await?;
    local.assert_level(wall).await;
    Some(local)
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn commands_have_no_capability_and_gain_none(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let status = local
        .output("grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs):' /proc/self/status")
        .await;
    assert_eq!(status.lines().count(), 5, "{status}");
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").unwrap();
        let expected = if name == "NoNewPrivs" {
            "1"
        } else {
            "0000000000000000"
        };
        assert_eq!(value, expected, "{name}");
    }
    if !process::is_root() {
        skip("needs root: a program that becomes root");
        return;
    }
    // Every program that becomes root does so by this mark alone.
    let copy = local.folder("local").join("home/workspace/become-root");
    std::fs::copy("/usr/bin/grep", &copy).unwrap();
    chown(&copy, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
    let look = format!("{} -E '^(Uid|CapEff):' /proc/self/status", copy.display());
    let inside = local.output(&look).await;
    assert!(inside.contains("CapEff:\t0000000000000000"), "{inside}");
    let before = local.output("grep ^Uid: /proc/self/status").await;
    assert!(inside.starts_with(&before), "{inside} after {before}");
    let outside = local.run_outside(&look);
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert!(!outside.contains("CapEff:\t0000000000000000"), "{outside}");
    let user = outside.split_whitespace().nth(2);
    assert_eq!(user, Some("0"), "{outside}");
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn nobody_becomes_somebody_else_or_leaves_the_namespaces(
    #[case] who: Who,
    #[case] wall: Wall,
) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    // What the machine allows to whoever runs the server.
    let mut attacks = vec![
        ("namespaces of a user", "unshare -Ur true"),
        (
            "mounts in a namespace",
            "unshare -Urm sh -c 'mount -t tmpfs none /mnt'",
        ),
        (
            "processes in a namespace",
            "unshare -Urpf --mount-proc true",
        ),
        ("network in a namespace", "unshare -Urn true"),
    ];
    if who == Who::Root {
        attacks.extend([
            ("another user", "setpriv --reuid=65534 --clear-groups true"),
            ("su", "su -s /bin/sh -c true nobody"),
            ("another root", "chroot / true"),
            ("mount namespace", "unshare -m true"),
            ("network namespace", "unshare -n true"),
            ("mount", "unshare -m sh -c 'mount -t tmpfs none /mnt'"),
            ("owner", "f=$(mktemp) && chown 1 $f && rm -f $f"),
            ("priority", "nice -n -5 sh -c '[ $(nice) = -5 ]'"),
            // Names a program that the kernel starts outside.
            ("kernel settings", ": >>/proc/sys/kernel/core_pattern"),
            ("memory policy", ": >>/proc/sys/vm/swappiness"),
        ]);
    }
    for (attack, script) in attacks {
        local.assert_refused(attack, script).await;
    }
    for script in [
        "mount -t tmpfs none ~",
        "mount --bind / ~",
        "mount -o remount,rw /",
        "umount /proc",
        "su -c true root </dev/null",
        "sudo -n true",
        "nsenter -t 1 -m -n -p true",
        "echo 0 >/proc/sys/kernel/randomize_va_space",
        ": >>/proc/sysrq-trigger",
        "sysctl -w kernel.panic=0",
        "date -s '2001-01-01'",
        "hostname elsewhere",
    ] {
        let reply = local.run(script).await;
        assert!(
            reply.json["exit_code"].as_i64() > Some(0),
            "{script}: {}",
            reply.text
        );
    }
    let writable = "for f in $(find /proc/sys /sys/kernel /sys/power -type f -writable 2>/dev/null); do ( : >>$f ) 2>/dev/null && echo $f; done; true";
    assert_eq!(local.output(writable).await, "");
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn devices_are_the_harmless_ones(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let usual = "head -c 4 /dev/urandom | wc -c; echo x >/dev/null; head -c 2 /dev/zero | wc -c";
    assert_eq!(local.output(usual).await, "4\n2");
    let disks = "for d in $(find /dev -type b); do head -c 1 $d >/dev/null && exit 0; done; exit 1";
    let memory = "for d in /dev/mem /dev/kmem /dev/port /dev/kmsg /dev/kvm /dev/fuse /dev/loop-control; do exec 3<$d && exit 0; done; exit 1";
    let node = "mknod ~/node b 7 0";
    for script in [disks, memory, node] {
        let reply = local.run(script).await;
        assert!(
            reply.json["exit_code"].as_i64() > Some(0),
            "{script}: {}",
            reply.text
        );
    }
    if wall == Wall::Bubblewrap {
        assert_eq!(local.output("find /dev -type b").await, "");
    }
    let has_disks = local.run_outside("find /dev -type b | grep -q .").status;
    if who == Who::Root && has_disks.success() && Path::new("/dev/kmsg").exists() {
        let can_read = local.run_outside(disks).status.success();
        assert!(can_read || local.run_outside("head -c 1 /dev/kmsg").status.success());
    }
}

/// The number of the system call that asks for keys.
const KEYCTL: u32 = if cfg!(target_arch = "x86_64") {
    250
} else {
    219
};

/// The system call that opens a socket, and the kind that leads to the machine below this one.
const SOCKET: u32 = if cfg!(target_arch = "x86_64") {
    41
} else {
    198
};

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn keys_in_the_kernel_and_odd_sockets_are_out_of_reach(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let keys = format!("perl -e 'exit(syscall({KEYCTL}, 0, -3, 1) > 0 ? 0 : 1)'");
    local.assert_refused("keyring", &keys).await;
    // AF_ALG needs no right and no network at all.
    let odd = format!("perl -e 'exit(syscall({SOCKET}, 38, 5, 0) >= 0 ? 0 : 1)'");
    let reply = local.run(&odd).await;
    assert_eq!(reply.json["exit_code"], 1, "{}", reply.text);
}

#[rstest]
#[case::root(Who::Root)]
#[case::user_account(Who::Plain)]
#[tokio::test]
async fn terminals_and_modes_that_change_the_owner_are_refused_at_the_landlock_level(
    #[case] who: Who,
) {
    let Some(local) = start(who, Wall::Landlock).await else {
        return;
    };
    local
        .assert_refused("new terminal", "exec 3<>/dev/ptmx")
        .await;
    local
        .assert_refused("terminals", "ls /dev/pts >/dev/null")
        .await;
    let mode = local.run("touch own && chmod 4755 own").await;
    assert_eq!(mode.json["exit_code"], 1, "{}", mode.text);
    let usual = local.run("chmod 755 own && ./own").await;
    assert_eq!(usual.json["exit_code"], 0, "{}", usual.text);
}
