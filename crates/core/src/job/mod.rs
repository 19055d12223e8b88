//! Background jobs: the scripts that start, look at and end them on a host, and all decisions about them.
//!
//! A job outlives the connection that started it. On the host a runner waits for its command and writes down how it
//! ended; here everything that is seen of it is judged. The log of a job is for people: no line in it decides anything.

mod adopt;
mod alarm;
mod check;
mod hole;
mod ids;
mod observe;
mod order;
mod process;
mod prune;
mod resume;
mod script;
mod silence;
mod spec;
mod start;
mod state;
mod stop;
#[cfg(test)]
mod testing;
mod told;
mod webhook;

pub use adopt::{adopt_script, parse_adopt};
pub use alarm::{Alarm, alarms_in};
pub use check::{
    Checkpoint, LogPart, Look, MOST_CHECKPOINT_BYTES, MOST_LOG_BYTES, MOST_SEARCHED_BYTES,
    check_script,
};
pub use hole::Hole;
pub use ids::{
    AttemptNumber, JobId, JobIdError, NamedSession, Nonce, SESSION_NAME_MAX_CHARS, SessionName,
};
pub use observe::{
    CheckError, CheckReport, CheckpointSight, Ending, ExitFault, ExitReading, ExitRecord, FileKind,
    FileSight, Observation, SessionSight, hearsay_exit_code, parse_check,
};
pub use order::{CheckpointFormat, OrderError, ResumePlan, WatchOrder, WatchWish};
pub use process::{HostWord, Liveness, ProcessIdentity};
pub use prune::{MOST_PRUNED, parse_prune, prune_script};
pub use resume::{Phase, Step, WatchEnd, WatchHistory, WatchInput, WatchPolicy, WatchSight, step};
pub use silence::{LogSight, Silence};
pub use spec::{
    ClaimedGpus, GpuWish, JobSpec, JobSpecError, LEAST_MAX_LOG_BYTES, USUAL_MAX_LOG_BYTES,
    check_watched,
};
pub use start::{
    JobStarted, StartRefusal, StartReportError, StartVerdict, parse_start, start_last_words,
    start_script,
};
pub use state::{JobState, KnownAttempt, LostReason, Sighting, UnknownReason, Verdict, judge};
pub use stop::{
    StopReport, StopTarget, StopVerdict, VoidVerdict, parse_stop, parse_void, stop_begun_script,
    stop_script, void_script,
};
pub use told::WatchEvent;
pub use webhook::shown_webhook;

/// The environment variable that carries job and attempt into every process of a job.
pub const JOB_VARIABLE: &str = "REMOTE_SANDBOX_JOB";
