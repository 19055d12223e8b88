//! Serves one client over standard input and output, and ends with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use remote_sandbox_engine::engine::Engine;
use rmcp::ServiceExt;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::opening::Opening;
use super::server::McpServer;

/// How long calls that started nothing may still take when the client has gone.
const LAST_REPLIES: Duration = Duration::from_millis(2500);

/// Why the server could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client did not speak the protocol.
    #[error("the client does not speak MCP")]
    Protocol(#[source] Box<rmcp::service::ServerInitializeError>),
    /// The task that serves the client broke.
    #[error("serving the client broke")]
    Broken(#[source] tokio::task::JoinError),
}

/// Serves until standard input ends or `stop` is set, then ends what calls have started.
pub async fn serve_stdio(engine: Arc<Engine>, stop: CancellationToken) -> Result<(), ServeError> {
    let (input, output) = stdio_pipes();
    let ended = CancellationToken::new();
    let input = EndWatcher {
        inner: input,
        ended: ended.clone(),
    };
    let server = McpServer::new(engine.clone());
    // The library waits for calls under way before it says that the input has ended; their
    // processes are ended meanwhile, so that it need not wait long.
    let (farewell, ending) = (engine.clone(), ended.clone());
    let cleaning = tokio::spawn(async move {
        tokio::select! {
            () = ending.cancelled() => {}
            () = stop.cancelled() => {}
        }
        farewell.shut_down().await;
    });
    let served = serve(server, input, output, &cleaning).await;
    ended.cancel();
    let _ = cleaning.await;
    served
}

async fn serve<I, O>(
    server: McpServer,
    input: I,
    output: O,
    cleaning: &tokio::task::JoinHandle<()>,
) -> Result<(), ServeError>
where
    I: AsyncRead + Send + Unpin + 'static,
    O: tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let transport = Opening::new(AsyncRwTransport::new_server(input, output));
    let running = match server.serve(transport).await {
        Ok(running) => running,
        // A client that goes away before it said anything did nothing wrong.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError::Protocol(Box::new(error))),
    };
    let quit = running.cancellation_token();
    let waiting = running.waiting();
    tokio::pin!(waiting);
    let result = tokio::select! {
        result = &mut waiting => result,
        () = finished(cleaning) => {
            quit.cancel();
            match tokio::time::timeout(LAST_REPLIES, waiting).await {
                Ok(result) => result,
                // What still hangs here is a host that does not answer; nobody waits for it now.
                Err(_) => return Ok(()),
            }
        }
    };
    result.map(|_| ()).map_err(ServeError::Broken)
}

async fn finished(task: &tokio::task::JoinHandle<()>) {
    while !task.is_finished() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Notices the end of the input as soon as it is read.
struct EndWatcher<R> {
    inner: R,
    ended: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for EndWatcher<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        if result.is_err() || (buffer.filled().len() == before && buffer.remaining() > 0) {
            self.ended.cancel();
        }
        Poll::Ready(result)
    }
}
