//! Why it is not known how a host is reached.

use std::time::Duration;

use remote_sandbox_core::config::SshAlias;
use remote_sandbox_core::ssh_config::{MOST_HOPS, OptionsError};

use crate::fsio::FileError;
use crate::proc::CommandError;

/// Why it is not known how a host is reached.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// `ssh -G` does not come to an end.
    #[error("`ssh -G {alias}` did not answer within {} s", limit.as_secs())]
    Slow {
        /// The name that was asked for.
        alias: SshAlias,
        /// The limit.
        limit: Duration,
    },
    /// `ssh -G` could not be run.
    #[error("`ssh -G {alias}` cannot be run")]
    Command {
        /// The name that was asked for.
        alias: SshAlias,
        /// Why.
        #[source]
        source: CommandError,
    },
    /// `ssh -G` complains.
    #[error("`ssh -G {alias}` failed: {words}")]
    Refused {
        /// The name that was asked for.
        alias: SshAlias,
        /// What it said.
        words: String,
    },
    /// The answer cannot be used.
    #[error("the SSH configuration of `{alias}` cannot be used")]
    Options {
        /// The name that was asked for.
        alias: SshAlias,
        /// Why.
        #[source]
        source: OptionsError,
    },
    /// A file of the configuration cannot be read.
    #[error("the SSH configuration of `{alias}` cannot be read")]
    File {
        /// The name that was asked for.
        alias: SshAlias,
        /// Why.
        #[source]
        source: FileError,
    },
    /// The way leads over the same host twice.
    #[error("the way to `{alias}` leads over `{hop}` twice")]
    Circle {
        /// Where it should lead.
        alias: SshAlias,
        /// The host.
        hop: String,
    },
    /// The way is longer than anybody needs.
    #[error("the way to `{alias}` leads over more than {MOST_HOPS} hosts")]
    TooFar {
        /// Where it should lead.
        alias: SshAlias,
    },
    /// Working it out broke this program.
    #[error("reading the SSH configuration of `{alias}` broke off")]
    Broke {
        /// The name that was asked for.
        alias: SshAlias,
        /// How.
        #[source]
        source: tokio::task::JoinError,
    },
}
