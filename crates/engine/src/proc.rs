//! The one door to local processes: an argument list, never a shell; bounded in time and output.
#![expect(
    clippy::disallowed_methods,
    reason = "this module is the door to processes"
)]

mod background;
mod companion;
mod group;
mod hook;
mod piped;
mod supervised;

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;

pub use background::{Background, in_background};
pub use companion::{Companion, CompanionProcess};
use group::Group;
pub use hook::{Hook, HookEnd};
pub use piped::{LastWords, Piped};
pub use supervised::{Detached, detached, shell_in_session};

/// Most bytes that are read from a command's standard output.
const LONGEST_OUTPUT: u64 = 64 * 1024;

/// Why a local command gave no answer. The command is not repeated: somebody may have written a
/// secret where the program belongs.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The list of arguments has no program.
    #[error("the command is empty")]
    Empty,
    /// The program could not be started.
    #[error("the command cannot be started")]
    Start(#[source] std::io::Error),
    /// Its output could not be read.
    #[error("the command's output cannot be read")]
    Read(#[source] std::io::Error),
    /// It did not end in time.
    #[error("the command did not end within {} s", .0.as_secs())]
    TooSlow(Duration),
    /// It printed more than anybody wants to read.
    #[error("the command printed more than {0} bytes")]
    TooMuch(u64),
    /// It ended with another status than 0.
    #[error("the command ended with {0}")]
    Failed(std::process::ExitStatus),
}

/// A command without the `hidden` variables whose output is read and that is given no input.
fn command(
    arguments: &[String],
    hidden: &[String],
) -> Result<tokio::process::Command, CommandError> {
    let (program, rest) = arguments.split_first().ok_or(CommandError::Empty)?;
    let mut command = tokio::process::Command::new(program);
    for name in hidden {
        command.env_remove(name);
    }
    command
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Becomes another program; returns only when that could not be started.
pub fn become_program(words: &[String]) -> CommandError {
    use std::os::unix::process::CommandExt;

    let Some((program, rest)) = words.split_first() else {
        return CommandError::Empty;
    };
    CommandError::Start(std::process::Command::new(program).args(rest).exec())
}

/// Runs a command without the `hidden` variables and returns what it printed; its standard error is
/// not kept, it may hold secrets.
pub async fn capture_output(
    arguments: &[String],
    hidden: &[String],
    limit: Duration,
) -> Result<Vec<u8>, CommandError> {
    let mut child = command(arguments, hidden)?
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(CommandError::Start)?;
    let mut output = Vec::new();
    let finished = tokio::time::timeout(limit, async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(LONGEST_OUTPUT).read_to_end(&mut output).await?;
        }
        child.wait().await
    })
    .await;
    match finished {
        Err(_) => Err(CommandError::TooSlow(limit)),
        Ok(Err(source)) => Err(CommandError::Read(source)),
        Ok(Ok(status)) if status.success() => Ok(output),
        Ok(Ok(status)) => Err(CommandError::Failed(status)),
    }
}

/// What `ps` says with these arguments, for systems that tell about processes in no other way; nothing
/// when it fails. It waits for the program, which takes milliseconds.
pub fn list_processes(arguments: &[&str]) -> String {
    let output = std::process::Command::new("ps")
        .args(arguments)
        // Times are written in the words and the zone of whoever asks; they are compared.
        .env("LC_ALL", "C")
        .env("TZ", "UTC0")
        .stdin(Stdio::null())
        .output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// What a command said.
#[derive(Debug)]
pub struct Captured {
    /// Whether it ended with status 0.
    pub success: bool,
    /// Its standard output.
    pub output: Vec<u8>,
    /// The beginning of its standard error.
    pub errors: Vec<u8>,
}

/// Runs a command without the `hidden` variables and returns all it said, however it ended; what it
/// started is ended with it when it is too slow.
pub async fn capture_both(
    arguments: &[String],
    hidden: &[String],
    limit: Duration,
    most_bytes: u64,
) -> Result<Captured, CommandError> {
    let mut child = command(arguments, hidden)?
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(CommandError::Start)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let group = Group::new(child);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let reading = async {
        let read_output = async {
            match stdout {
                Some(stdout) => stdout.take(most_bytes + 1).read_to_end(&mut output).await,
                None => Ok(0),
            }
        };
        let read_errors = async {
            match stderr {
                Some(stderr) => stderr.take(LONGEST_OUTPUT).read_to_end(&mut errors).await,
                None => Ok(0),
            }
        };
        tokio::try_join!(read_output, read_errors)?;
        group.end().await
    };
    match tokio::time::timeout(limit, reading).await {
        Err(_) => Err(CommandError::TooSlow(limit)),
        Ok(Err(source)) => Err(CommandError::Read(source)),
        Ok(Ok(_)) if output.len() as u64 > most_bytes => Err(CommandError::TooMuch(most_bytes)),
        Ok(Ok(status)) => Ok(Captured {
            success: status.success(),
            output,
            errors,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[tokio::test]
    async fn command_output_is_captured() {
        let output =
            capture_output(&arguments(&["printf", "a b"]), &[], Duration::from_secs(5)).await;
        assert_eq!(output.unwrap(), b"a b");
    }

    #[tokio::test]
    async fn command_is_ended_when_it_is_too_slow() {
        let error = capture_output(
            &arguments(&["sleep", "30"]),
            &[],
            Duration::from_millis(100),
        )
        .await;
        assert!(matches!(error, Err(CommandError::TooSlow(_))));
    }

    #[tokio::test]
    async fn failing_command_is_not_repeated() {
        let error = capture_output(
            &arguments(&["false", "secret"]),
            &[],
            Duration::from_secs(5),
        )
        .await;
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("exit status: 1") && !text.contains("secret"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn both_streams_of_a_failing_command_are_captured() {
        let words = arguments(&["sh", "-c", "echo out; echo err >&2; exit 3"]);
        let captured = capture_both(&words, &[], Duration::from_secs(5), 100).await;
        let captured = captured.unwrap();
        assert!(!captured.success);
        assert_eq!(captured.output, b"out\n");
        assert_eq!(captured.errors, b"err\n");
        let error = capture_both(&words, &[], Duration::from_secs(5), 3).await;
        assert!(matches!(error, Err(CommandError::TooMuch(3))));
    }

    #[tokio::test]
    async fn what_a_slow_command_started_is_ended_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let line = format!("sleep 4321 & echo $! > {}; wait", file.display());
        let words = arguments(&["sh", "-c", &line]);
        let error = capture_both(&words, &[], Duration::from_millis(300), 100).await;
        assert!(matches!(error, Err(CommandError::TooSlow(_))));
        let pid: u32 = std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let gone = || !remote_sandbox_testkit::process::is_alive(pid);
        assert!(remote_sandbox_testkit::wait_until(Duration::from_secs(5), gone).await);
    }
}
