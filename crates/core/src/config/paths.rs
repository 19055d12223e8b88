//! Where the configuration file and the state directory are.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Environment;

const FOLDER: &str = "remote-sandbox-mcp";
const FILE_NAMES: [&str; 2] = ["config.toml", "config.json"];

/// The kind of system, which decides where folders are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Linux and other systems that follow the XDG rules.
    Linux,
    /// macOS.
    MacOs,
}

impl Platform {
    /// The system this program runs on.
    pub fn current() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else {
            Self::Linux
        }
    }
}

/// Why a path cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathError {
    /// The extension does not tell the format of a configuration file.
    #[error("the configuration file {} must end in .toml or .json", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// There is no place for the state.
    #[error(
        "no place for the state directory: set HOME or REMOTE_SANDBOX_MCP_HOME to an absolute path"
    )]
    NoStateDirectory,
    /// The state directory is given in a form that depends on the working directory.
    #[error("REMOTE_SANDBOX_MCP_HOME must be an absolute path or begin with `~/`")]
    RelativeStateDirectory,
}

/// Which configuration file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChoice {
    /// This one, and it is an error when it cannot be read.
    Required(PathBuf),
    /// The first of these that exists, if any.
    Optional(Vec<PathBuf>),
    /// There is no place to look at.
    None,
}

/// Decides where the configuration file is: the flag, then `REMOTE_SANDBOX_CONFIG`, then the user's folder.
pub fn config_file_location(
    flag: Option<&Path>,
    environment: &Environment,
    platform: Platform,
) -> FileChoice {
    if let Some(path) = flag {
        // A relative path that was typed on the command line means what it means in a shell.
        return FileChoice::Required(expand_tilde(path, environment));
    }
    if let Some(text) = variable(environment, "REMOTE_SANDBOX_CONFIG") {
        let path = absolute(text, environment).unwrap_or_else(|_| PathBuf::from(text));
        return FileChoice::Required(path);
    }
    let folder = match platform {
        Platform::Linux => absolute_variable(environment, "XDG_CONFIG_HOME")
            .or_else(|| home(environment).map(|home| home.join(".config"))),
        Platform::MacOs => application_support(environment),
    };
    match folder {
        Some(folder) => FileChoice::Optional(
            FILE_NAMES
                .iter()
                .map(|name| folder.join(FOLDER).join(name))
                .collect(),
        ),
        None => FileChoice::None,
    }
}

/// Decides where the state directory is.
pub fn state_dir(environment: &Environment, platform: Platform) -> Result<PathBuf, PathError> {
    if let Some(text) = variable(environment, "REMOTE_SANDBOX_MCP_HOME") {
        let path = expand_tilde(Path::new(text), environment);
        return if path.is_absolute() {
            Ok(path)
        } else {
            Err(PathError::RelativeStateDirectory)
        };
    }
    let folder = match platform {
        Platform::Linux => absolute_variable(environment, "XDG_STATE_HOME")
            .or_else(|| home(environment).map(|home| home.join(".local/state"))),
        Platform::MacOs => application_support(environment),
    };
    folder
        .map(|folder| folder.join(FOLDER))
        .ok_or(PathError::NoStateDirectory)
}

/// Why a path could not be made absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HomeError {
    Unknown,
    OtherUser,
}

/// Makes a path absolute: `~` is the home directory, and a relative path starts there.
pub(super) fn absolute(text: &str, environment: &Environment) -> Result<PathBuf, HomeError> {
    let rest = match text.strip_prefix('~') {
        None if text.starts_with('/') => return Ok(PathBuf::from(text)),
        None => text,
        Some("") => "",
        Some(rest) => rest.strip_prefix('/').ok_or(HomeError::OtherUser)?,
    };
    let home = home(environment).ok_or(HomeError::Unknown)?;
    // `~//x` is `~/x`; joining a path that begins with a slash would drop the home directory.
    Ok(match rest.trim_start_matches('/') {
        "" => home,
        rest => home.join(rest),
    })
}

fn expand_tilde(path: &Path, environment: &Environment) -> PathBuf {
    path.to_str()
        .filter(|text| text.starts_with('~'))
        .and_then(|text| absolute(text, environment).ok())
        .unwrap_or_else(|| path.to_owned())
}

fn application_support(environment: &Environment) -> Option<PathBuf> {
    home(environment).map(|home| home.join("Library/Application Support"))
}

fn home(environment: &Environment) -> Option<PathBuf> {
    absolute_variable(environment, "HOME")
}

/// A folder from a variable; the XDG rules say that a relative one is ignored.
fn absolute_variable(environment: &Environment, name: &str) -> Option<PathBuf> {
    variable(environment, name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// The value of a variable; an empty one counts as unset.
pub(super) fn variable<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment
        .get(name)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
