//! Supervisors and servers that die, hang, or meet each other.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;

use super::support::{Local, Setup, Wall, gone, output, run_in};
use crate::support::unique;

const LIMIT: Duration = Duration::from_secs(15);

/// Starts a call of a sandbox and waits until its command runs.
async fn start_call(local: &Local, sandbox: &str, sleep: &str) -> u64 {
    let arguments =
        json!({"command": format!("echo begun; {sleep}; echo never"), "sandbox_name": sandbox});
    let id = local.client.start_call("exec_bash", arguments).await;
    let runs = || {
        let found = process::with_command_line(sleep).into_iter();
        found.filter_map(process::name).any(|name| name == "sleep")
    };
    assert!(wait_until(LIMIT, runs).await);
    id
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn supervisor_that_is_killed_in_a_call_is_told_and_replaced(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    local.run("echo kept >file").await;
    let sleep = format!("sleep 9220.{}", unique());
    let id = start_call(&local, "local", &sleep).await;
    process::kill_and_wait(&[local.server.supervisor("local")]);
    let begun = Instant::now();
    let reply = local.client.wait_tool_reply(id, LIMIT).await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert_ne!(reply.json["exit_code"], 0, "{}", reply.text);
    assert!(reply.json["exit_code"].is_null(), "{}", reply.text);
    assert!(reply.text.contains("supervisor"), "{}", reply.text);
    assert!(
        reply.text.contains("may still be running"),
        "{}",
        reply.text
    );
    let reply = local.run("cat file").await;
    assert_eq!(reply.json["stdout"], "kept\n", "{}", reply.text);
    // The next supervisor could not reach what an earlier one has left.
    assert!(gone(&sleep).await);
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn supervisor_that_is_killed_between_calls_is_replaced(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    local.run("echo kept >file").await;
    for _ in 0..3 {
        process::kill_and_wait(&[local.server.supervisor("local")]);
        let reply = local.run("cat file").await;
        assert_eq!(reply.json["stdout"], "kept\n", "{}", reply.text);
    }
    // The process that waits for the supervisor is not needed by anybody.
    process::kill_and_wait(&[local.server.supervisors("local")[0]]);
    assert_eq!(local.line("local").await["connection_alive"], true);
    let reply = local.run("cat file").await;
    assert_eq!(reply.json["stdout"], "kept\n", "{}", reply.text);
}

#[tokio::test]
async fn server_that_is_killed_in_a_call_loses_nothing_of_the_sandbox() {
    let local = Setup::new().start().await;
    local.create(json!({"name": "two"})).await;
    local.run_in("two", "echo kept >file").await;
    let sleep = format!("sleep 9221.{}", unique());
    start_call(&local, "two", &sleep).await;
    local.client.signal(Signal::KILL);
    local.client.wait_exit(LIMIT).await.unwrap();
    assert!(
        process::with_command_line(&sleep)
            .into_iter()
            .any(process::is_alive)
    );
    let second = local.server.start().await;
    let look = format!("cat file; pgrep -xf '{sleep}' | wc -l");
    assert_eq!(output(&second, "two", &look).await, "kept\n1");
    let deleted = second
        .call_tool("delete_sandbox", json!({"sandbox_id": "two"}))
        .await;
    assert_eq!(deleted.json["status"], "deleted", "{}", deleted.text);
    assert!(gone(&sleep).await);
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn servers_that_start_together_share_one_sandbox(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    let others = tokio::join!(local.server.start(), local.server.start());
    let script = "echo $PPID >>~/calls; readlink /proc/self/ns/pid; sleep 0.2; wc -l <~/calls";
    let (first, second, third) = tokio::join!(
        run_in(&local.client, "local", script),
        run_in(&others.0, "local", script),
        run_in(&others.1, "local", script)
    );
    for reply in [&first, &second, &third] {
        assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
        assert_eq!(reply.json["stdout"].as_str().unwrap().lines().next(), {
            first.json["stdout"].as_str().unwrap().lines().next()
        });
    }
    let one_set = if wall == Wall::Bubblewrap { 2 } else { 1 };
    assert_eq!(local.server.supervisors("local").len(), one_set);
    let made = tokio::join!(
        local.call("create_sandbox", json!({"name": "two"})),
        others.0.call_tool("create_sandbox", json!({"name": "two"}))
    );
    let refused = [made.0.is_error, made.1.is_error];
    assert_eq!(
        refused.iter().filter(|refused| **refused).count(),
        1,
        "{made:?}"
    );
    // Another server sees what was made and what was deleted.
    assert_eq!(output(&others.1, "two", "echo on").await, "on");
    assert!(!local.delete("two").await.is_error);
    let reply = run_in(&others.1, "two", "true").await;
    assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
    // One that goes does not take the sandbox from the others.
    let sleep = format!("sleep 9222.{}", unique());
    let id = start_call(&local, "local", &sleep).await;
    others.0.close_stdin().await;
    others.0.wait_exit(LIMIT).await.unwrap();
    assert!(!local.client.has_reply(id));
    assert_eq!(output(&others.1, "local", "echo on").await, "on");
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn sandbox_is_deleted_while_a_command_runs(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    local.create(json!({"name": "two"})).await;
    let sleep = format!("sleep 9223.{}", unique());
    let stubborn =
        format!("setsid sh -c 'trap \"\" TERM; env -i {sleep}; {sleep}' >/dev/null 2>&1 &");
    local.run_in("two", &stubborn).await;
    let id = start_call(&local, "two", &sleep).await;
    let begun = Instant::now();
    let deleted = local.delete("two").await;
    assert_eq!(deleted.json["status"], "deleted", "{}", deleted.text);
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    assert!(gone(&sleep).await);
    let reply = local.client.wait_tool_reply(id, LIMIT).await.unwrap();
    assert_ne!(reply.json["exit_code"], 0, "{}", reply.text);
    assert!(!reply.text.contains("never\\n"), "{}", reply.text);
    assert!(!local.folder("two").exists());
    assert!(local.line("two").await.is_null());
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn supervisor_that_hangs_is_waited_for_only_as_asked_and_can_be_deleted(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    local.create(json!({"name": "two"})).await;
    let supervisor = local.server.supervisor("two");
    assert!(process::signal(supervisor, Signal::STOP));
    let begun = Instant::now();
    let arguments = json!({"command": "touch ran", "sandbox_name": "two", "timeout_s": 1});
    let reply = local.call("exec_bash", arguments).await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let late = reply.json["timed_out"] == true || reply.json["code"] == "timed_out";
    assert!(late, "{}", reply.text);
    assert!(
        reply.json["hint"]
            .as_str()
            .unwrap()
            .contains("delete_sandbox"),
        "{}",
        reply.text
    );
    // The others are not held up.
    assert_eq!(local.output("echo on").await, "on");
    let begun = Instant::now();
    let deleted = local.delete("two").await;
    assert_eq!(deleted.json["status"], "deleted", "{}", deleted.text);
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    assert!(!process::is_alive(supervisor));
    assert!(!local.folder("two").exists());
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn idle_supervisors_go_with_the_server_and_busy_ones_stay(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    local.create(json!({"name": "two"})).await;
    let sleep = format!("sleep 9224.{}", unique());
    local.run("true").await;
    local
        .run_in("two", &format!("{sleep} >/dev/null 2>&1 &"))
        .await;
    assert!(!local.server.supervisors("local").is_empty());
    local.client.close_stdin().await;
    assert!(local.client.wait_exit(LIMIT).await.unwrap().success());
    let nothing_left = || local.server.supervisors("local").is_empty();
    assert!(wait_until(LIMIT, nothing_left).await);
    assert!(
        process::with_command_line(&sleep)
            .into_iter()
            .any(process::is_alive)
    );
    assert!(!local.server.supervisors("two").is_empty());
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn state_at_the_end_of_a_long_path_works(#[case] wall: Wall) {
    let folder = tempfile::TempDir::with_prefix("testkit-local-").unwrap();
    let place: PathBuf = folder.path().join("a".repeat(90)).join("b".repeat(90));
    let local = Setup::new()
        .isolation(wall.word())
        .state(&place)
        .start()
        .await;
    assert!(local.folder("local").join("socket").as_os_str().len() > 200);
    assert_eq!(local.output("echo on").await, "on");
    let second = local.server.start().await;
    assert_eq!(output(&second, "local", "echo on").await, "on");
    local.create(json!({"name": "two"})).await;
    assert!(!local.delete("two").await.is_error);
}
