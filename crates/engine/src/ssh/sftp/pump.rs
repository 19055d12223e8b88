//! Moves packets between the streams and the conversation.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::sftp::{PacketError, packet_length};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::conversation::Conversation;
use super::error::Loss;

/// Bytes that are read at once, at least where there are so many.
const READ_AT_ONCE: usize = 64 * 1024;

/// A buffer that once held a large request is not kept.
const LARGEST_KEPT: usize = 64 * 1024;

/// Words of a host that are shown.
const LONGEST_WORDS: usize = 100;

/// The packets that come from a server.
pub(super) struct Incoming<R> {
    read: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(super) fn new(read: R) -> Self {
        Incoming {
            read,
            buffer: BytesMut::new(),
        }
    }

    /// The next packet, without its length. Nothing is lost when the caller stops waiting.
    pub(super) async fn next(&mut self) -> Result<Bytes, Loss> {
        loop {
            let missing = match packet_length(&self.buffer)? {
                Some(length) if self.buffer.len() >= 4 + length => {
                    self.buffer.advance(4);
                    return Ok(self.buffer.split_to(length).freeze());
                }
                Some(length) => 4 + length - self.buffer.len(),
                None => 4,
            };
            if self.buffer.capacity() - self.buffer.len() < missing {
                self.buffer.reserve(missing.max(READ_AT_ONCE));
            }
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Err(match self.buffer.is_empty() {
                    true => Loss::Ended,
                    false => Loss::CutOff,
                });
            }
        }
    }

    /// The first packet of a server; where text comes instead, as login files print it, that is said.
    pub(super) async fn first(&mut self) -> Result<Bytes, Loss> {
        let answer = self.next().await;
        let Err(Loss::Packet(PacketError::TooLong(_)) | Loss::CutOff) = answer else {
            return answer;
        };
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        match self.buffer.first_chunk::<4>() {
            Some(start) if start.iter().all(is_text) => {
                let text = String::from_utf8_lossy(&self.buffer);
                Err(Loss::Text(clean_line(&text, LONGEST_WORDS)))
            }
            _ => answer,
        }
    }
}

/// Sends what is queued and delivers what comes, until either ends.
pub(super) async fn pump<R, W>(
    conversation: Arc<Conversation>,
    incoming: Incoming<R>,
    outgoing: W,
    silence_limit: Duration,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    // However this task comes to its end, nobody waits for ever.
    let _end = EndWith(conversation.clone());
    let loss = tokio::select! {
        loss = receive(&conversation, incoming, silence_limit) => loss,
        loss = send(&conversation, outgoing) => loss,
    };
    conversation.end(loss);
}

/// Ends the conversation at the latest when it is dropped.
struct EndWith(Arc<Conversation>);

impl Drop for EndWith {
    fn drop(&mut self) {
        self.0.end(Loss::LetGo);
    }
}

async fn receive<R: AsyncRead + Unpin>(
    conversation: &Arc<Conversation>,
    mut incoming: Incoming<R>,
    silence_limit: Duration,
) -> Loss {
    loop {
        let was_waiting = conversation.is_waiting();
        match tokio::time::timeout(silence_limit, incoming.next()).await {
            Ok(Ok(packet)) => {
                if let Err(loss) = conversation.deliver(&packet) {
                    return loss;
                }
            }
            Ok(Err(loss)) => return loss,
            Err(_) if was_waiting => return Loss::Silent(silence_limit),
            // The answer that is due now may have been asked for a moment ago.
            Err(_) => {}
        }
    }
}

async fn send<W: AsyncWrite + Unpin>(conversation: &Conversation, mut outgoing: W) -> Loss {
    let mut batch = Vec::new();
    loop {
        conversation.next_batch(&mut batch).await;
        if let Err(error) = write(&mut outgoing, &batch).await {
            return Loss::Broken(error);
        }
        batch.clear();
        if batch.capacity() > LARGEST_KEPT {
            batch = Vec::new();
        }
    }
}

/// Writes bytes and lets them go out.
pub(super) async fn write<W: AsyncWrite + Unpin>(
    outgoing: &mut W,
    bytes: &[u8],
) -> std::io::Result<()> {
    outgoing.write_all(bytes).await?;
    outgoing.flush().await
}
