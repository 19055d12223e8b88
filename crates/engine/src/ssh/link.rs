//! What carries sessions to a host: a connection of our own, or one that the system's `ssh` holds.

use std::time::Duration;

use remote_sandbox_core::shell::CONSTANT_COMMAND;
use russh::Channel;
use russh::client::Msg;

use super::channel::{Incoming, Outgoing};
use super::dial::Dialled;
use super::mux::{self, MuxFailure, MuxIncoming, MuxOutgoing};
use super::openssh::Master;
use crate::shell::{Heard, Incoming as _, Outgoing as _};

/// How long saying goodbye may take.
const GOODBYE_LIMIT: Duration = Duration::from_millis(200);

/// The name of the subsystem that serves files.
pub(super) const SFTP: &str = "sftp";

/// What a session is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A shell that reads a script.
    Shell,
    /// The subsystem that serves files.
    Sftp,
}

/// Why no session was opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// The host opens none now, in its own words.
    Refused(String),
    /// The connection is gone.
    Gone(String),
}

/// A connection that is logged in.
pub(crate) enum Link {
    /// Our own.
    Builtin(Dialled),
    /// That of the system's `ssh`.
    OpenSsh(Box<Master>),
}

impl Link {
    /// Whether the connection is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Link::Builtin(dialled) => dialled.handle.is_closed(),
            Link::OpenSsh(master) => master.is_closed(),
        }
    }

    /// What was said when the connection ended.
    pub(super) fn farewell(&self) -> Option<String> {
        match self {
            Link::Builtin(dialled) => dialled.farewell.words(),
            Link::OpenSsh(_) => Some("the shared connection of `ssh` ended".to_owned()),
        }
    }

    /// Whether it tells by which signal a command ended.
    pub(super) fn tells_signals(&self) -> bool {
        matches!(self, Link::Builtin(_))
    }

    /// Says goodbye to the host; a connection of the user's own stays.
    pub(super) async fn disconnect(&self) {
        match self {
            Link::Builtin(dialled) => {
                let bye = dialled
                    .handle
                    .disconnect(russh::Disconnect::ByApplication, "", "");
                let _ = tokio::time::timeout(GOODBYE_LIMIT, bye).await;
            }
            Link::OpenSsh(master) => master.let_go(),
        }
    }

    /// Asks the host for a sign of life.
    pub(super) async fn answers(&self) -> bool {
        match self {
            Link::Builtin(dialled) => {
                // The library's own ping does not tell an answer from the end of the connection.
                let question =
                    dialled
                        .handle
                        .send_global_request("keepalive@openssh.com", &[], true);
                matches!(question.await, Ok(_) | Err(russh::Error::RequestDenied))
            }
            Link::OpenSsh(_) => match self.open(Wanted::Shell).await {
                // Only a host that is there can refuse.
                Err(NotOpened::Refused(_)) => true,
                Err(NotOpened::Gone(_)) => false,
                Ok(opened) => match opened.start().await {
                    Ok((incoming, outgoing)) => ends(incoming, outgoing).await,
                    Err(_) => false,
                },
            },
        }
    }

    /// Asks for a session; nothing of a caller is sent yet, so it may be asked again.
    pub(super) async fn open(&self, wanted: Wanted) -> Result<Opened, NotOpened> {
        match self {
            Link::Builtin(dialled) => match dialled.handle.channel_open_session().await {
                Ok(channel) => Ok(Opened::Builtin(channel)),
                Err(russh::Error::ChannelOpenFailure(reason)) => {
                    Err(NotOpened::Refused(format!("{reason:?}")))
                }
                Err(error) => Err(NotOpened::Gone(error.to_string())),
            },
            Link::OpenSsh(master) => {
                match mux::open_session(master.socket(), master.process(), wanted).await {
                    Ok((incoming, outgoing)) => Ok(Opened::OpenSsh(incoming, outgoing)),
                    Err(MuxFailure::Refused(words)) => Err(NotOpened::Refused(words)),
                    Err(failure) => {
                        master.close();
                        Err(NotOpened::Gone(failure.to_string()))
                    }
                }
            }
        }
    }
}

/// A session in which nothing runs yet, or only what the system's `ssh` asks for at once.
pub(super) enum Opened {
    /// Over a connection of our own.
    Builtin(Channel<Msg>),
    /// Over one that the system's `ssh` holds.
    OpenSsh(MuxIncoming, MuxOutgoing),
}

impl Opened {
    /// Starts a shell in it.
    pub(super) async fn start(self) -> Result<(Incoming, Outgoing), russh::Error> {
        match self {
            Opened::Builtin(channel) => {
                let (incoming, outgoing) = channel.split();
                outgoing.exec(true, CONSTANT_COMMAND).await?;
                Ok((Incoming::Builtin(incoming), Outgoing::Builtin(outgoing)))
            }
            Opened::OpenSsh(incoming, outgoing) => {
                Ok((Incoming::OpenSsh(incoming), Outgoing::OpenSsh(outgoing)))
            }
        }
    }

    /// Closes it.
    pub(super) async fn close(self) {
        match self {
            Opened::Builtin(channel) => {
                let _ = channel.close().await;
            }
            Opened::OpenSsh(_, outgoing) => outgoing.close(),
        }
    }
}

/// Has a shell end at once, and says whether it did.
async fn ends(mut incoming: Incoming, outgoing: Outgoing) -> bool {
    if outgoing.send("exit 0\n".to_owned()).await.is_err() {
        return false;
    }
    while let Some(heard) = incoming.next().await {
        if let Heard::Exited(_) | Heard::Closed = heard {
            return true;
        }
    }
    false
}
