//! Shells that wait for the next command: what they save, and what they must never cost.

use std::time::Duration;

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{account, entry, exec, login_file, one, serve, shells_wait, with};

const PATIENCE: Duration = Duration::from_secs(10);

async fn out(client: &McpClient, command: &str) -> String {
    let reply = exec(client, command).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    reply.json["stdout"].as_str().unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn command_runs_in_a_shell_that_waited_for_it_and_each_serves_once() {
    let (sshd, client) = one().await;
    exec(&client, "true").await;
    let mut before = Vec::new();
    for _ in 0..4 {
        assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
        let waiting = sshd.command_pids();
        assert!(!waiting.contains(&0));
        // The shell becomes the command, or the parent of it.
        let line = out(&client, "echo $$ $PPID").await;
        let own: Vec<u32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
        let served = waiting.iter().find(|pid| own.contains(pid));
        let served = *served.unwrap_or_else(|| panic!("{own:?} not of {waiting:?}"));
        assert!(!before.contains(&served));
        before.push(served);
    }
}

#[rstest]
#[case::appended("echo 'export FLAVOUR=new' >> ~/.bashrc")]
#[case::replaced_by_an_older_one(
    "echo 'export FLAVOUR=new' > ~/other; touch -d 2001-01-01 ~/other; mv ~/other ~/.bashrc"
)]
#[case::behind_a_link(
    "mkdir d; cp .bashrc d/rc; ln -sf d/rc .bashrc; echo 'export FLAVOUR=new' >> d/rc"
)]
#[tokio::test]
async fn edited_login_file_is_seen_by_the_next_command(#[case] edit: &str) {
    let Some((user, sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    login_file(&user, ".bashrc", "export FLAVOUR=old\n");
    assert_eq!(out(&client, "echo $FLAVOUR").await, "old");
    assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
    out(&client, edit).await;
    assert_eq!(out(&client, "echo $FLAVOUR").await, "new");
}

#[tokio::test]
async fn directory_that_is_replaced_is_entered_anew() {
    let Some((user, sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    login_file(&user, ".bashrc", "cd ~/place\n");
    login_file(&user, "place/which", "first\n");
    assert_eq!(out(&client, "cat which").await, "first");
    assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
    out(
        &client,
        "mv ~/place ~/old; mkdir ~/place; echo second > ~/place/which",
    )
    .await;
    assert_eq!(out(&client, "cat which").await, "second");
}

#[tokio::test]
async fn shell_that_was_killed_while_it_waited_is_replaced() {
    let (sshd, client) = one().await;
    exec(&client, "true").await;
    assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
    process::kill_and_wait(&sshd.command_pids());
    assert_eq!(out(&client, "echo still").await, "still");
}

/// A shell that ends cleanly without a word took nothing up: the command runs in a new one, once.
#[tokio::test]
async fn command_that_was_not_taken_up_runs_in_a_new_shell_once() {
    let (sshd, client) = one().await;
    exec(&client, "true").await;
    let ran = client.home().join("ran");
    for calls in 1..=3 {
        assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
        let waiting = sshd.command_pids();
        for pid in &waiting {
            process::signal(*pid, rustix::process::Signal::STOP);
        }
        let command = format!("echo ran >> {}; echo told", ran.display());
        let call = client
            .start_call("exec_bash", json!({ "command": command }))
            .await;
        // Long enough for the command to be under way to the shell that cannot read it.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!client.has_reply(call));
        process::kill_and_wait(&waiting);
        let reply = client.wait_tool_reply(call, PATIENCE).await.unwrap();
        assert_eq!(reply.json["stdout"], "told\n", "{}", reply.text);
        let text = std::fs::read_to_string(&ran).unwrap();
        assert_eq!(text.lines().count(), calls);
    }
}

/// The login of a shell for the next command happens while this one runs, so it may read a file
/// before the change and look at it after.
#[tokio::test]
async fn login_file_that_changes_during_a_login_is_seen_by_the_next_command() {
    let Some((user, sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    let slow = "export FLAVOUR=$(cat ~/flavour)\nsleep 0.3\n";
    login_file(&user, "flavour", "0");
    login_file(&user, ".bashrc", slow);
    assert_eq!(out(&client, "echo $FLAVOUR").await, "0");
    for round in 1..=4 {
        assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
        // A new login begins with this command; the change falls into its 0.3 seconds.
        let edit = format!("sleep 0.15; echo {round} > ~/flavour; touch ~/.bashrc");
        out(&client, &edit).await;
        assert_eq!(out(&client, "echo $FLAVOUR").await, round.to_string());
    }
}

#[tokio::test]
async fn hanging_login_file_of_a_waiting_shell_does_not_hold_a_command() {
    let Some((user, sshd, client)) = account(TestUser::builder()).await else {
        return;
    };
    login_file(&user, ".bashrc", "[ -e ~/hang ] && sleep 4993\n");
    out(&client, "true").await;
    assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
    // The shells that are started from now on hang, and so would new ones: only those that wait.
    out(&client, "touch ~/hang").await;
    let begun = std::time::Instant::now();
    out(&client, "rm ~/hang").await;
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(out(&client, "echo free").await, "free");
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    let hung = process::with_command_line("sleep 4993");
    process::kill_and_wait(&hung);
}

#[rstest]
#[case(1)]
#[case(2)]
#[case(3)]
#[tokio::test]
async fn no_shell_waits_where_the_host_allows_few_sessions(#[case] sessions: u32) {
    let sshd = Sshd::builder().max_sessions(sessions).start();
    let client = serve(&[entry("box", &sshd)]).await;
    let mut calls = Vec::new();
    for _ in 0..6 {
        let arguments = json!({"command": "sleep 0.2; echo ran"});
        calls.push(client.start_call("exec_bash", arguments).await);
    }
    for call in calls {
        let reply = client.wait_tool_reply(call, PATIENCE).await.unwrap();
        assert_eq!(reply.json["stdout"], "ran\n", "{}", reply.text);
    }
    assert_eq!(out(&client, "echo last").await, "last");
    assert!(shells_wait(&sshd, 0).await, "{:?}", sshd.command_pids());
}

#[tokio::test]
async fn waiting_shells_end_with_the_server() {
    let (sshd, client) = one().await;
    exec(&client, "true").await;
    assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
    client.close_stdin().await;
    assert!(shells_wait(&sshd, 0).await, "{:?}", sshd.command_pids());
}

#[tokio::test]
async fn command_in_a_shell_that_waited_is_ended_at_its_deadline_and_told() {
    let (sshd, client) = one().await;
    exec(&client, "true").await;
    assert!(shells_wait(&sshd, 2).await, "{:?}", sshd.command_pids());
    let arguments: Value = with(
        json!({"command": "trap '' TERM; setsid sleep 4971 & sleep 4972"}),
        json!({"timeout_s": 1}),
    );
    let reply = client.call_tool("exec_bash", arguments).await;
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(process::with_command_line("sleep 4971").is_empty());
    assert!(process::with_command_line("sleep 4972").is_empty());
    assert_eq!(out(&client, "echo next").await, "next");
}

#[tokio::test]
async fn shell_for_the_next_call_is_started_when_a_script_of_ours_has_ended() {
    let (sshd, client) = one().await;
    let probe = || client.call_tool("list_sandboxes", json!({"check_resources": true}));
    probe().await;
    assert!(shells_wait(&sshd, 1).await);
    let before = sshd.command_pids();
    let probing = probe();
    tokio::pin!(probing);
    let listed = loop {
        tokio::select! {
            biased;
            listed = &mut probing => break listed,
            () = tokio::time::sleep(Duration::from_millis(3)) => {}
        }
        let mut own = process::descendants(before[0]);
        let now = sshd.command_pids();
        own.extend(process::descendants(before[0]));
        let strange =
            |pid: &u32| *pid != before[0] && !own.contains(pid) && process::is_alive(*pid);
        let others: Vec<u32> = now.into_iter().filter(strange).collect();
        // Once the shell that serves is gone, its replacement may be there.
        let serves = process::is_alive(before[0]);
        assert!(!serves || others.is_empty(), "{others:?} beside {before:?}");
    };
    assert!(listed.text.contains("\"load_1m\""), "{}", listed.text);
    assert!(shells_wait(&sshd, 1).await);
    assert_ne!(sshd.command_pids(), before);
}
