//! A channel through another host, as the carrier of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use remote_sandbox_core::config::SshSettings;
use russh::ChannelStream;
use russh::client::Msg;
use tokio::io::{
    AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, SimplexStream, WriteHalf,
};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::dial::Dialled;
use super::dial_error::DialError;

/// Bytes that may wait for the jump host.
///
/// Both connections live in this program, and each reads only while it does not write. If the outer
/// one had to wait here, the inner one could be waiting for it at the same time, for ever. So what
/// the windows of eight channels allow must fit.
const WAITING_BYTES: usize = 24 << 20;

/// The jump host is given this long to say why its connection ended.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(50);

/// A stream through a jump host; the connection to that host lives as long as this does.
pub(super) struct Through {
    reader: ReadHalf<ChannelStream<Msg>>,
    waiting: WriteHalf<SimplexStream>,
    _pump: AbortOnDropHandle<()>,
    hop: Arc<Dialled>,
    ending: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Through {
    /// Asks the jump host for a connection to another one.
    pub(super) async fn open(hop: Arc<Dialled>, settings: &SshSettings) -> Result<Self, DialError> {
        let (host, port, limit) = (settings.host.clone(), settings.port, settings.limits.tcp);
        let opening =
            hop.handle
                .channel_open_direct_tcpip(host.clone(), u32::from(port), "127.0.0.1", 0);
        let channel = match timeout(limit, opening).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(source)) => return Err(DialError::Forward { host, port, source }),
            Err(_) => return Err(DialError::TcpSlow { host, port, limit }),
        };
        let (reader, writer) = tokio::io::split(channel.into_stream());
        let (outgoing, waiting) = tokio::io::simplex(WAITING_BYTES);
        let pump = tokio::spawn(pump(outgoing, writer));
        Ok(Through {
            reader,
            waiting,
            _pump: AbortOnDropHandle::new(pump),
            hop,
            ending: None,
        })
    }
}

/// Carries what waits to the jump host, until either side ends.
async fn pump(mut outgoing: ReadHalf<SimplexStream>, mut channel: WriteHalf<ChannelStream<Msg>>) {
    if let Err(error) = tokio::io::copy(&mut outgoing, &mut channel).await {
        tracing::debug!(%error, "the jump host takes no more");
    }
    let _ = channel.shutdown().await;
}

impl AsyncRead for Through {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.reader).poll_read(context, buffer))?;
            if buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        // The end: of the host behind, or of the jump host, which may not have said so yet.
        let ending = self
            .ending
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(FAREWELL_PATIENCE)));
        ready!(ending.as_mut().poll(context));
        if self.hop.handle.is_closed() {
            let words = self.hop.farewell.words();
            let words = words.unwrap_or_else(|| "it was closed".to_owned());
            let text = format!("the connection to the jump host ended: {words}");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Through {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.waiting).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.waiting).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.waiting).poll_shutdown(context)
    }
}
