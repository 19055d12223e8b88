//! `list`, `status` and `clean` on the command line.

use std::io::{BufRead, BufReader};

use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::{free_port, wait_until_blocking};
use remote_sandbox_testkit::{process, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::commands::{SOON, Surroundings, code, one, text, wait};
use crate::support::{entry, exec as call_exec, program, serve, unique, with};

#[test]
fn list_shows_every_sandbox_as_a_table_or_as_the_tool_does() {
    let sshd = Sshd::start();
    let dead = with(entry("dead", &sshd), json!({"port": free_port()}));
    let broken = json!({"name": "broken", "host": "h", "password": "canary-secret-1"});
    let here = Surroundings::new(&[entry("box", &sshd), dead, broken]);
    let output = here.run(&["list"]);
    let said = text(&output.stdout);
    assert_eq!(code(&output), 0);
    let lines: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["NAME", "STATE", "CPU", "MEMORY", "GPUS", "SCORE"]
    );
    assert_eq!(lines[1][..2], ["box", "alive"]);
    assert!(lines[1].contains(&"GiB"), "{said}");
    assert_eq!(lines[2][..4], ["dead", "unreachable", "-", "-"]);
    assert_eq!(lines[3][..2], ["broken", "disabled"]);
    assert!(!said.contains("canary"), "{said}");
    let output = here.run(&["list", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["sandboxes"][0]["connection_alive"], true);
    assert!(list["sandboxes"][0]["resources"]["idle_score"].is_number());
    assert_eq!(list["sandboxes"][1]["code"], "unreachable");
}

#[test]
fn status_is_plain_in_a_pipe_and_drawn_on_a_terminal() {
    let (_sshd, here) = one();
    let plain = here.run(&["status"]);
    let said = text(&plain.stdout);
    assert!(
        said.starts_with("box; alive; cpu ") && said.contains("; memory "),
        "{said}"
    );
    assert!(!said.contains('\x1b') && !said.contains('█'), "{said}");
    let unknown = here.run(&["status", "nobody"]);
    assert_eq!(code(&unknown), 1);
    assert!(text(&unknown.stderr).contains("nobody"));
    if here.start("script").arg("--version").output().is_err() {
        skip("there is no `script` program to make a terminal with");
        return;
    }
    let on_terminal = |colourless: bool| {
        let mut command = here.start("script");
        let line = format!("stty cols 70; exec {} status box", program().display());
        command.args(["-qec", &line, "/dev/null"]);
        if colourless {
            command.env("NO_COLOR", "1");
        }
        text(&command.output().unwrap().stdout)
    };
    let drawn = on_terminal(false);
    assert!(
        drawn.contains("\x1b[1mbox") && drawn.contains('▕'),
        "{drawn}"
    );
    let drawn = on_terminal(true);
    assert!(drawn.contains('▕') && !drawn.contains('\x1b'), "{drawn}");
    assert!(
        drawn
            .lines()
            .all(|line| line.trim_end().chars().count() <= 70),
        "{drawn}"
    );
}

#[test]
fn status_repeats_until_it_is_interrupted() {
    let (_sshd, here) = one();
    let mut child = here
        .command(&["status", "--watch=1", "box"])
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..2 {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("box; alive"), "{line}");
    }
    process::signal(child.id(), Signal::INT);
    assert_eq!(code(&wait(child)), 130);
}

#[tokio::test(flavor = "multi_thread")]
async fn clean_ends_what_is_left_and_nothing_that_lives() {
    // An account of its own, for the tokens of other tests must be left alone.
    let Some(user) = TestUser::create() else {
        return;
    };
    let sshd = Sshd::builder().user(&user).start();
    let sandbox = with(entry("box", &sshd), json!({"user": user.name()}));
    let here = Surroundings::new(std::slice::from_ref(&sandbox));
    let (left, live) = (
        format!("sleep 74.{}", unique()),
        format!("sleep 75.{}", unique()),
    );
    let nothing = here.run(&["clean", "box"]);
    assert_eq!(
        (code(&nothing), &*text(&nothing.stdout)),
        (0, "nothing of ours runs on box\n")
    );

    let client = serve(&[sandbox]).await;
    let background = format!("setsid {left} </dev/null >/dev/null 2>&1 &");
    assert_eq!(call_exec(&client, &background).await.json["exit_code"], 0);
    let running = client
        .start_call("exec_bash", json!({"command": live}))
        .await;
    let there = |line: &str| {
        let found = process::with_command_line(line);
        found
            .into_iter()
            .any(|pid| process::name(pid).as_deref() == Some("sleep"))
    };
    assert!(wait_until_blocking(SOON, || there(&left) && there(&live)));

    let listed = here.run(&["clean", "box"]);
    let said = text(&listed.stdout);
    assert_eq!(code(&listed), 0, "{said}");
    let states = |state: &str| said.lines().filter(|line| line.starts_with(state)).count();
    assert_eq!(states("left "), 1, "{said}");
    assert!(states("live ") >= 1, "{said}");
    assert!(there(&left), "nothing is ended unasked");
    let ended = here.run(&["clean", "box", "--yes"]);
    assert_eq!(code(&ended), 0, "{ended:?}");
    assert!(text(&ended.stdout).contains("\nended "), "{ended:?}");
    assert!(!there(&left) && there(&live));
    let audit = here
        .home
        .path()
        .join(".local/state/remote-sandbox-mcp/audit.jsonl");
    assert!(
        std::fs::read_to_string(audit)
            .unwrap()
            .contains("\"tool\":\"clean\"")
    );
    client.cancel(running).await;
    assert!(wait_until_blocking(SOON, || !there(&live)));
}
