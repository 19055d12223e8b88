//! What a connection runs over: TCP, a channel through another host, or a program.

use std::net::SocketAddr;
use std::sync::Arc;

use remote_sandbox_core::config::{SshSettings, Way};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::Dialled;
use super::dial_error::DialError;
use super::jump::Through;
use super::watch::{Milestone, Watch};
use crate::proc::{LastWords, Piped};

/// Whatever carries an SSH connection.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// A carrier that is open, and what its program says if it is one.
pub(super) struct Opened {
    pub(super) carrier: Box<dyn Carrier>,
    pub(super) words: Option<LastWords>,
}

/// Opens the way to a host; `hop` is the connection to the host before it, if there is one.
pub(super) async fn open(
    settings: &SshSettings,
    hop: Option<&Arc<Dialled>>,
    hidden: &[String],
    watch: &Watch,
) -> Result<Opened, DialError> {
    let plain = |carrier| Opened {
        carrier,
        words: None,
    };
    if let Some(hop) = hop {
        let through = Through::open(hop.clone(), settings).await?;
        watch.tell(Milestone::Carried("a channel through the jump host"));
        return Ok(plain(Box::new(through)));
    }
    if let Way::Command(line) = &settings.way {
        let piped = Piped::start(line, hidden).map_err(|source| DialError::Program {
            host: settings.host.clone(),
            source,
        })?;
        let words = Some(piped.words());
        watch.tell(Milestone::Carried("a ProxyCommand"));
        return Ok(Opened {
            carrier: Box::new(piped),
            words,
        });
    }
    Ok(plain(Box::new(connect(settings, watch).await?)))
}

async fn connect(settings: &SshSettings, watch: &Watch) -> Result<TcpStream, DialError> {
    let (host, port, limit) = (settings.host.clone(), settings.port, settings.limits.tcp);
    let addresses: Vec<SocketAddr> = match timeout(
        limit,
        tokio::net::lookup_host((settings.host.as_str(), port)),
    )
    .await
    {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(source)) => return Err(DialError::Resolve { host, source }),
        Err(_) => return Err(DialError::ResolveSlow { host, limit }),
    };
    watch.tell(Milestone::Resolved(addresses.clone()));
    match timeout(limit, TcpStream::connect(addresses.as_slice())).await {
        Ok(Ok(stream)) => {
            watch.tell(Milestone::Connected(stream.peer_addr().ok()));
            // Small packets must not wait for each other; a command would cost 40 ms more.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "nodelay could not be set");
            }
            Ok(stream)
        }
        Ok(Err(source)) => Err(DialError::Tcp { host, port, source }),
        Err(_) => Err(DialError::TcpSlow { host, port, limit }),
    }
}
