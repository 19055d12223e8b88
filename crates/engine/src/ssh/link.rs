//! What carries sessions to a host: a connection of our own, or one that the system's `ssh` holds.

use std::time::Duration;

use remote_sandbox_core::shell::CONSTANT_COMMAND;

use super::channel::{Heard, Incoming, Outgoing};
use super::dial::Dialled;
use super::mux::{self, MuxFailure};
use super::openssh::Master;

/// How long saying goodbye may take.
const GOODBYE_LIMIT: Duration = Duration::from_millis(200);

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
            Link::OpenSsh(master) => match self.open_shell().await {
                // Only a host that is there can refuse.
                Err(NotOpened::Refused(_)) => true,
                Err(NotOpened::Gone(_)) => false,
                Ok((incoming, outgoing)) => ends(incoming, outgoing).await && !master.is_closed(),
            },
        }
    }

    /// Asks for a session with a shell; nothing of a caller is sent yet, so it may be asked again.
    pub(super) async fn open_shell(&self) -> Result<(Incoming, Outgoing), NotOpened> {
        match self {
            Link::Builtin(dialled) => open_builtin(dialled).await,
            Link::OpenSsh(master) => match mux::open_shell(master.socket()).await {
                Ok((incoming, outgoing)) => {
                    Ok((Incoming::OpenSsh(incoming), Outgoing::OpenSsh(outgoing)))
                }
                Err(MuxFailure::Refused(words)) => Err(NotOpened::Refused(words)),
                Err(failure) => {
                    master.close();
                    Err(NotOpened::Gone(failure.to_string()))
                }
            },
        }
    }
}

async fn open_builtin(dialled: &Dialled) -> Result<(Incoming, Outgoing), NotOpened> {
    let gone = |error: russh::Error| {
        let words = dialled.farewell.words();
        NotOpened::Gone(words.unwrap_or_else(|| error.to_string()))
    };
    let channel = match dialled.handle.channel_open_session().await {
        Ok(channel) => channel,
        Err(russh::Error::ChannelOpenFailure(reason)) => {
            return Err(NotOpened::Refused(format!("{reason:?}")));
        }
        Err(error) => return Err(gone(error)),
    };
    let (incoming, outgoing) = channel.split();
    outgoing.exec(true, CONSTANT_COMMAND).await.map_err(gone)?;
    Ok((Incoming::Builtin(incoming), Outgoing::Builtin(outgoing)))
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
