//! The sandbox kind `ssh`: a host the user can log in to.

mod agent;
mod allowance;
mod auth;
mod backoff;
mod certificate;
mod channel;
mod control;
mod dial;
mod dial_error;
mod examine;
mod hostkeys;
mod identities;
mod judge;
mod jump;
mod key_file;
mod line;
mod link;
mod mux;
mod observe;
mod offered;
mod old_pem;
mod openssh;
mod pkcs8_key;
mod pool;
mod route;
mod route_error;
mod route_files;
mod run;
mod script;
mod session;
pub mod sftp;
mod sftp_channel;
mod stall;
mod warm;
mod watch;
mod way;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::{SandboxConfig, Surroundings, Transport};
use remote_sandbox_core::doctor::StepName;
use remote_sandbox_core::failure::{Code, Failure};

pub use auth::AuthError;
pub use dial_error::DialError;
pub use hostkeys::{Accepted, HostKeyError, HostKeyStore};
pub use key_file::KeyFileError;
pub use mux::MuxFailure;
pub use old_pem::OldPemError;
pub use openssh::{OpenSshError, Trouble};
pub use pkcs8_key::Pkcs8Error;
pub use pool::{Dialer, PoolError};
pub use route::RouteFinder;
pub use route_error::RouteError;
pub use route_files::known_aliases;
pub use run::RunError;
pub use script::ScriptFailure;
pub use session::ChannelError;
pub use sftp_channel::OpenSftpError;
#[cfg(test)]
pub(crate) use sftp_channel::tests::sandbox as sandbox_on;

use crate::clock;
use crate::doctor::StepLog;
use crate::sandbox::{Description, Ended, Order, Sandbox, Sink};
use crate::shell::{ByteStream, LastWords, open_stream};
use judge::judge_dial;
use pool::{Eagerness, Pool};
use route::Route;
use session::Place;

/// How often a script finds the host's sessions taken before the caller is told.
const MOST_FULL: u32 = 3;

/// A host reached over SSH.
pub struct SshSandbox {
    description: Description,
    /// The same once the SSH configuration has said more.
    found: OnceLock<Description>,
    route: Arc<Route>,
    surroundings: Surroundings,
    transport: Transport,
    pool: Pool,
}

impl SshSandbox {
    /// A sandbox for a configuration entry; nothing is connected yet.
    pub fn new(config: &SandboxConfig, dialer: Arc<Dialer>) -> Self {
        let route = Arc::new(Route::new(config.reach.clone(), config.transport));
        let (host, port, user) = route.place();
        SshSandbox {
            description: Description {
                name: config.name.clone(),
                kind: "ssh",
                host,
                port: Some(port),
                user,
                place: route.direct_place(),
                tags: config.tags.clone(),
                warnings: config.notes.clone(),
                local: None,
            },
            found: OnceLock::new(),
            pool: Pool::new(route.clone(), dialer),
            surroundings: config.surroundings.clone(),
            transport: config.transport,
            route,
        }
    }

    fn connect_limit(&self) -> Duration {
        self.route.connect_limit()
    }

    /// A place on a connection for a script of ours.
    async fn place(&self) -> Result<Place, Failure> {
        let deadline = clock::instant() + self.connect_limit();
        let place = self.pool.place(deadline, Eagerness::AskAgain).await;
        place.map_err(|error| self.pool_failure(&error))
    }

    /// A program in a shell that waits, which saves starting one; none when there is none, or it was gone.
    async fn open_in_waiting(&self, arguments: &[&str]) -> Result<Option<ByteStream>, Failure> {
        let place = self.place().await?;
        let session = place.session().clone();
        let Some(shell) = session.warm().take().await else {
            return Ok(None);
        };
        let (incoming, outgoing, open) = (shell.incoming, shell.outgoing, shell.open);
        let stream = open_stream(incoming, outgoing, (place, open), arguments).await;
        warm::refill(&session, warm::Use::Script);
        Ok(stream.ok())
    }

    /// Puts the sandbox's name in front of what went wrong.
    fn failure(&self, code: Code, error: &(dyn std::error::Error + 'static)) -> Failure {
        Failure::new(
            code,
            format!(
                "sandbox `{}`: {}",
                self.description.name,
                Failure::chain(error)
            ),
        )
    }

    fn pool_failure(&self, error: &PoolError) -> Failure {
        match error {
            PoolError::Dial(dial) | PoolError::Paused { error: dial, .. } => {
                let (code, hint, retry) = judge_dial(dial);
                let failure = self.failure(code, error).hint(hint);
                match retry {
                    true => failure.retry(),
                    false if dial.is_hang_up() => failure.doubtful(),
                    false => failure,
                }
            }
            PoolError::Channel(_) => self
                .failure(Code::RemoteRefused, error)
                .hint("the login works, but the host opens no session: look at MaxSessions and the account's limits there"),
            PoolError::Late(_) => self
                .failure(Code::TimedOut, error)
                .hint("the command did not run; raise timeout_s, or stop runs that hold this host's sessions")
                .retry(),
            PoolError::Cancelled => self.failure(Code::Cancelled, error),
        }
    }

    fn script_failure(&self, error: &ScriptFailure) -> Failure {
        match error {
            ScriptFailure::Channel(ChannelError::Full) => self
                .failure(Code::Busy, error)
                .hint("try again when a run on this host has ended")
                .retry(),
            ScriptFailure::Channel(ChannelError::Gone(_)) | ScriptFailure::Lost(_) => self
                .failure(Code::LinkLost, error)
                .hint("call again; it connects anew")
                .retry(),
            ScriptFailure::Late => self
                .failure(Code::TimedOut, error)
                .hint("the host is very busy or hangs")
                .retry(),
            _ => self
                .failure(Code::RemoteRefused, error)
                .hint("log in by hand once and see what the host says"),
        }
    }

    async fn ask_script(
        &self,
        script: String,
        last: Option<LastWords>,
        limit: Duration,
    ) -> Result<Vec<u8>, Failure> {
        // A host that turns out to allow fewer sessions is asked again when one of them is free, or over
        // another connection.
        let mut full = 0;
        loop {
            let place = self.place().await?;
            let session = place.session();
            let deadline = clock::instant() + limit;
            match script::run_script(session, script.clone(), last.clone(), deadline).await {
                Err(ScriptFailure::Channel(ChannelError::Full)) if full < MOST_FULL => {
                    full += 1;
                    // Shells that wait may be what fills it.
                    session.warm().discard();
                }
                answer => return answer.map_err(|error| self.script_failure(&error)),
            }
        }
    }
}

#[async_trait]
impl Sandbox for SshSandbox {
    fn description(&self) -> &Description {
        let Some((settings, notes)) = self.route.found() else {
            return &self.description;
        };
        self.found.get_or_init(|| {
            let mut description = self.description.clone();
            description.host.clone_from(&settings.host);
            description.port = Some(settings.port);
            description.user.clone_from(&settings.user);
            description.place = self.route.direct_place();
            description.warnings.extend(notes.iter().cloned());
            description
        })
    }

    fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    async fn check(&self) -> Result<(), Failure> {
        let deadline = clock::instant() + self.connect_limit();
        self.pool
            .check(deadline)
            .await
            .map_err(|error| self.pool_failure(&error))
    }

    async fn run(&self, order: Order, sink: Sink) -> Result<Ended, Failure> {
        let ended = run::run(&self.pool, order, &sink).await;
        ended.map_err(|error| match &error {
            RunError::Pool(pool) => self.pool_failure(pool),
            RunError::NotStarted(error) => {
                let look = "log in by hand once and see what the host says";
                error.failure(&self.description.name, look)
            }
        })
    }

    async fn ask(&self, script: String, limit: Duration) -> Result<Vec<u8>, Failure> {
        self.ask_script(script, None, limit).await
    }

    async fn ask_until(
        &self,
        script: String,
        last_words: &str,
        limit: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let last = Some(LastWords::new(last_words));
        self.ask_script(script, last, limit).await
    }

    async fn open(&self, arguments: &[&str]) -> Result<ByteStream, Failure> {
        if let Some(stream) = self.open_in_waiting(arguments).await? {
            return Ok(stream);
        }
        let (mut full, mut has_lost_one) = (0, false);
        let (place, shell) = loop {
            let place = self.place().await?;
            match script::start_shell(place.session()).await {
                // The connection broke and nobody had noticed yet; nothing was begun on it.
                Err(ChannelError::Gone(_)) if !has_lost_one => {
                    has_lost_one = true;
                    place.session().retire();
                }
                Err(ChannelError::Full) if full < MOST_FULL => {
                    full += 1;
                    place.session().warm().discard();
                }
                shell => break (place, shell),
            }
        };
        let shell = shell.map_err(|error| self.script_failure(&ScriptFailure::Channel(error)))?;
        let (incoming, outgoing, open) = (shell.incoming, shell.outgoing, shell.open);
        let stream = open_stream(incoming, outgoing, (place, open), arguments).await;
        stream.map_err(|error| {
            self.failure(Code::RemoteRefused, &error)
                .hint("log in by hand once and see what the host says")
        })
    }

    fn has_conversations(&self) -> bool {
        true
    }

    async fn files(&self) -> Result<Option<sftp::Client>, Failure> {
        self.open_sftp().await.map(Some)
    }

    fn steps(&self) -> &'static [StepName] {
        &StepName::OF_A_HOST
    }

    async fn examine(&self, log: &StepLog) {
        examine::examine(self, log).await;
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
