//! Secrets of an entry that nobody logs in with: a job may print them all the same.

use std::fs;

use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::stored;
use super::{Dog, LIMIT, events};
use crate::jobs::{Host, started};
use crate::support::{builder, entry, files_below, ready, state, with};

const PASSWORD: &str = "canary-passw0rd-1";
const PASSPHRASE: &str = "canary-passphrase-2";

const CONFIG: &str = "[watchdog]\nevent_commands = ['env >\"$HOME/told\"']\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_a_host_whose_key_logs_in_are_neither_kept_nor_told_in_clear_text() {
    let host = Host::start();
    let own = json!({"password": PASSWORD, "key_passphrase": PASSPHRASE});
    let sandbox = with(entry("box", &host.sshd), own);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/remote-sandbox-mcp");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), CONFIG).unwrap();
    let server = builder(&[sandbox]).home(home.path());
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    let client = ready(server.start()).await;
    let secrets = host.home().join("printed");
    fs::write(&secrets, format!("{PASSWORD} {PASSPHRASE}\n")).unwrap();
    let more = json!({"interval_s": 1, "ensure_watchdog": false, "notify_local": false,
        "event_command": "env >\"$HOME/told\"", "checkpoint_path": secrets});
    let command = format!("echo begun; cat {}; exit 3", secrets.display());
    let job = started(&client, &command, more).await;
    let dog = Dog::start(home.path());
    let told = home.path().join("told");
    let is_told = || fs::read_to_string(&told).is_ok_and(|text| text.contains("RSMCP_WATCH_ID"));
    assert!(wait_until(LIMIT, is_told).await, "{}", dog.log());
    let event = events(home.path()).pop().unwrap().to_string();
    assert!(event.contains("begun\\n[masked] [masked]"), "{event}");

    let clear = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("canary-pass");
    assert!(!clear(&fs::read(&told).unwrap()));
    for (file, bytes) in files_below(&state(&client)) {
        let is_keeper = file.components().any(|part| part.as_os_str() == "secrets");
        assert!(is_keeper || !clear(&bytes), "{}", file.display());
    }

    // As an earlier version wrote it down.
    let store = stored::open(&state(&client).join("store.sqlite3")).unwrap();
    let line = format!("{PASSWORD} and {PASSPHRASE}");
    let rows = "UPDATE watches SET last_log_tail = ?1, last_checkpoint = ?1";
    store.execute(rows, [&line]).unwrap();
    let rows = "UPDATE events SET summary = ?1, payload = json_object('log_tail', ?1)";
    store.execute(rows, [&line]).unwrap();
    let server = builder(&[entry("other", &host.sshd)]).home(home.path());
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    let other = ready(server.start()).await;
    for client in [&client, &other] {
        let watch = json!({ "watch_id": job["watch_id"] });
        for tool in [
            "list_background_watch_events",
            "get_background_watch",
            "get_background_watch_progress",
        ] {
            let reply = client.call_tool(tool, watch.clone()).await;
            assert!(
                reply.text.contains("[masked] and [masked]"),
                "{}",
                reply.text
            );
            assert!(!clear(reply.text.as_bytes()), "{tool}: {}", reply.text);
        }
        let list = client.call_tool("list_background_watches", json!({})).await;
        assert!(!clear(list.text.as_bytes()), "{}", list.text);
    }
}
