//! Commands of every shape in a sandbox on this machine (f31, f32), and what surrounds them.

use std::process::Command;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use rstest::rstest;
use serde_json::{Value, json};

use super::support::{Local, Setup, Wall};
use crate::faults::ending::{living, sleeper};
use crate::support::{exec, exec_with};

async fn start(wall: Wall) -> Local {
    Setup::new().isolation(wall.word()).start().await
}

const SHAPES: [&str; 22] = [
    "echo a\\",
    "cat <<EOF\nx $((1 + 1))\nEOF",
    "cat <<'EOF'\n$HOME `id` 'x'\nEOF\nexit 4",
    "echo a; exit 3; echo b",
    "echo a; exec bash",
    "exec bash -c 'exit 5'",
    "set -e; false; echo no",
    "trap 'echo bye' EXIT; exit 6",
    "echo 'open",
    "echo a\n}\n",
    "# nothing",
    "echo a\r\necho b\r\n",
    "echo \"$0 $# $- ${BASH_VERSION:+bash}\"",
    "x=(1 2 3); [[ ${x[2]} == 3 ]] && echo {a..c} <(:) >/dev/null; echo $?",
    "no-such-command-here",
    "exit 255",
    "exit 258",
    "set -u; echo $no_such_variable; echo no",
    "echo 'ä 😀 日本'",
    "read -r x; echo \"$? [$x]\"; cat",
    "echo RSMCP:00:B:1:1:1:k; echo RSMCP:00:F:cwd",
    "echo a >&9",
];

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn f31_command_runs_as_with_bash_alone(#[case] wall: Wall) {
    let local = start(wall).await;
    for command in SHAPES {
        let expected = Command::new("bash")
            .args(["-c", command])
            .stdin(std::process::Stdio::null())
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let reply = local.run(command).await;
        let code = expected.status.code().unwrap();
        assert_eq!(reply.json["exit_code"], code, "{command}: {}", reply.text);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(reply.json["stdout"], text(&expected.stdout), "{command}");
        assert_eq!(reply.json["stderr"], text(&expected.stderr), "{command}");
    }
}

#[tokio::test]
async fn f31_long_commands_run_whole_with_their_input() {
    let local = start(Wall::Bubblewrap).await;
    let line = "x=$((x+1)) # it's \"a\" $line\n";
    for bytes in [131_000, 2 << 20] {
        let count = bytes / line.len() + 1;
        let command = format!("x=0\n{}cat; echo $x; exit 9", line.repeat(count));
        for stdin in [None, Some("a\nb\n"), Some("a\nb")] {
            let reply = exec_with(&local.client, &command, json!({ "stdin": stdin })).await;
            let expected = format!("{}{count}\n", stdin.unwrap_or_default());
            assert_eq!(reply.json["exit_code"], 9, "{stdin:?}: {:.300}", reply.text);
            assert_eq!(reply.json["stdout"], expected, "{stdin:?}");
        }
    }
    let lines: String = (1..=10_000).map(|line| format!("echo {line}\n")).collect();
    let reply = exec_with(&local.client, &lines, json!({"max_output_chars": 100_000})).await;
    let expected: String = (1..=10_000).map(|line| format!("{line}\n")).collect();
    assert_eq!(reply.json["stdout"], expected);
    let nul = exec(&local.client, "printf 'a\u{0}b'").await;
    assert_eq!(nul.json["code"], "invalid_params", "{}", nul.text);
}

#[tokio::test]
async fn f32_files_in_the_home_do_not_reach_into_the_answer() {
    let local = start(Wall::Bubblewrap).await;
    let noise = "echo noise; echo noise >&2; printf RSMCP:; exit 3\n";
    let script = format!(
        "for f in .bashrc .bash_profile .profile .bash_login .zshenv; do printf '%s' '{}' >~/$f; done",
        noise.replace('\n', "")
    );
    assert_eq!(local.run(&script).await.json["exit_code"], 0);
    let reply = local.run("echo out; echo err >&2; exit 7").await;
    assert_eq!(reply.json["exit_code"], 7, "{}", reply.text);
    assert_eq!(reply.json["stdout"], "out\n");
    assert_eq!(reply.json["stderr"], "err\n");
    for cwd in ["/no/such/place", "~nobody", "$(touch ran)", "/root"] {
        let reply = exec_with(&local.client, "touch ~/ran", json!({ "cwd": cwd })).await;
        assert_eq!(reply.json["code"], "not_found", "{cwd}: {}", reply.text);
        assert!(!local.folder("local").join("home/ran").exists(), "{cwd}");
    }
    let reply = exec_with(&local.client, "pwd", json!({"cwd": "~"})).await;
    let home = local.folder("local").join("home");
    assert_eq!(reply.json["stdout"], format!("{}\n", home.display()));
}

/// What a command puts first on the way to programs harms only itself, and the deadline holds.
#[tokio::test]
async fn f32_programs_of_the_sandbox_do_not_get_past_the_deadline() {
    let local = start(Wall::Bubblewrap).await;
    let sleep = sleeper(9250);
    let plant = format!(
        "mkdir -p ~/.local/bin && for p in timeout ps grep tr cat kill; do printf '#!/bin/sh\\nexec {sleep}\\n' >~/.local/bin/$p; chmod +x ~/.local/bin/$p; done"
    );
    let reply = local.run(&plant).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    let begun = Instant::now();
    let reply = exec_with(&local.client, "echo on; sleep 5", json!({"timeout_s": 1})).await;
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
    assert_ne!(reply.json["exit_code"], 0, "{}", reply.text);
    let ended = living(&sleep).is_empty();
    assert!(
        ended || reply.json.get("left_running").is_some(),
        "{}",
        reply.text
    );
    process::kill_and_wait(&living(&sleep));
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn ends_are_told_as_they_were(#[case] wall: Wall) {
    let local = start(wall).await;
    for (command, expected) in [
        (
            "kill -SEGV $$",
            json!({"exit_code": null, "signal": "SEGV"}),
        ),
        (
            "kill -KILL $$",
            json!({"exit_code": null, "signal": "KILL"}),
        ),
        ("sh -c 'kill -TERM $$'; exit $?", json!({"exit_code": 143})),
        ("exit 124", json!({"exit_code": 124})),
        ("exit 137", json!({"exit_code": 137})),
        (
            "echo EXIT_CODE=0; exit 5",
            json!({"exit_code": 5, "stdout": "EXIT_CODE=0\n"}),
        ),
        ("exec sh -c 'exit 6'", json!({"exit_code": 6})),
        ("set -e; true; false; true", json!({"exit_code": 1})),
        ("cat; echo end", json!({"exit_code": 0, "stdout": "end\n"})),
    ] {
        let reply = local.run(command).await;
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&reply.json[key], value, "{command}: {}", reply.text);
        }
        assert!(reply.json.get("timed_out").is_none(), "{}", reply.text);
        assert!(reply.json.get("left_running").is_none(), "{}", reply.text);
    }
    let rows = std::fs::read_to_string(local.server.state().join("audit.jsonl")).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 18);
    let last = &rows[rows.len() - 2..];
    assert_eq!(last[0]["event"], "begin");
    assert_eq!(last[0]["command"], "cat; echo end");
    assert_eq!(last[0]["sandbox"], "local");
    assert_eq!(
        (&last[1]["event"], &last[1]["exit_code"]),
        (&json!("end"), &json!(0))
    );
    assert_eq!(last[0]["run"], last[1]["run"]);
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn long_command_is_handed_over_read_on_and_stopped(#[case] wall: Wall) {
    let local = start(wall).await;
    let command = "echo one; sleep 1.5; echo two; exit 6";
    let reply = exec_with(&local.client, command, json!({"wait_s": 0.5})).await;
    assert_eq!(reply.json["status"], "running", "{}", reply.text);
    assert_eq!(reply.json["stdout"], "one\n");
    let mut arguments = json!({"task_id": reply.json["task_id"], "since_byte": reply.json["next_byte"], "wait_s": 20});
    let piece = local.call("check_background_task", arguments.clone()).await;
    assert_eq!(piece.json["log_tail"], "two\n", "{}", piece.text);
    arguments["since_byte"] = piece.json["next_byte"].clone();
    let end = local.call("check_background_task", arguments).await;
    assert_eq!(end.json["status"], "exited", "{}", end.text);
    assert_eq!(end.json["exit_code"], 6);
    let sleep = sleeper(9251);
    let command = format!("{sleep} & setsid {sleep} & {sleep}");
    let reply = exec_with(&local.client, &command, json!({"wait_s": 0.3})).await;
    let stop = json!({"task_id": reply.json["task_id"]});
    let stopped = local.call("stop_background_task", stop).await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
    assert!(
        stopped.json.get("left_running").is_none(),
        "{}",
        stopped.text
    );
    assert_eq!(living(&sleep), Vec::<u32>::new());
}

#[tokio::test]
async fn configuration_gives_every_command_its_surroundings() {
    let setup = Setup::new()
        .local("env = { FLAVOUR = \"it's $HOME\", N = 3 }")
        .local("init = \"echo noise; export MADE=by_init\"")
        .local("shell = \"bash\"");
    let local = setup.start().await;
    local
        .create(json!({"name": "two", "env": {"N": "4"}}))
        .await;
    assert_eq!(
        local.output("echo \"$FLAVOUR|$N|$MADE\"").await,
        "it's $HOME|3|by_init"
    );
    let reply = local.run_in("two", "echo \"$FLAVOUR|$N|$MADE\"; cat").await;
    assert_eq!(
        reply.json["stdout"], "it's $HOME|4|by_init\n",
        "{}",
        reply.text
    );
    let more = json!({"env": {"N": "5"}, "stdin": "given", "cwd": "/"});
    let reply = exec_with(&local.client, "echo $N; cat; pwd", more).await;
    assert_eq!(reply.json["stdout"], "5\ngiven/\n", "{}", reply.text);
}

#[rstest]
#[case::status("echo looked for it; echo no module >&2; false")]
#[case::exit("echo looked for it; echo no module >&2; exit 3")]
#[tokio::test]
async fn failing_init_is_an_error_that_shows_its_output(#[case] init: &str) {
    let local = Setup::new()
        .local(&format!("init = \"{init}\""))
        .start()
        .await;
    let reply = local.run("touch ~/ran").await;
    assert_eq!(reply.json["code"], "init_failed", "{}", reply.text);
    assert!(reply.text.contains("looked for it"), "{}", reply.text);
    assert!(reply.text.contains("no module"), "{}", reply.text);
    assert!(!local.folder("local").join("home/ran").exists());
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn resources_are_measured(#[case] wall: Wall) {
    let local = start(wall).await;
    let list = local
        .call("list_sandboxes", json!({"check_resources": true}))
        .await;
    let resources = &list.json["sandboxes"][0]["resources"];
    assert!(
        resources["cpu"]["count"].as_u64() >= Some(1),
        "{}",
        list.text
    );
    assert!(
        resources["memory"]["total_mb"].as_u64() > Some(0),
        "{}",
        list.text
    );
    assert!(resources["disk"][0]["free_mb"].is_u64(), "{}", list.text);
    let score = resources["idle_score"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&score));
}
