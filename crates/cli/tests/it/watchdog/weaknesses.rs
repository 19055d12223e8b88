//! What the watchdog of the Python package could not do.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::{Dog, LIMIT, Stage, begun};
use crate::jobs::{Host, start};
use crate::support::{builder, entry, files_below, ready, state, with};

/// A webhook that takes every connection and never answers; it ends with the test.
fn slow_webhook() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let held: Vec<_> = listener.incoming().flatten().collect();
        drop(held);
    });
    format!("http://127.0.0.1:{port}/slow")
}

/// A webhook where nobody listens, or somebody who does not speak HTTP.
fn broken_webhooks() -> [String; 2] {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = free.local_addr().unwrap().port();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let odd = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"\0\0 nonsense");
        }
    });
    [refused, odd].map(|port| format!("http://127.0.0.1:{port}/x"))
}

#[tokio::test]
async fn weakness_17_watchdog_lives_through_lost_links_and_bad_and_slow_webhooks() {
    let host = Host::start();
    let config = host.sshd.dir().join("dog.toml");
    let settings = "[watchdog]\nallow_event_command = \"any\"\nwebhook_hosts = [\"127.0.0.1\"]\n";
    fs::write(&config, settings).unwrap();
    let config = config.to_str().unwrap().to_owned();
    let client = builder(&[entry("box", &host.sshd)]).args(["--config", &config]);
    let client = ready(client.start()).await;
    let stage = Stage { host, client };
    let refused = start(&stage.client, "true", json!({"webhook_url": "not a url"})).await;
    assert_eq!(refused.json["code"], "invalid_params", "{}", refused.text);
    for url in broken_webhooks().into_iter().chain([slow_webhook()]) {
        stage.job("exit 0", json!({ "webhook_url": url })).await;
    }
    let mut dog = Dog::start_with(stage.home(), &["--config", &config], &[]);
    stage.told(&dog, &["completed"; 3]).await;
    // The link goes under it, and the webhooks have not answered yet.
    stage.host.sshd.kill_sessions();
    let told = stage.host.sshd.dir().join("told");
    let command = format!("echo \"$RSMCP_EVENT_TYPE\" >>{}", told.display());
    stage.job("exit 0", json!({"event_command": command})).await;
    let is_told = || begun(&told, "completed") == 1;
    assert!(wait_until(LIMIT, is_told).await, "{}", dog.log());
    let lives = matches!(dog.child.try_wait(), Ok(None));
    assert!(lives, "it ended: {}", dog.log());
}

#[tokio::test]
async fn weakness_20_password_is_kept_for_the_watchdog_alone_and_all_files_are_private() {
    const PASSWORD: &str = "hunter2-canary-20";
    let host = Host::start();
    let sandbox = with(entry("box", &host.sshd), json!({ "password": PASSWORD }));
    let client = ready(builder(&[sandbox]).start()).await;
    let stage = Stage { host, client };
    stage.job("exit 0", json!({})).await;
    let dog = Dog::start(stage.home());
    stage.told(&dog, &["completed"]).await;
    for about in ["environ", "cmdline"] {
        let words = fs::read(format!("/proc/{}/{about}", dog.pid())).unwrap();
        assert!(!String::from_utf8_lossy(&words).contains(PASSWORD));
    }
    let state = state(&stage.client);
    assert!(!state.join("config.json").exists());
    assert!(state.join("events").read_dir().unwrap().count() > 0);
    let secrets = state.join("secrets");
    for (path, bytes) in files_below(&state) {
        let mode = fs::metadata(&path).map_or(0, |about| about.permissions().mode());
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        let found = String::from_utf8_lossy(&bytes).contains(PASSWORD);
        assert!(!found || path.starts_with(&secrets), "{}", path.display());
    }
    let folder = fs::metadata(&secrets).unwrap().permissions().mode();
    assert_eq!(folder & 0o777, 0o700);
}
