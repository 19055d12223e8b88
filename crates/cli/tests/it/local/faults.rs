//! Faults, attacks and load in a sandbox on this machine (f27 to f30, f33, f34).

use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;

use super::support::{Local, Setup, Wall};
use crate::faults::ending::{Farewell, PROMISE, living, sleeper, start_stubborn};
use crate::faults::output::{assert_ends_and_count, flood_of, peak_memory_kb};
use crate::faults::scarcity::FullDisk;
use crate::support::{exec, exec_with, unique};

async fn start(wall: Wall) -> Local {
    Setup::new().isolation(wall.word()).start().await
}

#[tokio::test]
async fn f27_large_outputs_side_by_side_keep_exit_code_ends_and_count() {
    const ZEROS: u64 = 64 << 20;
    let local = start(Wall::Bubblewrap).await;
    let limit = Duration::from_secs(120);
    for reply in flood_of(&local.client, 4, ZEROS, limit).await {
        assert_ends_and_count(&reply, ZEROS);
    }
    let peak = peak_memory_kb(&local.client);
    assert!(peak <= 150_000, "the server took {peak} KiB");
    let supervisor = process::rss_kb(local.server.supervisor("local")).unwrap();
    assert!(
        supervisor <= 30_000,
        "the supervisor takes {supervisor} KiB"
    );
}

#[tokio::test]
async fn f27_output_that_is_held_by_a_child_arrives_whole() {
    const ZEROS: u64 = 8 << 20;
    let local = start(Wall::Bubblewrap).await;
    let sleep = sleeper(9240);
    let command = format!("{sleep} & echo HEAD; head -c {ZEROS} /dev/zero; echo TAIL; exit 3");
    let reply = exec(&local.client, &command).await;
    assert_ends_and_count(&reply, ZEROS);
    assert_eq!(
        reply.json["left_running"][0]["name"], "sleep",
        "{}",
        reply.text
    );
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn f28_endless_output_ends_with_the_deadline(#[case] wall: Wall) {
    let local = start(wall).await;
    exec(&local.client, "true").await;
    let mark = format!("f28-{}", unique());
    let commands = [
        format!("yes {mark}"),
        format!("yes {mark} >&2"),
        format!("(yes {mark} & yes {mark} >&2; wait)"),
    ];
    let begun = Instant::now();
    let mut ids = Vec::new();
    for command in commands {
        let arguments = json!({"command": command, "timeout_s": 1});
        ids.push(local.client.start_call("exec_bash", arguments).await);
    }
    for id in ids {
        let limit = Duration::from_secs(20);
        let reply = local.client.wait_tool_reply(id, limit).await.unwrap();
        assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
        assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
        assert!(reply.text.contains(&mark));
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(6500), "{took:?}");
    assert_eq!(living(&mark), Vec::<u32>::new());
    assert!(peak_memory_kb(&local.client) <= 150_000);
    assert_eq!(exec(&local.client, "echo on").await.json["stdout"], "on\n");
}

const TREES: [&str; 12] = [
    "echo begun; SLEEP",
    "trap '' TERM; echo begun; SLEEP; SLEEP; SLEEP",
    "echo begun; sh -c 'trap \"\" TERM; SLEEP; SLEEP' & SLEEP",
    "echo begun; trap 'SLEEP & SLEEP' TERM; SLEEP; SLEEP",
    "echo begun; setsid SLEEP & SLEEP",
    "echo begun; setsid -f SLEEP; setsid -f SLEEP </dev/null >/dev/null 2>&1; SLEEP",
    "echo begun; ( (SLEEP &) & ) ; (setsid sh -c 'SLEEP & SLEEP &' &) ; SLEEP",
    "echo begun; nohup SLEEP >/dev/null 2>&1 & SLEEP",
    "echo begun; env -i $(command -v setsid) SLEEP & SLEEP",
    "echo begun; SLEEP & kill -STOP $!; kill -STOP $$; SLEEP",
    "echo begun; SLEEP | SLEEP | SLEEP",
    "echo begun; for i in {1..40}; do SLEEP & done; wait",
];

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn f29_deadline_ends_the_whole_tree(#[case] wall: Wall) {
    let local = start(wall).await;
    exec(&local.client, "true").await;
    let other = sleeper(9241);
    exec(&local.client, &format!("{other} >/dev/null 2>&1 &")).await;
    let mut calls = Vec::new();
    for tree in TREES {
        let sleep = sleeper(9242);
        let arguments = json!({"command": tree.replace("SLEEP", &sleep), "timeout_s": 1});
        calls.push((
            tree,
            sleep,
            local.client.start_call("exec_bash", arguments).await,
        ));
    }
    for (tree, sleep, id) in calls {
        let limit = Duration::from_secs(20);
        let reply = local.client.wait_tool_reply(id, limit).await.unwrap();
        assert_eq!(living(&sleep), Vec::<u32>::new(), "{tree}: {}", reply.text);
        assert_eq!(reply.json["timed_out"], true, "{tree}: {}", reply.text);
        assert_eq!(reply.json["exit_code"], 124, "{tree}");
        assert!(
            reply.json.get("left_running").is_none(),
            "{tree}: {}",
            reply.text
        );
        assert_eq!(reply.json["stdout"], "begun\n", "{tree}");
        let took = reply.json["duration_s"].as_f64().unwrap();
        // Twelve at once on two cores.
        assert!((1.0..8.0).contains(&took), "{tree}: {took}");
    }
    assert_eq!(living(&other).len(), 1, "what an earlier call left goes on");
    assert_eq!(exec(&local.client, "echo on").await.json["stdout"], "on\n");
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn f29_background_children_are_left_alone_and_told(#[case] wall: Wall) {
    let local = start(wall).await;
    for command in [
        "SLEEP & exit 4",
        "setsid -f SLEEP >/dev/null; exit 4",
        "(setsid sh -c 'SLEEP & SLEEP' &); exit 4",
        "SLEEP >/dev/null 2>&1 & exit 4",
        "setsid -f SLEEP </dev/null >/dev/null 2>&1; exit 4",
    ] {
        let sleep = sleeper(9243);
        let reply = exec(&local.client, &command.replace("SLEEP", &sleep)).await;
        assert_eq!(reply.json["exit_code"], 4, "{}", reply.text);
        let left = living(&sleep);
        assert!(!left.is_empty(), "{command}");
        let named = reply.json["left_running"].as_array().unwrap();
        assert!(named.len() >= left.len(), "{command}: {}", reply.text);
        // Their numbers are those that commands in the sandbox know.
        for one in named {
            let name = local
                .output(&format!("cat /proc/{}/comm", one["pid"]))
                .await;
            assert_eq!(one["name"], name.as_str(), "{}", reply.text);
        }
        process::kill_and_wait(&left);
    }
}

#[tokio::test]
async fn f29_sandbox_itself_ends_the_command_when_the_server_was_killed() {
    let local = start(Wall::Bubblewrap).await;
    let sleep = sleeper(9244);
    let command = format!("trap '' TERM; {sleep}; {sleep}; {sleep}");
    let arguments = json!({"command": command, "timeout_s": 1});
    local.client.start_call("exec_bash", arguments).await;
    assert!(wait_until(Duration::from_secs(5), || !living(&sleep).is_empty()).await);
    local.client.signal(Signal::KILL);
    local
        .client
        .wait_exit(Duration::from_secs(5))
        .await
        .unwrap();
    assert!(!living(&sleep).is_empty());
    // One second, five of grace, two until it is killed.
    let gone = wait_until(Duration::from_secs(12), || living(&sleep).is_empty()).await;
    assert!(gone, "{:?}", living(&sleep));
}

#[tokio::test]
async fn f30_odd_bytes_are_shown_and_not_obeyed() {
    let local = start(Wall::Bubblewrap).await;
    for (bytes, shown) in [
        (r"a\xff\xfeb", "a\u{fffd}\u{fffd}b"),
        (r"a\0b", r"a\x00b"),
        (r"\033]52;c;aGk=\a", r"\x1b]52;c;aGk=\x07"),
        (r"a\xe2\x80\xaeb", r"a\u{202e}b"),
        (r"a\xf3\xa0\x81\x81b", r"a\u{e0041}b"),
        (r"a\xf0\x9f\x98", "a\u{fffd}"),
    ] {
        let command = format!("printf '{bytes}'; printf '{bytes}' >&2");
        let reply = exec(&local.client, &command).await;
        assert_eq!(reply.json["stdout"], shown, "{}", reply.text);
        assert_eq!(reply.json["stderr"], shown);
    }
    let parts = r"printf '\xc3'; sleep 0.3; printf '\xa9'";
    assert_eq!(exec(&local.client, parts).await.json["stdout"], "é");
    let many = "printf x; for i in {1..3000}; do printf '€'; done";
    let reply = exec_with(&local.client, many, json!({"max_output_chars": 1001})).await;
    let text = reply.json["stdout"].as_str().unwrap();
    assert!(!text.contains('\u{fffd}'), "{text}");
    let shown = text.matches('€').count() as u64 * 3 + 1;
    assert_eq!(shown + reply.json["omitted_bytes"].as_u64().unwrap(), 9001);
    assert!(local.client.stdout_violations().is_empty());
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn f33_cancelled_call_ends_its_processes_and_is_never_mentioned_again(#[case] wall: Wall) {
    let local = start(wall).await;
    let sleep = sleeper(9245);
    let id = start_stubborn(&local.client, &sleep).await;
    local.client.cancel(id).await;
    assert!(wait_until(PROMISE, || living(&sleep).is_empty()).await);
    let told = local.client.notifications_for(id).len();
    assert_eq!(local.output("sleep 0.5; echo on").await, "on");
    assert!(!local.client.has_reply(id));
    assert_eq!(local.client.notifications_for(id).len(), told);
    let rows = std::fs::read_to_string(local.server.state().join("audit.jsonl")).unwrap();
    assert!(rows.contains("\"outcome\":\"cancelled\""), "{rows}");
}

#[rstest]
#[case::end_of_input(Farewell::EndOfInput, Wall::Bubblewrap)]
#[case::terminate(Farewell::Signal(Signal::TERM), Wall::Landlock)]
#[tokio::test]
async fn f33_server_that_is_told_to_go_takes_its_processes_along(
    #[case] farewell: Farewell,
    #[case] wall: Wall,
) {
    let local = start(wall).await;
    let sleep = sleeper(9246);
    for _ in 0..2 {
        start_stubborn(&local.client, &sleep).await;
    }
    let begun = Instant::now();
    farewell.say(&local.client).await;
    let status = local.client.wait_exit(Duration::from_secs(10)).await;
    assert!(status.expect("it ends").success(), "{status:?}");
    let took = begun.elapsed();
    assert!(took < PROMISE, "{took:?}");
    let rest = PROMISE.saturating_sub(took);
    assert!(wait_until(rest, || living(&sleep).is_empty()).await);
    let nothing_left = || local.server.supervisors("local").is_empty();
    assert!(wait_until(Duration::from_secs(5), nothing_left).await);
}

#[tokio::test]
async fn f34_full_and_read_only_disks_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = FullDisk::with_room(folder.path(), "4m") else {
        return;
    };
    let state = folder.path().join("state");
    let local = Setup::new().state(&state).start().await;
    assert_eq!(local.output("echo on").await, "on");
    disk.fill();
    let reply = local.run("head -c 100000 /dev/zero >new").await;
    assert_eq!(reply.json["exit_code"], 1, "{}", reply.text);
    assert!(
        reply.text.contains("No space left on device"),
        "{}",
        reply.text
    );
    let made = local.call("create_sandbox", json!({"name": "two"})).await;
    assert_eq!(made.json["code"], "store_unavailable", "{}", made.text);
    assert!(made.text.contains("No space left"), "{}", made.text);
    std::fs::remove_file(folder.path().join("filler")).unwrap();
    let made = local.call("create_sandbox", json!({"name": "two"})).await;
    assert!(!made.is_error, "{}", made.text);
    local.client.close_stdin().await;
    let limit = Duration::from_secs(10);
    local.client.wait_exit(limit).await.unwrap();
    let nothing_left = || process::of_sandboxes_below(&state).is_empty();
    assert!(wait_until(limit, nothing_left).await);
    let remounted = std::process::Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(folder.path())
        .status();
    assert!(remounted.unwrap().success());
    let second = local.server.start().await;
    let reply = exec(&second, "true").await;
    assert_eq!(reply.json["code"], "store_unavailable", "{}", reply.text);
    assert!(reply.text.contains("Read-only"), "{}", reply.text);
}

#[rstest]
#[case::memory("ulimit -v 60000; head -c 200M /dev/zero | tail", "memory exhausted")]
#[case::descriptors("ulimit -n 10; exec 20>/dev/null", "Bad file descriptor")]
#[case::arguments("exec true $(seq 1 600000)", "Argument list too long")]
#[case::read_only("touch /usr/new", "Read-only file system")]
#[tokio::test]
async fn f34_command_that_meets_a_limit_tells_it_itself(
    #[case] command: &str,
    #[case] words: &str,
) {
    let local = start(Wall::Bubblewrap).await;
    let reply = local.run(command).await;
    assert!(!reply.is_error);
    assert!(reply.json["exit_code"].as_u64() > Some(0), "{}", reply.text);
    assert!(reply.text.contains(words), "{}", reply.text);
}
