//! One command of a caller, checked and ready to become a script.

use super::ShellProgram;
use crate::config::Surroundings;

/// Longest command that is handed to the shell as one argument; Linux refuses 128 KiB and more.
pub(super) const LONGEST_ARGUMENT: usize = 96 * 1024;

/// Longest command or standard input that is accepted at all.
const LONGEST_TEXT: usize = 8 * 1024 * 1024;

/// Why a command cannot be turned into a script.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScriptError {
    /// There is nothing to run.
    #[error("`command` cannot be empty")]
    EmptyCommand,
    /// No shell can carry a NUL byte in its text.
    #[error("`{field}` holds a NUL character, which no shell can carry; write it as an escape")]
    Nul {
        /// The argument at fault.
        field: &'static str,
    },
    /// The text is longer than one script may be.
    #[error("`{field}` is {length} bytes long, {limit} is the limit; put it into a file instead")]
    TooLong {
        /// The argument at fault.
        field: &'static str,
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// No process can be started with a variable that long.
    #[error(
        "the variable `{name}` in `env` is {length} bytes long, {limit} is the limit; pass it as `stdin` or in a file"
    )]
    VariableTooLong {
        /// The variable.
        name: String,
        /// How long its value is.
        length: usize,
        /// How long name and value may be.
        limit: usize,
    },
    /// The name cannot be an environment variable.
    #[error(
        "`env` has the name `{name}`; a name is letters, digits and `_`, not starting with a digit, and not one that the shell keeps for itself"
    )]
    VariableName {
        /// The name, with control characters escaped.
        name: String,
    },
}

/// Names that bash does not let anybody set, and those that carry our own words to the shell.
const READ_ONLY: [&str; 9] = [
    "BASHOPTS",
    "BASH_VERSINFO",
    "EUID",
    "PPID",
    "SHELLOPTS",
    "UID",
    "REMOTE_SANDBOX_CAT",
    "REMOTE_SANDBOX_CWD",
    "REMOTE_SANDBOX_LINE",
];

/// A name that every POSIX shell accepts as a variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvironmentName(pub(super) String);

impl EnvironmentName {
    /// Checks the name.
    pub fn parse(name: &str) -> Result<Self, ScriptError> {
        let mut characters = name.chars();
        let first_is_right = characters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
        let rest_is_right = characters.all(|next| next.is_ascii_alphanumeric() || next == '_');
        if first_is_right && rest_is_right && name.len() <= 256 && !READ_ONLY.contains(&name) {
            Ok(EnvironmentName(name.to_owned()))
        } else {
            let shown: String = name.chars().take(64).collect();
            Err(ScriptError::VariableName {
                name: shown.escape_debug().to_string(),
            })
        }
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text for a command's standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StdinText(pub(super) String);

impl StdinText {
    /// Checks that the text can travel inside a script.
    pub fn parse(text: String) -> Result<Self, ScriptError> {
        check_text("stdin", &text)?;
        Ok(StdinText(text))
    }
}

/// What is known about the host's `timeout` program, the second layer of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutProgram {
    /// Nothing is known yet; the script finds out and tells.
    Unknown,
    /// It takes `-k`.
    WithKill,
    /// It is there, but does not know `-k`.
    Plain,
    /// It takes `-k` and becomes the command itself; another process of it keeps the time, and outlives
    /// the command by a moment. That is what busybox has.
    InPlaceWithKill,
    /// The same without `-k`.
    InPlacePlain,
    /// The host has none.
    Absent,
}

impl TimeoutProgram {
    /// How scripts write it, once it is known.
    pub(super) fn letter(self) -> Option<char> {
        match self {
            TimeoutProgram::Unknown => None,
            TimeoutProgram::WithKill => Some('k'),
            TimeoutProgram::Plain => Some('p'),
            TimeoutProgram::InPlaceWithKill => Some('K'),
            TimeoutProgram::InPlacePlain => Some('P'),
            TimeoutProgram::Absent => Some('n'),
        }
    }

    /// Reads what a script wrote.
    pub(super) fn from_letter(letter: Option<&str>) -> Self {
        match letter {
            Some("k") => TimeoutProgram::WithKill,
            Some("p") => TimeoutProgram::Plain,
            Some("K") => TimeoutProgram::InPlaceWithKill,
            Some("P") => TimeoutProgram::InPlacePlain,
            _ => TimeoutProgram::Absent,
        }
    }
}

/// How a script finds its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFacts {
    /// Its `timeout` program.
    pub program: TimeoutProgram,
    /// The shell it goes to.
    pub age: ShellAge,
    /// Whether the connection tells by which signal a command ended; where it does not, the shell
    /// stays and says it in the exit code, as shells do.
    pub tells_signals: bool,
}

/// Which shell a script goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellAge {
    /// One that was just started for it.
    New,
    /// One that has waited for it, with [`ready_script`](super::ready_script) done.
    Waiting,
}

/// One command of a caller, checked and ready to be sent.
#[derive(Debug, Clone)]
pub struct RunSpec {
    pub(super) command: String,
    pub(super) cwd: Option<String>,
    pub(super) variables: Vec<(EnvironmentName, String)>,
    pub(super) stdin: Option<StdinText>,
    pub(super) init: Option<String>,
    pub(super) shell: Option<ShellProgram>,
}

impl RunSpec {
    /// Checks a command.
    pub fn new(command: String) -> Result<Self, ScriptError> {
        if command.trim().is_empty() {
            return Err(ScriptError::EmptyCommand);
        }
        check_text("command", &command)?;
        Ok(RunSpec {
            command,
            cwd: None,
            variables: Vec::new(),
            stdin: None,
            init: None,
            shell: None,
        })
    }

    /// Sets the directory to run in: absolute, `~`, `~/x`, or relative to the home.
    pub fn in_directory(mut self, cwd: &str) -> Result<Self, ScriptError> {
        check_text("cwd", cwd)?;
        self.cwd = (!cwd.is_empty()).then(|| cwd.to_owned());
        Ok(self)
    }

    /// Adds an environment variable.
    pub fn with_variable(mut self, name: &str, value: String) -> Result<Self, ScriptError> {
        check_text("env", &value)?;
        let name = EnvironmentName::parse(name)?;
        if name.0.len() + value.len() > LONGEST_ARGUMENT {
            return Err(ScriptError::VariableTooLong {
                name: name.0,
                length: value.len(),
                limit: LONGEST_ARGUMENT,
            });
        }
        self.variables.push((name, value));
        Ok(self)
    }

    /// Gives the command a standard input.
    #[must_use]
    pub fn with_stdin(mut self, stdin: StdinText) -> Self {
        self.stdin = Some(stdin);
        self
    }

    /// Adds what every command of a sandbox finds; what the call says itself goes first.
    #[must_use]
    pub fn within(mut self, surroundings: &Surroundings) -> Self {
        self.variables
            .splice(0..0, surroundings.variables.iter().cloned());
        self.cwd = self.cwd.or_else(|| surroundings.workdir.clone());
        self.init = surroundings.init.clone();
        self.shell = surroundings.shell.clone();
        self
    }

    /// The command as the caller wrote it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Whether text of the sandbox runs before the command.
    pub fn has_init(&self) -> bool {
        self.init.is_some()
    }

    /// The text of the sandbox that runs before the command.
    pub(crate) fn init(&self) -> Option<&str> {
        self.init.as_deref()
    }

    /// The variables it is given, in order.
    pub(crate) fn variables(&self) -> &[(EnvironmentName, String)] {
        &self.variables
    }

    /// The shell that was chosen for it.
    pub fn shell(&self) -> Option<&ShellProgram> {
        self.shell.as_ref()
    }

    /// The directory as the caller or the sandbox has it.
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_deref()
    }
}

fn check_text(field: &'static str, text: &str) -> Result<(), ScriptError> {
    if text.contains('\0') {
        return Err(ScriptError::Nul { field });
    }
    if text.len() > LONGEST_TEXT {
        return Err(ScriptError::TooLong {
            field,
            length: text.len(),
            limit: LONGEST_TEXT,
        });
    }
    Ok(())
}
