//! The one door to local processes: an argument list, never a shell; bounded in time and output.
#![expect(
    clippy::disallowed_methods,
    reason = "this module is the door to processes"
)]

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;

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
    /// It ended with another status than 0.
    #[error("the command ended with {0}")]
    Failed(std::process::ExitStatus),
}

/// Runs a command without the `hidden` variables and returns what it printed; its standard error is
/// not kept, it may hold secrets.
pub async fn capture_output(
    arguments: &[String],
    hidden: &[String],
    limit: Duration,
) -> Result<Vec<u8>, CommandError> {
    let Some((program, rest)) = arguments.split_first() else {
        return Err(CommandError::Empty);
    };
    let mut command = tokio::process::Command::new(program);
    for name in hidden {
        command.env_remove(name);
    }
    let mut child = command
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
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
}
