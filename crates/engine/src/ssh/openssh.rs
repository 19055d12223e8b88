//! A connection that the system's `ssh` holds: the user's own where there is one, else one of ours.
//!
//! Whoever logs in with more than a key (a one-time code, a token, a question) does so once, in a
//! terminal; everything here then goes over that connection, and no further login is made.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use remote_sandbox_core::config::{
    AliasSettings, HostKeyPolicy, HostKeySettings, Reach, SshAlias, SshAliasError, SshSettings,
};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::shell::quote;
use remote_sandbox_core::ssh_config::Asked;
use tokio::io::AsyncReadExt;

use super::mux::{self, MuxFailure};
use super::pool::Dialer;
use super::route_error::RouteError;
use crate::fsio::{self, FileError};
use crate::proc::{CommandError, Piped};

/// Between two looks whether the login is done.
const PAUSE: Duration = Duration::from_millis(20);

/// `ssh` puts a suffix of its own behind the name while it makes the socket, and the system allows
/// 104 bytes at least.
const LONGEST_SOCKET: usize = 84;

/// Words of `ssh` that are shown.
const LONGEST_WORDS: usize = 300;

/// Why there is no connection of the system's `ssh`.
#[derive(Debug, thiserror::Error)]
pub enum OpenSshError {
    /// The SSH configuration does not say where it is.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The host cannot be named to `ssh`.
    #[error("`{host}` cannot be named to `ssh`")]
    Name {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: SshAliasError,
    },
    /// A connection must be there already, and is not.
    #[error(
        "there is no shared connection to {host}, and the entry allows no login of its own; `ssh {host}` in a terminal opens one"
    )]
    NoMaster {
        /// The host.
        host: String,
        /// What was found instead.
        #[source]
        source: Option<MuxFailure>,
    },
    /// There is no place for the control socket.
    #[error("the folder for control sockets cannot be made")]
    Folder(#[from] FileError),
    /// The path of the control socket is too long for the system.
    #[error("the control socket `{}` would have a name that is too long", .0.display())]
    TooLong(PathBuf),
    /// The program cannot be started.
    #[error("`ssh` cannot be started")]
    Start(#[from] CommandError),
    /// `ssh` gave up.
    #[error("`ssh` could not log in to {host}: {words}")]
    Login {
        /// The host.
        host: String,
        /// What kind of trouble it was.
        trouble: Trouble,
        /// What it said.
        words: String,
    },
    /// The login does not come to an end.
    #[error("`ssh` did not log in to {host} within {} s", limit.as_secs())]
    Slow {
        /// The host.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// A second connection would be a login that nobody asked for.
    #[error("no second connection to {host} is opened")]
    OneOnly {
        /// The host.
        host: String,
    },
}

/// What kept `ssh` from logging in, as far as its words tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The host has another key than the recorded one.
    KeyChanged,
    /// The host's key is marked as one that must not be trusted.
    KeyRevoked,
    /// The host's key is not known, or not trusted.
    KeyUnknown,
    /// The host does not take us.
    Refused,
    /// Anything else.
    Unreachable,
}

impl Trouble {
    fn of(words: &str) -> Self {
        let says = |text: &str| words.contains(text);
        if says("REVOKED HOST KEY DETECTED") {
            Trouble::KeyRevoked
        } else if says("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            Trouble::KeyChanged
        } else if says("Host key verification failed") {
            Trouble::KeyUnknown
        } else if says("Permission denied") || says("Too many authentication failures") {
            Trouble::Refused
        } else {
            Trouble::Unreachable
        }
    }
}

/// The holder of a connection.
#[derive(Debug)]
pub(crate) struct Master {
    socket: PathBuf,
    process: u32,
    closed: AtomicBool,
    /// The program, when it is ours; the user's own is never ended.
    own: std::sync::Mutex<Option<Piped>>,
}

impl Master {
    fn new(socket: PathBuf, process: u32, own: Option<Piped>) -> Self {
        Master {
            socket,
            process,
            closed: AtomicBool::new(false),
            own: std::sync::Mutex::new(own),
        }
    }

    /// Its control socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that holds the connection.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Whether it is known to be gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Notes that it is gone.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Ends the program if it is ours.
    pub(crate) fn let_go(&self) {
        self.close();
        let own = self
            .own
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        drop(own);
    }
}

/// What became of the search for a connection that is open already.
#[derive(Debug)]
pub(crate) enum SharedConnection {
    /// It answers.
    Open {
        /// Its control socket.
        socket: PathBuf,
        /// The process that holds it.
        process: u32,
    },
    /// Nobody answers on the control socket.
    Absent {
        /// What `ssh` would be told to reach it.
        host: String,
        /// What was found instead.
        why: MuxFailure,
    },
    /// The SSH configuration has no `ControlPath` for this host.
    NoPath,
}

/// Looks for a connection of the user's own; opens none.
pub(crate) async fn shared(
    reach: &Reach,
    dialer: &Dialer,
) -> Result<SharedConnection, OpenSshError> {
    find_shared(&Target::new(reach)?, dialer).await
}

async fn find_shared(target: &Target, dialer: &Dialer) -> Result<SharedConnection, OpenSshError> {
    let options = dialer
        .routes
        .ask(&target.asked, dialer.secrets.hidden())
        .await?;
    let Some(socket) = options.control_path else {
        return Ok(SharedConnection::NoPath);
    };
    Ok(match mux::alive(&socket).await {
        Ok(process) => SharedConnection::Open { socket, process },
        Err(why) => SharedConnection::Absent {
            host: target.asked.alias.to_string(),
            why,
        },
    })
}

/// Finds a connection of the system's `ssh`, or has it make one where that is allowed.
pub(crate) async fn reach(
    reach: &Reach,
    require_existing_master: bool,
    dialer: &Dialer,
    limit: Duration,
) -> Result<Master, OpenSshError> {
    let target = Target::new(reach)?;
    let found = match find_shared(&target, dialer).await? {
        SharedConnection::Open { socket, process } => {
            return Ok(Master::new(socket, process, None));
        }
        SharedConnection::Absent { why, .. } => Some(why),
        SharedConnection::NoPath => None,
    };
    let host = target.asked.alias.to_string();
    if require_existing_master {
        return Err(OpenSshError::NoMaster {
            host,
            source: found,
        });
    }
    let socket = own_socket(&dialer.sockets)?;
    let line = target.line(&socket, dialer);
    let own = Piped::start(&line, dialer.secrets.hidden())?;
    match tokio::time::timeout(limit, logged_in(own, &socket)).await {
        Ok(Ok((own, process))) => Ok(Master::new(socket, process, Some(own))),
        Ok(Err(words)) => Err(OpenSshError::Login {
            host,
            trouble: Trouble::of(&words),
            words: last_line(&words),
        }),
        Err(_) => Err(OpenSshError::Slow { host, limit }),
    }
}

/// Waits for the login; gives the program back, or its last words.
async fn logged_in(mut own: Piped, socket: &Path) -> Result<(Piped, u32), String> {
    let words = own.words();
    let mut noise = [0; 1024];
    loop {
        tokio::select! {
            read = own.read(&mut noise) => {
                // Login files may print what they like.
                if !matches!(read, Ok(1..)) {
                    // It has ended; its words may come a moment later.
                    tokio::time::sleep(PAUSE).await;
                    return Err(words.text());
                }
            }
            () = tokio::time::sleep(PAUSE) => {}
        }
        if let Ok(process) = mux::alive(socket).await {
            return Ok((own, process));
        }
    }
}

fn last_line(words: &str) -> String {
    let line = words.lines().map(str::trim).rfind(|line| !line.is_empty());
    clean_line(line.unwrap_or("no reason given"), LONGEST_WORDS)
}

/// A name for a control socket that nobody else has.
fn own_socket(folder: &Path) -> Result<PathBuf, OpenSshError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    fsio::sealed_directory(folder)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let socket = folder.join(format!("{}-{number}", std::process::id()));
    if socket.as_os_str().len() > LONGEST_SOCKET {
        return Err(OpenSshError::TooLong(socket));
    }
    // A server that was killed may have left one with the same number.
    fsio::remove_file(&socket)?;
    Ok(socket)
}

/// Whom `ssh` is asked for.
struct Target {
    asked: Asked,
    key_file: Option<PathBuf>,
    options: Vec<String>,
}

impl Target {
    fn new(reach: &Reach) -> Result<Self, OpenSshError> {
        match reach {
            Reach::Alias(entry) => Ok(Self::alias(entry)),
            Reach::Host(settings) => Self::host(settings),
        }
    }

    fn alias(entry: &AliasSettings) -> Self {
        Target {
            asked: Asked {
                alias: entry.alias.clone(),
                user: entry.user.clone(),
                port: entry.port,
                hops: Vec::new(),
            },
            key_file: entry.key_file.clone(),
            options: trust(&entry.host_keys, entry.policy_is_given),
        }
    }

    fn host(settings: &SshSettings) -> Result<Self, OpenSshError> {
        let alias = SshAlias::parse(&settings.host).map_err(|source| OpenSshError::Name {
            host: settings.host.clone(),
            source,
        })?;
        Ok(Target {
            asked: Asked {
                alias,
                user: Some(settings.user.clone()),
                port: Some(settings.port),
                hops: Vec::new(),
            },
            key_file: settings.key_file.clone(),
            options: trust(&settings.host_keys, true),
        })
    }

    /// The line that logs in and holds the connection for as long as we hold its standard input: if
    /// this program is killed, the connection goes with it.
    fn line(&self, socket: &Path, dialer: &Dialer) -> String {
        let path = socket.display().to_string().replace('%', "%%");
        let control = format!("ControlPath=\"{path}\"");
        let mut words = vec!["ssh".to_owned(), "-T".to_owned(), "-x".to_owned()];
        if let Some(file) = dialer.routes.configuration() {
            words.extend(["-F".to_owned(), file.display().to_string()]);
        }
        for option in FIXED_OPTIONS {
            words.extend(["-o".to_owned(), option.to_owned()]);
        }
        words.extend(["-o".to_owned(), control]);
        for option in &self.options {
            words.extend(["-o".to_owned(), option.clone()]);
        }
        if let Some(key) = &self.key_file {
            words.extend(["-i".to_owned(), key.display().to_string()]);
        }
        if let Some(port) = self.asked.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.asked.user {
            words.extend(["-l".to_owned(), user.clone()]);
        }
        words.extend(["--".to_owned(), self.asked.alias.to_string()]);
        words.push("exec cat >/dev/null".to_owned());
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        quoted.join(" ")
    }
}

/// Nobody is there to be asked, nothing but sessions goes over it, and a dead link is noticed.
const FIXED_OPTIONS: [&str; 9] = [
    "BatchMode=yes",
    "ControlMaster=yes",
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
];

/// What an entry says itself about whom to trust; the rest is left to the configuration of `ssh`.
fn trust(settings: &HostKeySettings, policy_is_given: bool) -> Vec<String> {
    let mut options = Vec::new();
    if policy_is_given && settings.policy == HostKeyPolicy::Strict {
        options.push("StrictHostKeyChecking=yes".to_owned());
    }
    if let Some(name) = &settings.name {
        options.push(format!("HostKeyAlias={name}"));
    }
    if !settings.known_hosts_files.is_empty() {
        let files: Vec<String> = settings
            .known_hosts_files
            .iter()
            .map(|file| format!("\"{}\"", file.display()))
            .collect();
        options.push(format!("UserKnownHostsFile={}", files.join(" ")));
    }
    options
}
