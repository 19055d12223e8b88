//! `exec`: one command on one sandbox, as if it ran here.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::outcome::{LeftRunning, Outcome};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::shell::{RunSpec, StdinText, quote};
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, ExecReport, ExecRequest};
use remote_sandbox_engine::run::{Follower, follow};
use remote_sandbox_engine::sandbox::{Ended, Stream};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::report::{EXEC_FAILED, Failed, LINK_LOST, notice};

/// The longest time a command may take, and what it gets when nothing is said.
const LONGEST_TIMEOUT_S: u64 = 7 * 24 * 3600;

/// The engine ends a command at its timeout; this much later it has told of it.
const GRACE: Duration = Duration::from_secs(30);

/// Most bytes of standard input that are sent along.
const LONGEST_INPUT: u64 = 8 * 1024 * 1024;

/// The exit code of the `timeout` program.
const TIMED_OUT: u8 = 124;

/// Run a command on a sandbox, show its output as it comes, and end with its exit code
///
/// One word is a line for the shell there; several words are one command with its arguments.
/// Exit codes of our own: 124 timed out, 125 the command could not be run, 128+n ended by signal n,
/// 130 interrupted, 255 connection lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// Name of the sandbox
    name: String,

    /// End the whole process tree after this many seconds (default: 7 days)
    #[arg(long, value_name = "S", default_value_t = LONGEST_TIMEOUT_S, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(1..=LONGEST_TIMEOUT_S))]
    timeout: u64,

    /// Directory to run in: absolute, ~/x or relative to the home there
    #[arg(long, value_name = "D")]
    cwd: Option<String>,

    /// Environment variable for the command; may be given several times
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,

    /// Send what is piped in to the command as its standard input: text, at most 8 MiB
    #[arg(long)]
    stdin: bool,

    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Exec {
    /// Runs it and gives the exit code of the command.
    pub(crate) fn run(&self, common: &Common) -> Result<u8, Failed> {
        let request = self.request()?;
        with_engine(common, |engine, stop| run(engine, stop, request))
    }

    fn request(&self) -> Result<ExecRequest, Failed> {
        let mut spec = RunSpec::new(shell_line(&self.command))?;
        if let Some(cwd) = &self.cwd {
            spec = spec.in_directory(cwd)?;
        }
        for variable in &self.env {
            let shown = || Failed::Variable(clean_line(variable, 40));
            let (name, value) = variable.split_once('=').ok_or_else(shown)?;
            spec = spec.with_variable(name, value.to_owned())?;
        }
        if self.stdin {
            spec = spec.with_stdin(StdinText::parse(piped_text()?)?);
        }
        let timeout = Duration::from_secs(self.timeout);
        Ok(ExecRequest {
            sandbox: Some(self.name.clone()),
            spec,
            timeout,
            wait: timeout + GRACE,
            max_output_chars: 0,
        })
    }
}

/// One word is a line for the shell; several are a command and its arguments, each standing for itself.
pub(crate) fn shell_line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
            quoted.join(" ")
        }
    }
}

fn piped_text() -> Result<String, Failed> {
    let input = io::stdin();
    if input.is_terminal() {
        return Err(Failed::UnfitInput(
            "--stdin needs a pipe or a file as standard input, not a terminal",
        ));
    }
    let mut bytes = Vec::new();
    let mut bounded = input.lock().take(LONGEST_INPUT + 1);
    bounded.read_to_end(&mut bytes).map_err(Failed::Input)?;
    String::from_utf8(bytes).map_err(|_| {
        Failed::UnfitInput("standard input is not UTF-8 text; copy it to the host as a file")
    })
}

async fn run(
    engine: Arc<Engine>,
    stop: CancellationToken,
    request: ExecRequest,
) -> Result<u8, Failed> {
    let timeout = request.timeout;
    let context = CallContext::new(Principal::local(), stop.child_token());
    let (tap, follower) = follow();
    let reader_gone = context.cancel.clone();
    // A write may block for as long as the reader likes, so it has a thread of its own.
    let (told, written) = tokio::sync::oneshot::channel();
    let writer = std::thread::Builder::new().name("output".to_owned());
    writer
        .spawn(move || {
            let written = write_out(&follower);
            if written.is_err() {
                reader_gone.cancel();
            }
            let _ = told.send(written);
        })
        .map_err(Failed::Runtime)?;
    let report = engine.exec_followed(&context, request, tap).await;
    // Ctrl-C must not wait for a reader that has stopped reading.
    let written = tokio::select! {
        written = written => written.unwrap_or(Ok(())),
        () = stop.cancelled() => Ok(()),
    };
    written.map_err(Failed::Output)?;
    exit_code(&report?, timeout)
}

/// Hands the output on, byte by byte as it was, each stream to its own.
fn write_out(follower: &Follower) -> io::Result<()> {
    while let Some((stream, bytes)) = follower.next_piece() {
        match stream {
            Stream::Out => {
                let mut output = io::stdout().lock();
                output.write_all(&bytes)?;
                output.flush()?;
            }
            Stream::Err => io::stderr().lock().write_all(&bytes)?,
        }
    }
    let dropped = follower.dropped_bytes();
    if dropped > 0 {
        notice(&format!(
            "{dropped} bytes of output were not taken in time and are lost"
        ));
    }
    Ok(())
}

fn exit_code(report: &ExecReport, timeout: Duration) -> Result<u8, Failed> {
    let ended = match &report.finished {
        Some(finished) => finished.result.as_ref().map_err(Clone::clone)?,
        None => {
            let text = format!("the command on `{}` did not end in time", report.sandbox);
            return Err(Failure::new(Code::TimedOut, text).into());
        }
    };
    Ok(match &ended.outcome {
        Outcome::Exited(code) => u8::try_from(*code).unwrap_or(LINK_LOST),
        Outcome::Signalled(name) => 128 + signal_number(name).unwrap_or(0),
        Outcome::TimedOut => {
            let (end, seconds) = (what_lives(ended), timeout.as_secs());
            notice(&format!("timed out after {seconds} s; {end}"));
            TIMED_OUT
        }
        Outcome::Ended(_) => {
            notice(&format!("ended; {}", what_lives(ended)));
            EXEC_FAILED
        }
        Outcome::LinkLost => {
            let detail = ended.detail.as_deref().unwrap_or("no reason is known");
            notice(&format!(
                "the connection to `{}` was lost: {detail}",
                report.sandbox
            ));
            notice("the command may still run there; `remote-sandbox-mcp clean` shows it");
            LINK_LOST
        }
    })
}

fn what_lives(ended: &Ended) -> String {
    match &ended.left_running {
        LeftRunning::Nothing => "its processes were ended".to_owned(),
        LeftRunning::Unknown => "whether its processes were ended is not known".to_owned(),
        LeftRunning::Processes(left) => {
            let names: Vec<String> = left
                .iter()
                .map(|process| format!("{} ({})", process.name, process.pid))
                .collect();
            format!("still running: {}", names.join(", "))
        }
    }
}

/// The number of a signal whose name SSH tells.
fn signal_number(name: &str) -> Option<u8> {
    const NUMBERS: [(&str, u8); 13] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ILL", 4),
        ("ABRT", 6),
        ("FPE", 8),
        ("KILL", 9),
        ("USR1", 10),
        ("SEGV", 11),
        ("USR2", 12),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", 15),
    ];
    let plain = name.strip_prefix("SIG").unwrap_or(name);
    let found = NUMBERS.iter().find(|(known, _)| *known == plain);
    found.map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        shell_line(&words)
    }

    #[test]
    fn one_word_is_a_line_and_several_are_arguments() {
        assert_eq!(line(&["echo $HOME; ls"]), "echo $HOME; ls");
        assert_eq!(
            line(&["echo", "$HOME", "it's"]),
            r"'echo' '$HOME' 'it'\''s'"
        );
    }

    #[test]
    fn signal_has_its_number_in_either_spelling() {
        assert_eq!(signal_number("KILL"), Some(9));
        assert_eq!(signal_number("SIGTERM"), Some(15));
        assert_eq!(signal_number("ODD@example.org"), None);
    }
}
