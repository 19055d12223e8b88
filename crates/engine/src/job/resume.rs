//! Starts a job again: another attempt in the same session, with the same log.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    AttemptNumber, GpuWish, JobId, JobSpec, JobState, LogPart, Nonce, SessionName,
    USUAL_MAX_LOG_BYTES,
};
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::shell::RunSpec;

use super::JobOrder;
use super::look::look_at;
use super::start::{LONGEST_COMMAND, START_LIMIT, Sending, Unstarted, send_within, started_job};
use crate::clock;
use crate::failpoint;
use crate::sandbox::Sandbox;
use crate::store::{JobRow, NewAttempt, ResumeOrder, Store, WatchRow};
use crate::transfer::process::own_mark;

/// What came of a resume.
#[derive(Debug)]
pub(crate) enum Resumed {
    /// It runs.
    Started,
    /// It was not started and never will be.
    Refused(Failure),
    /// Somebody else has resumed the job; this attempt of theirs is the last one of the job now.
    ByOther(AttemptNumber),
    /// It was not started and never will be, and nothing ran.
    Abandoned(Failure),
    /// It may have been started; whoever sends it again finds out.
    Unclear(Failure),
}

/// What is written down of a resume before anything is done about it; none when there is nothing to run.
pub(crate) fn resume_order(watch: &WatchRow, mask: &Mask) -> Result<Option<ResumeOrder>, Failure> {
    let internal = |error: &dyn std::fmt::Display| Failure::new(Code::Internal, error.to_string());
    let Some(command) = &watch.order.resume.command else {
        return Ok(None);
    };
    let session = SessionName::from_wish(&watch.session).map_err(|error| internal(&error))?;
    // For a task that becomes a job only now; one that is a job has its own.
    let order = JobOrder {
        cwd: watch.cwd.clone(),
        log_file: watch.log_file.clone(),
        gpus: String::new(),
        max_log_bytes: USUAL_MAX_LOG_BYTES,
        watch: Some(watch.order.clone()),
        place: None,
    };
    let shown = mask.mask_text(command);
    Ok(Some(ResumeOrder {
        attempt: NewAttempt {
            nonce: Nonce::from_bytes(uuid::Uuid::now_v7().into_bytes()),
            command: shown.chars().take(LONGEST_COMMAND).collect(),
            starter: own_mark(),
        },
        job: JobId::from_uuid_bytes(uuid::Uuid::now_v7().into_bytes()),
        session: session.name,
        spec: serde_json::to_string(&order).map_err(|error| internal(&error))?,
    }))
}

/// Has the host carry out an attempt that is written down. Somebody may have sent it before: the host carries out one
/// of all sendings, and of two attempts one.
pub(crate) async fn carry_out_resume(
    store: &Store,
    sandbox: &dyn Sandbox,
    row: &JobRow,
    command: &str,
) -> Result<Resumed, Failure> {
    let (id, number) = (&row.id, row.attempt.number);
    let spec = match attempt_spec(sandbox, row, command) {
        Ok(spec) => spec,
        Err(failure) => {
            let never = JobState::NotStarted;
            store.note_job_state(id, number, never, None).await?;
            return Ok(Resumed::Refused(failure));
        }
    };
    let until = clock::instant() + START_LIMIT;
    match send_within(sandbox, row, &spec, until, Sending::MaybeAgain).await {
        Ok(done) => {
            failpoint::reached("resume_launched");
            let started = started_job(&done.started);
            store.note_job_started(id, number, started).await?;
            failpoint::reached("resume_noted");
            Ok(Resumed::Started)
        }
        Err(Unstarted::Certain(failure)) => {
            let never = JobState::NotStarted;
            store.note_job_state(id, number, never, None).await?;
            Ok(Resumed::Refused(failure))
        }
        Err(Unstarted::Abandoned(failure)) => {
            let never = JobState::NotStarted;
            store.note_job_state(id, number, never, None).await?;
            Ok(Resumed::Abandoned(failure))
        }
        Err(Unstarted::Taken {
            failure,
            attempt,
            holder: Some(nonce),
            ..
        }) => stand_back(store, sandbox, row, (attempt, nonce), failure).await,
        Err(Unstarted::Taken {
            failure, is_live, ..
        }) => {
            let never = JobState::NotStarted;
            store.note_job_state(id, number, never, None).await?;
            // Whoever took the number without a word was ended before anything ran.
            Ok(match is_live {
                true => Resumed::Refused(failure),
                false => Resumed::Abandoned(failure),
            })
        }
        Err(Unstarted::Unclear(failure)) => {
            // From now on whoever looks may settle it.
            store.note_starter_gone(id, number).await?;
            Ok(Resumed::Unclear(failure))
        }
    }
}

/// Takes the attempt that the host has for the last one of the job, and looks how it stands.
async fn stand_back(
    store: &Store,
    sandbox: &dyn Sandbox,
    row: &JobRow,
    (attempt, nonce): (AttemptNumber, Nonce),
    failure: Failure,
) -> Result<Resumed, Failure> {
    let number = row.attempt.number;
    if !store.adopt_attempt(&row.id, number, attempt, nonce).await? {
        return Ok(Resumed::Refused(failure));
    }
    let Some(row) = store.job(&row.id, &row.principal).await? else {
        return Ok(Resumed::Refused(failure));
    };
    // When the host cannot be asked now, the next look finds out.
    let seen = look_at(store, sandbox, row, LogPart::Nothing).await?;
    Ok(match seen.state {
        JobState::NotStarted => Resumed::Abandoned(failure),
        _ => Resumed::ByOther(attempt),
    })
}

/// The next attempt as the first one was asked for, but for the command.
fn attempt_spec(sandbox: &dyn Sandbox, row: &JobRow, command: &str) -> Result<JobSpec, Failure> {
    let internal = |error: &dyn std::fmt::Display| Failure::new(Code::Internal, error.to_string());
    let order: JobOrder = serde_json::from_str(&row.spec).map_err(|error| internal(&error))?;
    let mut run = RunSpec::new(command.to_owned()).map_err(|error| internal(&error))?;
    if let Some(cwd) = row.cwd.as_ref().or(order.cwd.as_ref()) {
        run = run.in_directory(cwd).map_err(|error| internal(&error))?;
    }
    let run = run.within(sandbox.surroundings());
    let attempt = &row.attempt;
    let spec = JobSpec::new(run, row.id.clone(), attempt.number, attempt.nonce.clone())
        .and_then(|spec| spec.with_log_file(&row.log_file))
        .and_then(|spec| spec.with_max_log_bytes(order.max_log_bytes))
        .map_err(|error| internal(&error))?;
    let gpus = GpuWish::parse(&order.gpus).map_err(|error| internal(&error))?;
    Ok(spec.with_gpus(gpus).in_session(row.session.clone()))
}
