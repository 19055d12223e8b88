//! Two nodes that share a home, as the login hosts of a cluster do behind one name.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use remote_sandbox_testkit::wait::{skip, wait_until, wait_until_async};
use remote_sandbox_testkit::{FaultProxy, McpClient, Sshd, process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Dog, LIMIT, begun, events, marked, tree};
use crate::jobs::{Host, check, started};
use crate::support::{builder, entry_via, program, ready};

/// What another node is besides its sshd: a name, a boot and processes of its own. All of it ends with this value.
struct Kernel {
    holder: Child,
    /// The first process in there.
    inner: u32,
}

impl Kernel {
    /// None, and a printed reason, where such a thing cannot be made.
    fn start(name: &str, folder: &Path) -> Option<Self> {
        let boot = folder.join("boot_id");
        fs::write(&boot, "11111111-2222-3333-4444-555555555555\n").unwrap();
        let script = "hostname \"$1\" && mount --bind \"$0\" /proc/sys/kernel/random/boot_id && echo ready && exec sleep 3600";
        let spaces = [
            "--uts",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ];
        let holder = Command::new("unshare")
            .args(spaces)
            .args(["sh", "-c", script])
            .arg(&boot)
            .arg(name)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut holder) = holder else {
            skip("there is no unshare (package util-linux)");
            return None;
        };
        let mut line = String::new();
        let said = BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line);
        let inner = process::descendants(holder.id());
        match (said, inner.first()) {
            (Ok(_), Some(inner)) if line == "ready\n" => Some(Kernel {
                inner: *inner,
                holder,
            }),
            _ => {
                let _ = holder.kill();
                let _ = holder.wait();
                skip("namespaces cannot be made here");
                None
            }
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Two nodes with one home and one host key behind a name that leads to either.
struct Cluster {
    name: FaultProxy,
    client: McpClient,
    second: Sshd,
    first: Host,
    _kernel: Kernel,
    _folder: TempDir,
}

impl Cluster {
    async fn start() -> Option<Self> {
        // Short, for a socket of tmux has its name.
        let folder = TempDir::with_prefix_in("nd-", "/tmp").unwrap();
        let kernel = Kernel::start("node-two", folder.path())?;
        let first = Host::start();
        let home = first.home();
        let key = first.sshd.dir().join("host_key_ed25519");
        let within = format!(
            "ForceCommand exec nsenter -t {} -u -m -p env HOME={} sh -c \"$SSH_ORIGINAL_COMMAND\"",
            kernel.inner,
            home.display()
        );
        let second = Sshd::builder()
            .extra_config(&format!("HostKey {}", key.display()))
            .extra_config(&within)
            .authorize(first.sshd.client_key())
            .session_environment("TMUX_TMPDIR", folder.path().to_str().unwrap())
            .start();
        let name = FaultProxy::start(first.sshd.port()).await;
        let server = builder(&[entry_via("box", &first.sshd, name.port())]);
        Some(Cluster {
            client: ready(server.start()).await,
            name,
            second,
            first,
            _kernel: kernel,
            _folder: folder,
        })
    }

    fn lead_to_first(&self) {
        self.name.retarget(self.first.sshd.port());
        self.name.drop_all();
    }

    fn lead_to_second(&self) {
        self.name.retarget(self.second.port());
        self.name.drop_all();
    }

    fn home(&self) -> &Path {
        self.client.home()
    }

    /// Looks at a job until it is as it should be.
    async fn becomes(&self, job: &Value, status: &str) -> Value {
        let query = json!({"task_id": job["task_id"]});
        let is_so = || async {
            check(&self.client, query.clone()).await["status"].as_str() == Some(status)
        };
        let became = wait_until_async(LIMIT, is_so).await;
        let seen = check(&self.client, query.clone()).await;
        assert!(became, "{seen}");
        seen
    }

    fn says(&self, words: &[&str]) -> Output {
        let list = Value::from(vec![entry_via("box", &self.first.sshd, self.name.port())]);
        Command::new(program())
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home())
            .env("REMOTE_SANDBOX_LIST", list.to_string())
            .env("REMOTE_SANDBOX_WATCHDOG", "off")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    async fn stop(&self, job: &Value) -> remote_sandbox_testkit::mcp::ToolReply {
        let job = json!({"task_id": job["task_id"]});
        self.client.call_tool("stop_background_task", job).await
    }

    fn types(&self) -> Vec<Value> {
        let all = events(self.home());
        all.iter()
            .map(|event| event["event_type"].clone())
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        process::kill_and_wait(&self.second.command_pids());
        process::kill_and_wait(&self.first.sshd.command_pids());
    }
}

/// The number of lives of a job right now.
fn lives(job: &Value) -> usize {
    let task = job["task_id"].as_str().unwrap();
    (1..6)
        .filter(|attempt| {
            let word = format!("REMOTE_SANDBOX_JOB={task}.{attempt}");
            !process::with_environment(&word).is_empty()
        })
        .count()
}

fn order(marker: &Path) -> Value {
    json!({
        "interval_s": 1, "resume_delay_s": 0, "auto_resume": true, "ensure_watchdog": false, "notify_local": false,
        "resume_command": marked(marker, "again"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_is_neither_lost_nor_ended_nor_begun_again_through_another_node_with_the_same_home() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let marker = cluster.first.sshd.dir().join("begun");
    let job = started(&cluster.client, &marked(&marker, "first"), order(&marker)).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);

    cluster.lead_to_second();
    let seen = cluster.becomes(&job, "unknown").await;
    let reason = seen["reason"].as_str().unwrap();
    assert!(
        reason.contains("other node") && reason.contains("node-two"),
        "{seen}"
    );
    assert_eq!(seen["running"], Value::Null, "{seen}");
    let stop = cluster.stop(&job).await;
    assert!(
        stop.is_error && stop.text.contains("node-two"),
        "{}",
        stop.text
    );
    assert_eq!(lives(&job), 1, "nothing was ended");

    // A watchdog that comes there says so once, and does nothing, also when it is gone in truth.
    let dog = Dog::start(cluster.home());
    let told = || cluster.types() == ["alarm"];
    assert!(
        wait_until(LIMIT, told).await,
        "{:?}\n{}",
        cluster.types(),
        dog.log()
    );
    assert!(process::kill_and_wait(&tree(&job)));
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert!(told(), "{:?}\n{}", cluster.types(), dog.log());
    assert_eq!((begun(&marker, "again"), lives(&job)), (0, 0));
    cluster.becomes(&job, "unknown").await;

    // Where it began, it is gone and not stopped, for the stop came to nothing; and it is begun again, once.
    cluster.lead_to_first();
    let types = ["alarm", "interrupted", "resume_started"];
    let told = || cluster.types() == types;
    assert!(
        wait_until(LIMIT, told).await,
        "{:?}\n{}",
        cluster.types(),
        dog.log()
    );
    assert!(wait_until(LIMIT, || begun(&marker, "again") == 1).await);
    assert_eq!(lives(&job), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_is_resumed_on_another_node_is_looked_at_and_ended_there_alone() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let marker = cluster.first.sshd.dir().join("begun");
    let job = started(&cluster.client, &marked(&marker, "first"), order(&marker)).await;
    let id = job["task_id"].as_str().unwrap();
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);

    // It runs elsewhere, so that nobody can have it begun again here.
    cluster.lead_to_second();
    cluster.becomes(&job, "unknown").await;
    let refused = cluster.says(&["job", "resume", id]);
    assert!(!refused.status.success(), "{refused:?}");
    assert_eq!((begun(&marker, "again"), lives(&job)), (0, 1));

    cluster.lead_to_first();
    assert!(process::kill_and_wait(&tree(&job)));
    cluster.becomes(&job, "lost").await;
    cluster.lead_to_second();
    let resumed = cluster.says(&["job", "resume", id]);
    assert!(resumed.status.success(), "{resumed:?}");
    assert!(wait_until(LIMIT, || begun(&marker, "again") == 1).await);
    cluster.becomes(&job, "running").await;

    cluster.lead_to_first();
    let seen = cluster.becomes(&job, "unknown").await;
    assert!(
        seen["reason"].as_str().unwrap().contains("node-two"),
        "{seen}"
    );
    let refused = cluster.says(&["job", "resume", id]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(cluster.stop(&job).await.is_error);
    assert_eq!((begun(&marker, "again"), lives(&job)), (1, 1));

    cluster.lead_to_second();
    cluster.becomes(&job, "running").await;
    let stopped = cluster.stop(&job).await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
    assert!(wait_until(LIMIT, || lives(&job) == 0).await);
    cluster.lead_to_first();
    cluster.becomes(&job, "stopped").await;
}
