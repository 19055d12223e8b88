//! The entries of a directory, as they come.

use std::collections::VecDeque;

use remote_sandbox_core::sftp::{
    Attributes, EntryName, EntryNameError, NamedEntry, RemotePath, Request, StatusCode,
};

use super::client::Client;
use super::conversation::{RawHandle, Ticket, Waiter};
use super::error::SftpError;

/// What an answer takes, about; a hostile server can send four times that.
const ANSWER: usize = 64 * 1024;

/// Questions under way: two save the round trip in which a small directory is found to be over.
const FEWEST_AHEAD: usize = 2;
const MOST_AHEAD: usize = 8;

/// How many answers may come without an entry.
const MOST_EMPTY: usize = 16;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: EntryName,
    /// What it is, links not followed.
    pub attributes: Attributes,
}

/// Some entries of a directory, in no order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The entries, without the directory itself and the one above.
    pub entries: Vec<Entry>,
    /// What the server listed but cannot be the name of an entry.
    pub refused: Vec<EntryNameError>,
}

/// An open directory.
pub struct ReadDir {
    client: Client,
    handle: RawHandle,
    path: RemotePath,
    ahead: VecDeque<Ticket<Vec<NamedEntry>>>,
    batches: usize,
    empty: usize,
    most: usize,
    left: usize,
    is_over: bool,
    has_more: bool,
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ReadDir").field(&self.path).finish()
    }
}

impl ReadDir {
    pub(super) fn new(client: Client, handle: RawHandle, path: RemotePath, most: usize) -> Self {
        ReadDir {
            client,
            handle,
            path,
            ahead: VecDeque::new(),
            batches: 0,
            empty: 0,
            most,
            left: most,
            is_over: false,
            has_more: false,
        }
    }

    /// The next entries, `None` after the last. Where there are more than were wanted, those that were wanted
    /// come first and then an error. Nothing is lost when the caller stops waiting.
    pub async fn next_batch(&mut self) -> Result<Option<Batch>, SftpError> {
        loop {
            if self.has_more {
                return Err(SftpError::TooManyEntries {
                    subject: self.path.to_string(),
                    most: self.most,
                });
            }
            self.ask_ahead().await?;
            let Some(ticket) = self.ahead.front_mut() else {
                return Ok(None);
            };
            let answer = ticket.answer().await;
            self.ahead.pop_front();
            let names = match answer? {
                Ok(names) => names,
                Err(status) if status.code == StatusCode::EndOfFile => {
                    // A server that answers side by side may have put entries into the others.
                    self.is_over = true;
                    continue;
                }
                Err(status) => {
                    self.is_over = true;
                    self.ahead.clear();
                    return Err(SftpError::refused("list", &self.path, status));
                }
            };
            self.batches += 1;
            let batch = self.sort_out(names);
            if !batch.entries.is_empty() || !batch.refused.is_empty() {
                return Ok(Some(batch));
            }
            self.empty += usize::from(!self.has_more);
            if self.empty > MOST_EMPTY {
                return Err(SftpError::NoProgress {
                    subject: self.path.to_string(),
                });
            }
        }
    }

    /// All entries that are left, in no order.
    pub async fn collect(&mut self) -> Result<Batch, SftpError> {
        let mut all = Batch::default();
        while let Some(batch) = self.next_batch().await? {
            all.entries.extend(batch.entries);
            all.refused.extend(batch.refused);
        }
        Ok(all)
    }

    /// Keeps questions under way; waits for room only for the first.
    async fn ask_ahead(&mut self) -> Result<(), SftpError> {
        let wanted = (FEWEST_AHEAD + self.batches).min(MOST_AHEAD);
        let conversation = self.client.conversation();
        while !self.is_over && self.ahead.len() < wanted {
            let slot = if self.ahead.is_empty() {
                conversation.slot(ANSWER).await?
            } else {
                match conversation.slot_now(ANSWER)? {
                    Some(slot) => slot,
                    None => break,
                }
            };
            let request = Request::Readdir(self.handle.bytes());
            let ticket = conversation.submit(&request, slot, Waiter::Names)?;
            self.ahead.push_back(ticket);
        }
        Ok(())
    }

    fn sort_out(&mut self, names: Vec<NamedEntry>) -> Batch {
        let mut batch = Batch::default();
        for NamedEntry { name, attributes } in names {
            let name = EntryName::new(name);
            if name == Err(EntryNameError::Dots) {
                continue;
            }
            if self.left == 0 {
                self.has_more = true;
                self.is_over = true;
                self.ahead.clear();
                break;
            }
            self.left -= 1;
            match name {
                Ok(name) => batch.entries.push(Entry { name, attributes }),
                Err(refused) => batch.refused.push(refused),
            }
        }
        batch
    }
}
