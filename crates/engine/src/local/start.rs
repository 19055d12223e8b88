//! Starts the supervisor of a sandbox behind its walls.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::local::{
    Level, Limits, NoLevel, SupervisorPlan, View, bubblewrap_arguments, seatbelt_profile,
};
use remote_sandbox_core::output::clean_line;
use tokio::io::AsyncReadExt;

use super::level::Wall;
use super::link::Address;
use super::view::{grants_of, reading_of};
use crate::fsio::{self, FileError};
use crate::proc;

/// The hidden command that makes this program a supervisor.
pub const SUPERVISOR_COMMAND: &str = "sandbox-supervisor";

/// How long a supervisor may take until its walls stand.
const READY_LIMIT: Duration = Duration::from_secs(10);

/// How long another server may take to start the same one.
const LOCK_LIMIT: Duration = Duration::from_secs(15);

/// Longest complaint that is repeated.
const LONGEST_COMPLAINT: usize = 300;

/// Why no supervisor runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No wall stands.
    #[error(transparent)]
    NoLevel(#[from] NoLevel),
    /// A folder or file of the sandbox cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The socket cannot be made.
    #[error("the sandbox's socket cannot be made")]
    Socket(#[source] io::Error),
    /// This program does not know where it is.
    #[error("this program cannot find itself")]
    Program(#[source] io::Error),
    /// The program could not be started.
    #[error("the sandbox cannot be started")]
    Spawn(#[source] io::Error),
    /// It started and gave up.
    #[error("the sandbox did not start: {0}")]
    Failed(String),
    /// It started and said nothing.
    #[error("the sandbox was not ready within {0} s")]
    NotReady(u64),
    /// Another server holds the sandbox.
    #[error("another server keeps the sandbox locked")]
    Locked(#[source] io::Error),
    /// It was deleted meanwhile.
    #[error("the sandbox was deleted")]
    Deleted,
}

/// What is needed to start one.
pub(super) struct Start<'a> {
    pub(super) wall: &'a Wall,
    pub(super) view: View,
    pub(super) limits: Limits,
    /// The control group that bounds all of it together.
    pub(super) control_group: Option<OwnedFd>,
    pub(super) variables: Vec<(String, OsString)>,
    /// What was asked for, for a later server.
    pub(super) terms: String,
}

/// The file whose lock keeps two servers from starting or deleting one sandbox at the same time. A folder
/// that was deleted while we waited is not that of the sandbox any more.
pub(super) async fn lock(folder: &Path) -> Result<std::fs::File, StartError> {
    let path = folder.join("lock");
    let file = fsio::read_write_private(&path)?;
    let locked = tokio::task::spawn_blocking(move || {
        fsio::lock_within(&file, LOCK_LIMIT)?;
        Ok::<_, io::Error>(file)
    });
    let locked = locked
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    let file = locked.map_err(StartError::Locked)?;
    if fsio::is_still_at(&file, &path) {
        Ok(file)
    } else {
        Err(StartError::Deleted)
    }
}

impl Start<'_> {
    /// Starts a supervisor and waits until its walls stand. The caller holds the lock.
    pub(super) async fn run(self, address: &Address) -> Result<(), StartError> {
        let program = std::env::current_exe().map_err(StartError::Program)?;
        let listener = listen(address)?;
        let plan = SupervisorPlan {
            level: self.wall.level,
            network: self.view.network,
            home: self.view.home.clone(),
            grants: match self.wall.level {
                Level::Landlock { .. } => grants_of(&self.view),
                Level::Bubblewrap { .. } => reading_of(&self.view),
                _ => Vec::new(),
            },
            // What is bounded together already need not be bounded one by one.
            limits: match self.control_group {
                Some(_) => Limits::default(),
                None => self.limits,
            },
            terms: self.terms.clone(),
        };
        let plan = serde_json::to_string(&plan)
            .map_err(|error| StartError::Spawn(io::Error::other(error)))?;
        let (program, mut arguments) = self.line(program);
        arguments.extend([SUPERVISOR_COMMAND.into(), plan.into()]);
        let started = proc::detached(
            &program,
            &arguments,
            &self.variables,
            listener,
            self.control_group,
        );
        let mut started = started.map_err(StartError::Spawn)?;
        let ready = tokio::time::timeout(READY_LIMIT, is_ready(&mut started));
        match ready.await {
            Ok(true) => {
                started.reap_later();
                Ok(())
            }
            Ok(false) => Err(StartError::Failed(complaint(&mut started).await)),
            Err(_) => {
                started.end().await;
                Err(StartError::NotReady(READY_LIMIT.as_secs()))
            }
        }
    }

    /// The program to start and its first arguments.
    fn line(&self, program: PathBuf) -> (PathBuf, Vec<OsString>) {
        match (&self.wall.level, &self.wall.tool) {
            (Level::Bubblewrap { .. }, Some(tool)) => {
                let arguments = bubblewrap_arguments(&self.view, &program, self.wall.no_nesting);
                (tool.clone(), arguments)
            }
            (Level::Seatbelt, Some(tool)) => {
                let profile = seatbelt_profile(&self.view, &program);
                let arguments = vec!["-p".into(), profile.into(), program.into()];
                (tool.clone(), arguments)
            }
            _ => (program, Vec::new()),
        }
    }
}

/// A socket that takes connections from now on, whoever will attend to them.
fn listen(address: &Address) -> Result<OwnedFd, StartError> {
    if let Some(folder) = address.path().parent() {
        fsio::sealed_directory(folder)?;
    }
    fsio::remove_file(address.path())?;
    let listener = address.with_short(|path| std::os::unix::net::UnixListener::bind(path));
    listener.map(OwnedFd::from).map_err(StartError::Socket)
}

async fn is_ready(started: &mut proc::Detached) -> bool {
    let mut said = Vec::new();
    while !said.ends_with(b"\n") && said.len() < 64 {
        match started.output.read_buf(&mut said).await {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
    said == b"ready\n"
}

/// The last line of what a program complained about.
async fn complaint(started: &mut proc::Detached) -> String {
    let mut words = Vec::new();
    let mut errors = (&mut started.errors).take(64 * 1024);
    let reading = errors.read_to_end(&mut words);
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
    let words = String::from_utf8_lossy(&words);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    clean_line(last.unwrap_or("no reason given"), LONGEST_COMPLAINT)
}
