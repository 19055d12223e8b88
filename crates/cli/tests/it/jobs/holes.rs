//! Logs that grew past their bound: what was given back to the disk is told by everybody who reads them, and never shown
//! as zeros.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use remote_sandbox_testkit::McpClient;
use remote_sandbox_testkit::wait::{skip, wait_until};
use serde_json::{Value, json};

use super::beside::Beside;
use super::watches::{call, look_once, stage};
use super::{Host, LIMIT, check, end_of, folder, started};
use crate::support::{entry, program};

/// As if the runner had given this part of the log back to the disk.
fn give_back(host: &Host, job: &Value, from: u64, to: u64) {
    let log = job["log_file"].as_str().unwrap();
    let mut bytes = fs::read(log).unwrap();
    let place = |byte: u64| usize::try_from(byte).unwrap();
    bytes[place(from)..place(to)].fill(0);
    fs::write(log, bytes).unwrap();
    fs::write(folder(host, job).join("hole"), format!("{from} {to}\n")).unwrap();
}

fn quiet() -> Value {
    json!({"interval_s": 1, "max_log_lines": 100, "ensure_watchdog": false, "notify_local": false})
}

/// The numbers from 150 on, as the log of `seq 100 199` has them behind byte 200.
fn kept() -> String {
    (150..200).map(|number| format!("{number}\n")).collect()
}

#[tokio::test]
async fn last_lines_of_a_log_begin_behind_what_is_not_kept_and_say_so() {
    let (host, client) = stage().await;
    let job = started(&client, "seq 100 199", quiet()).await;
    end_of(&client, &job["task_id"]).await;
    give_back(&host, &job, 40, 200);
    let all = kept() + "EXIT_CODE=0\n";
    for (lines, text, omitted) in [
        (200, all.as_str(), json!(160)),
        (2, "199\nEXIT_CODE=0\n", Value::Null),
    ] {
        let watch = json!({"watch_id": job["watch_id"], "last_n_lines": lines});
        let read = call(&client, "read_background_watch_log", watch).await;
        let log = &read["log"];
        assert_eq!(
            (log["log_tail"].as_str(), &log["omitted_bytes"]),
            (Some(text), &omitted),
            "{log}"
        );
        let task = json!({"task_id": job["task_id"], "last_n_lines": lines});
        let seen = check(&client, task).await;
        assert_eq!(
            (seen["log_tail"].as_str(), &seen["omitted_bytes"]),
            (Some(text), &omitted),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn line_that_breaks_off_at_what_is_not_kept_is_not_searched_for_ever() {
    let (host, client) = stage().await;
    let gate = host.sshd.dir().join("gate");
    let command = format!(
        "seq 100 199; until [ -e {} ]; do sleep 0.1; done; echo THE-LINE",
        gate.display()
    );
    let job = started(&client, &command, quiet()).await;
    let whole =
        || fs::read_to_string(job["log_file"].as_str().unwrap()).is_ok_and(|log| log.len() == 400);
    assert!(wait_until(LIMIT, whole).await);
    // In the middle of a line.
    give_back(&host, &job, 42, 200);
    let wait =
        json!({"task_id": job["task_id"], "wait_for": "THE-LINE", "since_byte": 0, "wait_s": 60});
    let call = client.start_call("check_background_task", wait).await;
    fs::write(&gate, "").unwrap();
    // Long before it has waited for as long as it may.
    let reply = client.wait_tool_reply(call, LIMIT).await;
    let reply = reply.expect("the line is found");
    let text = &reply.text;
    assert!(!reply.is_error && !text.contains('\0'), "{text}");
    let found = json!({"task_id": job["task_id"], "grep": "THE-LINE"});
    assert_eq!(check(&client, found).await["log_tail"], "THE-LINE\n");
    end_of(&client, &job["task_id"]).await;
}

#[tokio::test]
async fn watchdog_says_in_the_end_of_a_log_what_it_could_not_read() {
    let (host, client) = stage().await;
    let job = started(&client, "seq 100 199", quiet()).await;
    end_of(&client, &job["task_id"]).await;
    give_back(&host, &job, 40, 200);
    // It is due a second after it was asked for.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    look_once(client.home());
    let watch = json!({"watch_id": job["watch_id"], "refresh_live": false});
    let seen = call(&client, "get_background_watch_progress", watch).await;
    let tail = seen["stored"]["last_log_tail"].as_str().unwrap_or_default();
    let expected = format!(
        "[160 bytes of this log are not kept any more]\n{}EXIT_CODE=0\n",
        kept()
    );
    assert_eq!(tail, expected, "{seen:#}");
}

/// A program of ours on the command line, with the state of a server.
fn command(client: &McpClient, host: &Host, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    let list = Value::from(vec![entry("box", &host.sshd)]).to_string();
    command
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", client.home())
        .env("REMOTE_SANDBOX_LIST", list)
        .env("REMOTE_SANDBOX_WATCHDOG", "off")
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .stdin(Stdio::null());
    command
}

/// How many bytes a reader says to have left out.
fn left_out(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("not kept any more"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let words = line.split_whitespace();
    let bytes: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    bytes[0]
}

/// Waits until the runner has given a part of the log back; none where the disk does not.
async fn hole_of(place: &Path) -> Option<(u64, u64)> {
    let (hole, alarm) = (place.join("hole"), place.join("alarm"));
    let came = wait_until(LIMIT * 2, || hole.exists() || alarm.exists()).await;
    assert!(came, "the log is not kept within its bound");
    if alarm.exists() {
        skip("this disk gives nothing back");
        return None;
    }
    let text = fs::read_to_string(hole).unwrap();
    let mut words = text.split_whitespace().map(|word| word.parse().unwrap());
    Some((words.next()?, words.next()?))
}

#[tokio::test]
async fn logs_follow_over_what_is_not_kept_and_say_how_much_that_is() {
    let (host, client) = stage().await;
    let gate = host.sshd.dir().join("gate");
    let command_line = format!(
        "seq -f 'line %09.0f' 1 20000; until [ -e {} ]; do sleep 0.2; done; echo over",
        gate.display()
    );
    let more = json!({"max_log_bytes": 65536, "watch": false});
    let job = started(&client, &command_line, more).await;
    let Some((from, to)) = hole_of(&folder(&host, &job)).await else {
        fs::write(&gate, "").unwrap();
        return;
    };
    let id = job["task_id"].as_str().unwrap();
    let words = ["job", "logs", "-f", id];
    let follow = Beside::start(command(&client, &host, &words));
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    fs::write(&gate, "").unwrap();
    let followed = follow.end().await;
    let said = String::from_utf8_lossy(&followed.stderr).into_owned();
    assert!(followed.status.success(), "{said}");
    assert!(!followed.stdout.contains(&0), "{said}");
    let log = fs::read(job["log_file"].as_str().unwrap()).unwrap();
    let place = |byte: u64| usize::try_from(byte).unwrap();
    let parts = [&log[..place(from)], &log[place(to)..]].concat();
    assert!(followed.stdout == parts, "{said}");
    assert_eq!(left_out(&said), to - from, "{said}");
    // Without waiting for more, and from the end.
    let words = ["job", "logs", "-n", "100000", id];
    let last = command(&client, &host, &words).output().unwrap();
    let said = String::from_utf8_lossy(&last.stderr).into_owned();
    assert!(last.stdout == log[place(to)..], "{said}");
    assert_eq!(left_out(&said), to - from, "{said}");
    let last = command(&client, &host, &["job", "logs", "-n", "1", id])
        .output()
        .unwrap();
    assert_eq!(last.stdout, b"EXIT_CODE=0\n");
    assert!(last.stderr.is_empty(), "{last:?}");
}
