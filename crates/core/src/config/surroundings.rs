//! What every command in a sandbox finds, whoever starts it.

use crate::shell::EnvironmentName;

/// Environment, start-up snippet, directory and shell of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Environment variables; those of a call come after them.
    pub variables: Vec<(EnvironmentName, String)>,
    /// Shell text that runs before each command, in the command's own shell.
    pub init: Option<String>,
    /// The directory for commands that name none.
    pub workdir: Option<String>,
    /// The shell for commands that name none.
    pub shell: Option<String>,
}
