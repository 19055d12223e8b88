//! What the tests of deliveries share: a small web server, stand-ins for programs, an event.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use remote_sandbox_core::config::{ConfigText, Environment, Sources, resolve};
use remote_sandbox_core::job::{WatchOrder, WatchWish};
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::watch::{EventRecord, EventType};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::*;

pub(super) fn event() -> EventRecord {
    EventRecord {
        id: 12,
        watch_id: 7,
        event_type: EventType::Completed,
        summary: "train on gpu1: it ended with exit code 0".to_owned(),
        created: 1_794_775_643,
        payload: json!({
            "watch": {"id": 7, "name": "train", "sandbox_name": "gpu1", "tmux_session": "bg-1", "log_file": "/l.log"},
            "summary": "train on gpu1: it ended with exit code 0",
            "log_tail": "$(touch /tmp/no) `id` \"quoted\" 'text'\nlast",
            "suggested_codex_prompt": "A task has ended. \"$(id)\" `id`\n```text\n-rm -rf\n```",
        }),
    }
}

pub(super) fn order() -> WatchOrder {
    WatchOrder {
        codex_wakeup: true,
        claude_wakeup: true,
        ..WatchWish::default().check().unwrap()
    }
}

/// Settings of a configuration in TOML, with a folder for state, stand-ins and what they write.
pub(super) struct Stage {
    pub(super) folder: tempfile::TempDir,
    pub(super) settings: NotifySettings,
    pub(super) store: Arc<SecretStore>,
}

impl Stage {
    pub(super) fn new(text: &str) -> Self {
        Self::in_environment(text, &[])
    }

    pub(super) fn in_environment(text: &str, pairs: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap().to_owned();
        let mut environment: Environment = [("HOME".to_owned(), home)].into_iter().collect();
        for (name, value) in pairs {
            environment.insert((*name).to_owned(), (*value).to_owned());
        }
        let file = ConfigText::new(PathBuf::from("/c.toml"), text.as_bytes().to_vec()).unwrap();
        let config = resolve(&Sources {
            environment: environment.clone(),
            file: Some(file),
        });
        assert!(config.problems.is_empty(), "{:?}", config.problems);
        let store = Arc::new(SecretStore::new(folder.path()).in_files());
        let mask = Mask::new(config.secrets());
        let mut settings = NotifySettings::new(&config, &environment, mask, store.clone());
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        settings.surroundings = settings.surroundings.with_path(&path);
        Stage {
            folder,
            settings,
            store,
        }
    }

    /// A program of this name that first writes down its arguments, each with its length.
    pub(super) fn stand_in(&self, name: &str, then: &str) -> PathBuf {
        let record = self.folder.path().join(format!("{name}.seen"));
        let script = format!(
            "#!/bin/sh\nfor a in \"$@\"; do printf '%s\\0' \"$a\"; done > {}\n{then}\n",
            record.display()
        );
        self.program(name, &script);
        record
    }

    pub(super) fn program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.folder.path().join(name);
        std::fs::write(&path, script).unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, everybody).unwrap();
    }

    pub(super) async fn deliver(
        &self,
        channel: Channel,
        order: &WatchOrder,
    ) -> Result<(), DeliveryError> {
        self.deliver_event(&event(), channel, order).await
    }

    pub(super) async fn deliver_event(
        &self,
        event: &EventRecord,
        channel: Channel,
        order: &WatchOrder,
    ) -> Result<(), DeliveryError> {
        let file = self.folder.path().join("event-12.json");
        std::fs::write(&file, event.json().to_string()).unwrap();
        deliver(event, &channel, order, &self.settings, &file).await
    }
}

/// The arguments that a stand-in wrote down.
pub(super) fn arguments(record: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// All that an error says, and how it looks to whoever debugs it.
pub(super) fn said(error: &DeliveryError) -> String {
    let chain = remote_sandbox_core::failure::Failure::chain(error);
    format!("{chain} {error:?}")
}

/// How a web server answers.
#[derive(Debug, Clone)]
pub(super) enum Answering {
    /// With this text, as it stands.
    With(String),
    /// Not at all.
    Never,
    /// With a body that does not end.
    WithoutEnd,
}

impl Answering {
    pub(super) fn status(status: u16, body: &str) -> Self {
        let length = body.len();
        Answering::With(format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Came {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Came {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// A small web server on this machine.
pub(super) struct Web {
    pub(super) port: u16,
    came: Arc<Mutex<Vec<Came>>>,
    _task: AbortOnDropHandle<()>,
}

impl Web {
    pub(super) async fn new(answering: Answering) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let came: Arc<Mutex<Vec<Came>>> = Arc::default();
        let seen = came.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(attend(stream, answering.clone(), seen.clone()));
            }
        });
        Web {
            port,
            came,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?key=t0ken-t0ken", self.port)
    }

    pub(super) fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }
}

async fn attend(mut stream: TcpStream, answering: Answering, came: Arc<Mutex<Vec<Came>>>) {
    if let Some(request) = read_request(&mut stream).await {
        came.lock().unwrap().push(request);
    }
    match answering {
        Answering::With(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
        }
        Answering::Never => tokio::time::sleep(Duration::from_secs(600)).await,
        Answering::WithoutEnd => {
            let _ = stream.write_all(b"HTTP/1.1 200 X\r\n\r\n").await;
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
        }
    }
}

pub(super) async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Came> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream
            .read(&mut buffer)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, _)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .map(str::to_owned)
        });
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let body = bytes[head.len() + 4..].to_vec();
        if body.len() >= length {
            let head = head.to_owned();
            return Some(Came { head, body });
        }
    }
}
