//! Writes a part of a file with many requests under way.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use remote_sandbox_core::sftp::{Request, Status};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::conversation::{Ticket, Waiter};
use super::error::SftpError;
use super::file::File;

/// Writes a file from an offset on; nothing counts as written before [`RangeWriter::finish`] says so.
pub struct RangeWriter<'a> {
    file: &'a File,
    next: u64,
    confirmed: u64,
    window: u64,
    ahead: VecDeque<(u32, Ticket<()>)>,
    /// The first refusal; after it nothing is sent any more.
    refusal: Option<Status>,
}

impl std::fmt::Debug for RangeWriter<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RangeWriter")
            .field("file", self.file)
            .field("next", &self.next)
            .field("confirmed", &self.confirmed)
            .finish_non_exhaustive()
    }
}

impl<'a> RangeWriter<'a> {
    pub(super) fn new(file: &'a File, offset: u64) -> Self {
        RangeWriter {
            file,
            next: offset,
            confirmed: offset,
            window: file.client().conversation().most_bytes() as u64,
            ahead: VecDeque::new(),
            refusal: None,
        }
    }

    /// Keeps at most this many bytes under way, but one request always.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Up to where the server has confirmed everything from the offset on; also after an error.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Sends bytes, which get fewer as they are taken over: whoever stops waiting can send the rest later.
    pub async fn send(&mut self, data: &mut Bytes) -> Result<(), SftpError> {
        self.check()?;
        let client = self.file.client();
        while !data.is_empty() {
            let length = data.len().min(client.write_length() as usize);
            while !self.ahead.is_empty() && self.under_way() + length as u64 > self.window {
                self.confirm_one().await?;
            }
            let conversation = client.conversation();
            let slot = conversation.slot(length).await?;
            let piece = data.get(..length).unwrap_or_default();
            let request = Request::Write(self.file.handle().bytes(), self.next, piece);
            let ticket = conversation.submit(&request, slot, Waiter::Status)?;
            data.advance(length);
            self.ahead.push_back((length as u32, ticket));
            self.next += length as u64;
        }
        Ok(())
    }

    /// Waits until the server has confirmed everything; says how far the file is written.
    pub async fn finish(&mut self) -> Result<u64, SftpError> {
        self.check()?;
        while !self.ahead.is_empty() {
            self.confirm_one().await?;
        }
        Ok(self.confirmed)
    }

    /// Writes all of a source; says how many bytes that were.
    pub async fn copy_from<S: AsyncRead + Unpin>(
        mut self,
        source: &mut S,
    ) -> Result<u64, SftpError> {
        let start = self.next;
        let step = self.file.client().write_length() as usize;
        loop {
            let mut chunk = BytesMut::with_capacity(step);
            while chunk.len() < step {
                let room = (step - chunk.len()) as u64;
                let read = (&mut *source).take(room).read_buf(&mut chunk).await;
                let count = read.map_err(|source| SftpError::Source {
                    subject: self.file.path().to_string(),
                    source,
                })?;
                if count == 0 {
                    break;
                }
            }
            let is_last = chunk.len() < step;
            self.send(&mut chunk.freeze()).await?;
            if is_last {
                return Ok(self.finish().await? - start);
            }
        }
    }

    fn under_way(&self) -> u64 {
        self.next - self.confirmed
    }

    fn check(&self) -> Result<(), SftpError> {
        match &self.refusal {
            Some(status) => Err(SftpError::refused(
                "write",
                self.file.path(),
                status.clone(),
            )),
            None => Ok(()),
        }
    }

    async fn confirm_one(&mut self) -> Result<(), SftpError> {
        let Some((length, ticket)) = self.ahead.front_mut() else {
            return Ok(());
        };
        let answer = ticket.answer().await;
        let length = u64::from(*length);
        self.ahead.pop_front();
        match answer? {
            Ok(()) => self.confirmed += length,
            Err(status) => {
                // What lies behind the gap does not count.
                self.ahead.clear();
                self.refusal = Some(status);
            }
        }
        self.check()
    }
}
