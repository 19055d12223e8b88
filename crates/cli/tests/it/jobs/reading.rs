//! Reading on in the log of a job, and what a start that failed leaves behind.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::Sshd;
use serde_json::json;

use super::{Ends, check, end_of, folder, one, start, started};
use crate::support::{builder, entry, files_below, ready, state, with};

#[tokio::test]
async fn earlier_run_in_a_session_is_not_taken_for_this_job() {
    let _ends = Ends("sleep 63.375");
    let (_host, client) = one().await;
    let session = json!({"session_name": "again"});
    let first = started(&client, "echo READY of the first", session.clone()).await;
    end_of(&client, &first["task_id"]).await;
    let second = started(&client, "echo second; sleep 63.375", session).await;
    assert_eq!(second["log_file"], first["log_file"], "the same log");
    let task = &second["task_id"];
    let begun = json!({"task_id": task, "wait_for": "^second$", "wait_s": 30});
    check(&client, begun).await;
    let wait = json!({"task_id": task, "wait_for": "READY", "wait_s": 1.5});
    let asked = Instant::now();
    let seen = check(&client, wait).await;
    assert!(asked.elapsed() >= Duration::from_millis(1400), "{seen}");
    assert_eq!(seen["log_tail"], "second\n", "{seen}");
    let found = check(&client, json!({"task_id": task, "grep": "READY"})).await;
    assert_eq!(found["log_tail"], "", "{found}");
    let whole = check(&client, json!({"task_id": task, "since_byte": 0})).await;
    let whole = whole["log_tail"].as_str().unwrap();
    assert!(whole.starts_with("READY"), "who names a byte sees it");
    let stop = json!({ "task_id": task });
    client.call_tool("stop_background_task", stop).await;
}

#[tokio::test]
async fn line_that_is_waited_for_is_found_in_a_log_that_grows_fast() {
    let _ends = Ends("sleep 64.375");
    let (host, client) = one().await;
    let go = host.sshd.dir().join("go");
    let command = format!(
        "while [ ! -e {} ]; do sleep 0.05; done; seq 100000; echo THE-LINE; seq 400000; sleep 64.375",
        go.display()
    );
    let job = started(&client, &command, json!({})).await;
    let wait = json!({"task_id": job["task_id"], "wait_for": "^THE-LINE$", "wait_s": 60});
    let call = client.start_call("check_background_task", wait).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let asked = Instant::now();
    std::fs::write(&go, "").unwrap();
    let limit = Duration::from_secs(90);
    let reply = client.wait_tool_reply(call, limit).await.unwrap();
    assert_eq!(reply.json["running"], true, "{}", reply.text);
    assert!(asked.elapsed() < Duration::from_secs(40), "it waited on");
    let stop = json!({"task_id": job["task_id"]});
    client.call_tool("stop_background_task", stop).await;
}

#[tokio::test]
async fn part_of_a_log_that_is_not_kept_is_said_to_be_left_out() {
    let (host, client) = one().await;
    let job = started(&client, "seq 100 199", json!({})).await;
    end_of(&client, &job["task_id"]).await;
    // As if the runner had given it back to the disk.
    std::fs::write(folder(&host, &job).join("hole"), "40 200\n").unwrap();
    let read = |byte: u64| json!({"task_id": job["task_id"], "since_byte": byte});
    let first = check(&client, read(0)).await;
    assert_eq!(first["next_byte"], 40, "{first}");
    assert!(first.get("omitted_bytes").is_none(), "{first}");
    let second = check(&client, read(40)).await;
    assert_eq!(
        (&second["omitted_bytes"], &second["since_byte"]),
        (&json!(160), &json!(200)),
        "{second}"
    );
    let text = second["log_tail"].as_str().unwrap();
    assert!(text.starts_with("150\n") && text.contains("199\n"));
}

#[tokio::test]
async fn weakness_20_start_that_fails_leaves_no_password_behind() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    drop(silent);
    let sandbox = json!({"name": "box", "host": "127.0.0.1", "port": port, "user": "nobody",
        "password": "the-canary-password"});
    let client = ready(builder(&[sandbox]).start()).await;
    let reply = start(&client, "true", json!({"ensure_watchdog": false})).await;
    assert!(reply.is_error, "{}", reply.text);
    let left = |word: &str| {
        let files = files_below(&state(&client)).into_iter();
        let found = files.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains(word));
        found.map(|(path, _)| path).collect::<Vec<_>>()
    };
    assert_eq!(
        left("the-canary-password"),
        Vec::<std::path::PathBuf>::new()
    );
}

#[tokio::test]
async fn entry_that_another_job_needs_stays_when_a_start_fails() {
    let sshd = Sshd::start();
    let sandbox = with(
        entry("box", &sshd),
        json!({"password": "the-canary-password"}),
    );
    let client = ready(builder(&[sandbox]).start()).await;
    let quiet = json!({"ensure_watchdog": false});
    let job = started(&client, "true", quiet.clone()).await;
    end_of(&client, &job["task_id"]).await;
    let wrong = with(quiet, json!({"cwd": "/no/such/place"}));
    assert!(start(&client, "true", wrong).await.is_error);
    let secrets = state(&client).join("secrets");
    let kept = files_below(&secrets).into_iter();
    let has = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains("the-canary-password");
    assert!(kept.into_iter().any(|(_, bytes)| has(bytes)), "it is gone");
}
