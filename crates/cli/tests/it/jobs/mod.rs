//! Background jobs: the true binary, a real sshd and real tmux.

mod beside;
mod command_line;
mod commands;
mod faults;
mod holes;
mod interrupting;
mod leftovers;
mod life;
mod local;
mod places;
mod reading;
mod refusals;
mod watch_commands;
mod watch_logins;
mod watchdog_status;
mod watches;

pub(crate) use faults::start_without_answer;

use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::{Sshd, SshdBuilder, process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{entry, serve, with};

/// Long enough for a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// A host with a tmux of its own.
pub(super) struct Host {
    pub(super) sshd: Sshd,
    tmux: TempDir,
}

impl Host {
    pub(super) fn start() -> Self {
        Self::start_with(Sshd::builder())
    }

    /// The same with an sshd that is special.
    pub(super) fn start_with(builder: SshdBuilder) -> Self {
        // Short, for a socket has its name.
        let tmux = TempDir::with_prefix_in("tm-", "/tmp").unwrap();
        let folder = tmux.path().to_str().unwrap();
        Host {
            sshd: builder.session_environment("TMUX_TMPDIR", folder).start(),
            tmux,
        }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.sshd.dir().join("home")
    }

    /// Runs tmux as the user of the host would.
    pub(super) fn tmux(&self, arguments: &[&str]) -> String {
        let output = std::process::Command::new("tmux")
            .args(arguments)
            .env("TMUX_TMPDIR", self.tmux.path())
            .env_remove("TMUX")
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A server with one sandbox, `box`, on such a host.
pub(super) async fn one() -> (Host, McpClient) {
    let host = Host::start();
    let client = serve(&[entry("box", &host.sshd)]).await;
    (host, client)
}

/// Asks for a job.
pub(super) async fn start(client: &McpClient, command: &str, more: Value) -> ToolReply {
    let arguments = with(json!({ "command": command }), more);
    client.call_tool("exec_bash_background", arguments).await
}

/// Starts a job that must start.
pub(super) async fn started(client: &McpClient, command: &str, more: Value) -> Value {
    let reply = start(client, command, more).await;
    assert!(!reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["status"], "started", "{}", reply.text);
    reply.json
}

/// Looks at a task.
pub(super) async fn check(client: &McpClient, arguments: Value) -> Value {
    client
        .call_tool("check_background_task", arguments)
        .await
        .json
}

/// Waits for the end of a job.
pub(super) async fn end_of(client: &McpClient, task: &Value) -> Value {
    let mut next = json!(0);
    loop {
        let arguments = json!({"task_id": task, "since_byte": next, "wait_s": 20});
        let reply = check(client, arguments).await;
        if reply["running"] != true {
            return check(client, json!({ "task_id": task })).await;
        }
        assert!(reply["next_byte"].is_u64(), "{reply}");
        next = reply["next_byte"].clone();
    }
}

/// The folder of a job on the host.
pub(super) fn folder(host: &Host, job: &Value) -> PathBuf {
    let jobs = host.home().join(".remote-sandbox-mcp/jobs");
    jobs.join(job["task_id"].as_str().unwrap()).join("1")
}

/// Ends what a test has left running, by its own command line.
pub(super) struct Ends(pub(super) &'static str);

impl Drop for Ends {
    fn drop(&mut self) {
        process::kill_and_wait(&process::with_command_line(self.0));
    }
}
