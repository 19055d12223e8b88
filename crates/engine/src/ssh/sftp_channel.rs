//! The files of a host: its SFTP subsystem on a channel of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use russh::client::Msg;
use russh::{Channel, ChannelMsg};
use tokio::io::{AsyncRead, ReadBuf};

use super::SshSandbox;
use super::link::{Opened, SFTP, Wanted};
use super::session::{ChannelError, Session};
use super::sftp::{Client, Loss, SftpError};

/// How long a host may take to start the subsystem.
const START_LIMIT: Duration = Duration::from_secs(15);

/// Why a host's files cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum OpenSftpError {
    /// There was no channel for it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The host has no such subsystem, or not for this account.
    #[error("the host offers no sftp subsystem")]
    NoSubsystem,
    /// The host does not answer.
    #[error("the host did not start its sftp subsystem within {} s", START_LIMIT.as_secs())]
    Late,
    /// What answers does not speak SFTP.
    #[error("the host's sftp subsystem does not work")]
    Client(#[from] SftpError),
}

impl SshSandbox {
    /// The files of this host, on a connection that is opened when needed. The client holds one of the host's
    /// places for channels until its last clone is dropped.
    pub async fn open_sftp(&self) -> Result<Client, Failure> {
        let mut has_lost_one = false;
        loop {
            let place = self.place().await?;
            let session = place.session().clone();
            match session.open_sftp(place).await {
                // The connection broke and nobody had noticed yet; nothing was begun on it.
                Err(OpenSftpError::Channel(ChannelError::Gone(_))) if !has_lost_one => {
                    has_lost_one = true;
                    session.retire();
                }
                Err(OpenSftpError::Client(_)) if !has_lost_one && !session.is_connected() => {
                    has_lost_one = true;
                }
                client => return client.map_err(|error| self.sftp_failure(&error)),
            }
        }
    }

    fn sftp_failure(&self, error: &OpenSftpError) -> Failure {
        match error {
            OpenSftpError::Channel(ChannelError::Full) => self
                .failure(Code::Busy, error)
                .hint("try again when a run on this host has ended")
                .retry(),
            OpenSftpError::Channel(ChannelError::Gone(_)) => self
                .failure(Code::LinkLost, error)
                .hint("call again; it connects anew")
                .retry(),
            OpenSftpError::Late => self
                .failure(Code::TimedOut, error)
                .hint("the host is very busy or hangs")
                .retry(),
            OpenSftpError::NoSubsystem => self
                .failure(Code::Unsupported, error)
                .hint("the host's sshd_config needs a line `Subsystem sftp internal-sftp`"),
            OpenSftpError::Channel(ChannelError::Refused(_)) | OpenSftpError::Client(_) => self
                .failure(Code::RemoteRefused, error)
                .hint("try `sftp` by hand once and see what the host says"),
        }
    }
}

impl Session {
    /// Opens the host's SFTP subsystem on a channel of its own, which is closed with the last clone of the
    /// client; `keep` is dropped then.
    pub(super) async fn open_sftp(
        self: &Arc<Self>,
        keep: impl Send + Unpin + 'static,
    ) -> Result<Client, OpenSftpError> {
        // A caller may give up meanwhile; the channel must not stay open on the host then.
        let work = tokio::spawn(start(self.clone(), keep));
        work.await
            .unwrap_or_else(|error| Err(ChannelError::Gone(error.to_string()).into()))
    }
}

async fn start(
    session: Arc<Session>,
    keep: impl Send + Unpin + 'static,
) -> Result<Client, OpenSftpError> {
    let (opened, open) = session.open_channel(Wanted::Sftp).await?;
    match opened {
        Opened::Builtin(mut channel) => {
            let starting = start_subsystem(&mut channel);
            let started = tokio::time::timeout(START_LIMIT, starting).await;
            if let Err(error) = started.unwrap_or(Err(OpenSftpError::Late)) {
                let _ = channel.close().await;
                return Err(error);
            }
            // From here on it is closed when the stream is dropped. Its reader keeps what counts it.
            let (read, write) = tokio::io::split(channel.into_stream());
            Ok(Client::start(With(read, (open, keep)), write).await?)
        }
        Opened::OpenSsh(incoming, outgoing) => {
            let stream = incoming.into_stream(outgoing);
            let (read, write) = stream.ok_or(OpenSftpError::NoSubsystem)?;
            Client::start(With(read, (open, keep)), write)
                .await
                .map_err(|error| match &error {
                    // `ssh` does not say that the host refused; it closes the session.
                    SftpError::Closed(loss) if matches!(**loss, Loss::Ended) => {
                        OpenSftpError::NoSubsystem
                    }
                    _ => error.into(),
                })
        }
    }
}

/// Asks for the subsystem and waits for the host's word on that.
async fn start_subsystem(channel: &mut Channel<Msg>) -> Result<(), OpenSftpError> {
    let gone = |words: String| OpenSftpError::Channel(ChannelError::Gone(words));
    let asked = channel.request_subsystem(true, SFTP).await;
    asked.map_err(|error| gone(error.to_string()))?;
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => return Ok(()),
            Some(ChannelMsg::Failure | ChannelMsg::Close) => {
                return Err(OpenSftpError::NoSubsystem);
            }
            Some(_) => {}
            None => return Err(gone("the channel was closed".to_owned())),
        }
    }
}

/// A stream that keeps something for as long as it is there.
struct With<S, K>(S, K);

impl<S: AsyncRead + Unpin, K: Unpin> AsyncRead for With<S, K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

#[cfg(test)]
#[path = "sftp_channel_tests.rs"]
pub(crate) mod tests;
