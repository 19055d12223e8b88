//! The other side of a sync: one program there at a time, with a list going in and words coming out.

use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::chores::{
    Removal, clock_script, mode_script, parse_clock, parse_modes, parse_removed, parse_space,
    remove_script, sealed_list, space_script, times_script,
};
use remote_sandbox_core::sync::path::inside;
use remote_sandbox_core::sync::receive::make_root_script;
use remote_sandbox_core::sync::scan::{HostPath, Scanner};
use remote_sandbox_core::sync::within::gone_through;
use remote_sandbox_core::sync::{Mtime, RelPath};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::far_files;
use super::far_ways::{ASTRAY, Strayed, strayed};
use crate::mark::new_mark;
use crate::sandbox::{FileConversation, Sandbox};
use crate::shell::{StreamEnd, StreamError};

/// A short question is answered within this time.
pub(super) const QUESTION_LIMIT: Duration = Duration::from_secs(60);

/// A program that lists or packs says something within this time, and takes something of what it is given.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(300);

/// A piece of work there, such as thousands of deletions, is done within this time.
pub(super) const WORK_LIMIT: Duration = Duration::from_secs(600);

/// The most that a program may say; a list of paths that failed is far shorter.
const MOST_SAID: u64 = 8 * 1024 * 1024;

/// So many entries are given permissions with one question.
const MOST_TOGETHER: usize = 5000;

/// The root of a sync in a sandbox.
#[derive(Clone)]
pub(super) struct Far<'a> {
    pub(super) sandbox: &'a dyn Sandbox,
    pub(super) root: HostPath,
    pub(super) scanner: Scanner,
    /// Where entries go that do not fit into memory.
    pub(super) spool: PathBuf,
    /// Links to directories that files are meant to go through.
    pub(super) links: Vec<RelPath>,
    /// The permissions of a root that has to be made, where they are known.
    pub(super) new_mode: Option<u32>,
}

impl Far<'_> {
    /// A path below the root, as scripts take it.
    pub(super) fn below(&self, path: &RelPath) -> HostPath {
        let path = inside(self.root.as_bytes(), path.as_bytes());
        // Both parts were paths, and the whole is only longer.
        HostPath::parse(&path).unwrap_or_else(|_| self.root.clone())
    }

    /// Which directories above these paths are links by now, as the file protocol sees it.
    pub(super) async fn strayed<'p>(
        &self,
        files: &FileConversation,
        paths: impl Iterator<Item = &'p RelPath>,
    ) -> Strayed {
        strayed(files, self.root.as_bytes(), &self.links, paths).await
    }

    /// Something that did not work there.
    pub(super) fn failure(&self, code: Code, words: &str) -> Failure {
        let name = &self.sandbox.description().name;
        Failure::new(code, format!("sandbox `{name}`: {words}"))
    }

    /// What a stream that broke means.
    pub(super) fn broken(&self, error: &StreamError) -> Failure {
        self.failure(Code::LinkLost, &Failure::chain(error))
            .hint("sync again: it goes on where it stopped")
            .retry()
    }

    /// A program that says nothing any more, although the link is good.
    pub(super) fn silent(&self) -> Failure {
        self.failure(Code::LinkLost, "its program says nothing any more")
            .hint("see whether its disk hangs, then sync again: it goes on where it stopped")
            .retry()
    }

    /// A script that did not come to its end.
    fn unfinished(&self, end: &StreamEnd, what: &str) -> Failure {
        let words = match end.words.is_empty() {
            true => format!("{what} did not come to its end"),
            false => format!("{what} did not work: {}", end.words),
        };
        self.failure(Code::RemoteRefused, &words)
            .hint("look at the folder there with list_remote_files")
    }

    /// Runs a script with bytes on its standard input; what it said, and how it ended.
    pub(super) async fn converse(
        &self,
        script: &str,
        input: &[u8],
    ) -> Result<(Vec<u8>, StreamEnd), Failure> {
        self.converse_within(script, input, WORK_LIMIT).await
    }

    /// The same for a script that may take another time.
    pub(super) async fn converse_within(
        &self,
        script: &str,
        input: &[u8],
        limit: Duration,
    ) -> Result<(Vec<u8>, StreamEnd), Failure> {
        let mut stream = self.sandbox.open(&["sh", "-c", script]).await?;
        let mut said = Vec::new();
        let (give, take) = (&mut stream.input, &mut stream.output);
        let giving = async {
            // A program that ends before it has read everything says why by itself.
            let _ = give.write_all(input).await;
            let _ = give.shutdown().await;
        };
        let mut take = take.take(MOST_SAID);
        let taking = take.read_to_end(&mut said);
        let both = async { tokio::join!(giving, taking) };
        let done = tokio::time::timeout(limit, both).await;
        let (_, _) = done.map_err(|_| self.silent())?;
        let end = stream.end().await.map_err(|error| self.broken(&error))?;
        Ok((said, end))
    }

    /// Removes what is on the list; what is still there afterwards.
    pub(super) async fn remove(
        &self,
        removal: Removal,
        paths: &[RelPath],
    ) -> Result<Vec<RelPath>, Failure> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        if self.scanner == Scanner::Files {
            return far_files::remove(self, removal, paths).await;
        }
        let mark = new_mark();
        let links = gone_through(&self.links, paths);
        let script = remove_script(&self.root, removal, &links, &mark);
        let list = match removal {
            Removal::Files => sealed_list(&mark, by_directory(paths).into_iter()),
            // They come in the order in which they can go.
            Removal::Directories => sealed_list(&mark, paths.iter()),
        };
        let (said, end) = self.converse(&script, &list).await?;
        let left = parse_removed(&mark, &said);
        left.ok_or_else(|| self.unfinished(&end, "deleting"))
    }

    /// Sets permissions; what went wrong, by path.
    pub(super) async fn set_mode(
        &self,
        mode: u16,
        paths: &[RelPath],
    ) -> Result<Vec<(RelPath, String)>, Failure> {
        let mut problems = Vec::new();
        for some in paths.chunks(MOST_TOGETHER) {
            let (words, left) = match self.scanner {
                Scanner::Files => far_files::set_mode(self, mode, some).await?,
                _ => self.set_mode_of(mode, some).await?,
            };
            if let Some((words, first)) = words.zip(some.first()) {
                let text = format!("permissions could not all be set: {words}");
                problems.push((first.clone(), text));
            }
            problems.extend(left.into_iter().map(|path| (path, ASTRAY.to_owned())));
        }
        Ok(problems)
    }

    /// Sets permissions; the words of the host where not all could be set, and what was not even tried.
    async fn set_mode_of(
        &self,
        mode: u16,
        paths: &[RelPath],
    ) -> Result<(Option<String>, Vec<RelPath>), Failure> {
        let mark = new_mark();
        let links = gone_through(&self.links, paths);
        let script = mode_script(&self.root, mode, &links, &mark);
        let list = sealed_list(&mark, by_directory(paths).into_iter());
        let (said, end) = self.converse(&script, &list).await?;
        match parse_modes(&mark, &said) {
            Some((all, left)) => Ok(((!all).then_some(end.words), left)),
            None => Err(self.unfinished(&end, "setting permissions")),
        }
    }

    /// Sets times to the nanosecond, as far as the host can.
    pub(super) async fn set_times(&self, times: &[(RelPath, Mtime)]) -> Result<(), Failure> {
        for part in times.chunks(500) {
            let paths: Vec<RelPath> = part.iter().map(|(path, _)| path.clone()).collect();
            let links = gone_through(&self.links, &paths);
            let script = times_script(&self.root, part, &links, &new_mark());
            self.sandbox.ask(script, QUESTION_LIMIT).await?;
        }
        Ok(())
    }

    /// Makes the root, with what is above it, unless it is there.
    pub(super) async fn make_root(&self) -> Result<(), Failure> {
        if self.scanner == Scanner::Files {
            return far_files::make_root(self).await;
        }
        let mark = new_mark();
        let script = make_root_script(&self.root, self.new_mode, &mark);
        let answer = self.sandbox.ask(script, QUESTION_LIMIT).await?;
        let end = format!("RSMCP:{mark}:end");
        match String::from_utf8_lossy(&answer).contains(&end) {
            true => Ok(()),
            false => Err(self
                .failure(Code::RemoteRefused, "the target folder cannot be made")
                .hint("check the path and who owns it; list_remote_files shows it")),
        }
    }

    /// What time it is there, in seconds since 1970, where the host can tell.
    pub(super) async fn clock(&self) -> Option<i64> {
        let mark = new_mark();
        let asking = self.sandbox.ask(clock_script(&mark), QUESTION_LIMIT);
        parse_clock(&mark, &asking.await.ok()?)
    }

    /// How much room there is, where the host can tell.
    pub(super) async fn free_bytes(&self) -> Result<Option<u64>, Failure> {
        let mark = new_mark();
        let script = space_script(&self.root, &mark);
        let answer = self.sandbox.ask(script, QUESTION_LIMIT).await?;
        Ok(parse_space(&mark, &answer))
    }
}

/// Paths so that those of one directory follow each other.
fn by_directory(paths: &[RelPath]) -> Vec<&RelPath> {
    let mut paths: Vec<&RelPath> = paths.iter().collect();
    paths.sort_by(|one, other| one.parent_bytes().cmp(&other.parent_bytes()));
    paths
}
