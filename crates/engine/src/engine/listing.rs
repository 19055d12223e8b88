//! Lists files of a sandbox.

use std::sync::{Arc, PoisonError};

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::files::FirstEntries;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::path::{inside, shown};
use remote_sandbox_core::sync::scan::{
    Found, HostPath, LoneFile, RootKind, ScanDepth, ScanError, ScanProblem, ScanReader,
    ScanRequest, Scanner, SortedBy, scan_script,
};
use remote_sandbox_core::sync::{Entry, Glob, Shown};
use tokio::io::AsyncReadExt as _;

use super::Engine;
use super::files::{LIMIT, denied, host_path, missing, unless_cancelled};
use crate::call::CallContext;
use crate::clock;
use crate::mark::new_mark;
use crate::questions;
use crate::sandbox::Sandbox;
use crate::tree_walk;

/// Most things that could not be listed that are named.
const MOST_NOTES: usize = 20;

/// An answer of this size is too long for one question and comes as a stream.
const LONG_ANSWER: usize = 1024 * 1024;

/// Bytes that are taken from a stream at once.
const CHUNK: usize = 64 * 1024;

/// What a shell says of a program that is not there, or cannot be started.
const NOT_STARTED: [u32; 2] = [126, 127];

/// Files to be listed.
#[derive(Debug)]
pub struct ListRequest {
    /// Where; the active sandbox when not said.
    pub sandbox: Option<String>,
    /// The directory, or one file.
    pub path: Vec<u8>,
    /// Whether everything below is listed, too.
    pub recursive: bool,
    /// How many entries there may be.
    pub most_entries: usize,
    /// Which entries are wanted; all of them when not said.
    pub glob: Option<Glob>,
}

/// One entry of a list.
#[derive(Debug)]
pub struct FileEntry {
    /// The path that was asked for, and the way from there.
    pub path: Shown,
    /// What was found.
    pub entry: Entry,
}

/// A list of files.
#[derive(Debug)]
pub struct ListReport {
    /// Where they are.
    pub sandbox: String,
    /// The entries in the order of their paths.
    pub entries: Vec<FileEntry>,
    /// Whether there are more.
    pub truncated: bool,
    /// What could not be listed.
    pub notes: Vec<String>,
}

impl Engine {
    /// Lists the files of a directory, or one file.
    pub async fn list_files(
        &self,
        context: &CallContext,
        request: ListRequest,
    ) -> Result<ListReport, Failure> {
        let sandbox = self.sandbox(request.sandbox.as_deref())?;
        let root = host_path(sandbox.as_ref(), &request.path)?;
        self.record_path(
            context,
            "list_remote_files",
            sandbox.as_ref(),
            &request.path,
        )?;
        let listed = self.list_with_scanner(&sandbox, &root, &request);
        let listed = unless_cancelled(context, listed).await;
        listed.map_err(|failure| failure.masked(&self.mask))
    }

    async fn list_with_scanner(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        root: &HostPath,
        request: &ListRequest,
    ) -> Result<ListReport, Failure> {
        let scanner = self.scanner(sandbox.as_ref()).await?;
        let mut collected = collect(sandbox.as_ref(), root, scanner, request).await?;
        if collected.is_not_started {
            // The program went away since it was looked for.
            self.forget_scanner(sandbox.as_ref());
            let scanner = self.scanner(sandbox.as_ref()).await?;
            collected = collect(sandbox.as_ref(), root, scanner, request).await?;
        }
        let name = sandbox.description().name.to_string();
        match collected.root {
            Some(RootKind::Missing) => return Err(missing(sandbox.as_ref(), &request.path)),
            Some(RootKind::Unreadable) => return Err(denied(sandbox.as_ref(), &request.path)),
            Some(RootKind::Directory | RootKind::File) | None => {}
        }
        let is_lone = collected.root == Some(RootKind::File);
        let entries = collected.entries.into_iter();
        Ok(ListReport {
            sandbox: name,
            entries: entries
                .map(|entry| FileEntry {
                    path: if is_lone {
                        shown(&request.path)
                    } else {
                        below(&request.path, &entry)
                    },
                    entry,
                })
                .collect(),
            truncated: collected.truncated,
            notes: collected.notes,
        })
    }

    pub(super) async fn scanner(&self, sandbox: &dyn Sandbox) -> Result<Scanner, Failure> {
        let name = sandbox.description().name.as_str();
        let known = self.scanners().get(name).copied();
        if let Some(scanner) = known {
            return Ok(scanner);
        }
        let scanner = questions::scanner(sandbox).await?;
        self.scanners().insert(name.to_owned(), scanner);
        Ok(scanner)
    }

    pub(super) fn forget_scanner(&self, sandbox: &dyn Sandbox) {
        self.scanners().remove(sandbox.description().name.as_str());
    }

    fn scanners(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<String, Scanner>> {
        let scanners = self.scanners.lock();
        scanners.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path of an entry as the caller may write it.
fn below(above: &[u8], entry: &Entry) -> Shown {
    shown(&inside(above, entry.path.as_bytes()))
}

/// What a scan has given.
struct Collected {
    /// What was listed; not known when the listing was stopped.
    root: Option<RootKind>,
    entries: Vec<Entry>,
    truncated: bool,
    notes: Vec<String>,
    is_not_started: bool,
}

/// Asks where one directory is wanted, which is one round trip; a whole tree, and a directory that turns out to be
/// too large for one answer, come as a stream that nobody has to keep.
async fn collect(
    sandbox: &dyn Sandbox,
    root: &HostPath,
    scanner: Scanner,
    request: &ListRequest,
) -> Result<Collected, Failure> {
    let scan = ScanRequest {
        root,
        scanner,
        prunes: &[],
        follow_links: false,
        sorted_by: SortedBy::Reader,
        depth: if request.recursive {
            ScanDepth::Tree
        } else {
            ScanDepth::Level
        },
        lone_file: LoneFile::AsItIs,
    };
    let mark = new_mark();
    let script = scan_script(&scan, &mark);
    if scanner == Scanner::Files {
        let answer = sandbox.ask(script, LIMIT).await?;
        return walk(
            sandbox,
            &scan,
            &answer,
            Collector::new(&mark, scanner, request),
        )
        .await;
    }
    if !request.recursive {
        let answer = sandbox.ask(script.clone(), LIMIT).await?;
        let mut collector = Collector::new(&mark, scanner, request);
        let read = collector.feed(&answer).and_then(|()| collector.finish());
        match read {
            Ok(collected) => return Ok(collected),
            Err(_) if answer.len() > LONG_ANSWER => {}
            Err(error) => return Err(questions::unfinished_scan(sandbox, &error)),
        }
    }
    let collector = Collector::new(&mark, scanner, request);
    stream(sandbox, &script, collector).await
}

/// Lists over the file protocol what a script has found the root to be.
async fn walk(
    sandbox: &dyn Sandbox,
    scan: &ScanRequest<'_>,
    answer: &[u8],
    mut collector: Collector<'_>,
) -> Result<Collected, Failure> {
    let deadline = clock::instant() + LIMIT;
    let unfinished = |error: ScanError| questions::unfinished_scan(sandbox, &error);
    collector.feed(answer).map_err(unfinished)?;
    let Collector {
        reader, mut kept, ..
    } = collector;
    let mut summary = reader.finish().map_err(unfinished)?;
    let client = tree_walk::conversation(sandbox).await?;
    let root = summary.clone();
    let take = |found| {
        if let Some(found) = summary.count(found) {
            kept.take(found);
        }
        true
    };
    let walking = tree_walk::list(&client, scan, &root, take);
    match tokio::time::timeout_at(deadline, walking).await {
        Ok(walked) => walked.map_err(|error| error.failure(sandbox))?,
        Err(_) => return Ok(kept.collected(None).late()),
    }
    Ok(kept.collected(Some(root.root)))
}

async fn stream(
    sandbox: &dyn Sandbox,
    script: &str,
    mut collector: Collector<'_>,
) -> Result<Collected, Failure> {
    let deadline = clock::instant() + LIMIT;
    let mut stream = sandbox.open(&["sh", "-c", script]).await?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let reading = stream.output.read(&mut chunk);
        let read = match tokio::time::timeout_at(deadline, reading).await {
            Ok(read) => read.unwrap_or(0),
            Err(_) => return Ok(collector.stop_late()),
        };
        if read == 0 {
            let finished = collector.finish();
            return finished.map_err(|error| questions::unfinished_scan(sandbox, &error));
        }
        collector
            .feed(chunk.get(..read).unwrap_or_default())
            .map_err(|error| questions::unfinished_scan(sandbox, &error))?;
        if collector.has_enough() {
            return Ok(collector.stop());
        }
    }
}

/// Takes what a scan says and keeps what is wanted of it.
struct Collector<'a> {
    reader: ScanReader,
    comes_sorted: bool,
    kept: Kept<'a>,
}

/// What is kept of a scan.
struct Kept<'a> {
    glob: Option<&'a Glob>,
    first: FirstEntries,
    problems: Vec<ScanProblem>,
    more_problems: usize,
    status: Option<u32>,
}

impl Kept<'_> {
    fn take(&mut self, found: Found) {
        match found {
            Found::Entry(entry) => {
                let is_directory = entry.kind.is_directory();
                let matches = |glob: &Glob| glob.matches(&entry.path, is_directory);
                if self.glob.is_none_or(matches) {
                    self.first.push(entry);
                }
            }
            Found::Problem(ScanProblem::Status { status }) => self.status = Some(status),
            Found::Problem(problem) if self.problems.len() < MOST_NOTES => {
                self.problems.push(problem);
            }
            Found::Problem(_) => self.more_problems += 1,
        }
    }

    /// What there is; a root that is not known stands for a listing that was stopped.
    fn collected(self, root: Option<RootKind>) -> Collected {
        let is_not_started = self.status.is_some_and(|code| NOT_STARTED.contains(&code));
        Collected {
            root,
            truncated: root.is_none() || self.first.has_left_out(),
            notes: notes(&self.problems, self.more_problems, self.status),
            is_not_started: root.is_some() && is_not_started,
            entries: self.first.into_sorted(),
        }
    }
}

impl Collected {
    /// One that was stopped because it took too long.
    fn late(mut self) -> Self {
        self.notes.push(format!(
            "the listing was stopped after {} s and is not complete; name a directory further down",
            LIMIT.as_secs()
        ));
        self
    }
}

impl<'a> Collector<'a> {
    fn new(mark: &RunToken, scanner: Scanner, request: &'a ListRequest) -> Self {
        Collector {
            reader: ScanReader::new(mark, scanner),
            comes_sorted: scanner.comes_sorted(SortedBy::Reader),
            kept: Kept {
                glob: request.glob.as_ref(),
                first: FirstEntries::new(request.most_entries),
                problems: Vec::new(),
                more_problems: 0,
                status: None,
            },
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        let Collector { reader, kept, .. } = self;
        reader.feed(bytes, &mut |found| kept.take(found))
    }

    /// Whether all that follows comes after what is kept.
    fn has_enough(&self) -> bool {
        self.comes_sorted && self.kept.first.has_left_out()
    }

    fn finish(self) -> Result<Collected, ScanError> {
        let root = self.reader.finish()?.root;
        Ok(self.kept.collected(Some(root)))
    }

    fn stop(self) -> Collected {
        self.kept.collected(None)
    }

    fn stop_late(self) -> Collected {
        self.stop().late()
    }
}

/// What could not be listed, in words. The status only says that there was something.
fn notes(problems: &[ScanProblem], more: usize, status: Option<u32>) -> Vec<String> {
    let mut notes: Vec<String> = problems
        .iter()
        .map(|problem| Failure::chain(problem))
        .collect();
    if more > 0 {
        notes.push(format!("and {more} more"));
    }
    if let (true, Some(status)) = (notes.is_empty(), status) {
        notes.push(ScanProblem::Status { status }.to_string());
    }
    notes
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
