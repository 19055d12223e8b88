//! A local sandbox from its beginning to its end.

use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::{free_port, skip, wait_until};
use rstest::rstest;
use serde_json::json;

use super::support::{Setup, Wall, Who, gone, line, output, run_in};
use crate::support::unique;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn nothing_configured_gives_one_sandbox_that_works() {
    let local = Setup::new().start().await;
    let list = local.call("list_sandboxes", json!({})).await;
    assert_eq!(list.json["active_sandbox"], "local", "{}", list.text);
    let lines = list.json["sandboxes"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{}", list.text);
    assert_eq!(lines[0]["kind"], "local");
    assert_eq!(lines[0]["connection_alive"], true);
    assert!(lines[0]["created_at"].as_str().unwrap().ends_with('Z'));
    let arguments = json!({"command": "pwd; echo kept >file"});
    let reply = local.call("exec_bash", arguments).await;
    assert_eq!(reply.json["sandbox"], "local", "{}", reply.text);
    let workspace = lines[0]["workspace"].as_str().unwrap();
    assert_eq!(reply.json["stdout"], format!("{workspace}\n"));
    assert_eq!(local.output("cat file; cd; pwd").await, {
        let home = local.folder("local").join("home");
        format!("kept\n{}", home.display())
    });
    assert_eq!(
        std::fs::read(format!("{workspace}/file")).unwrap(),
        b"kept\n"
    );
}

#[tokio::test]
async fn sandbox_is_made_used_listed_and_deleted() {
    let local = Setup::new().start().await;
    let variables = json!({"FLAVOUR": "it's $HOME", "API_TOKEN": "a-secret-of-the-sandbox"});
    let made = local
        .create(json!({"name": "two", "env": variables, "network": "off", "timeout": 60}))
        .await;
    assert_eq!(made.json["sandbox_id"], "two", "{}", made.text);
    assert_eq!(made.json["status"], "running");
    let created = made.json["created_at"].as_str().unwrap().to_owned();
    assert!(
        created.starts_with("20") && created.ends_with('Z'),
        "{created}"
    );
    assert!(made.json["note"].as_str().unwrap().contains("no lease"));
    let line = local.line("two").await;
    assert_eq!(line["created_at"], created.as_str());
    assert_eq!(
        (&line["network"], &line["kind"]),
        (&json!("off"), &json!("local"))
    );
    assert_eq!(line["connection_alive"], true);
    let reply = local
        .run_in("two", "echo \"$FLAVOUR|$API_TOKEN\"; echo mine >~/file")
        .await;
    assert!(reply.text.contains("it's $HOME|"), "{}", reply.text);
    assert!(!reply.text.contains("a-secret-of"), "{}", reply.text);
    assert_eq!(local.output("echo \"$FLAVOUR\"; ls ~").await, "\nworkspace");
    let chosen = local
        .call("select_sandbox", json!({"sandbox_name": "two"}))
        .await;
    assert_eq!(chosen.json["active_sandbox"], "two", "{}", chosen.text);
    let deleted = local.delete("two").await;
    assert_eq!(
        deleted.json,
        json!({"sandbox_id": "two", "status": "deleted"})
    );
    assert!(!local.folder("two").exists());
    assert!(local.server.supervisors("two").is_empty());
    assert!(local.line("two").await.is_null());
    let active = local.call("get_active_sandbox", json!({})).await;
    assert_eq!(active.json["active_sandbox"], "local", "{}", active.text);
    let reply = local.run_in("two", "true").await;
    assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
    let rows = std::fs::read_to_string(local.server.state().join("audit.jsonl")).unwrap();
    for tool in ["create_sandbox", "delete_sandbox"] {
        assert!(rows.contains(&format!("\"tool\":\"{tool}\"")), "{rows}");
    }
    assert!(!rows.contains("a-secret-of"), "{rows}");
    let again = local.create(json!({"name": "two"})).await;
    assert_eq!(again.json["network"], "on");
    assert_eq!(
        local.run_in("two", "ls ~; echo $FLAVOUR").await.json["stdout"],
        "workspace\n\n"
    );
}

#[tokio::test]
async fn default_sandbox_that_is_deleted_begins_anew() {
    let local = Setup::new().start().await;
    local.run("echo mine >~/file").await;
    let before = local.line("local").await["created_at"].clone();
    let deleted = local.delete("local").await;
    assert_eq!(deleted.json["status"], "deleted", "{}", deleted.text);
    assert!(!local.folder("local").join("home/file").exists());
    assert_eq!(local.output("ls ~").await, "workspace");
    assert_ne!(local.line("local").await["created_at"], before);
}

#[rstest]
#[case::taken(json!({"name": "two"}), "already")]
#[case::of_the_default(json!({"name": "local"}), "always there")]
#[case::empty(json!({"name": ""}), "1 to 40")]
#[case::way_up(json!({"name": "../two"}), "1 to 40")]
#[case::parent(json!({"name": ".."}), "1 to 40")]
#[case::hidden(json!({"name": ".x"}), "1 to 40")]
#[case::space(json!({"name": "a b"}), "1 to 40")]
#[case::option(json!({"name": "-rf"}), "1 to 40")]
#[case::long(json!({"name": "a".repeat(41)}), "1 to 40")]
#[case::network(json!({"name": "x", "network": "maybe"}), "network")]
#[case::variable(json!({"name": "x", "env": {"A=B": "c"}}), "env")]
#[tokio::test]
async fn sandbox_that_cannot_be_made_is_refused(
    #[case] arguments: serde_json::Value,
    #[case] words: &str,
) {
    let local = Setup::new().start().await;
    local.create(json!({"name": "two"})).await;
    let reply = local.call("create_sandbox", arguments).await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], "invalid_params", "{}", reply.text);
    assert!(
        reply.json["error"].as_str().unwrap().contains(words),
        "{}",
        reply.text
    );
    let names = std::fs::read_dir(local.server.state().join("sandboxes")).unwrap();
    assert!(names.count() <= 2);
}

#[tokio::test]
async fn only_sandboxes_of_our_own_are_deleted() {
    let there = json!([{"name": "box", "host": "192.0.2.1", "user": "u"}]);
    let local = Setup::new()
        .variable("REMOTE_SANDBOX_LIST", &there.to_string())
        .variable("REMOTE_SANDBOX_TOOLSETS", "containers")
        .start()
        .await;
    let reply = local.delete("box").await;
    assert_eq!(reply.json["code"], "policy_denied", "{}", reply.text);
    local.create(json!({"name": "two"})).await;
    for name in ["none", "", "../two", "local"] {
        let reply = local.delete(name).await;
        assert!(reply.is_error, "{name}: {}", reply.text);
        assert_eq!(reply.json["code"], "not_found", "{name}: {}", reply.text);
        let available = reply.json["available"].to_string();
        assert!(available.contains("two"), "{}", reply.text);
    }
    let reply = local.call("create_sandbox", json!({"name": "box"})).await;
    assert_eq!(reply.json["code"], "invalid_params", "{}", reply.text);
    assert_eq!(local.run_in("two", "echo on").await.json["stdout"], "on\n");
    assert!(!local.delete("two").await.is_error);
}

/// Says hello to whoever connects, for as long as it lives.
fn greeter(port: u16, mark: &str) -> String {
    format!(
        "perl -MIO::Socket::INET -e 'my $l = IO::Socket::INET->new(Listen => 5, LocalAddr => \"127.0.0.1:{port}\") or exit 1; while (my $c = $l->accept) {{ print $c \"hello\\n\"; close $c }}' {mark}"
    )
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap, "on")]
#[case::bubblewrap_without_network(Wall::Bubblewrap, "off")]
#[case::landlock(Wall::Landlock, "on")]
#[tokio::test]
async fn everything_in_a_sandbox_outlives_the_server(#[case] wall: Wall, #[case] network: &str) {
    let local = Setup::new().isolation(wall.word()).start().await;
    let arguments = json!({"name": "two", "network": network, "env": {"KEPT": "yes"}});
    let made = local.create(arguments).await;
    let (port, mark) = (free_port(), format!("mark-{}", unique()));
    let start = format!(
        "echo x >file; nohup {} >/dev/null 2>&1 &",
        greeter(port, &mark)
    );
    let reply = local.run_in("two", &start).await;
    assert!(reply.json["left_running"].is_array(), "{}", reply.text);
    let talk = format!(
        "for i in $(seq 50); do exec 3<>/dev/tcp/127.0.0.1/{port} && break; sleep 0.1; done 2>/dev/null; cat <&3; cat file; echo $KEPT; pgrep -fc '[p]erl.*{mark}'"
    );
    let expected = "hello\nx\nyes\n1";
    assert_eq!(output(&local.client, "two", &talk).await, expected);
    let reached = std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert_eq!(reached, network == "on");
    local.client.close_stdin().await;
    assert!(local.client.wait_exit(LIMIT).await.unwrap().success());
    assert_eq!(process::with_command_line(&mark).len(), 1);
    let second = local.server.start().await;
    let found = line(&second, "two").await;
    assert_eq!(found["created_at"], made.json["created_at"]);
    assert_eq!(found["network"], network);
    assert_eq!(output(&second, "two", &talk).await, expected);
    let reply = run_in(&second, "two", &format!("pkill -f '[p]erl.*{mark}'")).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    assert!(gone(&mark).await);
}

#[tokio::test]
async fn terminal_sessions_go_on_between_calls() {
    if !std::path::Path::new("/usr/bin/tmux").exists() {
        skip("tmux is not installed");
        return;
    }
    let local = Setup::new().isolation("bubblewrap").start().await;
    let reply = local
        .run("tmux new-session -d -s work && tmux send-keys -t work 'echo made >made; cat' Enter")
        .await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    let made = local.folder("local").join("home/workspace/made");
    assert!(wait_until(LIMIT, || made.exists()).await);
    let second = local.server.start().await;
    let listed = output(&second, "local", "tmux list-sessions -F '#{session_name}'").await;
    assert_eq!(listed, "work");
    let shown = output(&second, "local", "tmux capture-pane -p -t work | head -3").await;
    assert!(shown.contains("echo made"), "{shown}");
    let reply = local
        .run("tmux kill-server; sleep 0.2; tmux list-sessions")
        .await;
    assert_eq!(reply.json["exit_code"], 1, "{}", reply.text);
}

#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn processes_of_earlier_calls_are_seen_and_can_be_ended(#[case] wall: Wall) {
    let local = Setup::new().isolation(wall.word()).start().await;
    let sleep = format!("sleep 9210.{}", unique());
    let reply = local
        .run(&format!("{sleep} >/dev/null 2>&1 & echo $!"))
        .await;
    let pid = reply.json["stdout"].as_str().unwrap().trim().to_owned();
    assert_eq!(
        reply.json["left_running"][0]["name"], "sleep",
        "{}",
        reply.text
    );
    assert_eq!(reply.json["left_running"][0]["pid"].to_string(), pid);
    assert_eq!(local.output(&format!("ps -o args= -p {pid}")).await, sleep);
    let reply = local.run(&format!("kill {pid}")).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    assert!(gone(&sleep).await);
    let dead = format!(
        "for i in $(seq 50); do ps -p {pid} >/dev/null || exit 0; sleep 0.1; done; ps -p {pid}; exit 1"
    );
    let reply = local.run(&dead).await;
    assert_eq!(
        reply.json["exit_code"], 0,
        "nobody buries it: {}",
        reply.text
    );
}

#[tokio::test]
async fn workspace_that_was_removed_comes_back() {
    let local = Setup::new().start().await;
    assert_eq!(
        local.run("rm -rf ~/workspace ~/.[a-z]*").await.json["exit_code"],
        0
    );
    let reply = local.run("pwd; touch file; ls").await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    let expected = format!(
        "{}\nfile\n",
        local.folder("local").join("home/workspace").display()
    );
    assert_eq!(reply.json["stdout"], expected);
    assert!(local.folder("local").join("home/workspace/file").exists());
}

#[rstest]
#[case::root(Who::Root)]
#[case::user_account(Who::Plain)]
#[tokio::test]
async fn folders_that_commands_have_shut_are_deleted_with_the_sandbox(#[case] who: Who) {
    let Some(local) = Setup::new().start_for(who).await else {
        return;
    };
    local.create(json!({"name": "two"})).await;
    let shut = "mkdir -p a/b/c /tmp/d/e && touch a/b/c/f && chmod 000 a/b/c a/b a /tmp/d && chmod 500 ~ && cd / && chmod 000 ~/workspace";
    let reply = local.run_in("two", shut).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    let reply = local.delete("two").await;
    assert_eq!(reply.json["status"], "deleted", "{}", reply.text);
    assert!(!local.folder("two").exists());
}
