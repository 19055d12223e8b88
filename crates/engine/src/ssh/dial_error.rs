//! Why a connection could not be opened.

use std::time::Duration;

use super::auth::AuthError;
use super::hostkeys::HostKeyError;
use super::openssh::{OpenSshError, Trouble};
use super::route_error::RouteError;
use crate::proc::CommandError;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("the name {host} cannot be resolved")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The name service does not answer.
    #[error("the name {host} was not resolved within {} s", limit.as_secs_f64())]
    ResolveSlow {
        /// The name.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// No TCP connection.
    #[error("no TCP connection to {host} port {port}")]
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody answers.
    #[error("{host} port {port} did not answer on TCP within {} s", limit.as_secs_f64())]
    TcpSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
    /// The SSH configuration does not say how to get there.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The system's `ssh` gave no connection.
    #[error(transparent)]
    OpenSsh(#[from] OpenSshError),
    /// The jump host does not reach the host behind it.
    #[error("the jump host opened no connection to {host} port {port}")]
    Forward {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// A host on the way does not take us there.
    #[error("the jump host {hop} cannot be used")]
    Hop {
        /// The host on the way.
        hop: String,
        /// What happened there.
        #[source]
        source: Box<DialError>,
    },
    /// The program that should carry the connection did not start.
    #[error("the `ProxyCommand` for {host} cannot be started")]
    Program {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: CommandError,
    },
    /// The program that carries the connection complained.
    #[error("the `ProxyCommand` for {host} said `{words}`")]
    Complaint {
        /// The host.
        host: String,
        /// The last line of its standard error.
        words: String,
        /// What came of it.
        #[source]
        source: Box<DialError>,
    },
    /// Something answers, but it is no SSH server.
    #[error("no SSH banner from {host} port {port}")]
    Banner {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// The host accepted the connection and says nothing.
    #[error("no SSH banner from {host} port {port} within {} s", limit.as_secs_f64())]
    BannerSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
    /// The two sides could not agree on keys.
    #[error("the key exchange with {host} port {port} failed")]
    KeyExchange {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// The key exchange does not come to an end.
    #[error("the key exchange with {host} port {port} did not end within {} s", limit.as_secs_f64())]
    KeyExchangeSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
    /// Connecting broke this program.
    #[error("connecting to {host} broke off")]
    Broken {
        /// The host.
        host: String,
        /// How.
        #[source]
        source: tokio::task::JoinError,
    },
    /// The host is not who it should be.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The host does not take us.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The login does not come to an end.
    #[error("the login at {host} port {port} did not end within {} s", limit.as_secs_f64())]
    AuthSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
}

impl DialError {
    /// Whether the connection ended just when a credential was shown: the host hung up, or the link was cut.
    pub(crate) fn is_hang_up(&self) -> bool {
        match self {
            DialError::Auth(AuthError::HungUp { .. } | AuthError::Protocol { .. }) => true,
            DialError::Hop { source, .. } | DialError::Complaint { source, .. } => {
                source.is_hang_up()
            }
            _ => false,
        }
    }

    /// Whether a host knows us and will not have us; asking again by ourselves would be a loop.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            DialError::Auth(_) | DialError::HostKey(_) => true,
            DialError::OpenSsh(OpenSshError::Login { trouble, .. }) => {
                *trouble != Trouble::Unreachable
            }
            DialError::Hop { source, .. } | DialError::Complaint { source, .. } => {
                source.is_refusal()
            }
            _ => false,
        }
    }
}
