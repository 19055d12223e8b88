//! How commands end: an exit code, and when something did not work two lines on standard error, or one JSON object on
//! standard output where the result would have been one.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use remote_sandbox_core::config::Environment;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::SecretNameError;
use remote_sandbox_core::shell::ScriptError;
use remote_sandbox_engine::engine::SetupError;
use remote_sandbox_engine::local::SuperviseError;
use remote_sandbox_engine::proc::CommandError;
use remote_sandbox_engine::secrets::StoreError;
use remote_sandbox_engine::transfer::AssignmentError;
use remote_sandbox_engine::watchdog::WatchdogError;
use remote_sandbox_server::mcp::ServeError;
use serde_json::Value;

use crate::demo::DemoError;
use crate::wording;

/// The exit code of a command of ours that failed.
const FAILED: u8 = 1;

/// The exit code of `exec` when it was not the command that failed.
pub(crate) const EXEC_FAILED: u8 = 125;

/// The exit code of `ssh` for a connection that broke.
pub(crate) const LINK_LOST: u8 = 255;

/// What a shell shows for a program that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// What a shell shows for a program whose reader went away.
const READER_GONE: u8 = 141;

/// How a command tells what did not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines for people.
    Lines,
    /// One JSON object, as tools return it.
    Json,
}

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// It could not start.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The runtime could not start.
    #[error("the asynchronous runtime cannot start")]
    Runtime(#[source] io::Error),
    /// The server could not go on.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The engine could not do it.
    #[error("{}", .0.message)]
    Engine(Failure),
    /// The command cannot be sent as it is.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A variable has no value.
    #[error("`--env {0}` has no `=`")]
    Variable(String),
    /// An argument names no file of a sandbox.
    #[error("the argument names no file of a sandbox")]
    NoRemote,
    /// Standard input cannot be read.
    #[error("standard input cannot be read")]
    Input(#[source] io::Error),
    /// Standard input is not what is needed.
    #[error("{0}")]
    UnfitInput(&'static str),
    /// Standard output cannot be written.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
    /// The name of a secret is no name.
    #[error(transparent)]
    SecretName(#[from] SecretNameError),
    /// Secrets cannot be kept or found.
    #[error(transparent)]
    Secret(#[from] StoreError),
    /// A sandbox on this machine could not be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// A worker was not told what to do.
    #[error(transparent)]
    Assignment(#[from] AssignmentError),
    /// The watchdog cannot work.
    #[error(transparent)]
    Watchdog(#[from] WatchdogError),
    /// There is no terminal for a session.
    #[error("`ssh` cannot be started")]
    Attach(#[source] CommandError),
    /// Something could not be removed from a host.
    #[error("{0} of the runs could not be ended")]
    NotCleaned(usize),
    /// The doctor found something that does not work, and has told it.
    #[error("something does not work")]
    Unwell,
    /// A step of the demo did not give what it should.
    #[error(transparent)]
    Demo(#[from] DemoError),
    /// Somebody pressed Ctrl-C or ended the program.
    #[error("interrupted")]
    Interrupted(u8),
    /// Somebody did so while something was done that cannot be taken back; what came of it is printed.
    #[error("interrupted, and done all the same")]
    DoneAllTheSame(u8),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Failed::Engine(failure)
    }
}

impl Failed {
    /// What to do next.
    fn hint(&self) -> &str {
        match self {
            Failed::Engine(failure) => &failure.hint,
            Failed::Setup(SetupError::Missing(_)) => {
                "write it, or leave out --config and REMOTE_SANDBOX_CONFIG"
            }
            Failed::Variable(_) => "write it as --env NAME=value",
            Failed::NoRemote => {
                "write it as NAME:PATH, such as gpu1:~/results; `list` shows the names"
            }
            Failed::Secret(StoreError::Unknown(_)) => {
                "`remote-sandbox-mcp secret list` shows the names"
            }
            Failed::Secret(StoreError::Keychain { .. }) => {
                "unlock the keychain, or keep the secret in a file: remote-sandbox-mcp secret set --file NAME"
            }
            Failed::Secret(_) => {
                "correct the access rights of the state folder, or set REMOTE_SANDBOX_MCP_HOME to another one"
            }
            Failed::Demo(error) => error.hint(),
            Failed::NotCleaned(_) => "log in by hand and look at the processes named above",
            _ => "",
        }
    }

    /// The same as a tool tells it, in the words of the command line.
    fn failure(&self) -> Failure {
        let mut failure = match self {
            Failed::Engine(failure) => failure.clone(),
            other => Failure::new(other.reason(), Failure::chain(other)),
        };
        failure.message = wording::message(&failure.message);
        failure.hint(wording::hint(self.hint()))
    }

    /// The documented reason of what is no failure of the engine.
    fn reason(&self) -> Code {
        match self {
            Failed::Engine(failure) => failure.code,
            Failed::Setup(SetupError::Missing(_)) | Failed::Secret(StoreError::Unknown(_)) => {
                Code::NotFound
            }
            Failed::Setup(_) => Code::NotConfigured,
            Failed::Script(_)
            | Failed::Variable(_)
            | Failed::NoRemote
            | Failed::UnfitInput(_)
            | Failed::SecretName(_) => Code::InvalidParams,
            Failed::Secret(_) => Code::StoreUnavailable,
            Failed::NotCleaned(_) => Code::RemoteRefused,
            Failed::Interrupted(_) | Failed::DoneAllTheSame(_) => Code::Cancelled,
            _ => Code::Internal,
        }
    }

    /// Whether it was told already, or cannot be.
    fn is_told(&self) -> bool {
        matches!(
            self,
            Failed::Unwell | Failed::Output(_) | Failed::DoneAllTheSame(_)
        )
    }

    /// The exit code, when it is not the usual one for failures.
    fn own_code(&self) -> Option<u8> {
        match self {
            Failed::Interrupted(code) | Failed::DoneAllTheSame(code) => Some(*code),
            Failed::Unwell => Some(FAILED),
            Failed::Engine(failure) if failure.code == Code::Cancelled => Some(INTERRUPTED),
            Failed::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Some(READER_GONE),
            _ => None,
        }
    }
}

/// The end of a command.
pub(crate) fn end(done: Result<(), Failed>, form: Form) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => ExitCode::from(complain(&failed, FAILED, form)),
    }
}

/// The end of `exec`, which passes the exit code of its command on, and of those that use its exit codes.
pub(crate) fn end_of_exec(done: Result<u8, Failed>, form: Form) -> ExitCode {
    let code = done.unwrap_or_else(|failed| {
        let is_lost = matches!(&failed, Failed::Engine(failure) if failure.code == Code::LinkLost);
        let usual = if is_lost { LINK_LOST } else { EXEC_FAILED };
        complain(&failed, usual, form)
    });
    ExitCode::from(code)
}

/// Says what did not work and what to do, and gives the exit code. People who went away themselves are not told.
fn complain(failed: &Failed, usual: u8, form: Form) -> u8 {
    let code = failed.own_code();
    let failure = failed.failure();
    match form {
        // A reader that is gone is no reason to break.
        Form::Json if !failed.is_told() => {
            let _ = print(&format!("{}\n", json_of(&failure)));
        }
        Form::Lines if code.is_none() => {
            notice(&failure.message);
            if !failure.hint.is_empty() {
                let _ = writeln!(io::stderr(), "hint: {}", failure.hint);
            }
        }
        _ => {}
    }
    code.unwrap_or(usual)
}

fn json_of(failure: &Failure) -> Value {
    serde_json::to_value(failure).unwrap_or_default()
}

/// Tells something beside the output.
pub(crate) fn notice(text: &str) {
    let _ = writeln!(io::stderr(), "remote-sandbox-mcp: {text}");
}

/// Asks something on the terminal.
pub(crate) fn ask(question: &str) {
    let _ = write!(io::stderr(), "{question}");
    let _ = io::stderr().flush();
}

/// Whether standard output is a terminal on which colours are welcome.
pub(crate) fn is_colourful(environment: &Environment) -> bool {
    let set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
    let dumb = environment.get("TERM").is_some_and(|kind| kind == "dumb");
    io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
}

/// Writes to standard output, whole.
pub(crate) fn print(text: &str) -> Result<(), Failed> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(Failed::Output)
}

/// An age as people say it.
pub(crate) fn rough(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Lays rows out in columns, two blanks between them; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lines_up_its_columns() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["NAME", "CPU", ""]),
            row(["größer", "1", "x"]),
            row(["b", "100", ""]),
        ];
        assert_eq!(table(&rows), "NAME    CPU\ngrößer  1    x\nb       100\n");
    }

    #[test]
    fn reader_that_went_away_is_no_failure_to_talk_about() {
        let gone = Failed::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(complain(&gone, FAILED, Form::Json), READER_GONE);
        let full = Failed::Output(io::ErrorKind::StorageFull.into());
        assert_eq!(complain(&full, EXEC_FAILED, Form::Lines), EXEC_FAILED);
    }

    #[test]
    fn failure_of_the_command_line_has_a_code_and_speaks_of_options() {
        let engine = Failure::new(Code::Busy, "in use").hint("try `dry_run: true`");
        let told = Failed::from(engine.retry()).failure();
        assert_eq!(
            json_of(&told),
            serde_json::json!({
                "error": "in use", "code": "busy", "hint": "try `--dry-run`", "retry": true
            })
        );
        let own = Failed::NoRemote.failure();
        assert_eq!(own.code, Code::InvalidParams);
        assert!(own.hint.contains("NAME:PATH"), "{}", own.hint);
        assert_eq!(Failed::Interrupted(143).failure().code, Code::Cancelled);
    }
}
