//! The client: what can be asked of a server by path.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remote_sandbox_core::sftp::{
    Attributes, Extension, Extensions, Filesystem, Frame, OpenFlags, RemotePath, Request,
    ServerLimits, parse_version,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use super::conversation::{Answer, Conversation, RawHandle, Ticket, Waiter};
use super::directory::ReadDir;
use super::error::{Loss, SftpError};
use super::file::File;
use super::pump::{self, Incoming};

/// Bytes of one read or write; more bring nothing, for many are under way.
const USUAL_LENGTH: u64 = 128 * 1024;

/// What every server takes, also one that does not say how much.
const UNKNOWN_LENGTH: u64 = 32 * 1024;

/// A server that says it takes less is not believed; it may still answer a read with less.
const SHORTEST_LENGTH: u64 = 4 * 1024;

/// What a request without content takes on its way there and back, about.
const SMALL: usize = 512;

/// What a request takes that is answered with a path, about.
const PATH: usize = 4 * 1024;

/// How much may be under way, and how long a server may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Most requests at the same time.
    pub requests: usize,
    /// Most bytes at the same time, of requests and of the answers they will have.
    pub bytes: usize,
    /// How long the first words may take.
    pub start_limit: Duration,
    /// How long nothing may be heard while an answer is due; noticed after twice that at the latest.
    pub silence_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            requests: 1024,
            bytes: 8 * 1024 * 1024,
            start_limit: Duration::from_secs(20),
            silence_limit: Duration::from_secs(300),
        }
    }
}

/// A conversation with a server; clones share it, and it ends with the last one and the last open file.
#[derive(Clone)]
pub struct Client {
    connection: Arc<Connection>,
}

struct Connection {
    conversation: Arc<Conversation>,
    extensions: Extensions,
    limits: ServerLimits,
    _pump: AbortOnDropHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.conversation.end(Loss::LetGo);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("extensions", &self.connection.extensions)
            .field("limits", &self.connection.limits)
            .field("loss", &self.loss())
            .finish()
    }
}

impl Client {
    /// Begins a conversation over two streams, with the usual options.
    pub async fn start<R, W>(read: R, write: W) -> Result<Self, SftpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::start_with(read, write, Options::default()).await
    }

    /// Begins a conversation over two streams.
    pub async fn start_with<R, W>(read: R, write: W, options: Options) -> Result<Self, SftpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let starting = Self::greet(read, write, options);
        match tokio::time::timeout(options.start_limit, starting).await {
            Ok(client) => client,
            Err(_) => Err(SftpError::Closed(Arc::new(Loss::Silent(
                options.start_limit,
            )))),
        }
    }

    async fn greet<R, W>(read: R, mut write: W, options: Options) -> Result<Self, SftpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let lost = |loss: Loss| SftpError::Closed(Arc::new(loss));
        let mut incoming = Incoming::new(read);
        let hello = pump::write(&mut write, Frame::init().as_bytes()).await;
        // Where a server is gone, its last words say more than that it takes nothing.
        let version = incoming.first().await.map_err(lost)?;
        hello.map_err(|error| lost(Loss::Broken(error)))?;
        let extensions = parse_version(&version).map_err(|error| lost(Loss::Packet(error)))?;
        let conversation = Arc::new(Conversation::new(options.requests, options.bytes));
        let work = pump::pump(conversation.clone(), incoming, write, options.silence_limit);
        let mut connection = Connection {
            conversation,
            extensions,
            limits: ServerLimits::default(),
            _pump: AbortOnDropHandle::new(tokio::spawn(work)),
        };
        if extensions.has(Extension::Limits) {
            connection.limits = ask_limits(&connection.conversation).await?;
        }
        Ok(Client {
            connection: Arc::new(connection),
        })
    }

    /// What the server can do beyond the protocol.
    pub fn extensions(&self) -> Extensions {
        self.connection.extensions
    }

    /// How much the server takes at once, as far as it said so.
    pub fn limits(&self) -> ServerLimits {
        self.connection.limits
    }

    /// Why the conversation is over, once it is.
    pub fn loss(&self) -> Option<Arc<Loss>> {
        self.connection.conversation.loss()
    }

    /// Bytes that one read asks for at most.
    pub fn read_length(&self) -> u32 {
        usual_length(self.connection.limits.read_bytes)
    }

    /// Bytes that one write takes at most.
    pub fn write_length(&self) -> u32 {
        usual_length(self.connection.limits.write_bytes)
    }

    pub(super) fn conversation(&self) -> &Arc<Conversation> {
        &self.connection.conversation
    }

    /// Whether both are the same conversation.
    pub(super) fn is_same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.connection, &other.connection)
    }

    /// Opens a file; the attributes are those of a new one.
    pub async fn open(
        &self,
        path: &RemotePath,
        flags: OpenFlags,
        attributes: Attributes,
    ) -> Result<File, SftpError> {
        let request = Request::Open(path, flags, attributes);
        let handle = self.open_handle("open", path, &request).await?;
        Ok(File::new(self.clone(), handle, path.clone()))
    }

    /// Opens a directory, of which at most so many entries are wanted.
    pub async fn read_dir(
        &self,
        path: &RemotePath,
        most_entries: usize,
    ) -> Result<ReadDir, SftpError> {
        let request = Request::Opendir(path);
        let handle = self.open_handle("list", path, &request).await?;
        Ok(ReadDir::new(
            self.clone(),
            handle,
            path.clone(),
            most_entries,
        ))
    }

    async fn open_handle(
        &self,
        action: &'static str,
        path: &RemotePath,
        request: &Request<'_>,
    ) -> Result<RawHandle, SftpError> {
        let most = self.connection.limits.open_handles;
        if most > 0 && self.conversation().open_handles() >= most {
            let subject = path.to_string();
            return Err(SftpError::TooManyHandles { subject, most });
        }
        self.ask(action, path, request, SMALL, Waiter::Handle).await
    }

    /// Attributes of what a path leads to.
    pub async fn stat(&self, path: &RemotePath) -> Result<Attributes, SftpError> {
        self.attributes("look at", path, &Request::Stat(path)).await
    }

    /// Attributes of a path itself, links not followed.
    pub async fn lstat(&self, path: &RemotePath) -> Result<Attributes, SftpError> {
        self.attributes("look at", path, &Request::Lstat(path))
            .await
    }

    pub(super) async fn attributes(
        &self,
        action: &'static str,
        path: &RemotePath,
        request: &Request<'_>,
    ) -> Result<Attributes, SftpError> {
        self.ask(action, path, request, SMALL, Waiter::Attributes)
            .await
    }

    /// Sets attributes of what a path leads to.
    pub async fn setstat(
        &self,
        path: &RemotePath,
        attributes: Attributes,
    ) -> Result<(), SftpError> {
        self.order(
            "set attributes of",
            path,
            &Request::Setstat(path, attributes),
        )
        .await
    }

    /// Sets attributes of a path itself, links not followed.
    pub async fn lsetstat(
        &self,
        path: &RemotePath,
        attributes: Attributes,
    ) -> Result<(), SftpError> {
        self.need(Extension::Lsetstat)?;
        let request = Request::Lsetstat(path, attributes);
        self.order("set attributes of", path, &request).await
    }

    /// Makes a directory.
    pub async fn mkdir(&self, path: &RemotePath, attributes: Attributes) -> Result<(), SftpError> {
        let request = Request::Mkdir(path, attributes);
        self.order("make the directory", path, &request).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, path: &RemotePath) -> Result<(), SftpError> {
        self.order("remove the directory", path, &Request::Rmdir(path))
            .await
    }

    /// Removes a file or link.
    pub async fn remove(&self, path: &RemotePath) -> Result<(), SftpError> {
        self.order("remove", path, &Request::Remove(path)).await
    }

    /// Renames; it fails where the new name exists.
    pub async fn rename(&self, from: &RemotePath, to: &RemotePath) -> Result<(), SftpError> {
        self.order("rename", from, &Request::Rename { from, to })
            .await
    }

    /// Renames over what has the new name, in one step.
    pub async fn posix_rename(&self, from: &RemotePath, to: &RemotePath) -> Result<(), SftpError> {
        self.need(Extension::PosixRename)?;
        self.order("rename", from, &Request::PosixRename { from, to })
            .await
    }

    /// Gives an existing file a second name.
    pub async fn hardlink(&self, existing: &RemotePath, new: &RemotePath) -> Result<(), SftpError> {
        self.need(Extension::Hardlink)?;
        self.order("link", new, &Request::Hardlink { existing, new })
            .await
    }

    /// Makes a link that points to a target.
    pub async fn symlink(&self, link: &RemotePath, target: &RemotePath) -> Result<(), SftpError> {
        self.order("link", link, &Request::Symlink { link, target })
            .await
    }

    /// Where a link points.
    pub async fn readlink(&self, path: &RemotePath) -> Result<RemotePath, SftpError> {
        self.name("read the link", path, &Request::Readlink(path))
            .await
    }

    /// The path without links and dots; `.` is where relative paths begin.
    pub async fn realpath(&self, path: &RemotePath) -> Result<RemotePath, SftpError> {
        self.name("find", path, &Request::Realpath(path)).await
    }

    /// The path with `~` worked out, and without links and dots.
    pub async fn expand_path(&self, path: &RemotePath) -> Result<RemotePath, SftpError> {
        self.need(Extension::ExpandPath)?;
        self.name("find", path, &Request::ExpandPath(path)).await
    }

    /// The space of the file system that a path is on.
    pub async fn statvfs(&self, path: &RemotePath) -> Result<Filesystem, SftpError> {
        self.need(Extension::Statvfs)?;
        let request = Request::Statvfs(path);
        let action = "ask for the space of";
        let answer: Bytes = self
            .ask(action, path, &request, SMALL, Waiter::Extended)
            .await?;
        Filesystem::parse(&answer).map_err(|source| SftpError::Answer {
            extension: Extension::Statvfs,
            source,
        })
    }

    pub(super) fn need(&self, extension: Extension) -> Result<(), SftpError> {
        match self.connection.extensions.has(extension) {
            true => Ok(()),
            false => Err(SftpError::Missing(extension)),
        }
    }

    /// A request that only works or fails.
    pub(super) async fn order(
        &self,
        action: &'static str,
        path: &RemotePath,
        request: &Request<'_>,
    ) -> Result<(), SftpError> {
        self.ask(action, path, request, SMALL, Waiter::Status).await
    }

    /// A request whose answer is one path.
    async fn name(
        &self,
        action: &'static str,
        path: &RemotePath,
        request: &Request<'_>,
    ) -> Result<RemotePath, SftpError> {
        let name = self.ask(action, path, request, PATH, Waiter::Path).await?;
        name.map_err(|source| SftpError::Path {
            subject: path.to_string(),
            source,
        })
    }

    pub(super) async fn ask<T>(
        &self,
        action: &'static str,
        path: &RemotePath,
        request: &Request<'_>,
        bytes: usize,
        waiter: impl FnOnce(Answer<T>) -> Waiter,
    ) -> Result<T, SftpError> {
        let conversation = self.conversation();
        let slot = conversation.slot(bytes).await?;
        let mut ticket: Ticket<T> = conversation.submit(request, slot, waiter)?;
        let answer = ticket.answer().await?;
        answer.map_err(|status| SftpError::refused(action, path, status))
    }
}

async fn ask_limits(conversation: &Arc<Conversation>) -> Result<ServerLimits, SftpError> {
    let slot = conversation.slot(SMALL).await?;
    let mut ticket = conversation.submit(&Request::Limits, slot, Waiter::Extended)?;
    match ticket.answer().await? {
        Ok(answer) => ServerLimits::parse(&answer).map_err(|source| SftpError::Answer {
            extension: Extension::Limits,
            source,
        }),
        // It offered to say, but will not; then the careful figures hold.
        Err(_) => Ok(ServerLimits::default()),
    }
}

fn usual_length(limit: u64) -> u32 {
    let length = match limit {
        0 => UNKNOWN_LENGTH,
        known => known.clamp(SHORTEST_LENGTH, USUAL_LENGTH),
    };
    length as u32
}
