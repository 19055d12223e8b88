//! An SSH server that completes the handshake and then does what a test wants to survive.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use russh::keys::PrivateKey;
use russh::server::Config;
use russh::{MethodKind, MethodSet, Sig};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::evil_session::EvilSession;
use crate::keys::ClientKey;

const RECORD_LIMIT: usize = 10_000;

/// Something a client sent in order to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The empty first attempt that only asks for the methods.
    Nothing {
        /// The login name.
        user: String,
    },
    /// A password.
    Password {
        /// The login name.
        user: String,
        /// The password in clear.
        password: String,
    },
    /// A public key, without proof that the client has the private one.
    Key {
        /// The login name.
        user: String,
        /// The key as `algorithm base64`.
        public_key: String,
    },
    /// A signature made with a private key.
    Signature {
        /// The login name.
        user: String,
        /// The key as `algorithm base64`.
        public_key: String,
    },
    /// The start of a keyboard-interactive login.
    Interactive {
        /// The login name.
        user: String,
    },
    /// The answers to one round of prompts.
    Answers {
        /// The login name.
        user: String,
        /// One answer per prompt.
        answers: Vec<String>,
    },
}

impl Offer {
    /// Whether a client that distrusts the host must never have sent this.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        matches!(
            self,
            Self::Password { .. } | Self::Signature { .. } | Self::Answers { .. }
        )
    }
}

/// What the server does when a command is to be run.
#[derive(Clone, Debug)]
pub enum ExecScript {
    /// Behaves: output, exit status, end of stream, close.
    Reply {
        /// The bytes for stdout.
        stdout: Vec<u8>,
        /// The bytes for stderr.
        stderr: Vec<u8>,
        /// The exit status.
        status: u32,
    },
    /// Never answers the request at all.
    NeverAnswer,
    /// Accepts the request, sends this output, and is silent for ever.
    Hang(Vec<u8>),
    /// Sends this output and closes without an exit status.
    CloseWithoutStatus(Vec<u8>),
    /// Sends an exit status and never closes.
    StatusWithoutClose(u32),
    /// Reports that a signal ended the command, and closes.
    Signal(Sig),
    /// Sends output as fast as the client's window lets it, for ever.
    Flood,
    /// Refuses the request.
    Refuse,
    /// Sends an end of stream, then this output all the same, then a status and the close.
    DataAfterEof(Vec<u8>),
    /// Sends this output and then a disconnect message.
    Disconnect(Vec<u8>),
}

/// What the server does when a channel is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelPolicy {
    /// Opens every channel.
    Open,
    /// Refuses every channel after the first so many of a connection.
    RefuseAfter(usize),
    /// Never answers.
    NeverAnswer,
}

type Chooser = dyn Fn(&str) -> ExecScript + Send + Sync;

/// The description of a hostile SSH server, see [`EvilSsh::builder`].
pub struct EvilSshBuilder {
    port: u16,
    host_key: Option<PathBuf>,
    methods: Vec<MethodKind>,
    max_auth_attempts: usize,
    plan: Plan,
}

/// What every session of a server needs to know.
pub(crate) struct Plan {
    pub(crate) rejections: u64,
    pub(crate) prompts: Vec<Vec<(String, bool)>>,
    pub(crate) banner: Option<String>,
    pub(crate) channels: ChannelPolicy,
    pub(crate) choose: Arc<Chooser>,
}

impl EvilSshBuilder {
    /// Listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Uses this private key file as host key instead of a fresh one.
    #[must_use]
    pub fn host_key(mut self, path: &Path) -> Self {
        self.host_key = Some(path.to_owned());
        self
    }

    /// Offers only these login methods.
    #[must_use]
    pub fn methods(mut self, methods: &[MethodKind]) -> Self {
        self.methods = methods.to_vec();
        self
    }

    /// Rejects every login.
    #[must_use]
    pub fn reject_all(self) -> Self {
        self.reject_first(u64::MAX)
    }

    /// Rejects the first so many login attempts of all connections together.
    #[must_use]
    pub fn reject_first(mut self, attempts: u64) -> Self {
        self.plan.rejections = attempts;
        self
    }

    /// Disconnects a client after so many failed attempts; a thousand by default.
    #[must_use]
    pub fn max_auth_attempts(mut self, attempts: usize) -> Self {
        self.max_auth_attempts = attempts;
        self
    }

    /// Adds a round of keyboard-interactive prompts, each with whether the answer may be shown.
    #[must_use]
    pub fn prompts(mut self, round: &[(&str, bool)]) -> Self {
        let round = round
            .iter()
            .map(|(text, echo)| ((*text).to_owned(), *echo))
            .collect();
        self.plan.prompts.push(round);
        self
    }

    /// Shows this text before the login.
    #[must_use]
    pub fn banner(mut self, text: &str) -> Self {
        self.plan.banner = Some(text.to_owned());
        self
    }

    /// Decides about channels.
    #[must_use]
    pub fn channels(mut self, policy: ChannelPolicy) -> Self {
        self.plan.channels = policy;
        self
    }

    /// Does this for every command.
    #[must_use]
    pub fn exec(self, script: ExecScript) -> Self {
        self.exec_with(move |_| script.clone())
    }

    /// Decides for every command what to do.
    #[must_use]
    pub fn exec_with(
        mut self,
        choose: impl Fn(&str) -> ExecScript + Send + Sync + 'static,
    ) -> Self {
        self.plan.choose = Arc::new(choose);
        self
    }

    /// Starts the server.
    pub async fn start(self) -> EvilSsh {
        let dir = TempDir::with_prefix("testkit-evil-").expect("a temporary directory");
        let key_path = self.host_key.unwrap_or_else(|| {
            ClientKey::ed25519(dir.path(), "host_key")
                .private_path()
                .to_owned()
        });
        let key = russh::keys::load_secret_key(&key_path, None)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", key_path.display()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .await
            .unwrap_or_else(|error| panic!("cannot listen on port {}: {error}", self.port));
        let port = listener.local_addr().expect("a bound socket").port();
        let public_key = public_line(&key);
        let config = Arc::new(config(key, &self.methods, self.max_auth_attempts));
        let shared = Arc::new(Shared {
            plan: self.plan,
            record: Mutex::new(Record::default()),
            connections: AtomicU64::new(0),
        });
        let task = tokio::spawn(accept_loop(listener, config, Arc::clone(&shared)));
        EvilSsh {
            port,
            public_key,
            shared,
            task,
            _dir: dir,
        }
    }
}

/// A hostile SSH server on a loopback port that remembers everything it is told.
pub struct EvilSsh {
    port: u16,
    public_key: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    _dir: TempDir,
}

pub(crate) struct Shared {
    pub(crate) plan: Plan,
    record: Mutex<Record>,
    connections: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Record {
    pub(crate) offers: Vec<Offer>,
    pub(crate) attempts: u64,
    pub(crate) commands: Vec<String>,
    pub(crate) subsystems: Vec<String>,
    pub(crate) received_bytes: u64,
    pub(crate) channels: u64,
}

impl EvilSsh {
    /// Describes a server that accepts every login and answers every command with status 0 and no output.
    #[must_use]
    pub fn builder() -> EvilSshBuilder {
        EvilSshBuilder {
            port: 0,
            host_key: None,
            methods: vec![
                MethodKind::PublicKey,
                MethodKind::Password,
                MethodKind::KeyboardInteractive,
            ],
            max_auth_attempts: 1000,
            plan: Plan {
                rejections: 0,
                prompts: Vec::new(),
                banner: None,
                channels: ChannelPolicy::Open,
                choose: Arc::new(|_| ExecScript::Reply {
                    stdout: Vec::new(),
                    stderr: Vec::new(),
                    status: 0,
                }),
            },
        }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host key as `algorithm base64`.
    #[must_use]
    pub fn host_public_key(&self) -> &str {
        &self.public_key
    }

    /// The `known_hosts` text that makes a client trust this server.
    #[must_use]
    pub fn known_hosts(&self) -> String {
        format!("[127.0.0.1]:{} {}\n", self.port, self.public_key)
    }

    /// How many TCP connections were taken.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Everything clients sent in order to log in, in order.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        self.shared.record().offers.clone()
    }

    /// The offers that a client must not make to a host it does not trust.
    #[must_use]
    pub fn secrets(&self) -> Vec<Offer> {
        let mut offers = self.offers();
        offers.retain(Offer::is_secret);
        offers
    }

    /// How many logins were attempted, the empty first attempt and mere key questions excepted.
    #[must_use]
    pub fn auth_attempts(&self) -> u64 {
        self.shared.record().attempts
    }

    /// The commands that were to be run.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.shared.record().commands.clone()
    }

    /// The subsystems that were asked for; all are refused.
    #[must_use]
    pub fn subsystems(&self) -> Vec<String> {
        self.shared.record().subsystems.clone()
    }

    /// How many channels were asked for.
    #[must_use]
    pub fn channels(&self) -> u64 {
        self.shared.record().channels
    }

    /// How many bytes of input came over channels.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.shared.record().received_bytes
    }
}

impl Drop for EvilSsh {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no session panicked")
    }

    pub(crate) fn note_offer(&self, offer: Offer) {
        let mut record = self.record();
        if record.offers.len() < RECORD_LIMIT {
            record.offers.push(offer);
        }
    }

    /// Counts an attempt and says whether it is to be accepted.
    pub(crate) fn judge_attempt(&self) -> bool {
        let mut record = self.record();
        record.attempts += 1;
        record.attempts > self.plan.rejections
    }

    pub(crate) fn note_command(&self, command: &str) -> ExecScript {
        let mut record = self.record();
        if record.commands.len() < RECORD_LIMIT {
            record.commands.push(command.to_owned());
        }
        drop(record);
        (self.plan.choose)(command)
    }
}

fn config(key: PrivateKey, methods: &[MethodKind], max_auth_attempts: usize) -> Config {
    let mut set = MethodSet::empty();
    for method in methods {
        set.push(*method);
    }
    Config {
        keys: vec![key],
        methods: set,
        max_auth_attempts,
        auth_rejection_time: Duration::from_millis(10),
        auth_rejection_time_initial: Some(Duration::ZERO),
        inactivity_timeout: None,
        nodelay: true,
        ..Config::default()
    }
}

fn public_line(key: &PrivateKey) -> String {
    let line = key.public_key().to_openssh().expect("a key has a text");
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

async fn accept_loop(listener: TcpListener, config: Arc<Config>, shared: Arc<Shared>) {
    // Dropped with this task, which ends every session.
    let mut sessions = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let _ = stream.set_nodelay(true);
        while sessions.try_join_next().is_some() {}
        let handler = EvilSession::new(Arc::clone(&shared));
        let config = Arc::clone(&config);
        sessions.spawn(async move {
            if let Ok(session) = russh::server::run_stream(config, stream, handler).await {
                let _ = session.await;
            }
        });
    }
}
