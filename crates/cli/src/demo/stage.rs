//! Where the demo plays: a throw-away folder, a server in it, and what has to be cleaned up afterwards.

use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::config::Environment;
use remote_sandbox_engine::fsio;
use remote_sandbox_engine::proc::CompanionProcess;
use serde_json::{Value, json};

use super::error::DemoError;
use super::page::Page;
use super::project::{FILES, RESULT};
use super::server::{Answer, Server, Start};
use crate::report::{Failed, print};

/// The name of the sandbox.
pub(super) const SANDBOX: &str = "demo";

/// How often in a row the sandbox is tried to be deleted at the end.
const MOST_TRIES: u32 = 2;

/// How long each of them may take.
const DELETE_LIMIT: Duration = Duration::from_secs(15);

/// The configuration for a machine without any wall.
const WITHOUT_WALL: &str = "[local]\nisolation = \"none\"\n";

/// A folder that goes away with all that is in it.
#[derive(Debug)]
struct Scratch {
    path: PathBuf,
    is_there: bool,
}

impl Scratch {
    fn new(environment: &Environment) -> Result<Self, DemoError> {
        let named = environment.get("TMPDIR").map(Path::new);
        let parent = named.filter(|path| path.is_absolute());
        let parent = parent.unwrap_or(Path::new("/tmp"));
        let path = fsio::fresh_directory(parent, "remote-sandbox-mcp-demo-");
        Ok(Scratch {
            path: path.map_err(DemoError::Folder)?,
            is_there: true,
        })
    }

    fn remove(&mut self) -> Result<(), DemoError> {
        fsio::open_up_directories(&self.path);
        fsio::remove_directory(&self.path).map_err(DemoError::Folder)?;
        self.is_there = false;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The last resort of a demo that was broken off; who could be told has been told.
        if self.is_there {
            let _ = self.remove();
        }
    }
}

/// What the steps share.
pub(super) struct Stage {
    pub(super) page: Page,
    /// The workspace of the sandbox, once it is known.
    pub(super) workspace: Option<PathBuf>,
    scratch: Scratch,
    start: Start,
    server: Option<Server>,
    /// A watchdog beside the server; it ends when this is dropped.
    pub(super) watchdog: Option<CompanionProcess>,
    /// Whether there may be a sandbox.
    has_sandbox: bool,
}

impl Stage {
    /// An empty stage. `config` is a file that the user wants to try.
    pub(super) fn new(
        page: Page,
        program: PathBuf,
        config: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, DemoError> {
        let scratch = Scratch::new(environment)?;
        let start = Start::new(program, &scratch.path, config, environment);
        Ok(Stage {
            page,
            workspace: None,
            scratch,
            start,
            server: None,
            watchdog: None,
            has_sandbox: false,
        })
    }

    /// The folder in which everything lies.
    pub(super) fn folder(&self) -> &Path {
        &self.scratch.path
    }

    /// Writes the project to a folder of its own, from which it is synced.
    pub(super) fn write_project(&self) -> Result<PathBuf, DemoError> {
        let folder = self.folder().join("project");
        fsio::private_directory(&folder).map_err(DemoError::Folder)?;
        for file in FILES {
            let path = folder.join(file.name);
            fsio::write_atomically(&path, file.text.as_bytes()).map_err(DemoError::Folder)?;
        }
        Ok(folder)
    }

    /// The folder for what is brought back.
    pub(super) fn results(&self) -> PathBuf {
        self.folder().join("results")
    }

    /// What was brought back.
    pub(super) fn read_result(&self) -> Result<String, DemoError> {
        let path = self.results().join(RESULT);
        let read = fsio::read_bounded(&path, 64 * 1024).map_err(DemoError::Folder)?;
        Ok(String::from_utf8_lossy(&read.unwrap_or_default()).into_owned())
    }

    /// Prints something.
    pub(super) fn say(&self, text: &str) -> Result<(), Failed> {
        print(text)
    }

    /// Starts the server.
    pub(super) async fn start_server(&mut self) -> Result<&Server, DemoError> {
        let server = self.start.run().await?;
        Ok(self.server.insert(server))
    }

    /// Starts this program beside the server, with the same state folder.
    pub(super) fn start_program(&self, words: &[&str]) -> Result<CompanionProcess, DemoError> {
        self.start.run_beside(words)
    }

    /// Calls a tool.
    pub(super) async fn call(
        &self,
        tool: &'static str,
        arguments: Value,
    ) -> Result<Answer, DemoError> {
        let server = self.server.as_ref().ok_or(DemoError::NoServer)?;
        server.call(tool, arguments).await
    }

    /// Makes the sandbox; from here on there is one to be deleted.
    pub(super) async fn make_sandbox(&mut self) -> Result<Answer, DemoError> {
        self.has_sandbox = true;
        self.call("create_sandbox", json!({"name": SANDBOX})).await
    }

    /// Whether no wall may be put up where none stands: never against a configuration of the user's.
    pub(super) fn may_go_without_wall(&self) -> bool {
        self.start.config.is_none()
    }

    /// Starts the server anew, allowed to go without a wall.
    pub(super) async fn go_without_wall(&mut self) -> Result<(), DemoError> {
        let path = self.start.folder.join("without-wall.toml");
        fsio::write_atomically(&path, WITHOUT_WALL.as_bytes()).map_err(DemoError::Folder)?;
        self.end_server().await?;
        self.start.config = Some(path);
        self.start_server().await?;
        Ok(())
    }

    /// Deletes the sandbox.
    pub(super) async fn delete_sandbox(&mut self) -> Result<Answer, DemoError> {
        let answer = self.call("delete_sandbox", json!({"sandbox_id": SANDBOX}));
        let answer = answer.await?;
        self.has_sandbox = false;
        Ok(answer)
    }

    /// Ends the server as a client does that goes away.
    pub(super) async fn end_server(&mut self) -> Result<(), DemoError> {
        match self.server.take() {
            Some(server) => server.end().await,
            None => Ok(()),
        }
    }

    /// Removes all files.
    pub(super) fn remove_files(&mut self) -> Result<(), DemoError> {
        self.scratch.remove()
    }

    /// Cleans up whatever a demo that was broken off has left.
    pub(super) async fn clear(&mut self) -> Result<(), DemoError> {
        self.end_watchdog();
        let mut tries = 0;
        while self.has_sandbox && tries < MOST_TRIES {
            tries += 1;
            let deleting = tokio::time::timeout(DELETE_LIMIT, self.delete_sandbox());
            match deleting.await {
                Ok(Err(DemoError::Refused { .. })) => break,
                Ok(Ok(_)) => {}
                // This server does not answer; another one can do it as well.
                Ok(Err(_)) | Err(_) => {
                    let _ = self.end_server().await;
                    let _ = self.start_server().await;
                }
            }
        }
        let ended = self.end_server().await;
        if self.scratch.is_there {
            self.scratch.remove()?;
        }
        ended
    }
}
