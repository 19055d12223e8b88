//! Whatever a command does, it ends when it should, and what does not end is told (f29, f33).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::{skip, wait_until};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{entry, exec, exec_with, one, serve, unique, with};

/// Promised is three seconds; the rest is for other tests on the same cores.
pub(crate) const PROMISE: Duration = Duration::from_millis(4500);

/// A command line that no other process on this machine has.
pub(crate) fn sleeper(number: u32) -> String {
    format!("sleep {number}.{}", unique())
}

pub(crate) fn living(text: &str) -> Vec<u32> {
    let mut pids = process::with_command_line(text);
    // The timer of busybox notices within a second that there is nothing left to end.
    let is_timer = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"timeout"))
    };
    pids.retain(|pid| process::is_alive(*pid) && !is_timer(*pid));
    pids
}

async fn assert_deadline_ends(client: &McpClient, command: &str, sleep: &str) {
    // Connecting counts against the deadline and is not the matter here.
    assert_eq!(exec(client, "echo on").await.json["stdout"], "on\n");
    let begun = Instant::now();
    let reply = exec_with(client, command, json!({"timeout_s": 1})).await;
    let took = begun.elapsed();
    assert_eq!(living(sleep), Vec::<u32>::new(), "{}", reply.text);
    assert!(took < Duration::from_secs(1) + PROMISE, "{took:?}");
    assert!(took >= Duration::from_secs(1), "{took:?}: {}", reply.text);
    assert!(!reply.is_error);
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert_eq!(reply.json["exit_code"], 124);
    assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
    assert_eq!(reply.json["stdout"], "begun\n");
    assert_eq!(exec(client, "echo on").await.json["stdout"], "on\n");
}

#[rstest]
#[case::plain("echo begun; SLEEP")]
#[case::ignores_term("trap '' TERM; echo begun; SLEEP; SLEEP; SLEEP")]
#[case::child_ignores_term("echo begun; sh -c 'trap \"\" TERM; SLEEP; SLEEP' & SLEEP")]
#[case::restarts_on_term("echo begun; trap 'SLEEP & SLEEP' TERM; SLEEP; SLEEP")]
#[case::own_session("echo begun; setsid SLEEP & SLEEP")]
#[case::daemon("echo begun; setsid -f SLEEP; setsid -f SLEEP </dev/null >/dev/null 2>&1; SLEEP")]
#[case::double_fork("echo begun; ( (SLEEP &) & ) ; (setsid sh -c 'SLEEP & SLEEP &' &) ; SLEEP")]
#[case::ignored_hangup("echo begun; nohup SLEEP >/dev/null 2>&1 & SLEEP")]
#[case::cleared_environment("echo begun; env -i $(command -v setsid) SLEEP & SLEEP")]
#[case::stopped("echo begun; SLEEP & kill -STOP $!; kill -STOP $$; SLEEP")]
#[case::pipeline("echo begun; SLEEP | SLEEP | SLEEP")]
#[case::many("echo begun; for i in {1..40}; do SLEEP & done; wait")]
#[case::keeps_forking("echo begun; while :; do (SLEEP & sleep 0.01); done")]
#[tokio::test]
async fn f29_deadline_ends_the_whole_tree(#[case] command: &str) {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9129);
    assert_deadline_ends(&client, &command.replace("SLEEP", &sleep), &sleep).await;
}

/// A folder with links to these programs and no others.
fn only(programs: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::TempDir::with_prefix("testkit-path-").unwrap();
    for program in programs {
        let place = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(program));
        let found = place.iter().find(|path| path.exists()).expect(program);
        std::os::unix::fs::symlink(found, folder.path().join(program)).unwrap();
    }
    folder
}

const USUAL: [&str; 9] = [
    "bash", "sh", "sleep", "setsid", "grep", "tr", "cat", "ps", "sed",
];

async fn serve_with_path(folder: &Path) -> (Sshd, McpClient) {
    let sshd = Sshd::builder()
        .session_environment("PATH", folder.to_str().unwrap())
        .start();
    let client = serve(&[entry("box", &sshd)]).await;
    (sshd, client)
}

#[tokio::test]
async fn f29_host_without_a_timeout_program_keeps_the_deadline() {
    let folder = only(&USUAL);
    let (_sshd, client) = serve_with_path(folder.path()).await;
    let probe = exec(&client, "command -v timeout; exit 5").await;
    assert_eq!(probe.json["exit_code"], 5, "{}", probe.text);
    assert_eq!(probe.json["stdout"], "");
    let sleep = sleeper(9130);
    let command = format!("echo begun; trap '' TERM; setsid {sleep} & {sleep}");
    assert_deadline_ends(&client, &command, &sleep).await;
}

#[tokio::test]
async fn f29_timeout_program_without_the_kill_option_is_enough() {
    let folder = only(&USUAL);
    let script =
        "#!/bin/sh\n[ \"$1\" -gt 0 ] 2>/dev/null || exit 125\nexec /usr/bin/timeout \"$@\"\n";
    let program = folder.path().join("timeout");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (_sshd, client) = serve_with_path(folder.path()).await;
    assert_eq!(exec(&client, "exit 5").await.json["exit_code"], 5);
    let sleep = sleeper(9131);
    let command = format!("echo begun; setsid {sleep} & {sleep}");
    assert_deadline_ends(&client, &command, &sleep).await;
}

#[tokio::test]
async fn f29_host_with_nothing_but_busybox_keeps_the_deadline() {
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        skip("busybox is not installed");
        return;
    };
    let folder = tempfile::TempDir::with_prefix("testkit-path-").unwrap();
    for applet in [
        "sh", "sleep", "setsid", "grep", "tr", "cat", "ps", "timeout", "true",
    ] {
        std::os::unix::fs::symlink(busybox, folder.path().join(applet)).unwrap();
    }
    let (_sshd, client) = serve_with_path(folder.path()).await;
    let reply = exec(&client, "command -v bash; exit 5").await;
    assert_eq!(reply.json["exit_code"], 5, "{}", reply.text);
    assert_eq!(reply.json["stdout"], "");
    let sleep = sleeper(9133);
    let command = format!("echo begun; trap '' TERM; setsid {sleep} & {sleep}");
    assert_deadline_ends(&client, &command, &sleep).await;
}

#[rstest]
#[case::on_both_streams("SLEEP & exit 4")]
#[case::on_standard_error("setsid -f SLEEP >/dev/null; exit 4")]
#[case::of_a_grandchild("(setsid sh -c 'SLEEP & SLEEP' &); exit 4")]
#[case::by_a_child_that_let_go_of_both("SLEEP >/dev/null 2>&1 & exit 4")]
#[case::by_a_daemon_that_let_go_of_both("setsid -f SLEEP </dev/null >/dev/null 2>&1; exit 4")]
#[tokio::test]
async fn f29_background_children_are_left_alone_and_told(#[case] command: &str) {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9134);
    let begun = Instant::now();
    let reply = exec(&client, &command.replace("SLEEP", &sleep)).await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(reply.json["exit_code"], 4, "{}", reply.text);
    let left = living(&sleep);
    assert!(!left.is_empty());
    let named = reply.json["left_running"].as_array();
    let named = named.into_iter().flatten().map(|one| one["pid"].as_u64());
    let named: Vec<u32> = named
        .map(|pid| u32::try_from(pid.unwrap()).unwrap())
        .collect();
    for pid in &left {
        assert!(named.contains(pid), "{pid} not in {}", reply.text);
    }
    process::kill_and_wait(&left);
}

#[tokio::test]
async fn f29_pipe_held_by_a_daemon_that_shed_every_mark_does_not_hold_the_reply() {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9135);
    let command = format!("echo out; env -i $(command -v setsid) -f {sleep}; exit 4");
    let begun = Instant::now();
    let reply = exec(&client, &command).await;
    let took = begun.elapsed();
    process::kill_and_wait(&living(&sleep));
    assert!(took < Duration::from_secs(8), "{took:?}: {}", reply.text);
    assert_eq!(reply.json["exit_code"], 4, "{}", reply.text);
    assert_eq!(reply.json["stdout"], "out\n");
    assert_eq!(reply.json["left_running"], "unknown", "{}", reply.text);
}

#[tokio::test]
async fn f29_user_account_cannot_end_a_process_of_another_user_and_says_so() {
    let Some(user) = TestUser::create() else {
        return;
    };
    // A program that becomes root for good, as daemons started through sudo do.
    let folder = tempfile::TempDir::with_prefix("testkit-root-").unwrap();
    let become_root = folder.path().join("become-root");
    std::fs::copy("/usr/bin/setpriv", &become_root).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&become_root, 0o4755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let sshd = Sshd::builder().user(&user).start();
    let client = serve(&[with(entry("box", &sshd), json!({"user": user.name()}))]).await;
    let sleep = sleeper(9136);
    let command = format!(
        "{} --reuid=0 --clear-groups {sleep} & {sleep}",
        become_root.display()
    );
    let begun = Instant::now();
    let reply = exec_with(&client, &command, json!({"timeout_s": 1})).await;
    let took = begun.elapsed();
    let left = living(&sleep);
    process::kill_and_wait(&left);
    assert!(took < Duration::from_secs(1) + PROMISE, "{took:?}");
    assert_eq!(left.len(), 1, "{}", reply.text);
    assert_eq!(reply.json["timed_out"], true);
    assert_eq!(
        reply.json["left_running"],
        json!([{"pid": left[0], "name": "sleep"}]),
        "{}",
        reply.text
    );
    let hint = reply.json["hint"].as_str().unwrap();
    assert!(hint.contains("could not be ended"), "{hint}");
}

#[rstest]
#[case::plain("SLEEP")]
#[case::ignores_term("trap '' TERM; SLEEP; SLEEP; SLEEP; SLEEP")]
#[tokio::test]
async fn f29_host_itself_ends_the_command_when_the_server_was_killed(#[case] command: &str) {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9137);
    let command = command.replace("SLEEP", &sleep);
    let arguments = json!({"command": command, "timeout_s": 1});
    client.start_call("exec_bash", arguments).await;
    assert!(wait_until(Duration::from_secs(5), || !living(&sleep).is_empty()).await);
    client.signal(Signal::KILL);
    client.wait_exit(Duration::from_secs(5)).await.unwrap();
    assert!(!living(&sleep).is_empty());
    // One second, five of grace, two until it is killed.
    let gone = wait_until(Duration::from_secs(12), || living(&sleep).is_empty()).await;
    assert!(gone, "{:?}", living(&sleep));
}

const STUBBORN: &str =
    "trap '' TERM; setsid SLEEP & while :; do echo tick; sleep 0.1; done & SLEEP; SLEEP; SLEEP";

/// Starts a tree that does not want to end, and waits until it is there.
pub(crate) async fn start_stubborn(client: &McpClient, sleep: &str) -> u64 {
    let command = STUBBORN.replace("SLEEP", sleep);
    let id = client
        .start_call("exec_bash", json!({ "command": command }))
        .await;
    let ready = || living(sleep).len() >= 3 && client.notifications_for(id).len() >= 2;
    assert!(wait_until(Duration::from_secs(10), ready).await);
    id
}

#[tokio::test]
async fn f33_cancelled_call_ends_its_processes_and_is_never_mentioned_again() {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9138);
    let id = start_stubborn(&client, &sleep).await;
    client.cancel(id).await;
    let begun = Instant::now();
    let limit = Duration::from_secs(5);
    client.request("ping", json!({}), limit).await.unwrap();
    let told = client.notifications_for(id).len();
    assert!(wait_until(PROMISE, || living(&sleep).is_empty()).await);
    assert!(begun.elapsed() < PROMISE);
    assert_eq!(
        exec(&client, "sleep 1; echo on").await.json["stdout"],
        "on\n"
    );
    assert!(!client.has_reply(id));
    assert_eq!(client.notifications_for(id).len(), told);
    assert!(client.stdout_violations().is_empty());
}

#[tokio::test]
async fn f33_cancelled_call_that_still_connects_is_let_go() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sshd = Sshd::start();
    let silent = json!({"name": "silent", "port": listener.local_addr().unwrap().port()});
    let client = serve(&[with(entry("x", &sshd), silent), entry("box", &sshd)]).await;
    let id = client
        .start_call("exec_bash", json!({"command": "true"}))
        .await;
    assert!(
        wait_until(Duration::from_secs(5), || !client
            .notifications_for(id)
            .is_empty())
        .await
    );
    client.cancel(id).await;
    let elsewhere = json!({"command": "sleep 1; echo on", "sandbox_name": "box"});
    let reply = client.call_tool("exec_bash", elsewhere).await;
    assert_eq!(reply.json["stdout"], "on\n");
    let rows = crate::support::audit(&client);
    let ended = rows
        .iter()
        .find(|row| row["event"] == "end" && row["sandbox"] == "silent");
    assert_eq!(ended.expect("an end")["outcome"], "cancelled");
    assert!(!client.has_reply(id));
}

#[tokio::test]
async fn f33_cancel_of_something_else_harms_nothing() {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9139);
    let more = json!({"wait_s": 0.3});
    let running = exec_with(&client, &sleep, more).await;
    let task = running.json["task_id"].clone();
    let reading = json!({"task_id": task, "since_byte": 0, "wait_s": 30});
    let id = client.start_call("check_background_task", reading).await;
    assert!(
        wait_until(Duration::from_secs(5), || !client
            .notifications_for(id)
            .is_empty())
        .await
    );
    client.cancel(id).await;
    client.cancel(1).await;
    client.cancel(987_654).await;
    assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
    assert!(!living(&sleep).is_empty());
    assert!(!client.has_reply(id));
    let stopped = client
        .call_tool("stop_background_task", json!({"task_id": task}))
        .await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
    assert!(living(&sleep).is_empty());
}

#[derive(Clone, Copy)]
pub(crate) enum Farewell {
    EndOfInput,
    Signal(Signal),
}

impl Farewell {
    pub(crate) async fn say(self, client: &McpClient) {
        match self {
            Farewell::EndOfInput => client.close_stdin().await,
            Farewell::Signal(signal) => client.signal(signal),
        }
    }
}

#[rstest]
#[case::end_of_input(Farewell::EndOfInput)]
#[case::terminate(Farewell::Signal(Signal::TERM))]
#[case::interrupt(Farewell::Signal(Signal::INT))]
#[tokio::test]
async fn f33_server_that_is_told_to_go_takes_its_processes_along(#[case] farewell: Farewell) {
    let (_sshd, client) = one().await;
    let sleep = sleeper(9140);
    for _ in 0..3 {
        start_stubborn(&client, &sleep).await;
    }
    let begun = Instant::now();
    farewell.say(&client).await;
    let status = client.wait_exit(Duration::from_secs(10)).await;
    let took = begun.elapsed();
    let rest = PROMISE.saturating_sub(took);
    assert!(wait_until(rest, || living(&sleep).is_empty()).await);
    assert!(status.expect("it ends").success(), "{status:?}");
    assert!(took < PROMISE, "{took:?}");
    assert!(client.stdout_violations().is_empty());
}

#[rstest]
#[case::end_of_input(Farewell::EndOfInput)]
#[case::terminate(Farewell::Signal(Signal::TERM))]
#[tokio::test]
async fn f33_server_goes_promptly_while_it_connects(#[case] farewell: Farewell) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sshd = Sshd::start();
    let silent = json!({"port": listener.local_addr().unwrap().port()});
    let client = serve(&[with(entry("box", &sshd), silent)]).await;
    for tool in ["exec_bash", "list_sandboxes", "get_active_sandbox"] {
        let arguments = match tool {
            "exec_bash" => json!({"command": "true"}),
            _ => json!({}),
        };
        let id = client.start_call(tool, arguments).await;
        let begun = || !client.notifications_for(id).is_empty();
        assert!(wait_until(Duration::from_secs(5), begun).await);
    }
    let begun = Instant::now();
    farewell.say(&client).await;
    let status = client.wait_exit(Duration::from_secs(10)).await;
    assert!(status.expect("it ends").success());
    assert!(begun.elapsed() < PROMISE, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn f33_server_goes_in_bounded_time_when_the_host_does_not_answer() {
    let (sshd, client) = one().await;
    let sleep = sleeper(9141);
    start_stubborn(&client, &sleep).await;
    sshd.freeze_sessions();
    let begun = Instant::now();
    client.close_stdin().await;
    let status = client.wait_exit(Duration::from_secs(15)).await;
    sshd.thaw_sessions();
    assert!(status.expect("it ends").success());
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    // The daemon still lets a new connection in, over which they are ended.
    let rest = Duration::from_secs(6).saturating_sub(begun.elapsed());
    assert!(wait_until(rest, || living(&sleep).is_empty()).await);
}
