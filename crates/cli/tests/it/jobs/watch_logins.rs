//! Whether the watchdog will be able to log in is found out when a watch is asked for.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::watches::{advanced, stage};
use super::{Host, started};
use crate::support::{builder, entry, ready};

/// An agent of this test that holds a key.
struct Agent {
    pid: String,
    socket: PathBuf,
}

impl Agent {
    fn start(folder: &Path, key: &Path) -> Option<Self> {
        let socket = folder.join("agent");
        let said = Command::new("ssh-agent")
            .arg("-a")
            .arg(&socket)
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let pid = said
            .split("SSH_AGENT_PID=")
            .nth(1)?
            .split(';')
            .next()?
            .to_owned();
        let agent = Agent { pid, socket };
        let added = Command::new("ssh-add")
            .arg(key)
            .env("SSH_AUTH_SOCK", &agent.socket)
            .output();
        added.ok()?.status.success().then_some(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.pid).status();
    }
}

#[tokio::test]
async fn login_that_needs_an_agent_is_a_warning_when_the_watch_is_asked_for() {
    let host = Host::start();
    let folder = tempfile::TempDir::with_prefix_in("ag-", "/tmp").unwrap();
    let agent = Agent::start(folder.path(), host.sshd.client_key_path());
    let agent = agent.expect("an agent");
    let mut bare = entry("box", &host.sshd);
    bare.as_object_mut().unwrap().remove("key_file");
    let socket = agent.socket.to_str().unwrap();
    let client = advanced(&[bare], &[("SSH_AUTH_SOCK", socket)]).await;
    let job = started(&client, "true", json!({})).await;
    let warning = job["warning"].as_str().unwrap_or_default();
    assert!(
        warning.contains("agent") && warning.contains("key_file"),
        "{job:#}"
    );
    let unwatched = started(&client, "true", json!({"watch": false})).await;
    assert_eq!(unwatched["warning"], Value::Null);
    // The same key in the usual place needs no agent.
    let keys = client.home().join(".ssh");
    std::fs::create_dir_all(&keys).unwrap();
    std::fs::copy(host.sshd.client_key_path(), keys.join("id_ed25519")).unwrap();
    let mut bare = entry("again", &host.sshd);
    bare.as_object_mut().unwrap().remove("key_file");
    let server = builder(&[bare])
        .home(client.home())
        .env("SSH_AUTH_SOCK", socket);
    let server = ready(server.start()).await;
    let before = host.sshd.accepted_auth_count();
    let job = started(&server, "true", json!({})).await;
    assert_eq!(job["warning"], Value::Null, "{job:#}");
    // The server itself, and as the watchdog will be: that is tried once.
    assert_eq!(host.sshd.accepted_auth_count(), before + 2);
    started(&server, "true", json!({})).await;
    assert_eq!(host.sshd.accepted_auth_count(), before + 2);
}

#[tokio::test]
async fn surroundings_of_the_watchdog_log_in_once_with_the_key_of_an_entry() {
    let (host, client) = stage().await;
    let job = started(&client, "true", json!({})).await;
    // The server itself, and as the watchdog will be.
    assert_eq!(host.sshd.accepted_auth_count(), 2, "{}", host.sshd.log());
    started(&client, "true", json!({})).await;
    assert_eq!(host.sshd.accepted_auth_count(), 2, "{}", host.sshd.log());
    assert_eq!(
        (&job["warning"], &job["watchdog_warning"]),
        (&Value::Null, &Value::Null),
        "{job:#}"
    );
}
