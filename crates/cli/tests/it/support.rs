//! A server under test and the hosts it knows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::{McpClient, McpClientBuilder, ToolReply};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::{TestUser, TestUserBuilder};
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};

/// The program under test.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_remote-sandbox-mcp"))
}

/// An entry of `REMOTE_SANDBOX_LIST` that logs in to a test sshd with its own key.
pub(crate) fn entry(name: &str, sshd: &Sshd) -> Value {
    entry_via(name, sshd, sshd.port())
}

/// The same through another port, a proxy's.
pub(crate) fn entry_via(name: &str, sshd: &Sshd, port: u16) -> Value {
    json!({
        "name": name,
        "host": "127.0.0.1",
        "port": port,
        "user": TestUser::current().name(),
        "key_file": sshd.client_key_path(),
    })
}

/// Adds settings to an entry.
pub(crate) fn with(mut entry: Value, more: Value) -> Value {
    for (key, value) in more.as_object().expect("an object") {
        entry[key] = value.clone();
    }
    entry
}

/// A client builder for a server that knows these sandboxes; its home is a fresh folder.
pub(crate) fn builder(sandboxes: &[Value]) -> McpClientBuilder {
    McpClient::builder(program()).env(
        "REMOTE_SANDBOX_LIST",
        Value::from(sandboxes.to_vec()).to_string(),
    )
}

/// A server that knows these sandboxes, ready for calls.
pub(crate) async fn serve(sandboxes: &[Value]) -> McpClient {
    ready(builder(sandboxes).start()).await
}

/// Shakes hands.
/// A server whose user wanted sandboxes, in a list that cannot be read.
pub(crate) async fn serve_nothing() -> McpClient {
    ready(builder(&[]).env("REMOTE_SANDBOX_LIST", "[{").start()).await
}

pub(crate) async fn ready(client: McpClient) -> McpClient {
    client.initialize("2025-06-18").await;
    client
}

/// A server with one sandbox, `box`, on a fresh sshd.
pub(crate) async fn one() -> (Sshd, McpClient) {
    let sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    (sshd, client)
}

/// Runs a command and returns the reply.
pub(crate) async fn exec(client: &McpClient, command: &str) -> ToolReply {
    client
        .call_tool("exec_bash", json!({ "command": command }))
        .await
}

/// Runs a command with more arguments.
pub(crate) async fn exec_with(client: &McpClient, command: &str, more: Value) -> ToolReply {
    client
        .call_tool("exec_bash", with(json!({ "command": command }), more))
        .await
}

/// A server whose one sandbox is an account of this kind; nothing without root or that shell.
pub(crate) async fn account(builder: TestUserBuilder) -> Option<(TestUser, Sshd, McpClient)> {
    let user = builder.create()?;
    let sshd = Sshd::builder().user(&user).start();
    let client = serve(&[with(entry("box", &sshd), json!({"user": user.name()}))]).await;
    Some((user, sshd, client))
}

/// Waits until this many shells wait on the host and nothing else happens there: the same processes for a while.
pub(crate) async fn shells_wait(sshd: &Sshd, count: usize) -> bool {
    let (mut seen, mut since) = (Vec::new(), Instant::now());
    let settled = || {
        let now = sshd.command_pids();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        seen.len() == count && since.elapsed() > Duration::from_millis(200)
    };
    wait_until(Duration::from_secs(10), settled).await
}

/// Writes a login file that belongs to the account.
pub(crate) fn login_file(user: &TestUser, name: &str, text: &str) {
    let path = user.home().join(name);
    let folder = path.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&path, text).unwrap();
    let mut own = Some(path.as_path());
    while let Some(path) = own.filter(|path| *path != user.home()) {
        std::os::unix::fs::chown(path, Some(user.uid()), None).unwrap();
        own = path.parent();
    }
}

/// Where a server keeps its state.
pub(crate) fn state(client: &McpClient) -> PathBuf {
    client.home().join(".local/state/remote-sandbox-mcp")
}

/// The audit log as rows.
pub(crate) fn audit(client: &McpClient) -> Vec<Value> {
    let text = std::fs::read_to_string(state(client).join("audit.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a row of JSON"))
        .collect()
}

/// A number that no other test on this machine has, also not one in the same process; for command
/// lines that can be told apart.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}{next}", std::process::id())
}

/// Every file below a folder, with its content.
pub(crate) fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = std::fs::read(&path).unwrap_or_default();
                files.push((path, content));
            }
        }
    }
    files
}
