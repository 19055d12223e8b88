//! What an MCP server wrote, line by line, filed and judged.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Notify;
use tokio::time::timeout;

const WRITE_LIMIT: Duration = Duration::from_secs(20);
const RECORD_LIMIT_BYTES: usize = 256 << 20;
const STDERR_LIMIT_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) record: Mutex<Record>,
    pub(crate) stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) lines: Vec<String>,
    pub(crate) recorded_bytes: usize,
    pub(crate) violations: Vec<String>,
    pub(crate) pending: HashSet<String>,
    pub(crate) replies: HashMap<String, (usize, Value)>,
    pub(crate) notifications: Vec<Value>,
    pub(crate) server_requests: Vec<Value>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) closed: bool,
}

impl Shared {
    pub(crate) fn new(stdin: Option<ChildStdin>) -> Self {
        Self {
            record: Mutex::new(Record::default()),
            stdin: tokio::sync::Mutex::new(stdin),
            changed: Notify::new(),
        }
    }

    /// Waits until the record satisfies `condition`.
    pub(crate) async fn wait_for(&self, condition: impl Fn(&Record) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that nothing arriving in between is missed.
            changed.as_mut().enable();
            if condition(&self.record()) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no reader panicked")
    }

    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), String> {
        let mut stdin = self.stdin.lock().await;
        let pipe = stdin.as_mut().ok_or("stdin is closed")?;
        let written = timeout(WRITE_LIMIT, async {
            pipe.write_all(bytes).await?;
            pipe.flush().await
        });
        match written.await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(_) => Err("the server does not read".to_owned()),
        }
    }

    /// Files one line of stdout; gives what is to be answered to a request of the server.
    fn accept_line(&self, line: String) -> Option<Value> {
        let mut record = self.record();
        if record.recorded_bytes + line.len() > RECORD_LIMIT_BYTES {
            record
                .violations
                .push("the server wrote more than the client records".to_owned());
            return None;
        }
        record.recorded_bytes += line.len();
        let position = record.lines.len();
        let message = match check_message(&line) {
            Ok(message) => message,
            Err(reason) => {
                record.violations.push(format!("{reason}: {line}"));
                record.lines.push(line);
                return None;
            }
        };
        let answer = record.file(position, message, &line);
        record.lines.push(line);
        answer
    }
}

impl Record {
    fn file(&mut self, position: usize, message: Value, line: &str) -> Option<Value> {
        let id = message.get("id").cloned();
        let is_call = message.get("method").is_some();
        match (is_call, id) {
            (true, None) => {
                self.notifications.push(message);
                None
            }
            (true, Some(id)) => {
                let answer = if message.get("method").and_then(Value::as_str) == Some("ping") {
                    json!({ "jsonrpc": "2.0", "id": id, "result": {} })
                } else {
                    json!({ "jsonrpc": "2.0", "id": id,
                        "error": { "code": -32601, "message": "the test client offers no methods" } })
                };
                self.server_requests.push(message);
                Some(answer)
            }
            (false, Some(id)) if !id.is_null() => {
                let key = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
                let expected = self.pending.remove(&key);
                if !expected && id.is_u64() {
                    self.violations
                        .push(format!("a reply that nobody waits for: {line}"));
                }
                self.replies.entry(key).or_insert((position, message));
                None
            }
            // An error about a message whose id could not be read has no id.
            (false, _) => None,
        }
    }
}

fn check_message(line: &str) -> Result<Value, String> {
    let message: Value =
        serde_json::from_str(line).map_err(|error| format!("not JSON ({error})"))?;
    let object = message.as_object().ok_or("not an object")?;
    if object.get("jsonrpc") != Some(&json!("2.0")) {
        return Err("no \"jsonrpc\": \"2.0\"".to_owned());
    }
    let id = object.get("id");
    let id_is_sound = id.is_none_or(|id| id.is_string() || id.is_number() || id.is_null());
    let outcome = (object.contains_key("result"), object.contains_key("error"));
    let sound = match (object.get("method"), outcome) {
        (Some(method), (false, false)) => method.is_string() && id != Some(&Value::Null),
        (None, (true, false)) => id.is_some_and(|id| !id.is_null()),
        (None, (false, true)) => object.get("error").is_some_and(|error| {
            error.get("code").is_some_and(Value::is_i64)
                && error.get("message").is_some_and(Value::is_string)
        }),
        _ => false,
    };
    if sound && id_is_sound {
        Ok(message)
    } else {
        Err("not a JSON-RPC message".to_owned())
    }
}

pub(crate) async fn read_stdout(stdout: ChildStdout, shared: Arc<Shared>) {
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(RECORD_LIMIT_BYTES as u64);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let ended = line.last() == Some(&b'\n');
        let text = String::from_utf8_lossy(&line);
        let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
        if !ended {
            let mut record = shared.record();
            record
                .violations
                .push(format!("a line without end: {text}"));
        }
        let answer = shared.accept_line(text);
        shared.changed.notify_waiters();
        if let Some(answer) = answer {
            let _ = shared.write(format!("{answer}\n").as_bytes()).await;
        }
    }
    shared.record().closed = true;
    shared.changed.notify_waiters();
}

pub(crate) async fn read_stderr(mut stderr: ChildStderr, shared: Arc<Shared>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count) = stderr.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        let mut record = shared.record();
        record.stderr.extend_from_slice(&buffer[..count]);
        let excess = record.stderr.len().saturating_sub(STDERR_LIMIT_BYTES);
        record.stderr.drain(..excess);
    }
}
