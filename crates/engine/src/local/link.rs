//! The way to the supervisor of a sandbox: connections, shells, and their two directions.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use remote_sandbox_core::local::mark_of;
use remote_sandbox_core::local::wire::{LONGEST_LINE, Reply, Request, line_of, parse_line};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::unix::{OwnedReadHalf, pipe};
use tokio::sync::Mutex;

use super::descriptors::send_with_streams;
use crate::shell::{Heard, Incoming, NotTaken, Outgoing, Signal};

/// Bytes that are taken from a stream at once.
const CHUNK: usize = 64 * 1024;

/// Longest path of a socket that every system takes.
const LONGEST_ADDRESS: usize = 100;

/// How long a sign of life may take.
const STATUS_LIMIT: Duration = Duration::from_secs(3);

/// Why there is no shell.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// Nobody listens.
    #[error("nothing answers in the sandbox")]
    Absent(#[source] io::Error),
    /// Somebody may listen, but there is no way to ask now.
    #[error("the sandbox cannot be asked")]
    Unable(#[source] io::Error),
    /// The supervisor ended before it had started a shell.
    #[error("the sandbox ended")]
    Ended,
    /// It would not start one.
    #[error("the sandbox starts no shell: {0}")]
    Refused(String),
}

/// Where a supervisor listens.
#[derive(Debug, Clone)]
pub(super) struct Address(PathBuf);

impl Address {
    /// The socket in a folder.
    pub(super) fn in_folder(folder: &Path) -> Self {
        let path = folder.join("socket");
        if cfg!(target_os = "linux") || path.as_os_str().len() <= LONGEST_ADDRESS {
            return Address(path);
        }
        // Elsewhere there is no other name for a long path, so the socket lies at a short one.
        let mark = mark_of(path.as_os_str().as_encoded_bytes());
        let user = rustix::process::getuid().as_raw();
        Address(PathBuf::from(format!(
            "/tmp/remote-sandbox-{user}/{mark:016x}"
        )))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Does something with a path that is short enough for a socket. A long one is reached over a
    /// handle of its folder.
    pub(super) fn with_short<T>(&self, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        use std::os::fd::AsRawFd;
        if self.0.as_os_str().len() <= LONGEST_ADDRESS {
            return work(&self.0);
        }
        let (Some(folder), Some(name)) = (self.0.parent(), self.0.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        let handle = rustix::fs::open(folder, flags, rustix::fs::Mode::empty())?;
        let short = format!("/proc/self/fd/{}", handle.as_raw_fd());
        work(&Path::new(&short).join(name))
    }

    /// A connection to whoever listens.
    pub(super) async fn connect(&self) -> Result<UnixStream, LinkError> {
        let connected = self.with_short(connect_at_once);
        let socket = connected.and_then(UnixStream::from_std);
        socket.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => LinkError::Absent(error),
            // Whoever took these for "nobody" would end a sandbox that is well.
            _ => LinkError::Unable(error),
        })
    }

    /// Asks for something that has one answer.
    pub(super) async fn ask(&self, request: Request, limit: Duration) -> Result<Reply, LinkError> {
        let work = async {
            let mut socket = self.connect().await?;
            let line = line_of(&request).map_err(|_| LinkError::Ended)?;
            let sent = socket.write_all(&line).await;
            sent.map_err(|_| LinkError::Ended)?;
            let mut answer = Vec::new();
            while !answer.ends_with(b"\n") && answer.len() < LONGEST_LINE {
                match socket.read_buf(&mut answer).await {
                    Ok(0) | Err(_) => return Err(LinkError::Ended),
                    Ok(_) => {}
                }
            }
            parse_line(&answer).map_err(|_| LinkError::Ended)
        };
        let answer = tokio::time::timeout(limit, work).await;
        answer.unwrap_or(Err(LinkError::Ended))
    }

    /// Whether somebody answers.
    pub(super) async fn answers(&self) -> bool {
        let answer = self.ask(Request::Status, STATUS_LIMIT).await;
        matches!(answer, Ok(Reply::Status { .. }))
    }

    /// Starts a shell; nothing of a caller is sent yet.
    pub(super) async fn shell(&self) -> Result<NewShell, LinkError> {
        let socket = self.connect().await?;
        let streams = || -> io::Result<_> {
            let (to_input, input) = pipe::pipe()?;
            let (output, from_output) = pipe::pipe()?;
            let (errors, from_errors) = pipe::pipe()?;
            let theirs = [
                input.into_blocking_fd()?,
                output.into_blocking_fd()?,
                errors.into_blocking_fd()?,
            ];
            Ok((theirs, to_input, from_output, from_errors))
        };
        let (theirs, to_input, from_output, from_errors) = streams().map_err(LinkError::Unable)?;
        let line = line_of(&Request::Shell).map_err(|_| LinkError::Ended)?;
        let given = theirs.each_ref().map(|stream| stream.as_fd());
        let sent = send_with_streams(&socket, &line, given).await;
        sent.map_err(|_| LinkError::Ended)?;
        drop(theirs);
        let (reading, writing) = socket.into_split();
        let lost = Arc::new(AtomicBool::new(false));
        let mut incoming = LocalIncoming {
            control: Control {
                socket: reading,
                bytes: BytesMut::new(),
                said: VecDeque::new(),
                ended: false,
            },
            output: Some(from_output),
            errors: Some(from_errors),
            exited: false,
            whole: false,
            closed: false,
            lost: lost.clone(),
        };
        let terms = incoming.started().await?;
        let outgoing = LocalOutgoing {
            input: Mutex::new(Some(to_input)),
            control: Mutex::new(writing),
        };
        Ok(NewShell {
            incoming,
            outgoing,
            terms,
        })
    }
}

/// A connection or an error, never a wait: where too many are in line already, one may wait for ever.
fn connect_at_once(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let address = SocketAddrUnix::new(path)?;
    #[cfg(target_os = "linux")]
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = SocketFlags::empty();
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::net::connect(&socket, &address)?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A shell in which nothing runs yet.
pub(super) struct NewShell {
    pub(super) incoming: LocalIncoming,
    pub(super) outgoing: LocalOutgoing,
    /// The terms under which the sandbox runs.
    pub(super) terms: String,
}

/// What the supervisor says beside the streams.
struct Control {
    socket: OwnedReadHalf,
    bytes: BytesMut,
    said: VecDeque<Reply>,
    ended: bool,
}

impl Control {
    /// Takes what has come; waits until something has. Nothing is lost when the caller stops waiting.
    async fn wait(&mut self) {
        if self.ended {
            return std::future::pending().await;
        }
        if self.socket.ready(Interest::READABLE).await.is_err() {
            self.ended = true;
            return;
        }
        match self.socket.try_read_buf(&mut self.bytes) {
            Ok(0) => self.ended = true,
            Ok(_) => self.parse(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.ended = true,
        }
    }

    fn parse(&mut self) {
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line = self.bytes.split_to(end + 1);
            match parse_line(&line) {
                Ok(reply) => self.said.push_back(reply),
                Err(_) => self.ended = true,
            }
        }
        if self.bytes.len() > LONGEST_LINE {
            self.ended = true;
        }
    }
}

/// What comes from a shell in the sandbox.
pub(super) struct LocalIncoming {
    control: Control,
    output: Option<pipe::Receiver>,
    errors: Option<pipe::Receiver>,
    exited: bool,
    whole: bool,
    closed: bool,
    lost: Arc<AtomicBool>,
}

impl LocalIncoming {
    /// Waits for the word that the shell runs; gives the terms of the sandbox.
    async fn started(&mut self) -> Result<String, LinkError> {
        loop {
            match self.control.said.pop_front() {
                Some(Reply::Started { terms, .. }) => return Ok(terms),
                Some(Reply::Refused { words }) => {
                    let words = remote_sandbox_core::output::clean_line(&words, 200);
                    return Err(LinkError::Refused(words));
                }
                Some(_) => return Err(LinkError::Ended),
                None if self.control.ended => return Err(LinkError::Ended),
                None => self.control.wait().await,
            }
        }
    }

    /// Says when the supervisor went away before the shell had ended.
    pub(super) fn lost(&self) -> Arc<AtomicBool> {
        self.lost.clone()
    }

    /// What the supervisor said about the end of the shell.
    fn told(&mut self) -> Option<Heard> {
        match self.control.said.pop_front()? {
            Reply::Exited { code } => {
                self.exited = true;
                Some(Heard::Exited(code))
            }
            Reply::Signalled { name } => {
                self.exited = true;
                Some(Heard::Signalled(remote_sandbox_core::output::clean_line(
                    &name, 20,
                )))
            }
            _ => {
                self.control.ended = true;
                None
            }
        }
    }

    /// What has come on the streams, when nobody will say more about them.
    fn rest(&mut self) -> Option<Heard> {
        if let Some(data) = take(&mut self.output) {
            return Some(Heard::Out(data));
        }
        take(&mut self.errors).map(Heard::Err)
    }
}

/// What a stream has now; a stream that has ended is dropped.
fn take(stream: &mut Option<pipe::Receiver>) -> Option<Bytes> {
    let receiver = stream.as_mut()?;
    let mut chunk = BytesMut::with_capacity(CHUNK);
    match receiver.try_read_buf(&mut chunk) {
        Ok(0) => *stream = None,
        Ok(_) => return Some(chunk.freeze()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(_) => *stream = None,
    }
    None
}

async fn readable(stream: &mut Option<pipe::Receiver>) {
    match stream {
        Some(receiver) => {
            if receiver.readable().await.is_err() {
                *stream = None;
            }
        }
        None => std::future::pending().await,
    }
}

impl Incoming for LocalIncoming {
    async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.told() {
                return Some(heard);
            }
            if !self.whole && self.output.is_none() && self.errors.is_none() {
                self.whole = true;
                return Some(Heard::NoMoreOutput);
            }
            if self.exited && self.whole {
                return (!std::mem::replace(&mut self.closed, true)).then_some(Heard::Closed);
            }
            if self.control.ended && !self.exited {
                if let Some(heard) = self.rest() {
                    return Some(heard);
                }
                self.lost.store(true, Ordering::Release);
                return None;
            }
            tokio::select! {
                () = readable(&mut self.output) => {
                    if let Some(data) = take(&mut self.output) {
                        return Some(Heard::Out(data));
                    }
                }
                () = readable(&mut self.errors) => {
                    if let Some(data) = take(&mut self.errors) {
                        return Some(Heard::Err(data));
                    }
                }
                () = self.control.wait() => {}
            }
        }
    }
}

/// What goes to a shell in the sandbox.
pub(super) struct LocalOutgoing {
    input: Mutex<Option<pipe::Sender>>,
    control: Mutex<OwnedWriteHalf>,
}

impl Outgoing for LocalOutgoing {
    async fn send_bytes(&self, bytes: Bytes) -> Result<(), NotTaken> {
        match self.input.lock().await.as_mut() {
            Some(input) => input.write_all(&bytes).await.map_err(|_| NotTaken),
            None => Err(NotTaken),
        }
    }

    async fn finish(&self) -> Result<(), NotTaken> {
        self.input.lock().await.take();
        Ok(())
    }

    async fn signal(&self, signal: Signal) -> Result<(), NotTaken> {
        let request = match signal {
            Signal::Term => Request::Terminate,
            Signal::Kill => Request::Kill,
        };
        let line = line_of(&request).map_err(|_| NotTaken)?;
        let mut control = self.control.lock().await;
        control.write_all(&line).await.map_err(|_| NotTaken)
    }
}
