//! Reads a part of a file with many requests under way.

use std::collections::VecDeque;

use bytes::Bytes;
use remote_sandbox_core::sftp::{Request, StatusCode};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::conversation::{Slot, Ticket, Waiter};
use super::error::SftpError;
use super::file::File;

/// A server that answers with less is asked for less, down to this.
const SHORTEST_READ: u32 = 4 * 1024;

/// A part that was asked for.
struct Part {
    offset: u64,
    length: u32,
    ticket: Ticket<Bytes>,
}

/// Gives a part of a file in order; at most the wanted bytes, fewer where the file ends before.
pub struct RangeReader<'a> {
    file: &'a File,
    next: u64,
    end: u64,
    step: u32,
    window: u64,
    /// What the first answer lacked: its offset and length. It goes before all that is ahead.
    lacking: Option<(u64, u32)>,
    ahead: VecDeque<Part>,
}

impl std::fmt::Debug for RangeReader<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RangeReader")
            .field("file", self.file)
            .field("next", &self.next)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl<'a> RangeReader<'a> {
    pub(super) fn new(file: &'a File, offset: u64, length: u64) -> Self {
        RangeReader {
            file,
            next: offset,
            end: offset.saturating_add(length),
            step: file.client().read_length(),
            window: file.client().conversation().most_bytes() as u64,
            lacking: None,
            ahead: VecDeque::new(),
        }
    }

    /// Keeps at most this many bytes under way or waiting to be taken, but one request always.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// The next bytes, with their place in the file; `None` at the end. Nothing is lost when the caller stops
    /// waiting.
    pub async fn next(&mut self) -> Result<Option<(u64, Bytes)>, SftpError> {
        self.ask_ahead().await?;
        let Some(part) = self.ahead.front_mut() else {
            return Ok(None);
        };
        let answer = part.ticket.answer().await;
        match answer {
            Ok(Ok(data)) if data.is_empty() => {
                self.stop();
                Err(SftpError::NoProgress {
                    subject: self.file.path().to_string(),
                })
            }
            Ok(Ok(data)) => {
                let offset = part.offset;
                self.take(data.len());
                Ok(Some((offset, data)))
            }
            Ok(Err(status)) if status.code == StatusCode::EndOfFile => {
                self.stop();
                Ok(None)
            }
            Ok(Err(status)) => {
                self.stop();
                Err(SftpError::refused("read", self.file.path(), status))
            }
            Err(error) => {
                self.stop();
                Err(error)
            }
        }
    }

    /// Passes everything on to a sink; says how many bytes that were.
    pub async fn copy_to<S: AsyncWrite + Unpin>(mut self, sink: &mut S) -> Result<u64, SftpError> {
        let mut total = 0;
        let broken = |source| SftpError::Sink {
            subject: self.file.path().to_string(),
            source,
        };
        while let Some((_, data)) = self.next().await? {
            sink.write_all(&data).await.map_err(broken)?;
            total += data.len() as u64;
        }
        sink.flush().await.map_err(broken)?;
        Ok(total)
    }

    /// Nothing more is asked for, and what is under way is answered to nobody.
    fn stop(&mut self) {
        self.next = self.end;
        self.lacking = None;
        self.ahead.clear();
    }

    /// Takes the first part off; what its answer lacks is asked for again, and later parts are shorter.
    fn take(&mut self, length: usize) {
        let Some(part) = self.ahead.pop_front() else {
            return;
        };
        // No answer is longer than its question.
        let length = u32::try_from(length).unwrap_or(part.length);
        let rest = part.length.saturating_sub(length);
        if rest > 0 {
            self.lacking = Some((part.offset + u64::from(length), rest));
            self.step = self.step.min(length.max(SHORTEST_READ));
        }
    }

    /// Keeps requests under way; waits for room only for the first, whose room others may have.
    async fn ask_ahead(&mut self) -> Result<(), SftpError> {
        let conversation = self.file.client().conversation();
        if let Some((offset, length)) = self.lacking {
            let slot = conversation.slot(length as usize).await?;
            let ticket = ask(self.file, offset, length, slot)?;
            self.lacking = None;
            self.ahead.push_front(Part {
                offset,
                length,
                ticket,
            });
        }
        while self.next < self.end {
            let left = self.end - self.next;
            let length = u32::try_from(left).unwrap_or(u32::MAX).min(self.step);
            let slot = if self.ahead.is_empty() {
                conversation.slot(length as usize).await?
            } else if self.under_way() + u64::from(length) > self.window {
                break;
            } else {
                match conversation.slot_now(length as usize)? {
                    Some(slot) => slot,
                    None => break,
                }
            };
            let ticket = ask(self.file, self.next, length, slot)?;
            self.ahead.push_back(Part {
                offset: self.next,
                length,
                ticket,
            });
            self.next += u64::from(length);
        }
        Ok(())
    }

    /// The parts lie one behind the other.
    fn under_way(&self) -> u64 {
        let first = self.ahead.front().map_or(self.next, |part| part.offset);
        self.next.saturating_sub(first)
    }
}

fn ask(file: &File, offset: u64, most: u32, slot: Slot) -> Result<Ticket<Bytes>, SftpError> {
    let request = Request::Read(file.handle().bytes(), offset, most);
    let waiter = |answer| Waiter::Data { most, answer };
    file.client().conversation().submit(&request, slot, waiter)
}
