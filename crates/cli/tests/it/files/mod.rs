//! The file tools and commands, on every kind of sandbox.

mod commands;
mod listing;
mod reading;
mod rights;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use remote_sandbox_testkit::{McpClient, Sshd, ToolReply};
use serde_json::{Value, json};

use crate::local::support::{Local, Setup};
use crate::support::{entry, serve};

/// The kinds of sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ssh,
    Local,
}

enum Host {
    Ssh { client: McpClient, _sshd: Sshd },
    Local(Local),
}

/// A server with one sandbox, and a folder in it where relative paths begin.
pub(crate) struct Ground {
    host: Host,
    /// The home as the sandbox has it.
    pub(crate) home: PathBuf,
    /// Where relative paths begin.
    pub(crate) begin: PathBuf,
}

impl Ground {
    pub(crate) async fn new(kind: Kind) -> Self {
        match kind {
            Kind::Ssh => {
                let sshd = Sshd::start();
                let home = sshd.dir().join("home");
                let client = serve(&[entry("box", &sshd)]).await;
                Ground {
                    host: Host::Ssh {
                        client,
                        _sshd: sshd,
                    },
                    begin: home.clone(),
                    home,
                }
            }
            Kind::Local => {
                let local = Setup::new().start().await;
                // The first command makes its folders.
                let begin = PathBuf::from(local.output("pwd").await);
                Ground {
                    home: local.folder("local").join("home"),
                    host: Host::Local(local),
                    begin,
                }
            }
        }
    }

    pub(crate) fn client(&self) -> &McpClient {
        match &self.host {
            Host::Ssh { client, .. } => client,
            Host::Local(local) => &local.client,
        }
    }

    /// A path below the folder where relative paths begin.
    pub(crate) fn at(&self, name: impl AsRef<[u8]>) -> PathBuf {
        self.begin.join(OsStr::from_bytes(name.as_ref()))
    }

    /// Writes a file there.
    pub(crate) fn write(&self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) {
        write(&self.at(name), content);
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolReply {
        self.client().call_tool(tool, arguments).await
    }

    /// A list that must succeed.
    async fn list(&self, arguments: Value) -> Value {
        let reply = self.call("list_remote_files", arguments).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    /// A reading that must succeed.
    async fn read(&self, arguments: Value) -> Value {
        let reply = self.call("read_remote_file", arguments).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    }

    /// What is said of a path that cannot be read.
    async fn refusal(&self, path: &str) -> Value {
        let reply = self
            .call("read_remote_file", json!({"remote_path": path}))
            .await;
        assert!(reply.is_error, "{}", reply.text);
        reply.json
    }
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

pub(crate) fn mkfifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// The paths of a list.
fn paths(list: &Value) -> Vec<&str> {
    let entries = list["entries"].as_array().expect("entries");
    let paths = entries.iter().map(|entry| entry["path"].as_str());
    paths.map(|path| path.expect("a path")).collect()
}
