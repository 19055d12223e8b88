//! The sandbox kind `local`: a walled-off home and process tree on this machine.

mod carrier;
mod cgroup;
#[cfg(target_os = "linux")]
mod confine;
mod descriptors;
mod examine;
mod family;
mod fleet;
mod leftover;
mod level;
mod link;
mod start;
mod store;
mod supervisor;
mod view;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::Surroundings;
use remote_sandbox_core::doctor::StepName;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::local::wire::Request;
use remote_sandbox_core::local::{Level, LocalName, LocalRecord, Network, bounds, walls};
use remote_sandbox_core::shell::{HostFacts, ShellAge, TimeoutProgram, run_script};

#[cfg(target_os = "linux")]
pub use confine::{ConfineError, landlock_version};
pub use fleet::Locals;
pub use start::{SUPERVISOR_COMMAND, StartError};
pub use store::StoreError;
pub use supervisor::{SuperviseError, supervise};

use crate::clock;
use crate::doctor::StepLog;
use crate::sandbox::{Description, Ended, FileConversation, LocalFacts, Order, Sandbox, Sink};
use crate::shell::{
    Answer, ByteStream, Conversation, LAST_RESORT_GRACE_S, NotStarted, StreamError, collect_answer,
    open_stream, stopped,
};
use carrier::Within;
use fleet::Shared;
use level::Wall;
use link::{Address, LinkError, LocalIncoming, LocalOutgoing};
use start::Start;
use store::Folders;
use view::view_of;

/// How long an idle supervisor may take to go.
const LEAVE_LIMIT: Duration = Duration::from_millis(250);

/// How long what an earlier supervisor left may take to end.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(2);

/// How often in a row a supervisor may go away before it has started a shell.
const MOST_TRIES: u32 = 3;

/// A sandbox on this machine.
pub struct LocalSandbox {
    name: LocalName,
    network: Network,
    description: Description,
    /// The same once it is known which walls stand.
    found: OnceLock<Description>,
    surroundings: Surroundings,
    folders: Folders,
    address: Address,
    shared: Arc<Shared>,
    timeout_program: Mutex<TimeoutProgram>,
    /// Held by whoever starts the supervisor.
    starting: tokio::sync::Mutex<()>,
}

impl LocalSandbox {
    /// When it was made, which tells it from an earlier one of the same name.
    fn created_at(&self) -> &str {
        let local = self.description.local.as_ref();
        local.map_or("", |facts| facts.created_at.as_str())
    }

    fn learn_timeout_program(&self, program: TimeoutProgram) {
        *self.known_program() = program;
    }

    fn known_program(&self) -> std::sync::MutexGuard<'_, TimeoutProgram> {
        let program = self.timeout_program.lock();
        program.unwrap_or_else(PoisonError::into_inner)
    }

    /// A shell; starts the supervisor where none listens.
    async fn shell(&self) -> Result<(LocalIncoming, LocalOutgoing), LocalError> {
        let mut tries = 0;
        loop {
            match self.address.shell().await {
                Ok(shell) => return Ok(shell),
                Err(LinkError::Refused(words)) => return Err(LocalError::Refused(words)),
                // Nothing was started, so another one may be asked.
                Err(error) => {
                    tries += 1;
                    if tries > MOST_TRIES {
                        return Err(LocalError::Link(error));
                    }
                    self.start().await?;
                }
            }
        }
    }

    /// Starts the supervisor unless somebody has done so.
    async fn start(&self) -> Result<(), LocalError> {
        let _one = self.starting.lock().await;
        if self.address.connect().await.is_ok() {
            return Ok(());
        }
        let wall = self.wall().await?;
        let lock = self.shared.hold(&self.name).await?;
        if self.address.connect().await.is_ok() {
            return Ok(());
        }
        if self.shared.store.read(&self.name)?.is_none() {
            return Err(StartError::Deleted.into());
        }
        self.shared.store.make_folders(&self.folders)?;
        // What a supervisor that was killed has left is out of reach of the next one.
        leftover::end_all(&self.folders.home, LEFTOVER_LIMIT).await;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.start_once(wall).await {
                // A file that was to be hidden may have gone meanwhile, as those do that lock accounts.
                Err(StartError::Failed(_)) if tries < MOST_TRIES => {}
                started => {
                    started?;
                    break;
                }
            }
        }
        drop(lock);
        Ok(())
    }

    async fn start_once(&self, wall: &Wall) -> Result<(), StartError> {
        let settings = &self.shared.settings;
        let start = Start {
            wall,
            view: view_of(
                &self.folders.home,
                &self.folders.temporary,
                &settings.readable,
                self.network,
            ),
            limits: settings.limits,
            control_group: self.shared.control_group(&self.name, &self.folders),
            variables: self.shared.variables(&self.folders, wall.level),
        };
        start.run(&self.address).await
    }

    async fn wall(&self) -> Result<&Wall, LocalError> {
        let wall = self.shared.walls.get().await;
        let wall = wall.map_err(|error| StartError::NoLevel(error.clone()))?;
        self.found.get_or_init(|| {
            let mut description = self.description.clone();
            if let Some(facts) = &mut description.local {
                let limits = &self.shared.settings.limits;
                let own_users = matches!(wall.level, Level::Bubblewrap { .. })
                    && !rustix::process::geteuid().is_root();
                facts.isolation = Some(wall.level.word());
                facts.bounds = bounds(limits, self.shared.groups.is_some(), own_users);
                facts.open = walls(wall.level)
                    .into_iter()
                    .filter(|wall| !wall.holds)
                    .map(|wall| wall.name.words())
                    .collect();
            }
            if wall.level == Level::None {
                let warning = "no wall: commands run here as you, because the configuration says isolation = \"none\"";
                description.warnings.push(warning.to_owned());
            }
            description
        });
        Ok(wall)
    }

    fn failure(&self, error: &LocalError) -> Failure {
        let text = format!("sandbox `{}`: {}", self.name, Failure::chain(error));
        match error {
            LocalError::Start(StartError::NoLevel(_)) => Failure::new(Code::Unsupported, text).hint(
                "install bubblewrap (package `bubblewrap`), or write isolation = \"none\" under [local] in the configuration if commands may run here as you",
            ),
            LocalError::Start(StartError::Deleted) => {
                Failure::new(Code::NotFound, text).hint("create_sandbox makes a new one")
            }
            LocalError::Start(StartError::Locked(_)) => Failure::new(Code::Busy, text)
                .hint("another server is starting or deleting it; try again")
                .retry(),
            LocalError::Start(StartError::File(_)) | LocalError::Store(_) => {
                Failure::new(Code::StoreUnavailable, text)
                    .hint("free space, or correct the access rights of the state folder")
            }
            LocalError::Late => Failure::new(Code::TimedOut, text)
                .hint("this machine is very busy, or the sandbox hangs: delete_sandbox ends it")
                .retry(),
            LocalError::Cancelled => Failure::new(Code::Cancelled, text),
            LocalError::Start(_)
            | LocalError::Link(_)
            | LocalError::Refused(_)
            | LocalError::Stream(_) => {
                Failure::new(Code::RemoteRefused, text)
                    .hint("`remote-sandbox-mcp doctor` shows which walls stand on this machine")
            }
        }
    }

    /// Commands begin in a folder that one of them may have removed.
    fn keep_workspace(&self) {
        if !self.folders.workspace.exists()
            && let Err(error) = crate::fsio::private_directory(&self.folders.workspace)
        {
            tracing::debug!(%error, "the workspace cannot be made");
        }
    }

    async fn run_in_shell(
        &self,
        order: &mut Order,
        sink: &Sink,
    ) -> Result<Result<Ended, NotStarted>, LocalError> {
        let (deadline, mut stop) = (order.deadline, order.stop.clone());
        let (incoming, outgoing) = tokio::select! {
            shell = tokio::time::timeout_at(deadline, self.shell()) => {
                shell.map_err(|_| LocalError::Late)??
            }
            _ = stopped(&mut stop) => return Err(LocalError::Cancelled),
        };
        let seconds = order.timeout.as_secs_f64().ceil() as u64 + LAST_RESORT_GRACE_S;
        let facts = HostFacts {
            program: *self.known_program(),
            age: ShellAge::New,
            tells_signals: true,
        };
        let script = run_script(&order.spec, &order.token, seconds, facts);
        let within = Within {
            sandbox: self,
            lost: incoming.lost(),
        };
        let conversation = Conversation::new(&order.token, &within, sink, incoming, ShellAge::New);
        let (_, ended) = conversation.hold(order, &outgoing, script).await;
        Ok(ended)
    }
}

/// Why a local sandbox did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
enum LocalError {
    /// It does not run.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its files cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It does not answer.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It starts no shell.
    #[error("it starts no shell: {0}")]
    Refused(String),
    /// It did not become a program.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// It took too long.
    #[error("it did not answer in time")]
    Late,
    /// Somebody asked for the end first.
    #[error("cancelled before the command started")]
    Cancelled,
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn description(&self) -> &Description {
        self.found.get().unwrap_or(&self.description)
    }

    fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    async fn check(&self) -> Result<(), Failure> {
        let looked = async {
            self.wall().await?;
            if self.address.answers().await {
                return Ok(());
            }
            self.start().await?;
            if self.address.answers().await {
                Ok(())
            } else {
                Err(LocalError::Late)
            }
        };
        looked.await.map_err(|error| self.failure(&error))
    }

    async fn run(&self, mut order: Order, sink: Sink) -> Result<Ended, Failure> {
        self.keep_workspace();
        let mut tries = 0;
        loop {
            let ended = self.run_in_shell(&mut order, &sink).await;
            match ended.map_err(|error| self.failure(&error))? {
                // The shell was there and gone without a word: nothing of the command was heard.
                Err(NotStarted::Unused) if tries < MOST_TRIES => tries += 1,
                Err(error) => {
                    let look =
                        "`remote-sandbox-mcp doctor` shows which walls stand on this machine";
                    let error = match error {
                        NotStarted::Unused => NotStarted::unheard(),
                        error => error,
                    };
                    return Err(error.failure(&self.description.name, look));
                }
                Ok(ended) => return Ok(ended),
            }
        }
    }

    async fn ask(&self, script: String, limit: Duration) -> Result<Vec<u8>, Failure> {
        let work = async {
            let (mut incoming, outgoing) = self.shell().await?;
            match collect_answer(&mut incoming, &outgoing, script).await {
                Answer::Whole(answer) => Ok(answer),
                Answer::Broken => Err(LocalError::Link(LinkError::Ended)),
                Answer::Refused => Err(LocalError::Refused("no reason given".to_owned())),
            }
        };
        let answer = tokio::time::timeout_at(clock::instant() + limit, work).await;
        let answer = answer.unwrap_or(Err(LocalError::Late));
        answer.map_err(|error| self.failure(&error))
    }

    async fn open(&self, arguments: &[&str]) -> Result<ByteStream, Failure> {
        let work = async {
            let (incoming, outgoing) = self.shell().await?;
            Ok(open_stream(incoming, outgoing, (), arguments).await?)
        };
        let opened: Result<_, LocalError> = work.await;
        opened.map_err(|error| self.failure(&error))
    }

    async fn files(&self) -> Result<Option<FileConversation>, Failure> {
        Ok(None)
    }

    fn steps(&self) -> &'static [StepName] {
        &StepName::OF_THIS_MACHINE
    }

    async fn examine(&self, log: &StepLog) {
        examine::examine(self, log).await;
    }

    async fn close(&self) {
        // Nobody is there in most cases; whoever is there stays when something runs.
        if self.folders.root.exists() {
            let _ = self.address.ask(Request::Leave, LEAVE_LIMIT).await;
        }
    }
}

/// What is known about a sandbox before it is asked.
fn description_of(
    record: &LocalRecord,
    name: remote_sandbox_core::ids::SandboxName,
    shared: &Shared,
    folders: &Folders,
) -> Description {
    Description {
        name,
        kind: "local",
        host: "localhost".to_owned(),
        port: None,
        user: shared.user.clone(),
        tags: shared.settings.tags.clone(),
        warnings: Vec::new(),
        local: Some(LocalFacts {
            isolation: None,
            network: record.network,
            workspace: folders.workspace.display().to_string(),
            created_at: record.created_at.clone(),
            bounds: Vec::new(),
            open: Vec::new(),
        }),
    }
}
