//! Commands neither see, end nor look into what runs outside of their sandbox.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::json;

use super::support::{Bystander, CANARY, Local, Setup, Wall, Who, gone};
use crate::support::unique;

async fn start(who: Who, wall: Wall) -> Option<Local> {
    let setup = Setup::new()
        .isolation(wall.word())
        .variable("SERVER_TOKEN", CANARY);
    let local = setup.start_for(who).await?;
    local.assert_level(wall).await;
    Some(local)
}

/// Attaches without stopping.
const PTRACE_SEIZE: u32 = 0x4206;

/// The number of the system call.
const PTRACE: u32 = if cfg!(target_arch = "x86_64") {
    101
} else {
    117
};

fn can_be_traced_by_others() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    scope.map_or(true, |scope| scope.trim() == "0")
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn process_outside_is_neither_ended_nor_looked_into(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let seconds = format!("9201.{}", unique());
    let bystander = Bystander::start(&local, &seconds);
    let pid = bystander.pid();
    let attach = format!("exit(syscall({PTRACE}, {PTRACE_SEIZE}, {pid}, 0, 0) == 0 ? 0 : 1)");
    let mut looks = vec![
        (
            "environment",
            format!("grep -q {CANARY} /proc/{pid}/environ"),
        ),
        ("memory", format!("exec 3</proc/{pid}/mem")),
        ("open for writing", format!("exec 3<>/proc/{pid}/mem")),
        ("descriptors", format!("readlink /proc/{pid}/fd/0")),
        ("folder", format!("ls /proc/{pid}/cwd/")),
        ("root", format!("ls /proc/{pid}/root/")),
        ("addresses", format!("grep -q . /proc/{pid}/maps")),
        ("limits", format!("prlimit --pid {pid} --cpu=3600:3600")),
        ("priority", format!("renice -n 1 -p {pid}")),
    ];
    if can_be_traced_by_others() {
        looks.push(("tracing", format!("perl -e '{attach}'")));
    }
    for (attack, script) in &looks {
        local.assert_refused(attack, script).await;
    }
    let mark = format!("sleep {seconds}");
    for script in [
        format!("kill -9 {pid}"),
        format!("kill -STOP {pid}"),
        format!("kill -TERM -- -{pid}"),
        format!("pkill -9 -f '^{mark}$'"),
    ] {
        let reply = local.run(&script).await;
        assert!(
            reply.json["exit_code"].as_i64() > Some(0),
            "{script}: {}",
            reply.text
        );
    }
    assert!(bystander.lives());
    assert_eq!(process::state(pid), Some('S'));
    let seen = local
        .output(&format!("ps -eo args | grep -c '^{mark}$'"))
        .await;
    let open = local.is_open("seeing other processes").await;
    assert_eq!(seen == "1", open, "{seen}");
    assert_eq!(open, wall == Wall::Landlock);
    local.assert_works_outside("kill", &format!("kill -9 {pid}"));
    let ended = || !bystander.lives();
    assert!(wait_until(Duration::from_secs(5), ended).await);
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn another_sandbox_is_out_of_reach(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    local
        .create(json!({"name": "two", "env": {"TWO": CANARY}}))
        .await;
    let sleep = format!("sleep 9202.{}", unique());
    local
        .run_in("two", &format!("{sleep} >/dev/null 2>&1 &"))
        .await;
    let pids = process::with_command_line(&sleep);
    assert_eq!(pids.len(), 1);
    let pid = pids[0];
    let supervisor = local.server.supervisor("two");
    for script in [
        format!("kill -9 {pid}"),
        format!("kill -9 {supervisor}"),
        format!("grep -q {CANARY} /proc/{pid}/environ"),
        format!("ls /proc/{pid}/cwd/"),
        format!("ls {}", local.folder("two").join("home").display()),
        format!("ls {}", local.folder("two").join("tmp").display()),
    ] {
        let reply = local.run(&script).await;
        assert!(
            reply.json["exit_code"].as_i64() > Some(0),
            "{script}: {}",
            reply.text
        );
    }
    let everywhere = "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c TWO=; true";
    assert_eq!(local.output(everywhere).await, "0");
    assert!(process::is_alive(pid) && process::is_alive(supervisor));
    let own = local.run_in("two", &format!("pkill -f '^{sleep}$'")).await;
    assert_eq!(own.json["exit_code"], 0, "{}", own.text);
    assert!(gone(&sleep).await);
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn environment_and_descriptors_of_the_server_stay_with_it(
    #[case] who: Who,
    #[case] wall: Wall,
) {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), CANARY).unwrap();
    let open = format!("exec 7<>{0} 23<{0}; exec \"$@\"", secret.path().display());
    let setup = Setup::new()
        .isolation(wall.word())
        .variable("SERVER_TOKEN", CANARY)
        .variable("AWS_SECRET_ACCESS_KEY", CANARY)
        .variable("SSH_AUTH_SOCK", CANARY)
        .wrapper(["bash", "-c", &open, "bash"]);
    std::fs::set_permissions(secret.path(), PermissionsExt::from_mode(0o666)).unwrap();
    let Some(local) = setup.start_for(who).await else {
        return;
    };
    local.assert_level(wall).await;
    let server = local.client.pid();
    let variables = std::fs::read(format!("/proc/{server}/environ")).unwrap();
    assert!(String::from_utf8_lossy(&variables).contains(CANARY));
    for descriptor in [7, 23] {
        let held = std::fs::read_link(format!("/proc/{server}/fd/{descriptor}")).unwrap();
        assert_eq!(held, secret.path());
    }
    // The first command is one of a new supervisor, the second comes to one that is there.
    for _ in 0..2 {
        let variables = local
            .output("env; set; cat /proc/[0-9]*/environ 2>/dev/null")
            .await;
        assert!(!variables.contains(CANARY), "{variables}");
        assert!(!variables.contains("SERVER_TOKEN"), "{variables}");
        let held = local
            .output("ls -l /proc/[0-9]*/fd/ /proc/self/fd/ 2>/dev/null; true")
            .await;
        let name = secret.path().file_name().unwrap().to_str().unwrap();
        assert!(held.contains("pipe:"), "{held}");
        assert!(!held.contains(name), "{held}");
        let reply = local.run("cat <&7").await;
        assert_ne!(reply.json["exit_code"], 0, "{}", reply.text);
        let reply = local.run("cat <&23").await;
        assert_ne!(reply.json["exit_code"], 0, "{}", reply.text);
    }
    let supervisor = local.server.supervisor("local");
    for entry in std::fs::read_dir(format!("/proc/{supervisor}/fd")).unwrap() {
        let held = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert_ne!(held, secret.path());
    }
}

/// Only behind a process namespace: elsewhere this would end everything of the user.
#[rstest]
#[case::root(Who::Root)]
#[case::user_account(Who::Plain)]
#[tokio::test]
async fn signal_to_everybody_stays_inside_bubblewrap(#[case] who: Who) {
    let Some(local) = start(who, Wall::Bubblewrap).await else {
        return;
    };
    let bystander = Bystander::start(&local, &format!("9203.{}", unique()));
    let outside = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let inside = local.output("readlink /proc/self/ns/pid").await;
    assert!(inside.starts_with("pid:[") && inside != outside.display().to_string());
    let first = local.output("cat /proc/1/comm; echo $$").await;
    assert!(first.starts_with("supervisor\n"), "{first}");
    let script = format!(
        "[ \"$(readlink /proc/self/ns/pid)\" = {inside} ] && [ \"$(cat /proc/1/comm)\" = supervisor ] && kill -9 -1"
    );
    local.run(&script).await;
    assert!(bystander.lives());
    assert!(process::is_alive(local.client.pid()));
    let reply = local.run("echo on").await;
    assert_eq!(reply.json["stdout"], "on\n", "{}", reply.text);
}
