//! Exit codes and names, whatever the command is like.

use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use serde_json::json;

use super::{Ends, check, end_of, one, started};

#[rstest]
#[case::exit("exit 7", 7)]
#[case::exec("exec sh -c 'exit 8'", 8)]
#[case::strict("set -e; false; echo never", 1)]
#[case::no_newline("printf text; exit 3", 3)]
#[case::own_line("echo EXIT_CODE=0; exit 4", 4)]
#[case::of_timeout("exit 124", 124)]
#[case::syntax("if then", 2)]
#[case::here_document("cat <<EOF\n'\"$((1+1))\nEOF\nexit 5", 5)]
#[case::quotes("[ \"it's\" = 'it'\"'\"'s' ] && exit 6", 6)]
#[case::trailing_backslash("false \\", 1)]
#[case::trailing_backslash_in_a_comment("exit 9 # \\", 9)]
#[case::unset_variable("echo \"$NOPE\"; exit 10", 10)]
#[tokio::test]
async fn weakness_7_exit_code_is_right_whatever_the_command_does(
    #[case] command: &str,
    #[case] code: u32,
) {
    let (_host, client) = one().await;
    let job = started(&client, command, json!({})).await;
    let end = end_of(&client, &job["task_id"]).await;
    assert_eq!(
        (&end["status"], &end["exit_code"]),
        (&json!("exited"), &json!(code)),
        "{end}"
    );
}

#[tokio::test]
async fn signal_that_ends_a_job_is_named() {
    let (_host, client) = one().await;
    let job = started(&client, "kill -SEGV $$", json!({})).await;
    let end = end_of(&client, &job["task_id"]).await;
    assert_eq!(
        (&end["status"], &end["signal"]),
        (&json!("signalled"), &json!("SEGV")),
        "{end}"
    );
}

#[tokio::test]
async fn script_of_a_mebibyte_runs() {
    let (_host, client) = one().await;
    let command = format!(": '{}'; exit 11", "x".repeat(1 << 20));
    let job = started(&client, &command, json!({})).await;
    assert_eq!(end_of(&client, &job["task_id"]).await["exit_code"], 11);
}

#[tokio::test]
async fn weakness_10_session_is_matched_exactly() {
    let _ends = Ends("sleep 68.375");
    let (_host, client) = one().await;
    let short = started(&client, "exit 1", json!({"session_name": "pre"})).await;
    let long = started(
        &client,
        "sleep 68.375",
        json!({"session_name": "prefix-long"}),
    )
    .await;
    end_of(&client, &short["task_id"]).await;
    let seen = check(&client, json!({"tmux_session": "pre"})).await;
    assert_eq!(seen["running"], false, "{seen}");
    // Nor is one of them found by a beginning that no job has.
    let seen = check(&client, json!({"tmux_session": "prefix"})).await;
    assert_eq!(seen["running"], false, "{seen}");
    let seen = check(&client, json!({"tmux_session": "prefix-long"})).await;
    assert_eq!(seen["task_id"], long["task_id"], "{seen}");
    assert_eq!(seen["running"], true);
    let stop = json!({"task_id": long["task_id"]});
    client.call_tool("stop_background_task", stop).await;
}

#[tokio::test]
async fn illegal_characters_of_a_name_are_replaced_and_the_reply_says_so() {
    let (_host, client) = one().await;
    let job = started(&client, "true", json!({"session_name": "../a.b:c"})).await;
    assert_eq!(job["tmux_session"], "___a_b_c");
    assert!(job["note"].as_str().unwrap().contains("___a_b_c"), "{job}");
    assert!(
        job["log_file"]
            .as_str()
            .unwrap()
            .ends_with("/.codex_logs/___a_b_c.log")
    );
    end_of(&client, &job["task_id"]).await;
}

#[tokio::test]
async fn secret_in_a_log_is_masked() {
    let host = super::Host::start();
    let box_entry = crate::support::with(
        crate::support::entry("box", &host.sshd),
        json!({"password": "canary-of-a-password"}),
    );
    let client = crate::support::serve(&[box_entry]).await;
    let job = started(&client, "echo canary-of-a-password", json!({})).await;
    let end = end_of(&client, &job["task_id"]).await;
    assert!(!end.to_string().contains("canary-of"), "{end}");
    let folder = crate::support::state(&client);
    for (path, content) in crate::support::files_below(&folder) {
        let text = String::from_utf8_lossy(&content);
        let is_there = text.contains("canary-of-a-password");
        // Kept for the watchdog, where there is no keychain.
        let is_kept = path.starts_with(folder.join("secrets"));
        assert!(!is_there || is_kept, "{}", path.display());
        if is_there {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
    }
}
