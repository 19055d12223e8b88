//! A stream whose writes must get on.
//!
//! The SSH library looks at its keepalive timer only between writes, so a write that waits for a
//! dead host for ever would never be noticed by it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Passes everything through; a write that gets nowhere for too long is an error.
#[derive(Debug)]
pub(super) struct Impatient<S> {
    inner: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Lets no write wait longer than `limit` for its first byte to be taken.
    pub(super) fn new(inner: S, limit: Duration) -> Self {
        Impatient {
            inner,
            limit,
            waiting: None,
        }
    }

    /// Passes an answer on, or puts an end to the waiting.
    fn bound<T>(
        &mut self,
        answer: Poll<std::io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<T>> {
        if answer.is_ready() {
            self.waiting = None;
            return answer;
        }
        let limit = self.limit;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        waiting.as_mut().poll(context).map(|()| {
            let text = format!("the host took no data for {} s", limit.as_secs_f64());
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let answer = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.bound(answer, context)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let answer = Pin::new(&mut self.inner).poll_flush(context);
        self.bound(answer, context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LIMIT: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn write_that_nobody_takes_ends_with_an_error() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = Impatient::new(near, LIMIT);
        let begun = tokio::time::Instant::now();
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_is_waited_for_as_long_as_it_reads() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Impatient::new(near, LIMIT);
        let read = async {
            let mut total = 0;
            while total < 64 {
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                total += far.read(&mut [0; 16]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[0; 64]), read);
        written.unwrap();
    }
}
