//! A stream that notices when the host has said who it is.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::watch::{Milestone, Watch};

/// A host that says this much before its banner is not an SSH server.
const LONGEST_GREETING: usize = 64 * 1024;

/// A banner is never longer than this.
const LONGEST_BANNER: usize = 255;

/// How the line begins that says who the host is.
const BANNER_START: &[u8] = b"SSH-";

/// Tells when the banner line has come.
#[derive(Debug, Default)]
pub(super) struct BannerSeen {
    seen: AtomicBool,
    notify: Notify,
}

impl BannerSeen {
    /// Whether it has come.
    pub(super) fn is_set(&self) -> bool {
        self.seen.load(Ordering::Acquire)
    }

    /// Waits until it has come.
    pub(super) async fn wait(&self) {
        let notified = self.notify.notified();
        if !self.is_set() {
            notified.await;
        }
    }
}

/// Passes everything through and looks for a whole line that starts with `SSH-`.
#[derive(Debug)]
pub(super) struct Observed<S> {
    inner: S,
    seen: Arc<BannerSeen>,
    greeting: usize,
    line: Vec<u8>,
    watch: Watch,
}

impl<S> Observed<S> {
    /// Watches a stream.
    pub(super) fn new(inner: S, watch: Watch) -> (Self, Arc<BannerSeen>) {
        let seen = Arc::new(BannerSeen::default());
        (
            Observed {
                inner,
                seen: seen.clone(),
                greeting: 0,
                line: Vec::new(),
                watch,
            },
            seen,
        )
    }

    /// Looks at new bytes; an error when there are too many of them without a banner.
    fn look(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.seen.is_set() {
            return Ok(());
        }
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() < LONGEST_BANNER {
                    self.line.push(byte);
                }
            } else if self.line.starts_with(BANNER_START) {
                let line = std::mem::take(&mut self.line);
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                self.watch.tell(Milestone::Banner(text));
                self.seen.seen.store(true, Ordering::Release);
                self.seen.notify.notify_waiters();
                return Ok(());
            } else {
                self.line.clear();
            }
        }
        self.greeting += bytes.len();
        if self.greeting > LONGEST_GREETING {
            let text = format!("{LONGEST_GREETING} bytes came without an SSH banner");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let looked = self.look(buffer.filled().get(before..).unwrap_or_default());
        if looked.is_err() {
            // A read that fails has read nothing.
            buffer.set_filled(before);
        }
        Poll::Ready(looked)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
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
    use tokio::io::AsyncReadExt;

    async fn read_all(text: &[u8]) -> (bool, std::io::Result<usize>) {
        let (mut observed, seen) =
            Observed::new(std::io::Cursor::new(text.to_vec()), Watch::default());
        let result = observed.read_to_end(&mut Vec::new()).await;
        (seen.is_set(), result)
    }

    #[tokio::test]
    async fn banner_is_seen_after_other_lines() {
        assert!(read_all(b"welcome\r\nSSH-2.0-x\r\n").await.0);
        assert!(!read_all(b"HTTP/1.1 400 SSH-\r\n").await.0);
    }

    #[tokio::test]
    async fn banner_is_not_seen_before_its_line_ends() {
        assert!(!read_all(b"SSH-2.0-x").await.0);
        let mut endless = b"SSH-".to_vec();
        endless.resize(LONGEST_GREETING + 1, b'x');
        let (seen, result) = read_all(&endless).await;
        assert!(!seen && result.is_err());
    }

    #[tokio::test]
    async fn endless_greeting_is_an_error() {
        let (seen, result) = read_all(&vec![b'x'; LONGEST_GREETING + 1]).await;
        assert!(!seen && result.is_err());
    }
}
