//! Which wall stands where, what is said of it, and what bounds a sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::skip;
use rstest::rstest;
use serde_json::json;

use super::support::{Setup, Who, gone, line, run_in};
use crate::support::unique;

/// Starts a program where the kernel gives no further user namespaces.
const WITHOUT_NAMESPACES: [&str; 6] = [
    "unshare",
    "-Ur",
    "sh",
    "-c",
    "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"",
    "sh",
];

fn namespaces_can_be_forbidden() -> bool {
    let [program, rest @ ..] = WITHOUT_NAMESPACES;
    let mut command = Command::new(program);
    let tried = command.args(rest).args(["unshare", "-Ur", "true"]).output();
    let works = tried.is_ok_and(|output| {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        !output.status.success() && words.contains("unshare") && !words.contains("0 >")
    });
    if !works {
        skip("user namespaces cannot be forbidden here");
    }
    works
}

#[tokio::test]
async fn without_user_namespaces_landlock_stands() {
    if !namespaces_can_be_forbidden() {
        return;
    }
    let local = Setup::new().wrapper(WITHOUT_NAMESPACES).start().await;
    let line = local.line("local").await;
    assert_eq!(line["isolation"], "landlock", "{line}");
    assert_eq!(line["connection_alive"], true, "{line}");
    let key = local.file(".ssh/id", "secret");
    let reply = local
        .run(&format!("cat {} || echo refused", key.display()))
        .await;
    assert_eq!(reply.json["stdout"], "refused\n", "{}", reply.text);
}

#[tokio::test]
async fn wall_that_is_asked_for_and_does_not_stand_is_an_error_with_a_way_out() {
    if !namespaces_can_be_forbidden() {
        return;
    }
    let local = Setup::new()
        .isolation("bubblewrap")
        .wrapper(WITHOUT_NAMESPACES)
        .start()
        .await;
    let made = local.call("create_sandbox", json!({"name": "two"})).await;
    for reply in [local.run("touch ran").await, made] {
        assert!(reply.is_error, "{}", reply.text);
        assert_eq!(reply.json["code"], "unsupported", "{}", reply.text);
        let error = reply.json["error"].as_str().unwrap();
        assert!(error.contains("bubblewrap"), "{error}");
        let hint = reply.json["hint"].as_str().unwrap();
        assert!(hint.contains("isolation = \"none\""), "{hint}");
    }
    assert!(!local.folder("two").exists());
    assert!(!local.folder("local").join("home/workspace/ran").exists());
    let line = local.line("local").await;
    assert_eq!(line["connection_alive"], false, "{line}");
}

#[rstest]
#[case::seatbelt("seatbelt")]
#[case::bubblewrap("bubblewrap")]
#[tokio::test]
async fn tool_that_is_not_installed_is_named(#[case] word: &str) {
    let empty = tempfile::tempdir().unwrap();
    let local = Setup::new()
        .isolation(word)
        .variable("PATH", empty.path().to_str().unwrap())
        .start()
        .await;
    let reply = local.run("true").await;
    assert_eq!(reply.json["code"], "unsupported", "{}", reply.text);
    assert!(
        reply.json["error"].as_str().unwrap().contains(word),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn seatbelt_gets_its_profile_and_runs_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (tool, profile) = (
        folder.path().join("sandbox-exec"),
        folder.path().join("profile"),
    );
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -p ] || exit 64\nprintf %s \"$2\" >{}\nshift 2\nexec \"$@\"\n",
        profile.display()
    );
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let local = Setup::new()
        .isolation("seatbelt")
        .local("network = \"off\"")
        .variable("PATH", &path)
        .start()
        .await;
    assert_eq!(local.output("echo on").await, "on");
    let line = local.line("local").await;
    assert_eq!(line["isolation"], "seatbelt", "{line}");
    let open = line["not_walled_off"].to_string();
    assert!(open.contains("seeing other processes"), "{open}");
    let profile = std::fs::read_to_string(profile).unwrap();
    assert!(
        profile.starts_with("(version 1)\n(deny default)\n"),
        "{profile}"
    );
    let home = local.folder("local").join("home");
    assert!(
        profile.contains(&format!("(subpath \"{}\")", home.display())),
        "{profile}"
    );
    assert!(!profile.contains("(remote ip)"), "{profile}");
}

#[tokio::test]
async fn no_wall_works_and_warns() {
    let local = Setup::new().isolation("none").start().await;
    let file = local.file("notes", "mine");
    assert_eq!(
        local.output(&format!("cat {}", file.display())).await,
        "mine"
    );
    let line = local.line("local").await;
    assert_eq!(line["isolation"], "none", "{line}");
    let warnings = line["warnings"].to_string();
    assert!(warnings.contains("no wall"), "{line}");
    let open = line["not_walled_off"].as_array().unwrap();
    assert!(
        open.iter().any(|words| words == "reading your files"),
        "{line}"
    );
    assert!(open.len() > 8, "{line}");
    // The environment begins empty all the same.
    assert_eq!(
        local
            .output("env | grep -c REMOTE_SANDBOX_MCP_HOME; true")
            .await,
        "0"
    );
}

#[rstest]
#[case::root(Who::Root, "not bounded: no delegated cgroup")]
#[case::user_account(Who::Plain, "60 together")]
#[tokio::test]
async fn limits_are_told_as_they_are(#[case] who: Who, #[case] processes: &str) {
    let setup = Setup::new()
        .isolation("bubblewrap")
        .local("processes = 60\nmemory_mb = 300\ncpu_percent = 50");
    let Some(local) = setup.start_for(who).await else {
        return;
    };
    let limits = local.line("local").await["limits"].clone();
    let expected = json!({
        "memory": "300 MB each process",
        "processes": processes,
        "cpu": "not bounded: no delegated cgroup",
    });
    assert_eq!(limits, expected);
    let reply = local
        .run("ulimit -d; ulimit -c; head -c 400M /dev/zero | tail")
        .await;
    assert!(reply.text.contains("307200\\n0\\n"), "{}", reply.text);
    let words = reply.json["stderr"].as_str().unwrap();
    assert!(words.contains("memory exhausted"), "{}", reply.text);
}

#[tokio::test]
async fn nothing_is_bounded_where_nothing_is_asked_for() {
    let local = Setup::new().local("processes = 0").start().await;
    let limits = local.line("local").await["limits"].clone();
    let unbounded = "not bounded";
    let expected = json!({"memory": unbounded, "processes": unbounded, "cpu": unbounded});
    assert_eq!(limits, expected);
}

#[tokio::test]
async fn user_account_cannot_start_more_processes_than_allowed() {
    if !Path::new("/bin/dash").exists() {
        skip("dash is not installed");
        return;
    }
    let setup = Setup::new().isolation("bubblewrap").local("processes = 40");
    let Some(local) = setup.start_for(Who::Plain).await else {
        return;
    };
    local.run("true").await;
    let sleep = format!("sleep 9230.{}", unique());
    // At most three hundred, should nothing hold them back.
    let bomb = format!(
        "dash -c 'i=0; while [ $i -lt 300 ]; do {sleep} & i=$((i+1)); done; wait'; sleep 30"
    );
    let arguments = json!({"command": bomb, "timeout_s": 2});
    let id = local.client.start_call("exec_bash", arguments).await;
    let mut most = 0;
    while !local.client.has_reply(id) {
        most = most.max(process::with_command_line(&sleep).len());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let limit = std::time::Duration::from_secs(10);
    let reply = local.client.wait_tool_reply(id, limit).await.unwrap();
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(reply.text.contains("Cannot fork"), "{}", reply.text);
    assert!((10..60).contains(&most), "{most} at once");
    assert!(super::support::gone(&sleep).await);
    let next = local.run("echo on").await;
    assert_eq!(next.json["stdout"], "on\n", "{}", next.text);
}

#[tokio::test]
async fn sandbox_with_other_walls_is_refused_while_something_runs_and_started_anew_when_idle() {
    let mut local = Setup::new().isolation("none").start().await;
    let sleep = format!("sleep 9371.{}", unique());
    let begin = format!("({sleep} >/dev/null 2>&1 </dev/null &) ; true");
    local.run(&begin).await;
    let first = local.client.close_stdin();
    first.await;
    local.server.configure("[local]\nnetwork = \"off\"\n");
    let second = local.server.start().await;
    let refused = run_in(&second, "local", "true").await;
    assert_eq!(refused.json["code"], "busy", "{}", refused.text);
    second.close_stdin().await;
    local.server.configure("[local]\nisolation = \"none\"\n");
    let third = local.server.start().await;
    let ended = format!("kill $(pgrep -f '^{sleep}')");
    assert_eq!(run_in(&third, "local", &ended).await.json["exit_code"], 0);
    assert!(gone(&sleep).await);
    local.server.configure("[local]\nnetwork = \"off\"\n");
    let fourth = local.server.start().await;
    assert_eq!(run_in(&fourth, "local", "true").await.json["exit_code"], 0);
    let shown = line(&fourth, "local").await;
    assert_eq!(shown["network"], "off", "{shown:#}");
    assert_ne!(shown["isolation"], "none", "{shown:#}");
}
