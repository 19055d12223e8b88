//! Jobs: commands that go on without their caller, this process and the connection.
//!
//! The row of an attempt, with its nonce, is written surely before the host hears of it. Whatever the host has done
//! since is found by that nonce: after a lost answer or a crash an attempt is adopted, or it is made certain that it
//! never begins. Nothing is started a second time.

mod look;
mod resume;
mod start;
mod stop;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::job::{GpuWish, NamedSession, StopTarget, WatchOrder};
use remote_sandbox_core::shell::RunSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use look::{
    Seen, as_started, ask_within, glance, is_abandoned, is_there, look_at, look_at_foreign, settle,
    state_of_foreign,
};
pub(crate) use resume::{Resumed, carry_out_resume, resume_order};
pub(crate) use start::{CarriedOut, Destination, begin, carry_out};
pub(crate) use stop::stop;

use crate::store::JobRow;

/// A job that is asked for, checked.
#[derive(Debug)]
pub struct JobRequest {
    /// Where; the active sandbox when not said.
    pub sandbox: Option<String>,
    /// What.
    pub run: RunSpec,
    /// The session name that was wished for.
    pub session: Option<NamedSession>,
    /// Where the log goes, when somebody cares.
    pub log_file: String,
    /// How many GPUs it has for itself.
    pub gpus: GpuWish,
    /// How long its log may grow; 0 for no bound.
    pub max_log_bytes: u64,
    /// What is done about it while nobody waits.
    pub watch: Option<WatchOrder>,
    /// The caller's own name for it.
    pub run_id: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// What the caller wants to be kept with it.
    pub metadata: Option<Value>,
}

/// What is kept of a request, for whoever starts the job again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOrder {
    /// The working directory as the caller or the sandbox has it.
    pub cwd: Option<String>,
    /// Where the caller wants the log.
    pub log_file: String,
    /// How many GPUs it has for itself, as the caller wrote it.
    pub gpus: String,
    /// How long its log may grow.
    pub max_log_bytes: u64,
    /// What is done about it while nobody waits.
    pub watch: Option<WatchOrder>,
    /// Where it was started: the name of a sandbox may mean another host elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// A word that tells the answer to one script from other text.
fn mark() -> RunToken {
    crate::mark::new_mark()
}

fn target(row: &JobRow) -> StopTarget<'_> {
    StopTarget {
        job: &row.id,
        attempt: row.attempt.number,
        nonce: &row.attempt.nonce,
        session: &row.session,
    }
}

fn wordless(sandbox: &str, what: &str) -> Failure {
    let text = format!("sandbox `{sandbox}`: {what}");
    Failure::new(Code::RemoteRefused, text)
        .hint("its shell did not run our script; try exec_bash there")
}
