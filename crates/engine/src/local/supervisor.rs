//! The small process inside a sandbox that starts its shells and outlives the server.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::local::wire::{LONGEST_LINE, Reply, Request, line_of, parse_line};
use remote_sandbox_core::local::{Level, SupervisorPlan};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::descriptors::receive;
use super::family::Family;
use crate::{fsio, proc};

/// How long a supervisor stays that nobody has asked for anything and in which nothing runs.
const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// How often it looks whether that is so.
const IDLE_LOOK: Duration = Duration::from_secs(30);

/// How long everything inside may take to end when asked politely.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Most connections at the same time.
const MOST_CONNECTIONS: usize = 256;

/// Why a supervisor cannot work.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// It was told nonsense.
    #[error("the plan cannot be read")]
    Plan(#[from] serde_json::Error),
    /// A wall could not be put up.
    #[cfg(target_os = "linux")]
    #[error("the wall cannot be put up")]
    Confine(#[from] super::confine::ConfineError),
    /// The system refused something.
    #[error("the system refused")]
    System(#[from] std::io::Error),
    /// A file could not be opened.
    #[error(transparent)]
    File(#[from] fsio::FileError),
    /// This kind of wall is not for this system.
    #[error("this system has no such wall")]
    Unsupported,
}

/// Runs as the supervisor of a sandbox: standard input is the socket on which it listens.
///
/// Must be called while the process has one thread: walls hold for the thread that puts them up.
pub fn supervise(plan: &str) -> Result<(), SuperviseError> {
    let plan: SupervisorPlan = serde_json::from_str(plan)?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    // The leader of a group cannot begin a session; then it is one already, or has a group of its own.
    let _ = rustix::process::setsid();
    confine(&plan)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(plan, socket))
}

#[cfg(target_os = "linux")]
fn confine(plan: &SupervisorPlan) -> Result<(), SuperviseError> {
    use super::confine as walls;
    let own_users = matches!(plan.level, Level::Bubblewrap { .. });
    walls::bound(&plan.limits, false, own_users)?;
    if !own_users {
        // What loses its parent comes to us, so that nothing gets out of sight.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(std::io::Error::from)?;
    }
    match plan.level {
        Level::Bubblewrap { landlock } => {
            walls::keep_in(&plan.grants, landlock)?;
            walls::filter_past_namespaces()?;
        }
        Level::Landlock { landlock } => {
            walls::give_up_rights()?;
            walls::keep_to_grants(&plan.grants, landlock)?;
            walls::filter_calls(plan.network, landlock)?;
        }
        Level::Seatbelt | Level::None => {}
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn confine(plan: &SupervisorPlan) -> Result<(), SuperviseError> {
    match plan.level {
        Level::Seatbelt | Level::None => Ok(()),
        Level::Bubblewrap { .. } | Level::Landlock { .. } => Err(SuperviseError::Unsupported),
    }
}

/// What all connections share.
struct Inside {
    home: PathBuf,
    terms: String,
    family: Family,
    connections: AtomicUsize,
    /// Shells that a connection waits for; others of our children are ours to reap.
    shells: Mutex<BTreeSet<u32>>,
    leave: Notify,
}

async fn serve(plan: SupervisorPlan, socket: OwnedFd) -> Result<(), SuperviseError> {
    let listener = std::os::unix::net::UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let inside = Arc::new(Inside {
        home: plan.home,
        terms: plan.terms,
        family: Family::new(plan.level),
        connections: AtomicUsize::new(0),
        shells: Mutex::new(BTreeSet::new()),
        leave: Notify::new(),
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut child = signal(SignalKind::child())?;
    announce()?;
    let mut idle_since = crate::clock::instant();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                idle_since = crate::clock::instant();
                if let Ok((connection, _)) = accepted {
                    // Counted at once, so that nobody takes us for idle in between.
                    let counted = Counted::new(&inside);
                    tokio::spawn(attend(counted, connection));
                }
            }
            () = inside.leave.notified() => return Ok(()),
            _ = terminate.recv() => {
                inside.family.end(END_PATIENCE).await;
                return Ok(());
            }
            _ = child.recv() => inside.reap(),
            () = tokio::time::sleep(IDLE_LOOK) => {
                if inside.is_busy(0) {
                    idle_since = crate::clock::instant();
                } else if idle_since.elapsed() >= IDLE_LIMIT {
                    return Ok(());
                }
            }
        }
    }
}

/// Says that the walls stand, then lets go of all three streams.
fn announce() -> Result<(), SuperviseError> {
    let mut output = std::io::stdout();
    output.write_all(b"ready\n")?;
    output.flush()?;
    let nothing = fsio::open_nothing()?;
    let error = std::io::Error::from;
    rustix::stdio::dup2_stdin(&nothing).map_err(error)?;
    rustix::stdio::dup2_stdout(&nothing).map_err(error)?;
    rustix::stdio::dup2_stderr(&nothing).map_err(error)?;
    Ok(())
}

impl Inside {
    fn shells(&self) -> std::sync::MutexGuard<'_, BTreeSet<u32>> {
        self.shells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something runs, or more connections than `known` stand.
    fn is_busy(&self, known: usize) -> bool {
        self.connections.load(Ordering::Acquire) > known
            || !self.shells().is_empty()
            || self.family.count() > 0
    }

    /// Waits for children that came to us when their parents ended.
    fn reap(&self) {
        let shells = self.shells();
        Family::reap(&shells);
    }
}

/// Counts a connection.
struct Counted(Arc<Inside>);

impl Counted {
    fn new(inside: &Arc<Inside>) -> Self {
        inside.connections.fetch_add(1, Ordering::AcqRel);
        Counted(inside.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn attend(counted: Counted, connection: UnixStream) {
    let inside = &counted.0;
    let all = inside.connections.load(Ordering::Acquire);
    let is_ours = connection
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == rustix::process::getuid().as_raw());
    if !is_ours || all > MOST_CONNECTIONS {
        return;
    }
    let mut connection = Connection {
        socket: connection,
        bytes: Vec::new(),
        descriptors: Vec::new(),
    };
    match connection.request().await {
        Some(Request::Shell) => inside.shell(&mut connection).await,
        Some(Request::Status) => {
            let processes = inside.family.count();
            let terms = inside.terms.clone();
            connection.say(&Reply::Status { processes, terms }).await;
        }
        Some(Request::Leave) if inside.is_busy(1) => connection.say(&Reply::Staying).await,
        Some(Request::Leave) => {
            connection.say(&Reply::Leaving).await;
            inside.leave.notify_one();
        }
        Some(Request::End) => {
            inside.family.end(END_PATIENCE).await;
            connection.say(&Reply::Leaving).await;
            inside.leave.notify_one();
        }
        Some(Request::Terminate | Request::Kill) | None => {}
    }
}

/// A connection and what has come on it.
struct Connection {
    socket: UnixStream,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Connection {
    /// The next request; nothing at the end, or where something else came.
    async fn request(&mut self) -> Option<Request> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return parse_line(&line).ok();
            }
            let before = self.bytes.len();
            if before > LONGEST_LINE {
                return None;
            }
            let given = receive(&self.socket, &mut self.bytes, LONGEST_LINE).await;
            let given = given.ok()?;
            if self.bytes.len() == before {
                return None;
            }
            self.descriptors.extend(given);
            if self.descriptors.len() > 3 {
                return None;
            }
        }
    }

    async fn say(&mut self, reply: &Reply) {
        // Whoever does not listen any more has no use for it.
        if let Ok(line) = line_of(reply) {
            let _ = self.socket.write_all(&line).await;
        }
    }
}

impl Inside {
    async fn shell(&self, connection: &mut Connection) {
        let streams: Result<[OwnedFd; 3], _> =
            std::mem::take(&mut connection.descriptors).try_into();
        let Ok(streams) = streams else {
            let words = "a shell needs three streams".to_owned();
            return connection.say(&Reply::Refused { words }).await;
        };
        let started = {
            // A child must be known before anybody can take it for an orphan.
            let mut shells = self.shells();
            let started = proc::shell_in_session(&self.home, streams);
            if let Ok(Some(pid)) = started.as_ref().map(Child::id) {
                shells.insert(pid);
            }
            started
        };
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let words = error.to_string();
                return connection.say(&Reply::Refused { words }).await;
            }
        };
        let pid = child.id().unwrap_or_default();
        let terms = self.terms.clone();
        connection.say(&Reply::Started { pid, terms }).await;
        let status = self.wait_for(&mut child, pid, connection).await;
        self.shells().remove(&pid);
        if let Ok(status) = status {
            connection.say(&end_of(status)).await;
        }
    }

    /// Waits for the end of a shell and passes signals on meanwhile.
    async fn wait_for(
        &self,
        child: &mut Child,
        pid: u32,
        connection: &mut Connection,
    ) -> std::io::Result<ExitStatus> {
        let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let mut listened_to = true;
        loop {
            tokio::select! {
                status = child.wait() => return status,
                request = connection.request(), if listened_to => {
                    let signal = match request {
                        Some(Request::Terminate) => Signal::TERM,
                        Some(Request::Kill) => Signal::KILL,
                        // The client is gone; what it started goes on.
                        _ => { listened_to = false; continue; }
                    };
                    if let Some(group) = group {
                        let _ = kill_process_group(group, signal);
                    }
                }
            }
        }
    }
}

/// How a shell ended, in our words.
fn end_of(status: ExitStatus) -> Reply {
    if let Some(code) = status.code() {
        return Reply::Exited {
            code: u32::try_from(code).unwrap_or_default(),
        };
    }
    let number = status.signal().unwrap_or_default();
    let known = SIGNALS.iter().find(|(signal, _)| signal.as_raw() == number);
    Reply::Signalled {
        name: known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned()),
    }
}

/// The signals that end processes, with their names.
const SIGNALS: [(Signal, &str); 22] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::ILL, "ILL"),
    (Signal::TRAP, "TRAP"),
    (Signal::ABORT, "ABRT"),
    (Signal::BUS, "BUS"),
    (Signal::FPE, "FPE"),
    (Signal::KILL, "KILL"),
    (Signal::USR1, "USR1"),
    (Signal::SEGV, "SEGV"),
    (Signal::USR2, "USR2"),
    (Signal::PIPE, "PIPE"),
    (Signal::ALARM, "ALRM"),
    (Signal::TERM, "TERM"),
    (Signal::XCPU, "XCPU"),
    (Signal::XFSZ, "XFSZ"),
    (Signal::VTALARM, "VTALRM"),
    (Signal::PROF, "PROF"),
    (Signal::IO, "IO"),
    (Signal::SYS, "SYS"),
    (Signal::URG, "URG"),
];
