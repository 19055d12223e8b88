//! Sessions over a connection that the system's `ssh` holds, through its control socket.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::shell::{Heard, NotTaken};
use bytes::BytesMut;
use remote_sandbox_core::mux::{self, MuxError, Said};
use remote_sandbox_core::shell::CONSTANT_COMMAND;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::link::{SFTP, Wanted};

/// The holder of the connection is a local process and answers at once.
const ALIVE_LIMIT: Duration = Duration::from_secs(2);

/// How long opening a session may take.
const OPEN_LIMIT: Duration = Duration::from_secs(8);

/// Bytes that are read from a pipe at once.
const CHUNK: usize = 64 * 1024;

/// Why the holder of a connection gave no session.
#[derive(Debug, thiserror::Error)]
pub enum MuxFailure {
    /// Nobody listens on the control socket.
    #[error("no shared connection answers on `{}`", path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The conversation broke.
    #[error("the shared connection broke off")]
    Broken(#[from] io::Error),
    /// The other side does not speak our language.
    #[error(transparent)]
    Language(#[from] MuxError),
    /// It answered with something else.
    #[error("the shared connection answered out of turn")]
    OutOfTurn,
    /// It refuses to open a session.
    #[error("the shared connection opens no session: {0}")]
    Refused(String),
    /// It does not answer.
    #[error("the shared connection does not answer")]
    Silent,
}

/// Asks the holder of a connection for a sign of life; says which process it is.
pub(super) async fn alive(path: &Path) -> Result<u32, MuxFailure> {
    let asking = async {
        let mut stream = connect(path).await?;
        stream.write_all(&mux::alive_check()).await?;
        match hear(&mut stream).await? {
            Said::Alive(process) => Ok(process),
            Said::Refused(words) => Err(MuxFailure::Refused(words)),
            _ => Err(MuxFailure::OutOfTurn),
        }
    };
    tokio::time::timeout(ALIVE_LIMIT, asking)
        .await
        .unwrap_or(Err(MuxFailure::Silent))
}

async fn connect(path: &Path) -> Result<UnixStream, MuxFailure> {
    let mut stream = UnixStream::connect(path)
        .await
        .map_err(|source| MuxFailure::Absent {
            path: path.to_owned(),
            source,
        })?;
    stream.write_all(&mux::hello()).await?;
    match hear(&mut stream).await? {
        Said::Hello => Ok(stream),
        _ => Err(MuxFailure::OutOfTurn),
    }
}

async fn hear(stream: &mut UnixStream) -> Result<Said, MuxFailure> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await?;
    let mut body = vec![0; mux::body_length(header)?];
    stream.read_exact(&mut body).await?;
    Ok(mux::parse(&body)?)
}

/// Opens a session with a shell or a subsystem in it, over the connection that `holder` holds.
pub(super) async fn open_session(
    path: &Path,
    holder: u32,
    wanted: Wanted,
) -> Result<(MuxIncoming, MuxOutgoing), MuxFailure> {
    let request = match wanted {
        Wanted::Shell => mux::new_session(CONSTANT_COMMAND),
        Wanted::Sftp => mux::new_subsystem(SFTP),
    };
    tokio::time::timeout(OPEN_LIMIT, open(path, holder, &request))
        .await
        .unwrap_or(Err(MuxFailure::Silent))
}

async fn open(
    path: &Path,
    holder: u32,
    request: &[u8],
) -> Result<(MuxIncoming, MuxOutgoing), MuxFailure> {
    let mut stream = connect(path).await?;
    let (stdin, input) = io::pipe()?;
    let (output, stdout) = io::pipe()?;
    let (errors, stderr) = io::pipe()?;
    stream.write_all(request).await?;
    for descriptor in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        pass(&stream, descriptor).await?;
    }
    match hear(&mut stream).await? {
        Said::Opened => {}
        Said::Refused(words) => return Err(MuxFailure::Refused(words)),
        _ => return Err(MuxFailure::OutOfTurn),
    }
    let stop = CancellationToken::new();
    let (tell, told) = mpsc::channel(2);
    let gone = Arc::new(AtomicBool::new(false));
    tokio::spawn(watch(
        stream,
        (path.to_owned(), holder),
        tell,
        stop.clone(),
        gone.clone(),
    ));
    let incoming = MuxIncoming {
        output: Some(receiver(output.into())?),
        errors: Some(receiver(errors.into())?),
        told: Some(told),
        end: End::NotYet,
        gone,
    };
    let input = pipe::Sender::from_owned_fd(input.into())?;
    let outgoing = MuxOutgoing {
        input: Mutex::new(Some(input)),
        stop,
    };
    Ok((incoming, outgoing))
}

fn receiver(descriptor: OwnedFd) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(descriptor)
}

/// Hands one of our pipes over, with the one byte that carries it.
async fn pass(stream: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let send = || {
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(
            stream,
            &[IoSlice::new(&[0])],
            &mut control,
            SendFlags::empty(),
        )
        .map_err(io::Error::from)
    };
    stream.async_io(Interest::WRITABLE, send).await.map(drop)
}

/// Keeps the conversation open until the session ends: output that is still under way would be
/// thrown away with it. Closing it closes the session.
async fn watch(
    mut stream: UnixStream,
    (path, holder): (PathBuf, u32),
    tell: mpsc::Sender<u32>,
    stop: CancellationToken,
    gone: Arc<AtomicBool>,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            said = hear(&mut stream) => match said {
                Ok(Said::Exited(status)) => {
                    let _ = tell.send(status).await;
                }
                Ok(_) => {}
                Err(_) => break,
            },
        }
    }
    // It matters whether the session has ended or the whole connection; another holder on the same
    // socket is another connection.
    if alive(&path).await.ok() != Some(holder) {
        gone.store(true, Ordering::Release);
    }
}

/// What comes from the session.
pub(super) struct MuxIncoming {
    output: Option<pipe::Receiver>,
    errors: Option<pipe::Receiver>,
    /// Brings the exit status; closed when the session is.
    told: Option<mpsc::Receiver<u32>>,
    end: End,
    gone: Arc<AtomicBool>,
}

/// How much of the end of a session was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    NoMoreOutput,
    Closed,
}

/// Which of the two streams something came from.
enum Source {
    Output,
    Errors,
    Status(Option<u32>),
}

impl MuxIncoming {
    /// The next thing the host says; `None` when the connection is gone. Nothing is lost when the
    /// caller stops waiting.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            if self.output.is_none() && self.errors.is_none() && self.told.is_none() {
                return self.next_of_the_end();
            }
            let (output, errors) = (&mut self.output, &mut self.errors);
            let (source, read) = tokio::select! {
                biased;
                (count, chunk) = read(output.as_mut()), if output.is_some() => {
                    (Source::Output, Some((count, chunk)))
                }
                (count, chunk) = read(errors.as_mut()), if errors.is_some() => {
                    (Source::Errors, Some((count, chunk)))
                }
                status = status(&mut self.told) => (Source::Status(status), None),
            };
            match (source, read) {
                (Source::Status(Some(status)), _) => return Some(Heard::Exited(status)),
                (Source::Status(None), _) => self.told = None,
                (Source::Output, Some((0, _))) => self.output = None,
                (Source::Errors, Some((0, _))) => self.errors = None,
                (Source::Output, Some((_, chunk))) => return Some(Heard::Out(chunk.freeze())),
                (Source::Errors, Some((_, chunk))) => return Some(Heard::Err(chunk.freeze())),
                (_, None) => {}
            }
        }
    }
}

impl MuxIncoming {
    /// The session as two plain streams, closed when the one to write to is dropped; nothing where one of
    /// them is closed already. Standard error is read and thrown away: left alone, it would stop the session.
    pub(super) fn into_stream(
        mut self,
        mut outgoing: MuxOutgoing,
    ) -> Option<(pipe::Receiver, MuxWriter)> {
        let input = outgoing.input.get_mut().take()?;
        let (output, mut errors) = (self.output.take()?, self.errors.take()?);
        let stop = outgoing.stop.clone();
        tokio::spawn(async move {
            let _ = stop
                .run_until_cancelled(tokio::io::copy(&mut errors, &mut tokio::io::sink()))
                .await;
        });
        let writer = MuxWriter {
            input,
            _session: outgoing,
        };
        Some((output, writer))
    }

    /// The end of the output is only believed once it is known that the connection outlives it.
    fn next_of_the_end(&mut self) -> Option<Heard> {
        if self.gone.load(Ordering::Acquire) {
            return None;
        }
        match self.end {
            End::NotYet => {
                self.end = End::NoMoreOutput;
                Some(Heard::NoMoreOutput)
            }
            End::NoMoreOutput => {
                self.end = End::Closed;
                Some(Heard::Closed)
            }
            End::Closed => None,
        }
    }
}

/// Reads what is there; nothing at the end of the stream, or when it breaks.
async fn read(pipe: Option<&mut pipe::Receiver>) -> (usize, BytesMut) {
    let mut chunk = BytesMut::new();
    let Some(pipe) = pipe else {
        return std::future::pending().await;
    };
    if pipe.readable().await.is_err() {
        return (0, chunk);
    }
    chunk.reserve(CHUNK);
    let count = pipe.read_buf(&mut chunk).await.unwrap_or(0);
    (count, chunk)
}

async fn status(told: &mut Option<mpsc::Receiver<u32>>) -> Option<u32> {
    match told {
        Some(told) => told.recv().await,
        None => std::future::pending().await,
    }
}

/// What goes to the session.
pub(super) struct MuxOutgoing {
    input: Mutex<Option<pipe::Sender>>,
    stop: CancellationToken,
}

impl MuxOutgoing {
    pub(super) async fn send(&self, bytes: &[u8]) -> Result<(), NotTaken> {
        let mut input = self.input.lock().await;
        let input = input.as_mut().ok_or(NotTaken)?;
        input.write_all(bytes).await.map_err(|_| NotTaken)
    }

    pub(super) async fn finish(&self) {
        *self.input.lock().await = None;
    }

    pub(super) fn close(&self) {
        self.stop.cancel();
    }
}

impl Drop for MuxOutgoing {
    fn drop(&mut self) {
        // Whoever still listens hears the end of the session; nobody can talk to it any more.
        self.stop.cancel();
    }
}

/// What goes to a session that is used as a plain stream.
pub(super) struct MuxWriter {
    input: pipe::Sender,
    _session: MuxOutgoing,
}

impl AsyncWrite for MuxWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(context)
    }
}
