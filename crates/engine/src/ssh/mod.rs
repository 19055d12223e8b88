//! The sandbox kind `ssh`: a host the user can log in to.

mod agent;
mod auth;
mod backoff;
mod certificate;
mod channel;
mod control;
mod conversation;
mod dial;
mod dial_error;
mod hostkeys;
mod identities;
mod jump;
mod key_file;
mod line;
mod observe;
mod old_pem;
mod pkcs8_key;
mod pool;
mod route;
mod route_files;
mod run;
mod script;
mod secrets;
mod session;
mod stall;
mod warm;
mod way;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::{SandboxConfig, Surroundings};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::probe::{self, Resources};
use remote_sandbox_core::shell::{
    CleanError, Purpose, Target, TokenProcess, clean_script, parse_clean_report,
};

pub use auth::AuthError;
pub use dial_error::DialError;
pub use hostkeys::{HostKeyError, HostKeyStore};
pub use key_file::KeyFileError;
pub use old_pem::OldPemError;
pub use pkcs8_key::Pkcs8Error;
pub use pool::{Dialer, PoolError};
pub use route::{RouteError, RouteFinder};
pub use route_files::known_aliases;
pub use run::NotStarted;
pub use script::ScriptFailure;
pub use secrets::{SecretError, SecretKeeper};
pub use session::ChannelError;

use crate::clock;
use crate::sandbox::{Description, Ended, Order, Sandbox, Sink};
use pool::{Eagerness, Pool};
use route::Route;
use session::Place;

/// A resource probe ends within this time.
const PROBE_LIMIT: Duration = Duration::from_secs(15);

/// Looking at every process of a busy host takes a while.
const CLEAN_LIMIT: Duration = Duration::from_secs(15);

/// A host reached over SSH.
pub struct SshSandbox {
    description: Description,
    /// The same once the SSH configuration has said more.
    found: OnceLock<Description>,
    route: Arc<Route>,
    surroundings: Surroundings,
    pool: Pool,
}

impl SshSandbox {
    /// A sandbox for a configuration entry; nothing is connected yet.
    pub fn new(config: &SandboxConfig, dialer: Arc<Dialer>) -> Self {
        let route = Arc::new(Route::new(config.reach.clone()));
        let (host, port, user) = route.place();
        SshSandbox {
            description: Description {
                name: config.name.clone(),
                kind: "ssh",
                host,
                port,
                user,
                tags: config.tags.clone(),
                warnings: config.notes.clone(),
            },
            found: OnceLock::new(),
            pool: Pool::new(route.clone(), dialer),
            surroundings: config.surroundings.clone(),
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
                if retry { failure.retry() } else { failure }
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
}

/// The code, the next step, and whether time alone may help.
fn judge_dial(error: &DialError) -> (Code, &'static str, bool) {
    match error {
        DialError::Resolve { .. } | DialError::ResolveSlow { .. } => (
            Code::Unreachable,
            "check `host` in the configuration, and the network",
            true,
        ),
        DialError::Tcp { .. } | DialError::TcpSlow { .. } => (
            Code::Unreachable,
            "check that the host is up, that `port` is right, and that VPN or firewall let you through",
            true,
        ),
        DialError::Banner { .. } | DialError::BannerSlow { .. } => (
            Code::Unreachable,
            "something answers there, but not an SSH server in time: check `port`, or wait if the host is overloaded",
            true,
        ),
        DialError::KeyExchange { .. } | DialError::KeyExchangeSlow { .. } => (
            Code::Unreachable,
            "the server may be too old, too busy, or not an SSH server",
            true,
        ),
        DialError::Route(_)
        | DialError::Forward { .. }
        | DialError::Hop { .. }
        | DialError::Program { .. }
        | DialError::Complaint { .. } => judge_way(error),
        DialError::Broken { .. } => (
            Code::Internal,
            "this is a fault of the server; its standard error has more",
            true,
        ),
        DialError::HostKey(error) => {
            let (code, hint) = judge_host_key(error);
            (code, hint, false)
        }
        DialError::Auth(AuthError::Closed { .. }) | DialError::AuthSlow { .. } => (
            Code::Unreachable,
            "the host broke off the login; it may be overloaded",
            true,
        ),
        DialError::Auth(_) => (
            Code::AuthFailed,
            "check `user`, `key_file` and `password` of this entry; the login is not repeated by itself",
            false,
        ),
    }
}

/// The same for what lies between here and the host.
fn judge_way(error: &DialError) -> (Code, &'static str, bool) {
    match error {
        DialError::Route(RouteError::Slow { .. }) => (
            Code::Unreachable,
            "look at `Match exec` and at name lookups in the SSH configuration",
            true,
        ),
        DialError::Route(_) => (
            Code::NotConfigured,
            "correct the SSH configuration; `ssh -G` with this name shows what it says",
            false,
        ),
        DialError::Forward { .. } => (
            Code::Unreachable,
            "the jump host works; check that it may and can connect to the host behind it",
            true,
        ),
        DialError::Hop { source, .. } => {
            let (code, hint, retry) = judge_dial(source);
            match code {
                Code::AuthFailed => (
                    code,
                    "log in to the jump host with `ssh` once; it uses the keys of the SSH configuration",
                    retry,
                ),
                _ => (code, hint, retry),
            }
        }
        _ => (
            Code::Unreachable,
            "try the `ProxyCommand` of the SSH configuration by hand",
            true,
        ),
    }
}

fn judge_host_key(error: &HostKeyError) -> (Code, &'static str) {
    match error {
        HostKeyError::Changed { .. } => (
            Code::HostKeyChanged,
            "if the host was reinstalled, remove the named line and connect again; if not, somebody may be in between",
        ),
        HostKeyError::Revoked { .. } => (
            Code::HostKeyRevoked,
            "this key must not be trusted; give the host a new one",
        ),
        HostKeyError::Unknown { .. } => (
            Code::HostKeyUnknown,
            "compare the fingerprint with the host's own, then record it (ssh-keyscan) or set host_key_policy to accept-new",
        ),
        HostKeyError::Unreadable(_) | HostKeyError::Broken { .. } => (
            Code::HostKeysUnreadable,
            "repair or remove the named file or line; until then this host is not trusted",
        ),
        HostKeyError::Interrupted { .. } => (
            Code::Internal,
            "this is a fault of the server; its standard error has more",
        ),
        HostKeyError::Certificate { .. } => (
            Code::HostKeyUnknown,
            "ask whoever runs the host for a new certificate, or record its key itself after comparing the fingerprint",
        ),
        HostKeyError::Malformed { .. } => (
            Code::Unreachable,
            "the server offers a kind of key that is not supported",
        ),
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
            description.port = settings.port;
            description.user.clone_from(&settings.user);
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
        run::run(&self.pool, order, &sink).await.map_err(|error| match &error {
            NotStarted::Pool(pool) => self.pool_failure(pool),
            NotStarted::Directory { .. } => self
                .failure(Code::NotFound, &error)
                .hint("the command did not run; pass an existing directory as `cwd`, or make it first"),
            NotStarted::Init { .. } => self
                .failure(Code::InitFailed, &error)
                .hint("the command did not run; correct `init` in the configuration of this sandbox, or what it needs on the host"),
            NotStarted::Shell { .. } => self
                .failure(Code::NotFound, &error)
                .hint("the command did not run; correct `shell` in the configuration of this sandbox, or install it there"),
            NotStarted::Refused { .. } | NotStarted::Unused => self
                .failure(Code::RemoteRefused, &error)
                .hint("the command did not run; log in by hand once and see what the host says"),
        })
    }

    async fn processes(&self, target: &Target, purpose: Purpose) -> Result<LeftRunning, Failure> {
        let place = self.place().await?;
        control::find(place.session(), target, purpose)
            .await
            .map_err(|error| self.script_failure(&error))
    }

    async fn carriers(&self) -> Result<Vec<TokenProcess>, Failure> {
        let place = self.place().await?;
        let mark = RunToken::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes());
        let deadline = clock::instant() + CLEAN_LIMIT;
        let report = script::run_script(place.session(), clean_script(&mark), deadline)
            .await
            .map_err(|error| self.script_failure(&error))?;
        parse_clean_report(&mark, &report).map_err(|error| match error {
            CleanError::Hidden => self
                .failure(Code::Unsupported, &error)
                .hint("log in by hand and look at your processes there"),
            CleanError::Incomplete => self
                .failure(Code::RemoteRefused, &error)
                .hint("log in by hand once and see what the host says"),
        })
    }

    async fn probe(&self) -> Result<Resources, Failure> {
        let place = self.place().await?;
        let nonce = uuid::Uuid::now_v7().simple().to_string();
        let nonce =
            probe::Nonce::parse(&nonce).map_err(|error| self.failure(Code::Internal, &error))?;
        let script = probe::probe_script(&nonce);
        let deadline = clock::instant() + PROBE_LIMIT;
        let report = script::run_script(place.session(), script, deadline)
            .await
            .map_err(|error| self.script_failure(&error))?;
        probe::parse_report(&nonce, &report).map_err(|error| {
            self.failure(Code::RemoteRefused, &error)
                .hint("the host's shell did not run the probe; try exec_bash there")
        })
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
