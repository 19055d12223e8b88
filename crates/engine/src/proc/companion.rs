//! A program that is spoken with over its standard streams, and that ends when its input is closed.

use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio_util::task::AbortOnDropHandle;

use super::CommandError;
use super::group::Group;
use super::piped::{Attended, LastWords};

/// A running program with its streams, which may be handed to somebody else.
#[derive(Debug)]
pub struct Companion {
    /// What it reads.
    pub input: ChildStdin,
    /// What it says.
    pub output: ChildStdout,
    /// The program itself.
    pub process: CompanionProcess,
}

/// The program behind the streams; it ends, with all it started, when this is dropped.
#[derive(Debug)]
pub struct CompanionProcess {
    words: LastWords,
    group: Group,
    errors: AbortOnDropHandle<()>,
}

/// How long the last words of a program that has ended may take to be heard; somebody else may hold
/// its standard error.
const WORDS_LIMIT: Duration = Duration::from_millis(200);

impl Companion {
    /// Starts a program with these variables and no others, away from the terminal's signals.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        variables: &[(String, String)],
    ) -> Result<Self, CommandError> {
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(CommandError::Start)?;
        let attended = Attended::new(child)?;
        Ok(Companion {
            input: attended.input,
            output: attended.output,
            process: CompanionProcess {
                words: attended.words,
                group: attended.group,
                errors: attended.errors,
            },
        })
    }
}

impl CompanionProcess {
    /// What it writes to its standard error.
    pub fn words(&self) -> LastWords {
        self.words.clone()
    }

    /// Waits until it has ended by itself, as it should once its input is closed; one that takes too
    /// long is ended with all it started.
    pub async fn end_within(self, limit: Duration) -> Result<ExitStatus, CommandError> {
        let ended = tokio::time::timeout(limit, self.group.end()).await;
        let _ = tokio::time::timeout(WORDS_LIMIT, self.errors).await;
        match ended {
            Ok(ended) => ended.map_err(CommandError::Read),
            Err(_) => Err(CommandError::TooSlow(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use remote_sandbox_testkit::{process, wait_until};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn shell(line: &str) -> Companion {
        let variables = [("ONLY".to_owned(), "this".to_owned())];
        Companion::start(
            Path::new("/bin/sh"),
            &["-c".into(), line.into()],
            &variables,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn companion_answers_and_ends_when_its_input_is_closed() {
        let line =
            "echo \"$ONLY$HOME\"; while read x; do echo \"<$x>\"; done; echo bye >&2; exit 3";
        let mut companion = shell(line);
        companion.input.write_all(b"a\n").await.unwrap();
        let mut said = [0; 9];
        companion.output.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"this\n<a>\n");
        let words = companion.process.words();
        drop(companion.input);
        let status = companion.process.end_within(Duration::from_secs(5)).await;
        assert_eq!(status.unwrap().code(), Some(3));
        assert_eq!(words.line().as_deref(), Some("bye"));
    }

    #[tokio::test]
    async fn companion_that_stays_is_ended_with_what_it_started() {
        let mut companion = shell("sleep 4323 & echo $!; wait");
        let mut text = String::new();
        while !text.ends_with('\n') {
            text.push(char::from(companion.output.read_u8().await.unwrap()));
        }
        let pid: u32 = text.trim().parse().unwrap();
        assert!(process::is_alive(pid));
        let ended = companion.process.end_within(Duration::from_millis(50));
        assert!(matches!(ended.await, Err(CommandError::TooSlow(_))));
        assert!(wait_until(Duration::from_secs(5), || !process::is_alive(pid)).await);
    }
}
