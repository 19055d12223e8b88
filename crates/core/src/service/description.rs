//! What a service runs, with which arguments and variables; checked so that every manager can be told it.

use std::path::Path;

use thiserror::Error;

use crate::config::Environment;

/// Variables that a unit carries: those that find files and programs. None holds a secret.
const OF_A_UNIT: [&str; 7] = [
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "REMOTE_SANDBOX_MCP_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];

/// Variables that a process has besides which no service manager surrounds with them: those that find the
/// user, the keychain and agents. None holds a secret.
const OF_A_LONE_PROCESS: [&str; 9] = [
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "KRB5CCNAME",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
];

/// Why a service cannot be described.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DescriptionError {
    /// Nobody can say where the user's files are.
    #[error("the variable HOME is not an absolute path")]
    NoHome,
    /// A path means something only in some folder.
    #[error("{0} is not an absolute path")]
    Relative(&'static str),
    /// A path cannot be written in a text file.
    #[error("{0} is no text")]
    NotText(&'static str),
    /// A line break or another such character would end the line it stands in.
    #[error("{0} holds a control character")]
    ControlCharacter(String),
}

/// A service as every manager can be told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDescription {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    log: String,
}

impl ServiceDescription {
    /// The watchdog, run by `program`, which writes what it complains about into `log`.
    pub fn watchdog(
        program: &Path,
        log: &Path,
        config_file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, DescriptionError> {
        let mut arguments = vec!["watchdog".to_owned(), "run".to_owned()];
        if let Some(file) = config_file {
            arguments.push("--config".to_owned());
            arguments.push(written("the path of the configuration file", file)?);
        }
        let home = environment.get("HOME");
        if !home.is_some_and(|home| home.starts_with('/')) {
            return Err(DescriptionError::NoHome);
        }
        Ok(ServiceDescription {
            program: written("the path of the program", program)?,
            arguments,
            variables: chosen(environment, &OF_A_UNIT)?,
            log: written("the path of the log", log)?,
        })
    }

    /// The program, as an absolute path.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What it is called with.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The variables that a unit carries.
    pub fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// Where it writes what it complains about.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// The variables of a process that no service manager surrounds with its own.
    pub fn variables_of_a_lone_process(&self, environment: &Environment) -> Vec<(String, String)> {
        let value = |name: &str| environment.get(name).cloned();
        let more = OF_A_LONE_PROCESS.into_iter();
        let more = more.filter_map(|name| Some((name.to_owned(), value(name)?)));
        self.variables.iter().cloned().chain(more).collect()
    }
}

fn chosen(
    environment: &Environment,
    names: &[&str],
) -> Result<Vec<(String, String)>, DescriptionError> {
    let mut found = Vec::new();
    for name in names {
        let value = environment.get(*name).filter(|value| !value.is_empty());
        if let Some(value) = value {
            let value = one_line(&format!("the variable {name}"), value)?;
            found.push(((*name).to_owned(), value));
        }
    }
    Ok(found)
}

fn written(what: &'static str, path: &Path) -> Result<String, DescriptionError> {
    if !path.is_absolute() {
        return Err(DescriptionError::Relative(what));
    }
    let text = path.to_str().ok_or(DescriptionError::NotText(what))?;
    one_line(what, text)
}

/// Text that fits in one line, and of which XML knows every character.
fn one_line(what: &str, text: &str) -> Result<String, DescriptionError> {
    let is_bad = |letter: char| letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}');
    if text.contains(is_bad) {
        return Err(DescriptionError::ControlCharacter(what.to_owned()));
    }
    Ok(text.to_owned())
}
