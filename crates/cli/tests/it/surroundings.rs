//! What a sandbox's own configuration gives every command: variables, a beginning, a directory, a shell.

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::sshd::Sshd;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{entry, exec, exec_with, serve, with};

async fn sandbox(more: Value) -> (Sshd, McpClient) {
    let sshd = Sshd::start();
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    (sshd, client)
}

/// The same answer from a new shell and from one that waited.
async fn twice(client: &McpClient, command: &str) -> ToolReply {
    let first = exec(client, command).await;
    let second = exec(client, command).await;
    assert_eq!(first.json["stdout"], second.json["stdout"]);
    assert_eq!(first.json["exit_code"], second.json["exit_code"]);
    assert_eq!(first.json["code"], second.json["code"]);
    assert!(!second.text.contains("RSMCP"), "{}", second.text);
    second
}

#[tokio::test]
async fn variables_reach_every_command_and_a_call_overrides_them() {
    let (_sshd, client) = sandbox(json!({"env": {"FLAVOUR": "it's $HOME", "N": 3}})).await;
    let reply = twice(&client, "echo \"$FLAVOUR|$N\"").await;
    assert_eq!(reply.json["stdout"], "it's $HOME|3\n", "{}", reply.text);
    let more = json!({"env": {"FLAVOUR": "mine"}});
    let reply = exec_with(&client, "echo $FLAVOUR $N", more).await;
    assert_eq!(reply.json["stdout"], "mine 3\n", "{}", reply.text);
}

#[tokio::test]
async fn init_runs_in_the_shell_of_the_command_and_its_words_are_not_output() {
    let init = "echo noise; echo noise >&2; export MADE=by_init; answer() { echo from_function; }";
    let (_sshd, client) = sandbox(json!({ "init": init })).await;
    let reply = twice(
        &client,
        "echo $MADE; answer; echo err >&2; env | grep -c REMOTE_SANDBOX_; exit 7",
    )
    .await;
    assert_eq!(
        reply.json["stdout"], "by_init\nfrom_function\n1\n",
        "{}",
        reply.text
    );
    assert_eq!(reply.json["stderr"], "err\n");
    assert_eq!(reply.json["exit_code"], 7);
    let reply = exec(&client, "kill -9 $$").await;
    assert_eq!(reply.json["signal"], "KILL", "{}", reply.text);
}

#[rstest]
#[case::status("echo looked for it; echo no such module cuda >&2; false")]
#[case::exit("echo looked for it; echo no such module cuda >&2; exit 3")]
#[case::errexit("set -e; echo looked for it; echo no such module cuda >&2; false; true")]
#[case::syntax("echo looked for it >&2; echo no such module cuda >&2; if")]
#[tokio::test]
async fn failing_init_is_an_error_that_shows_its_output(#[case] init: &str) {
    let (_sshd, client) = sandbox(json!({ "init": init })).await;
    let ran = client.home().join("ran");
    let reply = twice(&client, &format!("touch {}", ran.display())).await;
    assert_eq!(reply.json["code"], "init_failed", "{}", reply.text);
    if !init.ends_with("if") {
        assert!(reply.text.contains("looked for it"), "{}", reply.text);
        assert!(reply.text.contains("no such module cuda"), "{}", reply.text);
    }
    assert!(!ran.exists());
}

/// A shell that waited and took the command up is not asked twice, although the command never came.
#[tokio::test]
async fn failing_init_runs_once_per_call() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let init = format!("echo x >> {}; exit 3", count.display());
    let (_sshd, client) = sandbox(json!({ "init": init })).await;
    for calls in 1..=3 {
        let reply = exec(&client, "true").await;
        assert_eq!(reply.json["code"], "init_failed", "{}", reply.text);
        let text = std::fs::read_to_string(&count).unwrap();
        assert_eq!(text.lines().count(), calls);
    }
}

#[tokio::test]
async fn init_does_not_take_the_commands_input() {
    let (_sshd, client) = sandbox(json!({ "init": "cat >/dev/null; MADE=here" })).await;
    for text in ["given\n", "without an end"] {
        let reply = exec_with(&client, "echo $MADE; cat", json!({ "stdin": text })).await;
        assert_eq!(
            reply.json["stdout"],
            format!("here\n{text}"),
            "{}",
            reply.text
        );
    }
}

#[tokio::test]
async fn hanging_init_ends_at_the_deadline() {
    let (_sshd, client) = sandbox(json!({ "init": "sleep 5843" })).await;
    let reply = exec_with(&client, "true", json!({"timeout_s": 1})).await;
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    assert!(remote_sandbox_testkit::process::with_command_line("sleep 5843").is_empty());
}

#[tokio::test]
async fn directory_holds_also_where_init_goes_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("it's here");
    std::fs::create_dir(&place).unwrap();
    let more = json!({"workdir": place, "init": "cd /"});
    let (_sshd, client) = sandbox(more).await;
    let reply = twice(&client, "pwd").await;
    assert_eq!(
        reply.json["stdout"],
        format!("{}\n", place.display()),
        "{}",
        reply.text
    );
    let reply = exec_with(&client, "pwd", json!({"cwd": "/tmp"})).await;
    assert_eq!(reply.json["stdout"], "/tmp\n", "{}", reply.text);
    let (_sshd, client) = sandbox(json!({"workdir": "/no/such/place"})).await;
    let reply = twice(&client, "pwd").await;
    assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
}

#[rstest]
#[case::sh("sh", "echo \"$0|${BASH_VERSION-none}\"", "sh|none\n")]
#[case::path(
    "/bin/bash",
    "echo \"${BASH_VERSION:+yes}\"; shopt -q login_shell || echo plain",
    "yes\nplain\n"
)]
#[case::dash_first("bash", "-x 2>/dev/null; echo after", "after\n")]
#[case::zsh("zsh", "echo ${ZSH_VERSION:+zsh} ${(U)made}", "zsh\n")]
#[case::fish("fish", "set -l x 'a b'; count $x; echo $MADE", "1\nby init\n")]
#[tokio::test]
async fn chosen_shell_runs_the_command(
    #[case] shell: &str,
    #[case] command: &str,
    #[case] wanted: &str,
) {
    if !std::env::split_paths("/bin:/usr/bin").any(|folder| folder.join(shell).exists()) {
        eprintln!("skipped: {shell} is not installed");
        return;
    }
    let more = json!({"shell": shell, "init": "export MADE='by init'"});
    let (_sshd, client) = sandbox(more).await;
    let reply = twice(&client, command).await;
    assert_eq!(reply.json["stdout"], wanted, "{}", reply.text);
    let (_sshd, client) = sandbox(json!({ "shell": shell })).await;
    let pid = if shell == "fish" { "$fish_pid" } else { "$$" };
    let reply = twice(&client, &format!("kill -9 {pid}")).await;
    assert_eq!(reply.json["signal"], "KILL", "{}", reply.text);
}

#[tokio::test]
async fn missing_shell_is_told() {
    let (_sshd, client) = sandbox(json!({"shell": "no-such-shell"})).await;
    let reply = twice(&client, "true").await;
    assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
    assert!(reply.text.contains("no-such-shell"), "{}", reply.text);
}

#[tokio::test]
async fn long_command_after_a_long_init_runs_whole() {
    let init = format!("export MADE='{}'", "'\\''".repeat(12_000));
    let (_sshd, client) = sandbox(json!({ "init": init })).await;
    let command = format!("echo ${{#MADE}}; : '{}'; echo end", "x".repeat(200_000));
    let reply = twice(&client, &command).await;
    assert_eq!(reply.json["stdout"], "12000\nend\n", "{}", reply.text);
}

#[tokio::test]
async fn variables_with_the_names_of_our_own_do_no_harm() {
    let (_sshd, client) = sandbox(json!({"init": "true", "workdir": "/tmp"})).await;
    let names = ["m", "t", "k", "n", "PWD", "rsmcp_within", "rsmcp_fast"];
    let env: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!("mine")))
        .collect();
    for _ in 0..2 {
        let reply = exec_with(&client, "echo $m$t$k$n; pwd", json!({ "env": env })).await;
        assert_eq!(
            reply.json["stdout"], "minemineminemine\n/tmp\n",
            "{}",
            reply.text
        );
    }
}

#[tokio::test]
async fn init_is_not_in_the_list_of_processes() {
    let init = "export KEY=init-canary-99";
    let (_sshd, client) = sandbox(json!({ "init": init })).await;
    let command = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'init-canary[-]99'; echo $KEY";
    let reply = twice(&client, command).await;
    assert_eq!(
        reply.json["stdout"], "0\ninit-canary-99\n",
        "{}",
        reply.text
    );
}
