//! Why an event could not be told.

use std::process::ExitStatus;
use std::time::Duration;

use remote_sandbox_core::watch::{
    AddressKind, Channel, PolicyRefusal, RequestError, ServiceReply, WebAddressError,
};

use crate::proc::CommandError;
use crate::secrets::SecretError;

/// Why an event could not be told. Of addresses only the host is named: the rest may be a token.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The watch names nothing for this channel.
    #[error("the watch names nothing for `{0}`")]
    Nothing(Channel),
    /// The configuration has no such notifier any more.
    #[error("no notifier of the configuration is named `{0}`")]
    UnknownNotifier(String),
    /// The configuration does not allow it any more.
    #[error("the configuration of the watchdog does not allow it")]
    Policy(#[from] PolicyRefusal),
    /// Posts are to be signed, and cannot be.
    #[error("posts are to be signed, but `webhook_secret` in the configuration cannot be used")]
    Unsigned,
    /// A secret cannot be had.
    #[error("it needs a secret")]
    Secret(#[from] SecretError),
    /// The address of a notifier is none.
    #[error("the address of the notifier `{name}` cannot be used")]
    Address {
        /// The notifier.
        name: String,
        /// Why.
        #[source]
        source: WebAddressError,
    },
    /// The service of a notifier cannot be spoken to like this.
    #[error("the notifier `{name}` cannot be told")]
    Request {
        /// The notifier.
        name: String,
        /// Why.
        #[source]
        source: RequestError,
    },
    /// The host has no address.
    #[error("the name `{host}` cannot be resolved")]
    Resolve {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The host has no address that may be spoken to.
    #[error("`{host}` is at a {} address, which is not posted to", kind.words())]
    Refused {
        /// The host.
        host: String,
        /// What its address is.
        kind: AddressKind,
    },
    /// The host cannot be connected to.
    #[error("cannot connect to `{host}`")]
    Connect {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// This system has no certificates to check others with.
    #[error("no certificates of this system can be read")]
    Certificates,
    /// This program's TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The host does not speak HTTP.
    #[error("`{host}` does not answer as a web server does")]
    Http {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: hyper::Error,
    },
    /// The request cannot be written down.
    #[error("the request to `{host}` cannot be made")]
    Malformed {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: hyper::http::Error,
    },
    /// The host took too long.
    #[error("`{host}` did not answer within {} s", limit.as_secs())]
    TooSlow {
        /// The host.
        host: String,
        /// How long it had.
        limit: Duration,
    },
    /// The host says that it did not take it.
    #[error("`{host}` answered with status {status}")]
    Status {
        /// The host.
        host: String,
        /// What it answered.
        status: u16,
    },
    /// The service says that it did not take it.
    #[error("`{host}` did not take it")]
    Service {
        /// The host.
        host: String,
        /// What it says.
        #[source]
        source: ServiceReply,
    },
    /// A program is not there.
    #[error("the program `{0}` is not in any folder of PATH")]
    NoProgram(&'static str),
    /// Nobody is logged in to a desktop here, as far as this process is told.
    #[error("there is no desktop session, for its message bus (D-Bus) is not known here")]
    NoDesktop,
    /// The person at this machine cannot be told.
    #[error("notifications cannot be shown on this machine")]
    NotShown(#[source] Box<DeliveryError>),
    /// A command could not be run.
    #[error("the {what} cannot be run")]
    Command {
        /// Which one.
        what: &'static str,
        /// Why.
        #[source]
        source: CommandError,
    },
    /// A command took too long.
    #[error("the {what} did not end within {} s and was ended with all it started{words}", limit.as_secs())]
    CommandTooSlow {
        /// Which one.
        what: &'static str,
        /// How long it had.
        limit: Duration,
        /// What it wrote last, without secrets.
        words: String,
    },
    /// A command failed.
    #[error("the {what} ended with {status}{words}")]
    CommandFailed {
        /// Which one.
        what: &'static str,
        /// How.
        status: ExitStatus,
        /// What it wrote last, without secrets.
        words: String,
    },
    /// The watchdog is ending.
    #[error("the watchdog is ending")]
    Closed,
}

fn is_agent(what: &str) -> bool {
    ["codex", "claude", "codex_command", "claude_command"].contains(&what)
}

impl DeliveryError {
    /// Whether it is a way that this machine does not have, which is no failure of the event.
    pub fn is_impossible(&self) -> bool {
        matches!(self, DeliveryError::NotShown(_))
    }

    /// Whether it is certain that trying again cannot help: nobody is to be told, or the other side refuses this request.
    pub fn is_permanent(&self) -> bool {
        match self {
            DeliveryError::Nothing(_) | DeliveryError::UnknownNotifier(_) => true,
            // It was told; to wake it again would do everything twice.
            DeliveryError::CommandTooSlow { what, .. } => is_agent(what),
            DeliveryError::Status { status, .. } => {
                (400..500).contains(status) && !matches!(status, 408 | 425 | 429)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(302, false)]
    #[case(400, true)]
    #[case(404, true)]
    #[case(408, false)]
    #[case(410, true)]
    #[case(425, false)]
    #[case(429, false)]
    #[case(500, false)]
    #[case(503, false)]
    fn only_a_refusal_of_the_request_itself_is_permanent(
        #[case] status: u16,
        #[case] is_permanent: bool,
    ) {
        let host = "h".to_owned();
        let error = DeliveryError::Status { host, status };
        assert_eq!(error.is_permanent(), is_permanent);
    }
}
