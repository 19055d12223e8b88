//! An open file.

use bytes::Bytes;
use remote_sandbox_core::sftp::{Attributes, Extension, RemotePath, Request, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::client::Client;
use super::conversation::{RawHandle, Waiter};
use super::error::SftpError;
use super::range_reader::RangeReader;
use super::range_writer::RangeWriter;

/// An open file; dropped, it is closed without asking how that went.
pub struct File {
    client: Client,
    handle: RawHandle,
    path: RemotePath,
}

impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("File").field(&self.path).finish()
    }
}

impl File {
    pub(super) fn new(client: Client, handle: RawHandle, path: RemotePath) -> Self {
        File {
            client,
            handle,
            path,
        }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &RemotePath {
        &self.path
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn handle(&self) -> &RawHandle {
        &self.handle
    }

    /// Reads once from an offset: at most `length` bytes, maybe fewer, none at the end.
    pub async fn read(&self, offset: u64, length: u32) -> Result<Bytes, SftpError> {
        let most = length.min(self.client.read_length());
        let request = Request::Read(self.handle.bytes(), offset, most);
        let waiter = |answer| Waiter::Data { most, answer };
        let read = self
            .client
            .ask("read", &self.path, &request, most as usize, waiter)
            .await;
        match read {
            Err(error) if error.code() == Some(StatusCode::EndOfFile) => Ok(Bytes::new()),
            read => read,
        }
    }

    /// Writes once at an offset, all or nothing; see [`Client::write_length`] for how much it may be.
    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<(), SftpError> {
        let most = self.client.write_length() as usize;
        if data.len() > most {
            return Err(SftpError::TooLong {
                subject: self.path.to_string(),
                bytes: data.len(),
                most,
            });
        }
        let request = Request::Write(self.handle.bytes(), offset, data);
        self.client
            .ask("write", &self.path, &request, data.len(), Waiter::Status)
            .await
    }

    /// A reader of a part of the file, with many requests under way.
    pub fn reader(&self, offset: u64, length: u64) -> RangeReader<'_> {
        RangeReader::new(self, offset, length)
    }

    /// A writer to a part of the file, with many requests under way.
    pub fn writer(&self, offset: u64) -> RangeWriter<'_> {
        RangeWriter::new(self, offset)
    }

    /// Reads at most `length` bytes from an offset into a sink; says how many there were. Given up, it may
    /// have passed on any part of that.
    pub async fn read_range<S: AsyncWrite + Unpin>(
        &self,
        offset: u64,
        length: u64,
        sink: &mut S,
    ) -> Result<u64, SftpError> {
        self.reader(offset, length).copy_to(sink).await
    }

    /// Writes all of a source from an offset on; says how many bytes that were. Given up, it may have
    /// written any part of that, not only from the beginning.
    pub async fn write_range<S: AsyncRead + Unpin>(
        &self,
        offset: u64,
        source: &mut S,
    ) -> Result<u64, SftpError> {
        self.writer(offset).copy_from(source).await
    }

    /// Copies a part of this file into another one within the host; `length` 0 stands for all of it.
    pub async fn copy_data(
        &self,
        offset: u64,
        length: u64,
        to: &File,
        to_offset: u64,
    ) -> Result<(), SftpError> {
        if !self.client.is_same(&to.client) {
            return Err(SftpError::Apart {
                from: self.path.to_string(),
                to: to.path.to_string(),
            });
        }
        self.client.need(Extension::CopyData)?;
        let request = Request::CopyData {
            from: self.handle.bytes(),
            from_offset: offset,
            length,
            to: to.handle.bytes(),
            to_offset,
        };
        self.client.order("copy", &self.path, &request).await
    }

    /// Its attributes.
    pub async fn stat(&self) -> Result<Attributes, SftpError> {
        let request = Request::Fstat(self.handle.bytes());
        self.client
            .attributes("look at", &self.path, &request)
            .await
    }

    /// Sets attributes.
    pub async fn setstat(&self, attributes: Attributes) -> Result<(), SftpError> {
        let request = Request::Fsetstat(self.handle.bytes(), attributes);
        self.client
            .order("set attributes of", &self.path, &request)
            .await
    }

    /// Has it written to disk.
    pub async fn fsync(&self) -> Result<(), SftpError> {
        self.client.need(Extension::Fsync)?;
        let request = Request::Fsync(self.handle.bytes());
        self.client.order("sync", &self.path, &request).await
    }

    /// Closes it; some servers tell only now that something could not be written.
    pub async fn close(self) -> Result<(), SftpError> {
        let closed = self.handle.close().await?;
        closed.map_err(|status| SftpError::refused("close", &self.path, status))
    }
}
