//! Scripts that travel to a host on standard input, and what the host says back about them.
//!
//! The login shell only ever sees the constant [`CONSTANT_COMMAND`]; everything a user or an agent
//! wrote is parsed by `sh`, inside single quotes made by [`quote`]. So fish, zsh, csh and busybox
//! logins all behave the same, and no text of the caller reaches a shell unquoted by accident.

mod clean;
mod end;
mod gate;
mod program;
mod run;
mod start;
mod stream;
mod warm;

pub use clean::{CleanError, TokenProcess, clean_script, parse_clean_report};
pub use end::{EndReport, Purpose, Survivor, Target, end_script, parse_end_report};
pub use gate::{Gate, Started};
pub use program::{ShellProgram, ShellProgramError};
pub use run::{
    EnvironmentName, HostFacts, RunSpec, ScriptError, ShellAge, StdinText, TimeoutProgram,
};
pub use start::run_script;
pub use stream::stream_script;
pub use warm::{noted_files, ready_script};

/// The one command line that a login shell is asked to run.
pub const CONSTANT_COMMAND: &str = "exec sh";

/// The environment variable that carries the run token into every process of a run.
pub const TOKEN_VARIABLE: &str = "REMOTE_SANDBOX_RUN";

/// Quotes text for a POSIX shell so that it stands for exactly itself.
///
/// ```
/// use remote_sandbox_core::shell::quote;
/// assert_eq!(quote("it's"), r"'it'\''s'");
/// ```
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for part in text.split_inclusive('\'') {
        match part.strip_suffix('\'') {
            Some(before) => {
                quoted.push_str(before);
                quoted.push_str(r"'\''");
            }
            None => quoted.push_str(part),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
#[path = "shell_tests.rs"]
mod tests;
