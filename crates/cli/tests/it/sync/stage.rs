//! A server whose one host lies behind a link that a test can spoil, and a home that outlives the server.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::{FaultProxy, McpClient, Sshd, SshdBuilder, ToolReply, process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::files::write;
use crate::support::{builder, entry_via, ready, with};

/// How long anything here may take.
pub(super) const LIMIT: Duration = Duration::from_secs(90);

/// How the name of everything begins that is not complete yet.
const UNFINISHED: &[u8] = b".rsmcp-sync-";

/// Which way files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

/// The server, its host and both folders.
pub(super) struct Stage {
    pub(super) client: McpClient,
    pub(super) proxy: FaultProxy,
    pub(super) sshd: Sshd,
    pub(super) here: PathBuf,
    pub(super) there: PathBuf,
    entry: Value,
    variables: Vec<(String, String)>,
    home: TempDir,
}

impl Stage {
    /// One with a usual host and a good link.
    pub(super) async fn new() -> Self {
        Stage::with(Sshd::builder(), json!({}), &[]).await
    }

    /// One whose syncs all go on in the background.
    pub(super) async fn in_background() -> Self {
        let variables = [("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", "0")];
        Stage::with(Sshd::builder(), json!({}), &variables).await
    }

    /// One that does syncs of every size within the call.
    pub(super) async fn with_large_calls() -> Self {
        let variables = [
            ("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", "1000000"),
            ("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES", "1000000000000"),
        ];
        Stage::with(Sshd::builder(), json!({}), &variables).await
    }

    /// One with this host, these settings of its entry and these variables of the server.
    pub(super) async fn with(host: SshdBuilder, more: Value, variables: &[(&str, &str)]) -> Self {
        let home = TempDir::with_prefix("stage-").unwrap();
        let sshd = host.start();
        let proxy = FaultProxy::start(sshd.port()).await;
        let entry = with(entry_via("box", &sshd, proxy.port()), more);
        let here = home.path().join("project");
        std::fs::create_dir(&here).unwrap();
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<_> = variables.iter().map(owned).collect();
        Stage {
            client: start(&entry, &variables, home.path()).await,
            there: sshd.dir().join("home/copy"),
            variables,
            here,
            proxy,
            sshd,
            entry,
            home,
        }
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Kills the server where it is and starts another one with the same files.
    pub(super) async fn restart(&mut self) {
        process::kill_and_wait(&[self.client.pid()]);
        self.client = start(&self.entry, &self.variables, self.home.path()).await;
    }

    /// The folder that files come from.
    pub(super) fn source(&self, way: Way) -> &Path {
        match way {
            Way::Up => &self.here,
            Way::Down => &self.there,
        }
    }

    /// The folder that they go to.
    pub(super) fn target(&self, way: Way) -> &Path {
        match way {
            Way::Up => &self.there,
            Way::Down => &self.here,
        }
    }

    /// Writes a file into the folder that files come from.
    pub(super) fn write(&self, way: Way, name: &str, content: impl AsRef<[u8]>) {
        write(&self.source(way).join(name), content);
    }

    fn request(&self, way: Way, more: Value) -> (&'static str, Value) {
        let tool = match way {
            Way::Up => "sync_local_to_remote",
            Way::Down => "sync_remote_to_local",
        };
        let paths = json!({"local_path": self.here, "remote_path": "copy"});
        (tool, with(paths, more))
    }

    /// Begins a sync.
    pub(super) async fn begin(&self, way: Way, more: Value) -> u64 {
        let (tool, arguments) = self.request(way, more);
        self.client.start_call(tool, arguments).await
    }

    /// Syncs.
    pub(super) async fn call(&self, way: Way, more: Value) -> ToolReply {
        let (tool, arguments) = self.request(way, more);
        let reply = self.client.try_call_tool(tool, arguments, LIMIT).await;
        reply.unwrap_or_else(|error| panic!("{error:?}: {}", self.client.stderr()))
    }

    /// Syncs; that must succeed, in the background too. Gives what the sync says at its end.
    pub(super) async fn sync(&self, way: Way, more: Value) -> Value {
        let reply = self.call(way, more).await;
        assert!(!reply.is_error, "{}", reply.text);
        if reply.json["mode"] != "background" {
            return reply.json;
        }
        let end = self.wait(reply.json["task_id"].as_u64().unwrap()).await;
        assert_eq!(end["status"], "completed", "{end}");
        end["result"].clone()
    }

    /// How a transfer stands.
    pub(super) async fn check(&self, task: u64) -> Value {
        let arguments = json!({ "task_id": task });
        let tool = "check_file_transfer_task";
        let reply = self.client.call_tool(tool, arguments).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    /// Waits until a transfer has ended, whichever way.
    pub(super) async fn wait(&self, task: u64) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let now = self.check(task).await;
            if now["running"] == false && now["pending"] == false {
                return now;
            }
            assert!(Instant::now() < end, "{now}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Asserts that both trees are the same and that nothing unfinished is left.
    pub(super) fn assert_same(&self) {
        super::assert_same_trees(&self.here, &self.there);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A worker that a failed test left would go on without anybody.
        let home = format!("HOME={}", self.home.path().display());
        process::kill_and_wait(&process::with_environment(&home));
    }
}

async fn start(entry: &Value, variables: &[(String, String)], home: &Path) -> McpClient {
    let mut server = builder(std::slice::from_ref(entry)).home(home);
    for (name, value) in variables {
        server = server.env(name, value);
    }
    ready(server.start()).await
}

/// What is unfinished in a tree.
pub(super) fn unfinished(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().as_bytes().starts_with(UNFINISHED) {
                found.push(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    found
}

/// The content of every file of a tree by its path, without what is unfinished.
pub(super) fn contents(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if entry.file_name().as_bytes().starts_with(UNFINISHED) {
                continue;
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(root).unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Numbers that look random and repeat for the same seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Bytes that nothing makes smaller.
    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
