//! The script that starts one command of a caller.

use std::fmt::Write as _;

use super::warm::STILL_FRESH;
use super::{TOKEN_VARIABLE, quote};
use crate::ids::RunToken;

/// Longest command that is handed to the shell as one argument; Linux refuses 128 KiB and more.
const LONGEST_ARGUMENT: usize = 96 * 1024;

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

/// Names that bash does not let anybody set.
const READ_ONLY: [&str; 6] = [
    "BASHOPTS",
    "BASH_VERSINFO",
    "EUID",
    "PPID",
    "SHELLOPTS",
    "UID",
];

/// A name that every POSIX shell accepts as a variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvironmentName(String);

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
pub struct StdinText(String);

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
            TimeoutProgram::Absent => Some('n'),
        }
    }
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
    command: String,
    cwd: Option<String>,
    variables: Vec<(EnvironmentName, String)>,
    stdin: Option<StdinText>,
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

    /// The command as the caller wrote it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The directory as the caller wrote it.
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

/// Builds the script that runs `spec` under `token`.
///
/// `last_resort_s` is the second layer: when this program is gone, the host's own `timeout` ends the
/// command after that many seconds. The last thing the script does is `exec`, so that the server's
/// exit status and exit signal are the command's own.
pub fn run_script(
    spec: &RunSpec,
    token: &RunToken,
    last_resort_s: u64,
    program: TimeoutProgram,
    age: ShellAge,
) -> String {
    let mut script = String::with_capacity(spec.command.len() + 2048);
    // The braces make `sh` read all of it before it runs any of it.
    script.push_str("{\n");
    let _ = writeln!(script, "t={token}");
    match (age, program.letter()) {
        // It knows who it is and which programs there are.
        (ShellAge::Waiting, _) => script.push_str(STILL_FRESH),
        (ShellAge::New, letter) => {
            script.push_str(WHO_AM_I);
            match letter {
                None => script.push_str(FIND_TIMEOUT),
                Some(letter) => {
                    let _ = writeln!(script, "k={letter}");
                }
            }
        }
    }
    if let Some(cwd) = &spec.cwd {
        push_change_directory(&mut script, cwd);
    }
    // Bash takes itself for a login over the network here and would read `.bashrc`, whose words
    // would then be the command's; the login shell has read its own files already.
    script.push_str("s=sh o=timeout; command -v bash >/dev/null 2>&1 && s='bash --norc'\n");
    if spec.variables.iter().any(|(name, _)| name.0 == "PATH") {
        // The caller's own search path is for the command; ours has to be found without it.
        script.push_str(RESOLVE);
    }
    let _ = writeln!(script, "n={last_resort_s}");
    script.push_str(ANNOUNCE);
    push_start(&mut script, spec, token);
    script.push_str("exit 127\n}\n");
    script
}

/// Learns the session and start time of this shell without starting a process, and leads a session
/// of its own where the server did not make one. `q` is the number that finds its processes: that of
/// the session or group it leads, or 0 where it leads none and only the token can find them.
pub(super) const WHO_AM_I: &str = "\
x=; [ -r /proc/$$/stat ] && read -r x </proc/$$/stat
x=${x##*) }; set -- $x; g=${3-} q=${4-0} b=${20-0}; w=
[ -n \"$g\" ] || g=$(ps -o pgid= -p $$ 2>/dev/null | tr -d ' ')
if [ \"$q\" != $$ ]; then
if [ \"$g\" = $$ ]; then q=$$; elif command -v setsid >/dev/null 2>&1; then w=setsid; q=$$; else q=0; fi
fi
";

/// Finds out which `timeout` the host has; costs one short process, once per connection.
pub(super) const FIND_TIMEOUT: &str = "\
k=n
if command -v timeout >/dev/null 2>&1; then
(:) # where no process can be started, this says so aloud
if timeout -k 1 5 true >/dev/null 2>&1; then k=k; elif timeout 5 true >/dev/null 2>&1; then k=p; fi
fi
";

/// Finds our own programs by their full names.
const RESOLVE: &str = "\
s=$(command -v ${s%% *})${s#${s%% *}}; o=$(command -v timeout); [ -z \"$w\" ] || w=$(command -v setsid)
";

/// Tells both streams that everything after this line is the command's own output.
const ANNOUNCE: &str = "\
set -- $w
case $k in k) set -- \"$@\" $o -k 2 $n;; p) set -- \"$@\" $o $n;; esac
set -- \"$@\" $s
m=RSMCP:$t:B:$$:$q:$b:$k
printf '%s\\n' \"$m\"; printf '%s\\n' \"$m\" >&2
";

fn push_change_directory(script: &mut String, cwd: &str) {
    let target = match cwd.strip_prefix('~') {
        Some("") => "\"${HOME:-/nonexistent}\"".to_owned(),
        Some(rest) if rest.starts_with('/') => {
            format!("\"${{HOME:-/nonexistent}}\"{}", quote(rest))
        }
        // A leading dash would be read as an option, and a lone one as the previous directory.
        _ if cwd.starts_with('-') => quote(&format!("./{cwd}")),
        _ => quote(cwd),
    };
    let _ = writeln!(
        script,
        "CDPATH= cd {target} >/dev/null 2>&1 || {{ printf '%s\\n' RSMCP:$t:F:cwd; CDPATH= cd {target}; exit 125; }}"
    );
}

fn push_start(script: &mut String, spec: &RunSpec, token: &RunToken) {
    let (how, delivered) = if spec.command.len() <= LONGEST_ARGUMENT {
        let _ = writeln!(script, "set -- \"$@\" -c -- {}", quote(&spec.command));
        ("exec \"$@\"".to_owned(), String::new())
    } else {
        // Too long for an argument: it comes on a descriptor of its own, closed before it runs.
        let end = format!("RSMCP_{token}");
        (
            format!("exec \"$@\" -c 'eval \"$(cat <&9)\" 9<&-' 9<<'{end}'"),
            format!("{}\n{end}\n", spec.command),
        )
    };
    // Last, for the script has variables of its own, which must neither be nor become the caller's.
    for (name, value) in &spec.variables {
        let _ = writeln!(script, "export {}={}", name.as_str(), quote(value));
    }
    let _ = writeln!(script, "export {TOKEN_VARIABLE}={token}");
    // Background children that let go of both streams still hold this descriptor, so that their
    // being there shows as a pipe that stays open, at no cost for everybody else.
    let how = format!("{how} 8>&2");
    match &spec.stdin {
        None => {
            let _ = write!(script, "{how} </dev/null\n{delivered}");
        }
        // A here-document always ends in a newline, so it can carry exactly this text, and the
        // command keeps its own exit signal.
        Some(StdinText(text)) if text.ends_with('\n') => {
            let end = format!("RSMCP_IN_{token}");
            let _ = write!(script, "{how} <<'{end}'\n{delivered}{text}{end}\n");
        }
        Some(StdinText(text)) => {
            let text = quote(text);
            let _ = write!(script, "printf %s {text} | {how}\n{delivered}exit $?\n");
        }
    }
}
