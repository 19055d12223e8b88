//! An MCP client that speaks newline-delimited JSON-RPC with a spawned server and believes nothing it says.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::mcp_record::{Shared, read_stderr, read_stdout};
use crate::process;

/// The revision of the protocol that knows no `initialize`.
pub const MODERN_VERSION: &str = "2026-07-28";

const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
const META_PREFIX: &str = "io.modelcontextprotocol/";

/// How a server is started, see [`McpClient::builder`].
#[derive(Clone, Debug)]
pub struct McpClientBuilder {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    home: Option<PathBuf>,
    directory: Option<PathBuf>,
}

impl McpClientBuilder {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in the server's otherwise empty environment (only `PATH`, `HOME` and
    /// `REMOTE_SANDBOX_WATCHDOG`, which is off, are there).
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Uses this home directory instead of a fresh temporary one.
    #[must_use]
    pub fn home(mut self, home: &Path) -> Self {
        self.home = Some(home.to_owned());
        self
    }

    /// Starts the server in this directory.
    #[must_use]
    pub fn current_dir(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Starts the server; nothing is sent yet.
    #[must_use]
    pub fn start(self) -> McpClient {
        let own_home = TempDir::with_prefix("testkit-home-").expect("a temporary directory");
        let home = self.home.unwrap_or_else(|| own_home.path().to_owned());
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            // No test leaves a watchdog behind, and none touches the services of whoever runs the tests.
            .env("REMOTE_SANDBOX_WATCHDOG", "off")
            .envs(self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", self.program.display()));
        let shared = Arc::new(Shared::new(child.stdin.take()));
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        tokio::spawn(read_stdout(stdout, Arc::clone(&shared)));
        tokio::spawn(read_stderr(stderr, Arc::clone(&shared)));
        McpClient {
            pid: child.id().expect("a child just started has an id"),
            child: tokio::sync::Mutex::new(child),
            shared,
            next_id: AtomicU64::new(1),
            modern: OnceLock::new(),
            home,
            own_home,
        }
    }
}

/// Why a request got no result.
#[derive(Debug, Clone, PartialEq)]
pub enum McpError {
    /// No reply came in time.
    TimedOut,
    /// The server closed its stdout without replying.
    Closed,
    /// The reply was a JSON-RPC error.
    Rpc {
        /// The numeric code.
        code: i64,
        /// The message.
        message: String,
        /// The `data` field, null when absent.
        data: Value,
    },
}

/// The reply to a `tools/call`.
#[derive(Debug, Clone)]
pub struct ToolReply {
    /// Whether the tool reported a failure.
    pub is_error: bool,
    /// The text of all text items, joined by line feeds.
    pub text: String,
    /// The text read as JSON; null when it is not JSON.
    pub json: Value,
    /// The parameters of the progress notifications of this call that came before the reply.
    pub notifications: Vec<Value>,
    /// The whole result as it came.
    pub result: Value,
}

/// A running MCP server on pipes; dropping the client kills it.
#[derive(Debug)]
pub struct McpClient {
    child: tokio::sync::Mutex<Child>,
    pid: u32,
    shared: Arc<Shared>,
    next_id: AtomicU64,
    modern: OnceLock<()>,
    home: PathBuf,
    own_home: TempDir,
}

impl McpClient {
    /// Describes the start of a server: this program without arguments in a clean environment.
    #[must_use]
    pub fn builder(program: impl AsRef<Path>) -> McpClientBuilder {
        McpClientBuilder {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            home: None,
            directory: None,
        }
    }

    /// Opens a session of the older protocol revisions and returns the server's answer.
    pub async fn initialize(&self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": client_info(),
        });
        let result = self.request("initialize", params, DEFAULT_LIMIT).await;
        let result = result.unwrap_or_else(|error| panic!("initialize failed: {error:?}"));
        self.notify("notifications/initialized", json!({})).await;
        result
    }

    /// Speaks the modern revision from now on and returns the answer to `server/discover`.
    pub async fn discover(&self) -> Value {
        self.use_modern_era();
        self.request("server/discover", json!({}), DEFAULT_LIMIT)
            .await
            .unwrap_or_else(|error| panic!("server/discover failed: {error:?}"))
    }

    /// Adds the modern revision's `_meta` keys to every request from now on.
    pub fn use_modern_era(&self) {
        self.modern.get_or_init(|| ());
    }

    /// Sends a request and waits for its result.
    pub async fn request(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, McpError> {
        let id = self.start_request(method, params).await;
        self.wait_reply(id, limit).await
    }

    /// Calls a tool and waits a minute for the reply; a protocol error fails the test.
    pub async fn call_tool(&self, name: &str, arguments: Value) -> ToolReply {
        self.try_call_tool(name, arguments, DEFAULT_LIMIT)
            .await
            .unwrap_or_else(|error| panic!("{name} failed: {error:?}; stderr: {}", self.stderr()))
    }

    /// Calls a tool and waits for the reply.
    pub async fn try_call_tool(
        &self,
        name: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<ToolReply, McpError> {
        let id = self.start_call(name, arguments).await;
        self.wait_tool_reply(id, limit).await
    }

    /// Sends a tool call and returns its id, which is its progress token too.
    pub async fn start_call(&self, name: &str, arguments: Value) -> u64 {
        let params = json!({ "name": name, "arguments": arguments });
        self.start_request("tools/call", params).await
    }

    /// Sends a request and returns its id, which is its progress token too.
    pub async fn start_request(&self, method: &str, params: Value) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.shared.record().pending.insert(id.to_string());
        let params = self.with_meta(params, Some(id));
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        id
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) {
        let params = self.with_meta(params, None);
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await;
    }

    /// Waits for the reply to a request sent before.
    pub async fn wait_reply(&self, id: u64, limit: Duration) -> Result<Value, McpError> {
        let arrived = self
            .shared
            .wait_for(|record| record.closed || record.replies.contains_key(&id.to_string()));
        let _ = timeout(limit, arrived).await;
        let record = self.shared.record();
        let Some((_, reply)) = record.replies.get(&id.to_string()) else {
            return Err(if record.closed {
                McpError::Closed
            } else {
                McpError::TimedOut
            });
        };
        if let Some(error) = reply.get("error") {
            return Err(McpError::Rpc {
                code: error.get("code").and_then(Value::as_i64).unwrap_or(0),
                message: text_of(error.get("message")),
                data: error.get("data").cloned().unwrap_or(Value::Null),
            });
        }
        Ok(reply.get("result").cloned().unwrap_or(Value::Null))
    }

    /// Waits for the reply to a tool call sent before.
    pub async fn wait_tool_reply(&self, id: u64, limit: Duration) -> Result<ToolReply, McpError> {
        let result = self.wait_reply(id, limit).await?;
        let items = result.get("content").and_then(Value::as_array);
        let texts: Vec<String> = items
            .into_iter()
            .flatten()
            .filter(|item| item.get("type").and_then(Value::as_str) == Some("text"))
            .map(|item| text_of(item.get("text")))
            .collect();
        let text = texts.join("\n");
        Ok(ToolReply {
            is_error: result.get("isError").and_then(Value::as_bool) == Some(true),
            json: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
            notifications: self.notifications_for(id),
            result,
        })
    }

    /// Whether the reply to a request is there.
    #[must_use]
    pub fn has_reply(&self, id: u64) -> bool {
        self.shared.record().replies.contains_key(&id.to_string())
    }

    /// The position of a reply among all lines of stdout, for questions of order.
    #[must_use]
    pub fn reply_line(&self, id: u64) -> Option<usize> {
        let record = self.shared.record();
        record.replies.get(&id.to_string()).map(|(line, _)| *line)
    }

    /// Tells the server that nobody waits for this request any more.
    pub async fn cancel(&self, id: u64) {
        let params = json!({ "requestId": id, "reason": "cancelled by the test" });
        self.notify("notifications/cancelled", params).await;
    }

    /// The parameters of the progress notifications of one request so far.
    #[must_use]
    pub fn notifications_for(&self, id: u64) -> Vec<Value> {
        self.notifications()
            .iter()
            .filter(|note| {
                note.get("method").and_then(Value::as_str) == Some("notifications/progress")
            })
            .filter_map(|note| note.get("params").cloned())
            .filter(|params| params.get("progressToken") == Some(&json!(id)))
            .collect()
    }

    /// All notifications so far, whole messages.
    #[must_use]
    pub fn notifications(&self) -> Vec<Value> {
        self.shared.record().notifications.clone()
    }

    /// The requests the server made of the client so far; all but `ping` were refused.
    #[must_use]
    pub fn server_requests(&self) -> Vec<Value> {
        self.shared.record().server_requests.clone()
    }

    /// Writes bytes to the server as they are.
    pub async fn send_raw(&self, bytes: &[u8]) {
        self.shared
            .write(bytes)
            .await
            .unwrap_or_else(|reason| panic!("cannot write to the server: {reason}"));
    }

    /// Closes the server's stdin.
    pub async fn close_stdin(&self) {
        self.shared.stdin.lock().await.take();
    }

    /// Waits for the end of the server; `None` when it still runs after `limit`.
    pub async fn wait_exit(&self, limit: Duration) -> Option<ExitStatus> {
        let mut child = self.child.lock().await;
        let status = timeout(limit, child.wait()).await.ok()?;
        Some(status.expect("the server can be waited for"))
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        process::signal(self.pid, signal);
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The server's home directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The lines of stdout that were not sound JSON-RPC, or answered nothing that was asked.
    #[must_use]
    pub fn stdout_violations(&self) -> Vec<String> {
        self.shared.record().violations.clone()
    }

    /// Every line of stdout so far.
    #[must_use]
    pub fn stdout_lines(&self) -> Vec<String> {
        self.shared.record().lines.clone()
    }

    /// What the server wrote to stderr, the last 4 MiB of it.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.shared.record().stderr).into_owned()
    }

    /// The server's resident memory in KiB.
    #[must_use]
    pub fn rss_kb(&self) -> u64 {
        process::rss_kb(self.pid).expect("the server runs")
    }

    async fn send(&self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        // A server that just died is seen by the waiting side as closed.
        let _ = self.shared.write(line.as_bytes()).await;
    }

    fn with_meta(&self, mut params: Value, progress_token: Option<u64>) -> Value {
        let Some(object) = params.as_object_mut() else {
            return params;
        };
        let meta = object
            .entry("_meta")
            .or_insert_with(|| Value::Object(Map::new()));
        let Some(meta) = meta.as_object_mut() else {
            return params;
        };
        if let Some(token) = progress_token {
            meta.entry("progressToken").or_insert(json!(token));
        }
        if self.modern.get().is_some() {
            for (key, value) in [
                ("protocolVersion", json!(MODERN_VERSION)),
                ("clientInfo", client_info()),
                ("clientCapabilities", json!({})),
            ] {
                meta.entry(format!("{META_PREFIX}{key}")).or_insert(value);
            }
        }
        if meta.is_empty() {
            object.remove("_meta");
        }
        params
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        // A server that is killed leaves its local sandboxes to the next one, and here is none.
        if self.home == self.own_home.path() {
            let _ = self.child.get_mut().start_kill();
            process::end_sandboxes_below(&self.home);
        }
    }
}

fn client_info() -> Value {
    json!({ "name": "testkit", "version": "1.0.0" })
}

fn text_of(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}
