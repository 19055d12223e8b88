//! Tells somebody how far a connection has come, while it is opened.

use std::net::SocketAddr;
use std::sync::Arc;

use remote_sandbox_core::config::SshSettings;

use super::hostkeys::Accepted;

/// What was reached on the way to a host.
#[derive(Debug)]
pub(crate) enum Milestone {
    /// The SSH configuration has said how the host is reached, with notes.
    Route(Arc<SshSettings>, Vec<String>),
    /// The host at this place is next: the one that is wanted, or one on the way to it.
    Towards(String),
    /// The name has these addresses.
    Resolved(Vec<SocketAddr>),
    /// A TCP connection is there.
    Connected(Option<SocketAddr>),
    /// Something else carries the connection.
    Carried(&'static str),
    /// The host has sent its first line.
    Banner(String),
    /// What the host showed to prove who it is was accepted.
    HostKey {
        /// What it showed.
        shown: String,
        /// Why that counts.
        accepted: Accepted,
    },
    /// The host has accepted this credential.
    LoggedIn(String),
}

/// Somebody who is told, or nobody.
#[derive(Clone, Default)]
pub(crate) struct Watch(Option<Arc<dyn Fn(Milestone) + Send + Sync>>);

impl Watch {
    /// Tells this function, which must not block.
    pub(super) fn new(told: impl Fn(Milestone) + Send + Sync + 'static) -> Self {
        Watch(Some(Arc::new(told)))
    }

    pub(super) fn tell(&self, milestone: Milestone) {
        if let Some(told) = &self.0 {
            told(milestone);
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let told = if self.0.is_some() {
            "somebody"
        } else {
            "nobody"
        };
        write!(formatter, "Watch({told})")
    }
}

/// A host in words.
pub(super) fn place(settings: &SshSettings) -> String {
    format!("{}@{} port {}", settings.user, settings.host, settings.port)
}
