//! Why the service could not be set up, taken away or looked at.

use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_core::config::PathError;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::service::DescriptionError;

use crate::fsio::FileError;
use crate::proc::CommandError;

/// Why the service could not be set up, taken away or looked at.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// There is no place for our files.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No service manager can be told what to run.
    #[error("the service of the watchdog cannot be described")]
    Description(#[from] DescriptionError),
    /// A file is at fault.
    #[error(transparent)]
    File(#[from] FileError),
    /// The program that runs cannot be read.
    #[error("this program cannot be copied to where the service finds it")]
    Program(#[source] std::io::Error),
    /// Somebody else has put a link where our file belongs; a unit that is masked is one.
    #[error("`{}` is a link and is left alone", .0.display())]
    Linked(PathBuf),
    /// The service manager's program is not there.
    #[error("`{0}` is not on the PATH")]
    Absent(&'static str),
    /// It gave no answer.
    #[error("`{command}` gave no answer")]
    NoAnswer {
        /// What was asked.
        command: String,
        /// Why not.
        #[source]
        source: CommandError,
    },
    /// It would not.
    #[error("`{command}` failed: {said}")]
    Refused {
        /// What was asked.
        command: String,
        /// The last line of what it said.
        said: String,
    },
    /// The watchdog's process cannot be started.
    #[error("the process of the watchdog cannot be started")]
    Start(#[source] std::io::Error),
    /// The watchdog's process ended as soon as it was started.
    #[error("the process of the watchdog ended at once: {0}")]
    Ended(String),
    /// The watchdog's process does not end.
    #[error("process {0} of the watchdog does not end")]
    Stays(u32),
    /// What is kept about the process cannot be written.
    #[error("the record of the watchdog's process cannot be written")]
    Record(#[source] serde_json::Error),
    /// Too much of it took too long.
    #[error("the service of the watchdog was not set up within {} s", .0.as_secs())]
    TooSlow(Duration),
    /// A helper thread is gone.
    #[error("the service of the watchdog was not looked after to the end")]
    Interrupted,
}

impl ServiceError {
    /// Whether the service manager is at fault, so that doing without it may help.
    pub(super) fn is_of_the_manager(&self) -> bool {
        matches!(
            self,
            ServiceError::Absent(_) | ServiceError::NoAnswer { .. } | ServiceError::Refused { .. }
        )
    }

    /// What is told beside a reply that is a success otherwise.
    pub fn warning(&self) -> String {
        format!(
            "the watchdog could not be started, so nobody looks after this task: {}; \
             `remote-sandbox-mcp watchdog install` tries again",
            Failure::chain(self)
        )
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let code = match &error {
            ServiceError::File(_) | ServiceError::Program(_) | ServiceError::Record(_) => {
                Code::StoreUnavailable
            }
            ServiceError::Description(_) | ServiceError::Path(_) | ServiceError::Linked(_) => {
                Code::Unsupported
            }
            ServiceError::TooSlow(_) => Code::TimedOut,
            _ => Code::Internal,
        };
        let hint = match &error {
            ServiceError::Linked(_) => "remove the link, or keep `watchdog run` running yourself",
            _ => "`remote-sandbox-mcp watchdog status` shows what is there",
        };
        Failure::new(code, Failure::chain(&error)).hint(hint)
    }
}
