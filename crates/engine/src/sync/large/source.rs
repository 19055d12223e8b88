//! The file on this machine, which is sent or written.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use bytes::Bytes;
use remote_sandbox_core::sync::{Entry, Mtime, Stamp};

use super::error::LargeError;

/// An open file of this machine; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Source {
    file: Arc<File>,
    path: Arc<str>,
}

impl Source {
    pub(super) fn new(file: File, entry: &Entry) -> Self {
        Source {
            file: Arc::new(file),
            path: entry.path.shown().text.into(),
        }
    }

    /// Its path as it is shown.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Reads exactly so many bytes; a file that ends before has changed. For threads that may block.
    pub(super) fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<(), LargeError> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => self.unreadable(source),
        })
    }

    /// Reads exactly so many bytes.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, LargeError> {
        let source = self.clone();
        self.apart(move || {
            let mut buffer = vec![0; length];
            source.read_now(offset, &mut buffer)?;
            Ok(Bytes::from(buffer))
        })
        .await
    }

    /// Writes bytes at an offset.
    pub(super) async fn write(&self, offset: u64, data: Vec<Bytes>) -> Result<(), LargeError> {
        let file = self.clone();
        self.apart(move || {
            let mut at = offset;
            for piece in data {
                let written = file.file.write_all_at(&piece, at);
                written.map_err(|error| file.unwritable(error))?;
                at += piece.len() as u64;
            }
            Ok(())
        })
        .await
    }

    /// Cuts it down to at most this many bytes; says how many it has then.
    pub(super) async fn cut_to(&self, most_bytes: u64) -> Result<u64, LargeError> {
        let file = self.clone();
        self.apart(move || {
            let found = file.file.metadata();
            let size = found.map_err(|error| file.unreadable(error))?.size();
            if size > most_bytes {
                let cut = file.file.set_len(most_bytes);
                cut.map_err(|error| file.unwritable(error))?;
            }
            Ok(size.min(most_bytes))
        })
        .await
    }

    /// Fails when the file is not what the scan saw.
    pub(super) async fn check(&self, expected: Stamp) -> Result<(), LargeError> {
        let source = self.clone();
        let found = self.apart(move || {
            let found = source.file.metadata();
            found.map_err(|error| source.unreadable(error))
        });
        let found = found.await?;
        let nanoseconds = u32::try_from(found.mtime_nsec()).unwrap_or(0);
        let mtime = Mtime::exact(found.mtime(), nanoseconds);
        let now = Stamp {
            size_bytes: found.size(),
            mtime: mtime.unwrap_or(Mtime::whole(found.mtime())),
        };
        match now.agrees(expected) {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    /// Does something on a thread that may block.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, LargeError> + Send + 'static,
    ) -> Result<T, LargeError> {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|_| Err(self.broken()))
    }

    pub(super) fn changed(&self) -> LargeError {
        LargeError::Changed {
            path: self.path.to_string(),
        }
    }

    pub(super) fn broken(&self) -> LargeError {
        LargeError::Broken {
            path: self.path.to_string(),
        }
    }

    fn unwritable(&self, source: io::Error) -> LargeError {
        LargeError::Write {
            path: self.path.to_string(),
            source,
        }
    }

    fn unreadable(&self, source: io::Error) -> LargeError {
        LargeError::Local {
            path: self.path.to_string(),
            source,
        }
    }
}
