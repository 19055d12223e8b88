//! A program whose standard input and output are a connection.

use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio_util::task::AbortOnDropHandle;

use super::CommandError;
use super::group::Group;

/// As much of the end of the standard error is kept.
const KEPT_ERRORS: usize = 2048;

/// The end of what a program wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub struct LastWords(Arc<Mutex<Vec<u8>>>);

impl LastWords {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(KEPT_ERRORS);
        kept.drain(..surplus);
    }

    /// As much of it as is kept.
    pub fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// The last line that is not empty.
    pub fn line(&self) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(line.to_owned())
    }
}

/// A running program as a stream; it ends, with all it started, when this is dropped.
#[derive(Debug)]
pub struct Piped {
    input: ChildStdin,
    output: ChildStdout,
    words: LastWords,
    _group: Group,
    _errors: AbortOnDropHandle<()>,
}

impl Piped {
    /// Starts a line of the user's own configuration with the local shell, without the `hidden` variables.
    pub fn start(line: &str, hidden: &[String]) -> Result<Self, CommandError> {
        let mut command = tokio::process::Command::new("/bin/sh");
        for name in hidden {
            command.env_remove(name);
        }
        let child = command
            .arg("-c")
            .arg(format!("exec {line}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(CommandError::Start)?;
        let attended = Attended::new(child)?;
        Ok(Piped {
            input: attended.input,
            output: attended.output,
            words: attended.words,
            _group: attended.group,
            _errors: attended.errors,
        })
    }

    /// What it writes to its standard error.
    pub fn words(&self) -> LastWords {
        self.words.clone()
    }
}

/// A child with all three streams, whose last words are kept while it runs.
pub(super) struct Attended {
    pub(super) input: ChildStdin,
    pub(super) output: ChildStdout,
    pub(super) words: LastWords,
    pub(super) group: Group,
    pub(super) errors: AbortOnDropHandle<()>,
}

impl Attended {
    /// Takes charge of a child that leads a group and was started with three pipes.
    pub(super) fn new(mut child: Child) -> Result<Self, CommandError> {
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Group::new(child);
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(CommandError::Empty);
        };
        let words = LastWords::default();
        let listening = tokio::spawn(listen(errors, words.clone()));
        Ok(Attended {
            input,
            output,
            words,
            group,
            errors: AbortOnDropHandle::new(listening),
        })
    }
}

/// Keeps the last words of a program until it has said them all.
pub(super) async fn listen(mut errors: impl AsyncRead + Unpin, words: LastWords) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        words.add(buffer.get(..count).unwrap_or_default());
    }
}

impl AsyncRead for Piped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.output).poll_read(context, buffer)
    }
}

impl AsyncWrite for Piped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use remote_sandbox_testkit::{process, wait_until};
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn program_is_a_stream_and_its_last_words_are_kept() {
        let mut piped = Piped::start("sh -c 'echo first >&2; echo last >&2; cat'", &[]).unwrap();
        piped.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        piped.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
        let words = piped.words();
        let said = || words.line().as_deref() == Some("last");
        assert!(wait_until(Duration::from_secs(5), said).await);
    }

    #[tokio::test]
    async fn program_and_what_it_started_end_with_the_stream() {
        let mut piped = Piped::start("sh -c 'sleep 4322 & echo $$ $!; wait'", &[]).unwrap();
        let mut text = String::new();
        while !text.ends_with('\n') {
            text.push(char::from(piped.read_u8().await.unwrap()));
        }
        let pids: Vec<u32> = text
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        assert!(pids.len() == 2 && pids.iter().all(|pid| process::is_alive(*pid)));
        drop(piped);
        // Reaped as well: a zombie still has an entry in the table of processes.
        let gone = || process::state(pids[0]).is_none() && !process::is_alive(pids[1]);
        assert!(wait_until(Duration::from_secs(5), gone).await);
    }
}
