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
use remote_sandbox_core::local::wire::{Reply, Request};
use remote_sandbox_core::local::{Level, LocalName, LocalRecord, Network, bounds, terms_of, walls};
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

/// How often, and how soon, a supervisor that stays is asked to go again: the shell that was just started
/// there takes a moment to end.
const DISMISSALS: u32 = 20;
const DISMISSAL_PAUSE: Duration = Duration::from_millis(25);

/// How often a supervisor is asked to go at the end of the server.
const FAREWELLS: u32 = 4;

/// How long one that runs may take to say so.
const STATUS_LIMIT: Duration = Duration::from_secs(3);

/// How long a sign of life may take, the start of the sandbox included.
const CHECK_LIMIT: Duration = Duration::from_secs(20);

/// How long a shell for a stream may take.
const OPEN_LIMIT: Duration = Duration::from_secs(20);

/// How often a start is tried that fails.
const MOST_STARTS: u32 = 6;

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

    /// A shell; starts the supervisor where none listens, and never uses one with other walls than those
    /// that were asked for.
    async fn shell(&self) -> Result<(LocalIncoming, LocalOutgoing), LocalError> {
        let terms = self.terms().await?;
        let mut tries = 0;
        loop {
            match self.address.shell().await {
                Ok(shell) if shell.terms == terms => return Ok((shell.incoming, shell.outgoing)),
                Ok(shell) => {
                    // Nothing was sent to it, so it ends by itself.
                    drop(shell);
                    self.dismiss().await?;
                }
                Err(LinkError::Refused(words)) => return Err(LocalError::Refused(words)),
                Err(error @ LinkError::Unable(_)) => return Err(LocalError::Link(error)),
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

    /// Asks for a sign of life, starting the supervisor where none gives one.
    async fn stand_up(&self) -> Result<(), LocalError> {
        let terms = self.terms().await?;
        for _ in 0..MOST_TRIES {
            match self.address.ask(Request::Status, STATUS_LIMIT).await {
                Ok(Reply::Status { terms: found, .. }) if found == terms => return Ok(()),
                Ok(_) => self.dismiss().await?,
                Err(LinkError::Absent(_)) => self.start().await?,
                Err(LinkError::Ended) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(LocalError::Late)
    }

    /// What was asked for, in one word.
    async fn terms(&self) -> Result<String, LocalError> {
        let settings = &self.shared.settings;
        let level = self.wall().await?.level;
        Ok(terms_of(
            level,
            self.network,
            &settings.readable,
            &settings.limits,
        ))
    }

    /// Has a supervisor go that was started under other terms, unless something still runs there.
    async fn dismiss(&self) -> Result<(), LocalError> {
        for _ in 0..DISMISSALS {
            match self.address.ask(Request::Leave, LEAVE_LIMIT).await {
                Ok(Reply::Staying) => tokio::time::sleep(DISMISSAL_PAUSE).await,
                _ => return Ok(()),
            }
        }
        Err(LocalError::OtherTerms)
    }

    /// Starts the supervisor unless somebody has done so.
    async fn start(&self) -> Result<(), LocalError> {
        let _one = self.starting.lock().await;
        let wall = self.wall().await?;
        let lock = self.shared.hold(&self.name).await?;
        match self.address.connect().await {
            Err(LinkError::Absent(_)) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
        // Another one of the same name may have been made meanwhile.
        let record = self.shared.store.read(&self.name)?;
        if record.is_none_or(|record| record.created_at != self.created_at()) {
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
                Err(StartError::Failed(_)) if tries < MOST_STARTS => {}
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
        let (folders, readable) = (self.folders.clone(), settings.readable.clone());
        let (private, network) = (self.shared.private(), self.network);
        let looking = tokio::task::spawn_blocking(move || {
            view_of(
                &folders.home,
                &folders.temporary,
                &readable,
                &private,
                network,
            )
        });
        let view = looking
            .await
            .map_err(|error| StartError::Spawn(std::io::Error::other(error)))?;
        let terms = terms_of(wall.level, network, &settings.readable, &settings.limits);
        let start = Start {
            wall,
            view,
            terms,
            limits: settings.limits,
            control_group: self.shared.control_group(&self.name, &self.folders),
            variables: self.shared.variables(&self.folders, wall.level),
        };
        start.run(&self.address).await
    }

    async fn wall(&self) -> Result<&Wall, LocalError> {
        let wall = self.shared.walls.get().await;
        let wall = wall.map_err(StartError::NoLevel)?;
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
            LocalError::OtherTerms => Failure::new(Code::Busy, text).hint(
                "end what runs there with the configuration it was started with, or delete_sandbox; a new call then starts it as it is configured now",
            ),
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
            && let Err(error) = crate::fsio::private_subdirectory(&self.folders.workspace)
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
    /// It runs behind other walls than those that are configured.
    #[error(
        "processes still run in it that were started behind other walls than those configured now"
    )]
    OtherTerms,
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
        let asked = tokio::time::timeout(CHECK_LIMIT, self.stand_up()).await;
        let asked = asked.unwrap_or(Err(LocalError::Late));
        asked.map_err(|error| self.failure(&error))
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
            match collect_answer(&mut incoming, &outgoing, script, None).await {
                Answer::Whole(answer) | Answer::Said(answer) => Ok(answer),
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
            let shell = tokio::time::timeout(OPEN_LIMIT, self.shell()).await;
            let (incoming, outgoing) = shell.unwrap_or(Err(LocalError::Late))?;
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
        if !self.folders.root.exists() {
            return;
        }
        // What a call has just ended there takes a moment to be gone.
        for _ in 0..FAREWELLS {
            match self.address.ask(Request::Leave, LEAVE_LIMIT).await {
                Ok(Reply::Staying) => tokio::time::sleep(DISMISSAL_PAUSE).await,
                _ => return,
            }
        }
    }
}

/// What is known about a sandbox before it is asked.
fn description_of(
    record: &LocalRecord,
    network: Network,
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
        place: None,
        tags: shared.settings.tags.clone(),
        warnings: Vec::new(),
        local: Some(LocalFacts {
            isolation: None,
            network,
            workspace: folders.workspace.display().to_string(),
            created_at: record.created_at.clone(),
            bounds: Vec::new(),
            open: Vec::new(),
        }),
    }
}
