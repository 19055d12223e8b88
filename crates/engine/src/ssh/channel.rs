//! A shell on the host and the two directions of the channel it talks on.

use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};

use super::mux::{MuxIncoming, MuxOutgoing};
use super::session::OpenChannel;
use crate::shell::{self, Heard, Incoming as _, NotTaken, Outgoing as _, Signal};

/// How long a shell may take to end at the end of its input.
const DISMISSAL_LIMIT: Duration = Duration::from_secs(2);

/// How long a channel is read on that was given up.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// What comes from the host.
pub(super) enum Incoming {
    /// Over a connection of our own.
    Builtin(ChannelReadHalf),
    /// Over one that the system's `ssh` holds.
    OpenSsh(MuxIncoming),
}

impl shell::Incoming for Incoming {
    async fn next(&mut self) -> Option<Heard> {
        let channel = match self {
            Incoming::Builtin(channel) => channel,
            Incoming::OpenSsh(session) => return session.next().await,
        };
        loop {
            return Some(match channel.wait().await? {
                ChannelMsg::Data { data } => Heard::Out(data),
                ChannelMsg::ExtendedData { data, .. } => Heard::Err(data),
                ChannelMsg::Eof => Heard::NoMoreOutput,
                ChannelMsg::Close => Heard::Closed,
                ChannelMsg::ExitStatus { exit_status } => Heard::Exited(exit_status),
                ChannelMsg::ExitSignal { signal_name, .. } => Heard::Signalled(word(&signal_name)),
                ChannelMsg::Failure => Heard::Refused,
                _ => continue,
            });
        }
    }
}

fn word(signal: &Sig) -> String {
    match signal {
        Sig::Custom(name) => remote_sandbox_core::output::clean_line(name, 20),
        known => format!("{known:?}"),
    }
}

/// What goes to the host.
pub(super) enum Outgoing {
    /// Over a connection of our own.
    Builtin(ChannelWriteHalf<Msg>),
    /// Over one that the system's `ssh` holds.
    OpenSsh(MuxOutgoing),
}

impl shell::Outgoing for Outgoing {
    async fn send_bytes(&self, bytes: Bytes) -> Result<(), NotTaken> {
        match self {
            Outgoing::Builtin(channel) => {
                let sent = channel.data_bytes(bytes).await;
                sent.map_err(|_| NotTaken)
            }
            Outgoing::OpenSsh(session) => session.send(&bytes).await,
        }
    }

    async fn finish(&self) -> Result<(), NotTaken> {
        match self {
            Outgoing::Builtin(channel) => channel.eof().await.map_err(|_| NotTaken),
            Outgoing::OpenSsh(session) => {
                session.finish().await;
                Ok(())
            }
        }
    }

    async fn let_go(&self) {
        self.close().await;
    }

    async fn signal(&self, signal: Signal) -> Result<(), NotTaken> {
        let Outgoing::Builtin(channel) = self else {
            return Err(NotTaken);
        };
        let signal = match signal {
            Signal::Term => Sig::TERM,
            Signal::Kill => Sig::KILL,
        };
        channel.signal(signal).await.map_err(|_| NotTaken)
    }
}

impl Outgoing {
    /// Closes the channel.
    pub(super) async fn close(&self) {
        match self {
            Outgoing::Builtin(channel) => {
                let _ = channel.close().await;
            }
            Outgoing::OpenSsh(session) => session.close(),
        }
    }
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Shell")
    }
}

/// A shell that was asked for and reads a script from its standard input.
pub(super) struct Shell {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    pub(super) open: OpenChannel,
}

impl Shell {
    /// Lets a shell end that has been sent no command: it does so at the end of its input.
    pub(super) fn dismiss(self) {
        tokio::spawn(async move {
            let mut shell = self;
            let ending = async {
                let _ = shell.outgoing.finish().await;
                while let Some(heard) = shell.incoming.next().await {
                    if matches!(heard, Heard::Closed) {
                        return;
                    }
                }
            };
            if tokio::time::timeout(DISMISSAL_LIMIT, ending).await.is_err() {
                shell.give_up();
            }
        });
    }

    /// Closes a shell that nobody waits for any more. The library tells nothing of a channel once our
    /// own word that it is closed has gone out; until then it is read on, for an undrained channel
    /// stops them all.
    pub(super) fn give_up(self) {
        let Shell {
            mut incoming,
            outgoing,
            open,
        } = self;
        tokio::spawn(async move {
            let rest = async {
                outgoing.close().await;
                while let Some(heard) = incoming.next().await {
                    if matches!(heard, Heard::Closed) {
                        break;
                    }
                }
            };
            let _ = tokio::time::timeout(DRAIN_LIMIT, rest).await;
            drop(open);
        });
    }
}
