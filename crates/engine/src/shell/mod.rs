//! Speaking with a shell that reads a script from its standard input, wherever it runs.
//!
//! A kind of sandbox gives the two directions of a channel and what carries them; how a command is
//! sent, drained and ended is the same for all kinds.

mod answer;
mod conversation;
mod interruption;
mod not_started;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::shell::{EndReport, Target, TimeoutProgram};

pub(crate) use answer::{Answer, LastWords, collect_answer};
pub(crate) use conversation::Conversation;
pub(crate) use interruption::stopped;
pub use not_started::NotStarted;
pub(crate) use stream::open_stream;
pub use stream::{ByteStream, StreamEnd, StreamError};

/// The timer on the other side fires this much later than ours.
pub(crate) const LAST_RESORT_GRACE_S: u64 = 5;

/// What is said on a channel.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The next bytes of standard output.
    Out(Bytes),
    /// The next bytes of standard error.
    Err(Bytes),
    /// No more output comes.
    NoMoreOutput,
    /// The process ended by itself.
    Exited(u32),
    /// A signal ended the process.
    Signalled(String),
    /// No shell is started.
    Refused,
    /// The channel is closed; nothing comes after this.
    Closed,
}

/// A signal for a run that goes past its own shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Please end.
    Term,
    /// End.
    Kill,
}

/// The channel did not take what was sent.
#[derive(Debug, thiserror::Error)]
#[error("the channel took nothing more")]
pub(crate) struct NotTaken;

/// What comes from a shell.
pub(crate) trait Incoming: Send {
    /// The next thing that is said; `None` when the connection is gone. Nothing is lost when the
    /// caller stops waiting.
    fn next(&mut self) -> impl Future<Output = Option<Heard>> + Send;
}

/// What goes to a shell.
pub(crate) trait Outgoing: Send + Sync {
    /// Sends text to the shell's standard input.
    fn send(&self, text: String) -> impl Future<Output = Result<(), NotTaken>> + Send {
        self.send_bytes(text.into())
    }

    /// Sends bytes there.
    fn send_bytes(&self, bytes: Bytes) -> impl Future<Output = Result<(), NotTaken>> + Send;

    /// Ends the shell's standard input.
    fn finish(&self) -> impl Future<Output = Result<(), NotTaken>> + Send;

    /// Closes the channel whatever the shell does, where dropping it does not do so.
    fn let_go(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Signals the group of the shell from outside, where that can be asked for.
    fn signal(&self, signal: Signal) -> impl Future<Output = Result<(), NotTaken>> + Send;
}

/// What carries a conversation, and the other way to its processes.
pub(crate) trait Carrier: Send + Sync {
    /// What goes to shells here.
    type Outgoing: Outgoing;

    /// What was said when the connection ended.
    fn farewell(&self) -> String;

    /// Whether the connection stands.
    fn is_connected(&self) -> bool;

    /// Waits a moment for the connection to be seen as ended.
    fn wait_for_end(&self, limit: Duration) -> impl Future<Output = ()> + Send;

    /// Asks the other side for a sign of life.
    fn answers(&self) -> impl Future<Output = bool> + Send;

    /// Remembers what a shell found out.
    fn learn_timeout_program(&self, program: TimeoutProgram);

    /// Finds the processes of a run; `None` when nobody said.
    fn find(&self, target: &Target) -> impl Future<Output = Option<LeftRunning>> + Send;

    /// Ends the processes of a run; `None` when nobody said.
    fn end(
        &self,
        target: &Target,
        main: &Self::Outgoing,
    ) -> impl Future<Output = Option<EndReport>> + Send;
}

/// What a report says about the processes that are left.
pub(crate) fn left_running(report: Option<EndReport>) -> LeftRunning {
    match report {
        None => LeftRunning::Unknown,
        Some(report) if report.survivors.is_empty() => LeftRunning::Nothing,
        Some(report) => LeftRunning::Processes(report.survivors),
    }
}
