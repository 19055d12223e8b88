//! What every call carries with it.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Whose call it is; ids of runs belong to their principal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(String);

impl Principal {
    /// The user of this machine, who started the server.
    pub fn local() -> Self {
        Principal("local".to_owned())
    }

    /// The name in records.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How far a call has come, for people who watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, or the last line of output.
    pub message: String,
    /// Bytes of output so far.
    pub bytes: u64,
}

/// One call of a tool, from its start to its reply.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Whose call it is.
    pub principal: Principal,
    /// Its number in the audit log.
    pub call: String,
    /// Set when the caller does not want the answer any more.
    pub cancel: CancellationToken,
    /// Where progress is told.
    pub progress: watch::Sender<Progress>,
}

impl CallContext {
    /// A context for a call of this principal.
    pub fn new(principal: Principal, cancel: CancellationToken) -> Self {
        let (progress, _) = watch::channel(Progress::default());
        CallContext {
            principal,
            call: uuid::Uuid::now_v7().simple().to_string(),
            cancel,
            progress,
        }
    }
}
