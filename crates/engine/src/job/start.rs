//! Starts a job: the row first, then the host.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    AttemptNumber, ClaimedGpus, GpuWish, JobSpec, JobStarted, Nonce, StartRefusal, StartVerdict,
    VoidVerdict, parse_start, start_last_words, start_script,
};
use remote_sandbox_core::probe::GpuVendor;
use remote_sandbox_core::secret::Mask;

use super::look::{bar, what_was_started};
use super::{JobOrder, JobRequest, mark};
use crate::clock;
use crate::failpoint;
use crate::sandbox::Sandbox;
use crate::store::{JobRow, NewJob, NewWatch, StartedJob, Store};
use crate::transfer::process::own_mark;

/// How long one sending of a start may take.
const SEND_LIMIT: Duration = Duration::from_secs(20);

/// How long all of them together may take.
pub(super) const START_LIMIT: Duration = Duration::from_secs(45);

/// How often a start is sent whose answer was lost; the host carries out one of them.
const MOST_SENDINGS: u32 = 4;

/// How long to wait before it is sent again.
const PAUSE: Duration = Duration::from_millis(300);

/// Longest command that a row repeats.
pub(super) const LONGEST_COMMAND: usize = 16 * 1024;

/// Where a job is started.
pub(crate) struct Destination {
    /// The sandbox, by name.
    pub(crate) sandbox: String,
    /// The host that the name means here.
    pub(crate) place: Option<String>,
    /// The key of its entry, where that is kept for the watchdog.
    pub(crate) entry: Option<String>,
}

/// Writes a job down, surely.
pub(crate) async fn begin(
    store: &Store,
    request: &JobRequest,
    spec: &JobSpec,
    destination: Destination,
    principal: &str,
    mask: &Mask,
) -> Result<JobRow, Failure> {
    let entry = destination.entry;
    let order = JobOrder {
        cwd: request.run.cwd().map(str::to_owned),
        log_file: request.log_file.clone(),
        gpus: match request.gpus {
            GpuWish::None => String::new(),
            GpuWish::Auto => "auto".to_owned(),
            GpuWish::Count(count) => count.to_string(),
        },
        max_log_bytes: request.max_log_bytes,
        watch: request.watch.clone(),
        place: destination.place,
    };
    let internal = |error: serde_json::Error| Failure::new(Code::Internal, error.to_string());
    let command = mask.mask_text(request.run.command());
    let new = NewJob {
        id: spec.job().clone(),
        principal: principal.to_owned(),
        sandbox: destination.sandbox,
        session: spec.session().clone(),
        log_file: expected_log(request, spec),
        cwd: order.cwd.clone(),
        command: command.chars().take(LONGEST_COMMAND).collect(),
        spec: serde_json::to_string(&order).map_err(internal)?,
        metadata: request.metadata.as_ref().map(ToString::to_string),
        run_id: request.run_id.clone(),
        name: request.name.clone(),
        watch: request.watch.clone().map(|order| NewWatch { order, entry }),
        nonce: spec.nonce().clone(),
        starter: own_mark(),
    };
    failpoint::reached("job_unrecorded");
    let row = store.begin_job(new).await?;
    failpoint::reached("job_recorded");
    Ok(row)
}

/// Where the log will be, from the home on where that is all that is known.
fn expected_log(request: &JobRequest, spec: &JobSpec) -> String {
    let log = request.log_file.as_str();
    if log.starts_with(['/', '~']) {
        return log.to_owned();
    }
    let folder = request.run.cwd().unwrap_or("~").trim_end_matches('/');
    match log {
        "" => format!("{folder}/.codex_logs/{}.log", spec.session()),
        log => format!("{folder}/{log}"),
    }
}

/// What came of a start.
pub(crate) struct CarriedOut {
    /// What the host says.
    pub(crate) started: JobStarted,
    /// Whether its first answer was lost.
    pub(crate) is_recovered: bool,
    /// Why it could not be written down here, when that failed; the next look at the job does it.
    pub(crate) unwritten: Option<Failure>,
}

impl CarriedOut {
    fn new(started: JobStarted, is_recovered: bool) -> Self {
        CarriedOut {
            started,
            is_recovered,
            unwritten: None,
        }
    }
}

/// Has the host carry out a start that is written down. After a failure the row is gone where it is certain that
/// nothing was started, and stays where it is not.
pub(crate) async fn carry_out(
    store: &Store,
    sandbox: &dyn Sandbox,
    row: &JobRow,
    spec: &JobSpec,
) -> Result<CarriedOut, Failure> {
    let until = clock::instant() + START_LIMIT;
    match send_within(sandbox, row, spec, until, Sending::First).await {
        Ok(mut done) => {
            failpoint::reached("job_launched");
            let started = started_job(&done.started);
            let noted = store.note_job_started(&row.id, row.attempt.number, started);
            // It runs, whatever becomes of the note, and whoever is told otherwise starts it again.
            done.unwritten = noted.await.err().map(Failure::from);
            failpoint::reached("job_unanswered");
            Ok(done)
        }
        Err(
            Unstarted::Certain(failure)
            | Unstarted::Abandoned(failure)
            | Unstarted::Taken { failure, .. },
        ) => {
            // A row that cannot be removed now is settled by whoever looks; the caller has to hear what the host said.
            if let Err(error) = store.forget_job(&row.id).await {
                tracing::warn!(%error, job = %row.id, "a job that was not started could not be forgotten");
            }
            Err(failure)
        }
        Err(Unstarted::Unclear(failure)) => {
            // From now on whoever looks may settle it; without this note they wait until it is certainly over.
            if let Err(error) = store.note_starter_gone(&row.id, row.attempt.number).await {
                tracing::warn!(%error, job = %row.id, "an unclear start could not be noted");
            }
            Err(unclear(row, &failure))
        }
    }
}

/// Why there is no word that a start was carried out.
pub(super) enum Unstarted {
    /// Nothing was started.
    Certain(Failure),
    /// Nothing was started: an earlier sending broke off, and its host made sure that it never goes on.
    Abandoned(Failure),
    /// Nothing was started, because another attempt has the place.
    Taken {
        /// In words.
        failure: Failure,
        /// The attempt that is there.
        attempt: AttemptNumber,
        /// Whose it is; none when whoever took the number did not come to say so.
        holder: Option<Nonce>,
        /// Whether it is certain that it runs.
        is_live: bool,
    },
    /// It may have been.
    Unclear(Failure),
}

/// Whether somebody may have sent the same start before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Nobody has.
    First,
    /// Somebody may have.
    MaybeAgain,
}

/// Sends a start until the host says what came of it, for so long.
pub(super) async fn send_within(
    sandbox: &dyn Sandbox,
    row: &JobRow,
    spec: &JobSpec,
    until: tokio::time::Instant,
    sending: Sending,
) -> Result<CarriedOut, Unstarted> {
    let sent = tokio::time::timeout_at(until, send(sandbox, row, spec, sending)).await;
    sent.unwrap_or_else(|_| {
        let text = format!("sandbox `{}` did not answer in time", row.sandbox);
        Err(Unstarted::Unclear(Failure::new(Code::TimedOut, text)))
    })
}

async fn send(
    sandbox: &dyn Sandbox,
    row: &JobRow,
    spec: &JobSpec,
    sending: Sending,
) -> Result<CarriedOut, Unstarted> {
    let mark = mark();
    let script = start_script(spec, &mark);
    let last_words = start_last_words(&mark);
    let mut is_recovered = sending == Sending::MaybeAgain;
    let mut sendings = 0;
    loop {
        sendings += 1;
        let sent = sandbox.ask_until(script.clone(), &last_words, SEND_LIMIT);
        let failure = match sent.await {
            Ok(answer) => match parse_start(&mark, &answer) {
                Ok(StartVerdict::Started(started)) => {
                    return Ok(CarriedOut::new(started, is_recovered));
                }
                Ok(StartVerdict::StartedBefore(started)) => {
                    return Ok(CarriedOut::new(started, true));
                }
                Ok(StartVerdict::Refused(StartRefusal::StillStarting)) => {
                    Failure::new(Code::Busy, "the start is still being carried out")
                }
                Ok(StartVerdict::Refused(refusal)) => {
                    let refusal = unstarted(&refusal, refused(sandbox, spec, &refusal));
                    return match is_recovered {
                        true => judge_refusal(sandbox, row, refusal).await,
                        false => Err(refusal),
                    };
                }
                Err(error) => {
                    super::wordless(sandbox.description().name.as_str(), &error.to_string())
                }
            },
            Err(failure) if !is_recovered && is_unsent(&failure) => {
                return Err(Unstarted::Certain(failure));
            }
            Err(failure) => failure,
        };
        is_recovered = true;
        if sendings == MOST_SENDINGS {
            return Err(Unstarted::Unclear(failure));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn unstarted(refusal: &StartRefusal, failure: Failure) -> Unstarted {
    match refusal {
        StartRefusal::AttemptTaken { attempt, holder } => Unstarted::Taken {
            failure,
            attempt: *attempt,
            holder: holder.clone(),
            is_live: false,
        },
        StartRefusal::AttemptLive { attempt, holder } => Unstarted::Taken {
            failure,
            attempt: *attempt,
            holder: holder.clone(),
            is_live: true,
        },
        StartRefusal::Abandoned => Unstarted::Abandoned(failure),
        _ => Unstarted::Certain(failure),
    }
}

/// What a refusal means when an earlier sending may have been carried out, or still be. This one may have failed for
/// what that one did: its job has moved its own folder, say, or it stopped right behind taking the number.
async fn judge_refusal(
    sandbox: &dyn Sandbox,
    row: &JobRow,
    refusal: Unstarted,
) -> Result<CarriedOut, Unstarted> {
    let (Unstarted::Certain(failure)
    | Unstarted::Taken { failure, .. }
    | Unstarted::Abandoned(failure)
    | Unstarted::Unclear(failure)) = &refusal;
    let unclear = Unstarted::Unclear(failure.clone());
    if matches!(refusal, Unstarted::Abandoned(_) | Unstarted::Unclear(_)) {
        return Err(refusal);
    }
    match bar(sandbox, row).await {
        Ok(VoidVerdict::NeverBegan | VoidVerdict::NotOurs) => Err(refusal),
        Ok(VoidVerdict::Began) => match what_was_started(sandbox, row).await {
            Ok(Some(started)) => Ok(CarriedOut::new(started, true)),
            Ok(None) | Err(_) => Err(unclear),
        },
        Ok(VoidVerdict::Unwritable) | Err(_) => Err(unclear),
    }
}

/// Whether a failure came before anything was sent.
fn is_unsent(failure: &Failure) -> bool {
    !matches!(
        failure.code,
        Code::LinkLost | Code::TimedOut | Code::RemoteRefused | Code::Internal
    )
}

fn unclear(row: &JobRow, failure: &Failure) -> Failure {
    let text = format!(
        "sandbox `{}`: the answer to the start of job `{}` was lost ({}); it may have started",
        row.sandbox, row.id, failure.message
    );
    let hint = format!(
        "do not start it again: check_background_task(task_id=\"{}\") finds out, and makes sure that it runs once or never",
        row.id
    );
    Failure::new(Code::LinkLost, text).hint(hint)
}

fn refused(sandbox: &dyn Sandbox, spec: &JobSpec, refusal: &StartRefusal) -> Failure {
    let name = &sandbox.description().name;
    let text = format!("sandbox `{name}`: the job was not started: {refusal}");
    let failure = |code| Failure::new(code, text.clone());
    match refusal {
        StartRefusal::Cwd { .. } => failure(Code::NotFound).hint("correct `cwd`"),
        StartRefusal::Log { .. } => failure(Code::PermissionDenied)
            .hint("pass a `log_file` in a directory that can be written"),
        StartRefusal::Home { .. } => failure(Code::PermissionDenied)
            .hint("the home directory of the account must be writable"),
        StartRefusal::NoSpace { .. } => failure(Code::NoSpace).hint("free some space there"),
        StartRefusal::Shell => {
            failure(Code::RemoteRefused).hint("correct `shell` in the entry of the sandbox")
        }
        StartRefusal::SessionTaken { holder } => {
            let holder = holder.as_ref();
            let whose = holder.map_or_else(
                || "of somebody else".to_owned(),
                |job| format!("of job `{job}`"),
            );
            let session = spec.session();
            let text = format!(
                "sandbox `{name}`: the job was not started: the session `{session}` {whose} is alive"
            );
            Failure::new(Code::Busy, text)
                .hint("leave out session_name, choose another one, or stop that task first")
        }
        StartRefusal::SessionsUnknown { .. } => failure(Code::Busy)
            .hint("leave out session_name, or see why `tmux list-sessions` fails on the host")
            .retry(),
        StartRefusal::GpuTool { tool, .. } => {
            let hint = format!(
                "run `{tool}` there with exec_bash; without `gpus` the job starts and claims none"
            );
            failure(Code::RemoteRefused).hint(hint)
        }
        StartRefusal::NoFreeGpu { present, .. } if spec.gpus().exceeds(*present) => {
            let text = format!(
                "sandbox `{name}`: the job was not started: the host has {present} GPUs, fewer than `gpus` asks for"
            );
            Failure::new(Code::Unsupported, text)
                .hint("ask for fewer `gpus` or none, or use another sandbox (list_sandboxes)")
        }
        StartRefusal::NoFreeGpu { .. } => failure(Code::Busy)
            .hint("ask for fewer `gpus`, wait, or use another sandbox (list_sandboxes)")
            .retry(),
        StartRefusal::AttemptTaken { .. }
        | StartRefusal::AttemptLive { .. }
        | StartRefusal::StillStarting
        | StartRefusal::Abandoned
        | StartRefusal::RunnerSilent => failure(Code::RemoteRefused)
            .hint("the host is very busy, or ends what logins leave behind; try again")
            .retry(),
    }
}

/// What is written down of a start.
pub(super) fn started_job(started: &JobStarted) -> StartedJob {
    StartedJob {
        process: started.process.clone(),
        log_file: started.log_file.clone(),
        log_offset: started.log_offset,
        cwd: started.cwd.clone(),
        gpus: started.gpus.as_ref().map(gpus),
    }
}

fn gpus(claimed: &ClaimedGpus) -> String {
    let vendor = match claimed.vendor {
        GpuVendor::Nvidia => "nvidia",
        GpuVendor::Amd => "amd",
        GpuVendor::Ascend => "ascend",
    };
    let indices: Vec<String> = claimed.indices.iter().map(ToString::to_string).collect();
    format!("{vendor}:{}", indices.join(","))
}
