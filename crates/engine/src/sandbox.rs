//! What a kind of sandbox must give; everything else is built on top of it once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::Surroundings;
use remote_sandbox_core::doctor::StepName;
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::ids::{RunToken, SandboxName};
use remote_sandbox_core::local::{Bound, Network};
use remote_sandbox_core::outcome::{LeftRunning, Outcome, StopReason};
use remote_sandbox_core::shell::{RunSpec, Started};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::doctor::StepLog;
use crate::shell::ByteStream;
/// Conversations about files, in the protocol that SSH hosts speak.
pub use crate::ssh::sftp as conversation;
/// A conversation about files.
pub use crate::ssh::sftp::Client as FileConversation;

/// One of the two streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What a run tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// The command itself has started.
    Started(Started),
    /// The next bytes of a stream.
    Output(Stream, &'a [u8]),
}

/// Takes what a run tells; it must not block for long.
pub type Sink = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// A command to be run.
pub struct Order {
    /// What to run.
    pub spec: RunSpec,
    /// The mark its processes carry.
    pub token: RunToken,
    /// When it is ended at the latest.
    pub deadline: Instant,
    /// The same as a length, for the host's own timer.
    pub timeout: Duration,
    /// Says when somebody wants it to end earlier.
    pub stop: watch::Receiver<Option<StopReason>>,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The outcome.
    pub outcome: Outcome,
    /// Processes of the run that outlived it.
    pub left_running: LeftRunning,
    /// What broke the link, when it broke.
    pub detail: Option<String>,
}

impl Ended {
    /// Whether it is certain that nothing of it runs unseen.
    pub fn is_certain(&self) -> bool {
        self.outcome.is_known() && self.left_running != LeftRunning::Unknown
    }
}

/// What `list_sandboxes` shows of a sandbox without asking it.
#[derive(Debug, Clone)]
pub struct Description {
    /// Its name.
    pub name: SandboxName,
    /// Its kind: `ssh` or `local`.
    pub kind: &'static str,
    /// Where it is.
    pub host: String,
    /// On which port, where there is one.
    pub port: Option<u16>,
    /// As whom.
    pub user: String,
    /// What two names of one host have in common, where that is sure: behind another host an address may mean any.
    pub place: Option<String>,
    /// The words it was given to be chosen by.
    pub tags: Vec<String>,
    /// What the user should know about its configuration.
    pub warnings: Vec<String>,
    /// What only sandboxes on this machine have.
    pub local: Option<LocalFacts>,
}

/// What is shown of a sandbox on this machine.
#[derive(Debug, Clone)]
pub struct LocalFacts {
    /// Its wall, once that is known.
    pub isolation: Option<&'static str>,
    /// Whether commands reach the network.
    pub network: Network,
    /// Where commands begin.
    pub workspace: String,
    /// When it was made.
    pub created_at: String,
    /// What commands may use up.
    pub bounds: Vec<Bound>,
    /// What the wall does not keep apart.
    pub open: Vec<&'static str>,
}

/// A place where commands run.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// What is known without asking it.
    fn description(&self) -> &Description;

    /// What every command in it finds.
    fn surroundings(&self) -> &Surroundings;

    /// Really asks it for a sign of life.
    async fn check(&self) -> Result<(), Failure>;

    /// Runs a command to its end. An error means that it did not run.
    async fn run(&self, order: Order, sink: Sink) -> Result<Ended, Failure>;

    /// Runs a short script of ours and returns what it printed. It may be run twice.
    async fn ask(&self, script: String, limit: Duration) -> Result<Vec<u8>, Failure>;

    /// The same for a script after whose last words, which nobody else can say, it need not be waited for.
    async fn ask_until(
        &self,
        script: String,
        last_words: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let _ = last_words;
        self.ask(script, limit).await
    }

    /// Starts a program whose input and output are the caller's, for bytes in both directions.
    async fn open(&self, arguments: &[&str]) -> Result<ByteStream, Failure>;

    /// Whether it is of a kind that has conversations about files; a single one may still refuse.
    fn has_conversations(&self) -> bool {
        false
    }

    /// A conversation about files. `None` where the kind has none: there files go through `open`, with
    /// `tar` and `find` as the programs.
    async fn files(&self) -> Result<Option<FileConversation>, Failure>;

    /// Goes all steps to its shell and writes down how each went.
    async fn examine(&self, log: &StepLog);

    /// The steps that `examine` goes when all is well.
    fn steps(&self) -> &'static [StepName];

    /// Lets go of everything that is open.
    async fn close(&self);
}
