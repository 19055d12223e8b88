//! Reads files of a sandbox.

use std::time::Duration;

use bytes::Bytes;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::files::{
    Content, FileState, Part, ReadAnswer, ReadError, parse_header, parse_read, read_script,
    whole_script,
};
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::sync::path::shown;
use remote_sandbox_core::sync::scan::HostPath;
use tokio::io::AsyncReadExt as _;

use super::Engine;
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::clock;
use crate::mark::new_mark;
use crate::sandbox::Sandbox;
use crate::shell::{ByteStream, StreamError};

/// How long listing and reading may take; a slow file system must not keep a caller.
pub(super) const LIMIT: Duration = Duration::from_secs(45);

/// What is asked for up to this size comes in one round trip, more of it as a stream.
const MOST_ASKED: usize = 1024 * 1024;

/// What may come beside the content: words of login files, header and trailer.
const BESIDE: usize = 128 * 1024;

/// Bytes that are handed on at once.
const CHUNK: usize = 64 * 1024;

/// A part of a file that is wanted.
#[derive(Debug)]
pub struct ReadRequest {
    /// Where; the active sandbox when not said.
    pub sandbox: Option<String>,
    /// Which file.
    pub path: Vec<u8>,
    /// Which part of it.
    pub part: Part,
    /// How many bytes of that.
    pub max_bytes: usize,
}

/// What was read.
#[derive(Debug)]
pub struct ReadReport {
    /// Where the file is.
    pub sandbox: String,
    /// How large the whole file is.
    pub size_bytes: u64,
    /// Whether some of what was asked for is missing.
    pub truncated: bool,
    /// From which byte to read on.
    pub next_offset: Option<u64>,
    /// From which line to read on.
    pub next_line: Option<u64>,
    /// Whether the file changed while it was read.
    pub changed: bool,
    /// Whether a secret was hidden in it.
    pub masked: bool,
    /// What it holds.
    pub content: Content,
}

impl Engine {
    /// Reads a part of a file.
    pub async fn read_file(
        &self,
        context: &CallContext,
        request: ReadRequest,
    ) -> Result<ReadReport, Failure> {
        let sandbox = self.sandbox(request.sandbox.as_deref())?;
        let path = host_path(sandbox.as_ref(), &request.path)?;
        self.kept.learn().await;
        self.record_path(context, "read_remote_file", sandbox.as_ref(), &request.path)?;
        let reading = read(sandbox.as_ref(), &path, &request);
        let answer = unless_cancelled(context, reading).await;
        let answer = answer.map_err(|failure| failure.masked(&self.mask))?;
        let figures = answer.figures(request.part);
        let (content, masked) = masked(answer.piece.content, &self.mask);
        Ok(ReadReport {
            sandbox: sandbox.description().name.to_string(),
            size_bytes: figures.size_bytes,
            truncated: figures.truncated,
            next_offset: figures.next_offset,
            next_line: figures.next_line,
            changed: figures.changed,
            masked,
            content,
        })
    }

    /// Opens a file to be read from its beginning to its end, whatever its size.
    pub async fn open_file(
        &self,
        context: &CallContext,
        name: Option<&str>,
        path: &[u8],
    ) -> Result<FileStream, Failure> {
        let sandbox = self.sandbox(name)?;
        let host_path = host_path(sandbox.as_ref(), path)?;
        self.record_path(context, "read_remote_file", sandbox.as_ref(), path)?;
        let opening = FileStream::open(sandbox.as_ref(), &host_path, path);
        let opened = unless_cancelled(context, opening).await;
        opened.map_err(|failure| failure.masked(&self.mask))
    }

    /// Writes down which path is about to be looked at.
    pub(super) fn record_path(
        &self,
        context: &CallContext,
        tool: &'static str,
        sandbox: &dyn Sandbox,
        path: &[u8],
    ) -> Result<(), Failure> {
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool,
            sandbox: sandbox.description().name.as_str(),
            run: "",
            command: &shown(path).text,
            cwd: None,
        })
    }
}

/// A caller's path, counted from where commands of this sandbox begin.
pub(super) fn host_path(sandbox: &dyn Sandbox, path: &[u8]) -> Result<HostPath, Failure> {
    let workdir = sandbox.surroundings().workdir.as_deref();
    HostPath::parse_from(workdir, path).map_err(|error| {
        Failure::new(Code::InvalidParams, error.to_string())
            .hint("paths are absolute, ~/x, or relative to the home or the sandbox's workdir")
    })
}

/// Does something until it is done or nobody wants it any more.
pub(super) async fn unless_cancelled<T>(
    context: &CallContext,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        () = context.cancel.cancelled() => {
            Err(Failure::new(Code::Cancelled, "the call was cancelled"))
        }
    }
}

/// The path and the sandbox, as failures name them.
fn place(sandbox: &dyn Sandbox, path: &[u8]) -> String {
    let path = path.get(..400).unwrap_or(path);
    let name = &sandbox.description().name;
    format!("`{}` in sandbox `{name}`", shown(path))
}

/// Nothing is at this path.
pub(super) fn missing(sandbox: &dyn Sandbox, path: &[u8]) -> Failure {
    let text = format!("{} does not exist", place(sandbox, path));
    let workdir = sandbox.surroundings().workdir.as_deref();
    Failure::new(Code::NotFound, text).hint(match workdir {
        Some(workdir) => format!("relative paths begin in {workdir}; list_remote_files shows it"),
        None => "relative paths begin in the home directory; list_remote_files shows it".to_owned(),
    })
}

/// The account may not look at this path.
pub(super) fn denied(sandbox: &dyn Sandbox, path: &[u8]) -> Failure {
    let text = format!("{} cannot be read: permission denied", place(sandbox, path));
    let user = &sandbox.description().user;
    Failure::new(Code::PermissionDenied, text)
        .hint(format!("the account `{user}` may not read it there"))
}

/// Why something that is no readable file is not read; nothing when it is one.
fn refused(sandbox: &dyn Sandbox, path: &[u8], state: FileState) -> Result<(), Failure> {
    let place = || place(sandbox, path);
    let invalid = |text: String| Failure::new(Code::InvalidParams, text);
    Err(match state {
        FileState::File => return Ok(()),
        FileState::Missing => missing(sandbox, path),
        FileState::Unreadable => denied(sandbox, path),
        FileState::Dangling => {
            let text = format!("{} is a link that leads nowhere", place());
            Failure::new(Code::NotFound, text).hint("list_remote_files shows its target")
        }
        FileState::Directory => {
            invalid(format!("{} is a directory", place())).hint("list_remote_files lists it")
        }
        FileState::Special(special) => {
            invalid(format!("{} is a {}, not a file", place(), special.name()))
                .hint("it was not opened, for it may never answer")
        }
    })
}

async fn read(
    sandbox: &dyn Sandbox,
    path: &HostPath,
    request: &ReadRequest,
) -> Result<ReadAnswer, Failure> {
    let (part, budget) = (request.part, request.max_bytes);
    let mark = new_mark();
    let script = read_script(path, part, budget, &mark);
    let answer = if budget <= MOST_ASKED {
        sandbox.ask(script, LIMIT).await?
    } else {
        let taking = take(sandbox, &script, budget.saturating_add(BESIDE));
        let taken = tokio::time::timeout_at(clock::instant() + LIMIT, taking).await;
        taken.map_err(|_| {
            let text = format!("{} was not read in time", place(sandbox, &request.path));
            let failure = Failure::new(Code::TimedOut, text);
            failure.hint("read it in smaller pieces: max_bytes").retry()
        })??
    };
    let answer = parse_read(&mark, &answer, part, budget).map_err(|e| unread(sandbox, &e))?;
    refused(sandbox, &request.path, answer.header.state)?;
    if !answer.is_read {
        let text = format!("{} could not be read", place(sandbox, &request.path));
        return Err(Failure::new(Code::RemoteRefused, text)
            .hint("it may be gone by now; exec_bash with `cat` shows what the host says"));
    }
    Ok(answer)
}

/// What a script prints, up to a limit.
async fn take(sandbox: &dyn Sandbox, script: &str, most: usize) -> Result<Vec<u8>, Failure> {
    let mut stream = sandbox.open(&["sh", "-c", script]).await?;
    let mut bytes = Vec::new();
    let mut output = (&mut stream.output).take(most as u64);
    // A stream that breaks has no trailer, which is told then.
    let _ = output.read_to_end(&mut bytes).await;
    Ok(bytes)
}

fn unread(sandbox: &dyn Sandbox, error: &ReadError) -> Failure {
    let name = &sandbox.description().name;
    let text = format!("sandbox `{name}`: {error}");
    match error {
        ReadError::BrokenOff => Failure::new(Code::LinkLost, text)
            .hint("nothing was changed; call again")
            .retry(),
        ReadError::NotBegun => Failure::new(Code::RemoteRefused, text)
            .hint("its shell did not run our script; try exec_bash there"),
    }
}

/// Hides known secrets; says whether there were any.
fn masked(content: Content, mask: &Mask) -> (Content, bool) {
    match content {
        Content::Text(text) => match mask.mask_text(&text) {
            std::borrow::Cow::Borrowed(_) => (Content::Text(text), false),
            std::borrow::Cow::Owned(hidden) => (Content::Text(hidden), true),
        },
        Content::Binary(bytes) => match mask.mask_bytes(&bytes) {
            std::borrow::Cow::Borrowed(_) => (Content::Binary(bytes), false),
            std::borrow::Cow::Owned(hidden) => (Content::Binary(hidden), true),
        },
    }
}

/// A file that is being read as a whole.
#[derive(Debug)]
pub struct FileStream {
    /// The path and the sandbox, for failures.
    place: String,
    /// What came with the header.
    pending: Bytes,
    stream: Option<ByteStream>,
}

impl FileStream {
    async fn open(
        sandbox: &dyn Sandbox,
        host_path: &HostPath,
        path: &[u8],
    ) -> Result<Self, Failure> {
        let mark = new_mark();
        let script = whole_script(host_path, &mark);
        let mut stream = sandbox.open(&["sh", "-c", &script]).await?;
        let mut bytes = Vec::new();
        let deadline = clock::instant() + LIMIT;
        loop {
            let found = parse_header(&mark, &bytes).map_err(|error| unread(sandbox, &error))?;
            if let Some((header, from)) = found {
                refused(sandbox, path, header.state)?;
                let pending = Bytes::from(bytes).slice(from..);
                return Ok(FileStream {
                    place: place(sandbox, path),
                    pending,
                    stream: Some(stream),
                });
            }
            let reading = stream.output.read_buf(&mut bytes);
            match tokio::time::timeout_at(deadline, reading).await {
                Ok(Ok(more)) if more > 0 => {}
                _ => return Err(unread(sandbox, &ReadError::NotBegun)),
            }
        }
    }

    /// The next bytes; none at the end of the file, once it is certain that it was the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if !self.pending.is_empty() {
            return Ok(Some(std::mem::take(&mut self.pending)));
        }
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let mut chunk = bytes::BytesMut::with_capacity(CHUNK);
        if let Ok(1..) = stream.output.read_buf(&mut chunk).await {
            return Ok(Some(chunk.freeze()));
        }
        let Some(stream) = self.stream.take() else {
            return Ok(None);
        };
        match stream.end().await {
            Ok(end) if end.exit_code == Some(0) => Ok(None),
            Ok(end) => {
                let text = format!("{} could not be read: {}", self.place, end.words);
                Err(Failure::new(Code::RemoteRefused, text)
                    .hint("what came so far is not the whole file"))
            }
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &StreamError) -> Failure {
        let text = format!("reading {}: {error}", self.place);
        Failure::new(Code::LinkLost, text)
            .hint("what came so far is not the whole file; try again")
            .retry()
    }
}
