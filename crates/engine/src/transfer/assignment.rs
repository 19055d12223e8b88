//! What a worker is told over a pipe: nothing of it may stand in its arguments or its environment.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use remote_sandbox_core::config::Environment;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::environment;

/// An environment is far shorter; the kernel takes two mebibytes.
const LONGEST: u64 = 8 * 1024 * 1024;

/// Variables that a worker's own process has: those that find programs, files and agents, none with a secret.
const HANDED_ON: [&str; 17] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "KRB5CCNAME",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "REMOTE_SANDBOX_MCP_HOME",
];

/// Why an assignment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AssignmentError {
    /// Nothing could be read.
    #[error("the assignment cannot be read from standard input")]
    Read(#[source] std::io::Error),
    /// It is not one. Its content is not told: it holds secrets.
    #[error("standard input holds no assignment; this command is started by the program itself")]
    Content,
}

/// The surroundings in which a transfer was asked for.
#[derive(Clone, Serialize, Deserialize)]
pub struct Assignment {
    /// The configuration file of the command line.
    pub config_file: Option<PathBuf>,
    /// Where relative paths begin, and one of the places that may be synced.
    pub working_directory: Option<PathBuf>,
    /// All variables.
    pub environment: Environment,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values of variables are often passwords.
        formatter
            .debug_struct("Assignment")
            .field("config_file", &self.config_file)
            .field("working_directory", &self.working_directory)
            .field("variables", &self.environment.len())
            .finish()
    }
}

impl Assignment {
    /// The surroundings of this process.
    pub(super) fn here(environment: &Environment) -> Self {
        Assignment {
            config_file: None,
            working_directory: environment::working_directory(),
            environment: environment.clone(),
        }
    }

    pub(super) fn set_config_file(&mut self, file: Option<&Path>) {
        self.config_file = file.map(|file| self.absolute(file));
    }

    /// A path as another process finds it, which begins elsewhere.
    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        match &self.working_directory {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        }
    }

    /// The variables of the worker's own process.
    pub(super) fn variables(&self) -> Vec<(String, String)> {
        let value = |name: &str| self.environment.get(name).cloned();
        let handed_on = HANDED_ON.into_iter();
        handed_on
            .filter_map(|name| Some((name.to_owned(), value(name)?)))
            .collect()
    }

    /// The bytes that go over the pipe.
    pub(super) fn to_bytes(&self) -> serde_json::Result<Zeroizing<Vec<u8>>> {
        serde_json::to_vec(self).map(Zeroizing::new)
    }
}

/// Reads the assignment of this worker to its end.
pub fn read_assignment(input: impl std::io::Read) -> Result<Assignment, AssignmentError> {
    let mut bytes = Zeroizing::new(Vec::new());
    let read = input.take(LONGEST).read_to_end(&mut bytes);
    read.map_err(AssignmentError::Read)?;
    serde_json::from_slice(&bytes).map_err(|_| AssignmentError::Content)
}
