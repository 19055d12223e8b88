//! What the tools and the command line say about the watchdog itself.

use std::process::Command;

use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::watches::advanced;
use super::{Host, LIMIT, end_of, started};
use crate::support::{entry, program, state};

/// Makes all deliveries of the store dead ones.
const KILL: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10)
db.execute("""INSERT INTO deliveries (event, channel, status, tries, next_try, last_error)
 SELECT id, 'webhook', 'dead', 12, 0, 'nobody listens' FROM events""")
db.commit()
"#;

#[tokio::test]
async fn event_that_could_not_be_told_is_listed_and_in_the_status() {
    let host = Host::start();
    let sandboxes = [entry("box", &host.sshd)];
    let client = advanced(&sandboxes, &[]).await;
    let run = |words: &[&str]| -> String {
        let output = Command::new(program())
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", client.home())
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let quiet = json!({"ensure_watchdog": false, "notify_local": false, "interval_s": 1});
    let job = started(&client, "true", quiet).await;
    end_of(&client, &job["task_id"]).await;
    assert!(!run(&["events", "--dead"]).contains("completed"));
    let is_told = || {
        run(&["watchdog", "run", "--once", "--lease", "3"]);
        run(&["events"]).contains("completed")
    };
    assert!(wait_until(LIMIT, is_told).await);
    let status = client.call_tool("get_watchdog_status", json!({})).await;
    assert!(status.json.get("dead_letters").is_none(), "{}", status.text);
    let store = state(&client).join("store.sqlite3");
    let mut python = Command::new("python3");
    let killed = python.args(["-c", KILL]).arg(store).status();
    assert!(killed.unwrap().success());
    let list = run(&["events", "--dead"]);
    assert!(
        list.contains("completed") && list.contains("nobody listens"),
        "{list}"
    );
    let list: Value = serde_json::from_str(&run(&["events", "--dead", "--json"])).unwrap();
    let status = client.call_tool("get_watchdog_status", json!({})).await;
    assert_eq!(status.json["dead_letters"], list["dead_letters"]);
    let letter = &list["dead_letters"][0];
    assert_eq!(
        (&letter["channel"], &letter["tries"]),
        (&json!("webhook"), &json!(12))
    );
    assert_eq!(letter["watch_id"], job["watch_id"], "{letter}");
}

#[tokio::test]
async fn nothing_is_said_to_be_installed_where_nothing_can_be_set_up_for_later() {
    let host = Host::start();
    let on = [("REMOTE_SANDBOX_WATCHDOG", "on"), ("PATH", "/nonexistent")];
    let client = advanced(&[entry("box", &host.sshd)], &on).await;
    let later = json!({"start_now": false});
    let reply = client.call_tool("install_macos_watchdog", later).await;
    assert!(!reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["service"]["kind"], "detached", "{}", reply.text);
    assert_eq!(reply.json["installed"], false, "{}", reply.text);
    let note = reply.json["note"].as_str().unwrap();
    assert!(note.contains("start_now"), "{note}");
    let gone = client
        .call_tool("uninstall_macos_watchdog", json!({}))
        .await;
    let removed = &gone.json["service"]["removed"];
    assert_eq!(removed, &json!([]), "{}", gone.text);
}
