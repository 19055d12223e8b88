//! Sandboxes for tests: one whose programs run here, and one that sends what a test has made up.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use remote_sandbox_core::archive::BLOCK;
use remote_sandbox_core::config::Surroundings;
use remote_sandbox_core::doctor::StepName;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::Filter;
use remote_sandbox_core::sync::packing::Remark;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use super::{DownDone, DownError, DownJob, Planned, download};
use crate::beneath::testing::{Ground, token};
use crate::beneath::{LocalScanOptions, Tree, scan};
use crate::doctor::StepLog;
use crate::sandbox::{Description, Ended, FileConversation, Order, Sandbox, Sink};
use crate::shell::{ByteStream, StreamEnd};
use crate::sync::Progress;
use crate::sync::gauge::Gauge;

/// What a stand-in does when a program is to be started.
pub(super) enum Streams {
    /// It runs here, with these folders of programs.
    Here(String),
    /// These bytes come, one list after the other, whatever is asked for; the last one again and again.
    MadeUp(Vec<Vec<u8>>),
    /// These bytes come without end.
    Endless(Vec<u8>),
    /// These bytes come, and then nothing more.
    Hanging(Vec<u8>),
}

/// What happens when the bytes of a stand-in are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    End,
    Again,
    Hang,
    /// Nothing comes, and the list does not count.
    Silence,
}

/// The remark that nothing has changed, for archives that are made up before anybody knows the mark.
pub(super) fn unchanged() -> [u8; BLOCK] {
    Remark::Unchanged.block(&nobody())
}

fn nobody() -> RunToken {
    RunToken::parse(&"0".repeat(32)).unwrap()
}

/// The mark that a packing script has for its remarks.
fn mark_in(script: &str) -> Option<&str> {
    let (_, rest) = script.split_once("$say\" ")?;
    rest.get(..32)
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Made-up bytes whose remarks have the right mark, packed or not.
fn marked(archive: &[u8], mark: &str) -> Vec<u8> {
    let mut unpacked = Vec::new();
    if GzDecoder::new(archive).read_to_end(&mut unpacked).is_ok() {
        return gzip(&marked(&unpacked, mark));
    }
    let mut bytes = archive.to_vec();
    for block in bytes.chunks_mut(BLOCK) {
        if *block == unchanged() {
            let mark = RunToken::parse(mark).unwrap();
            block.copy_from_slice(&Remark::Unchanged.block(&mark));
        }
    }
    bytes
}

pub(super) struct StandIn {
    description: Description,
    surroundings: Surroundings,
    streams: Streams,
    files: Option<FileConversation>,
    /// The lists that were sent.
    pub(super) lists: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl StandIn {
    pub(super) fn new(streams: Streams, files: Option<FileConversation>) -> Self {
        StandIn {
            description: Description {
                name: "box".parse().unwrap(),
                kind: "test",
                host: String::new(),
                port: None,
                user: "somebody".to_owned(),
                place: None,
                tags: Vec::new(),
                warnings: Vec::new(),
                local: None,
            },
            surroundings: Surroundings::default(),
            streams,
            files,
            lists: Arc::default(),
        }
    }

    /// One that sends made-up archives.
    pub(super) fn sending(archives: Vec<Vec<u8>>) -> Self {
        StandIn::new(Streams::MadeUp(archives), None)
    }

    fn run_here(&self, arguments: &[&str], path: &str) -> ByteStream {
        let (program, arguments) = arguments.split_first().unwrap();
        let mut child = tokio::process::Command::new(format!("/bin/{program}"))
            .args(arguments)
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, mut from_caller) = tokio::io::duplex(64 * 1024);
        let (output, mut to_caller) = tokio::io::duplex(64 * 1024);
        let (tell, end) = oneshot::channel();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        tokio::spawn(async move {
            let _ = tokio::io::copy(&mut from_caller, &mut stdin).await;
        });
        tokio::spawn(async move {
            let _ = tokio::io::copy(&mut stdout, &mut to_caller).await;
            drop(to_caller);
            let mut words = String::new();
            let _ = stderr.read_to_string(&mut words).await;
            let exit_code = child.wait().await.unwrap().code();
            let exit_code = exit_code.and_then(|code| u32::try_from(code).ok());
            let _ = tell.send(Ok(StreamEnd { exit_code, words }));
        });
        ByteStream::stand_in(input, output, end)
    }

    fn send(&self, archive: Vec<u8>, afterwards: Afterwards) -> ByteStream {
        let (input, mut from_caller) = tokio::io::duplex(64 * 1024);
        let (output, mut to_caller) = tokio::io::duplex(64 * 1024);
        let (tell, end) = oneshot::channel();
        let lists = self.lists.clone();
        tokio::spawn(async move {
            // One that never ends does not listen either.
            if afterwards == Afterwards::End {
                let mut list = Vec::new();
                let _ = from_caller.read_to_end(&mut list).await;
                lists.lock().unwrap().push(list);
            }
            let again = afterwards == Afterwards::Again;
            while to_caller.write_all(&archive).await.is_ok() && again {}
            if afterwards == Afterwards::Hang {
                std::future::pending::<()>().await;
            }
            drop(to_caller);
            let _ = tell.send(Ok(StreamEnd {
                exit_code: Some(0),
                words: String::new(),
            }));
        });
        ByteStream::stand_in(input, output, end)
    }
}

#[async_trait]
impl Sandbox for StandIn {
    fn description(&self) -> &Description {
        &self.description
    }

    fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    async fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn run(&self, _: Order, _: Sink) -> Result<Ended, Failure> {
        Err(Failure::new(Code::Unsupported, "no commands"))
    }

    async fn ask(&self, _: String, _: Duration) -> Result<Vec<u8>, Failure> {
        Err(Failure::new(Code::Unsupported, "no questions"))
    }

    async fn open(&self, arguments: &[&str]) -> Result<ByteStream, Failure> {
        Ok(match &self.streams {
            Streams::Here(path) => self.run_here(arguments, path),
            Streams::MadeUp(archives) => match mark_in(arguments[2]) {
                Some(mark) => {
                    let sent = self.lists.lock().unwrap().len();
                    let archive = archives.get(sent).or(archives.last());
                    let archive = marked(archive.unwrap(), mark);
                    self.send(archive, Afterwards::End)
                }
                // It says nothing about how files look.
                None => self.send(Vec::new(), Afterwards::Silence),
            },
            Streams::Endless(bytes) => self.send(bytes.clone(), Afterwards::Again),
            Streams::Hanging(bytes) => self.send(bytes.clone(), Afterwards::Hang),
        })
    }

    async fn files(&self) -> Result<Option<FileConversation>, Failure> {
        Ok(self.files.clone())
    }

    async fn examine(&self, _: &StepLog) {}

    fn steps(&self) -> &'static [StepName] {
        &[]
    }

    async fn close(&self) {}
}

/// A plan for everything in a tree but its directories, which are made here.
pub(super) fn plan(source: &Ground, target: &Tree) -> Vec<Planned> {
    let found = scan(
        &source.tree(),
        &LocalScanOptions::default(),
        &mut Filter::default(),
    );
    let mut files = Vec::new();
    for entry in &found.unwrap().entries {
        if entry.kind.is_directory() {
            target.make_directory(&entry.path, 0o755).unwrap();
        } else {
            files.push(Planned {
                local: entry.path.clone(),
                entry,
                replaces: None,
            });
        }
    }
    files
}

/// Brings files; the paths of what went wrong are shortened to their problems.
pub(super) async fn bring(
    far: &dyn Sandbox,
    remote_root: &[u8],
    tree: &Tree,
    files: Vec<Planned>,
) -> Result<DownDone, DownError> {
    bring_over(far, remote_root, tree, files, &Gauge::default()).await
}

/// A link that is known to be slow, and content that gets smaller.
pub(super) fn packing() -> Gauge {
    let gauge = Gauge::default();
    gauge.learn(&[b'x'; 4096]);
    gauge
}

/// The same over a link of which something is known.
pub(super) async fn bring_over(
    far: &dyn Sandbox,
    remote_root: &[u8],
    tree: &Tree,
    files: Vec<Planned>,
    gauge: &Gauge,
) -> Result<DownDone, DownError> {
    let progress = Progress::default();
    let job = DownJob {
        remote_root: remote_root.to_vec(),
        follow_links: false,
        tree: tree.clone(),
        transfer: token(),
        progress: &progress,
        gauge,
        files: files.into(),
    };
    let done = download(far, &job).await?;
    let figures = progress.figures();
    assert_eq!(figures.files_done, done.files);
    Ok(done)
}
