//! Looks at jobs and writes down how they stand.

use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::{
    JobStarted, JobState, KnownAttempt, LogPart, Look, Observation, Sighting, VoidVerdict,
    adopt_script, check_script, judge, parse_adopt, parse_check, parse_void, void_script,
};

use super::start::{START_LIMIT, started_job};
use super::{mark, target, wordless};
use crate::clock;
use crate::sandbox::Sandbox;
use crate::store::{JobRow, StartedJob, Store};
use crate::transfer::process::is_alive;

/// How long one look may take.
const LOOK_LIMIT: Duration = Duration::from_secs(20);

/// After this time nobody is about to start what was written down, even if its process lives.
const START_GRACE: Duration = START_LIMIT.saturating_mul(2);

/// A job as it was found.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The row, as it is now.
    pub(crate) row: JobRow,
    /// How it stands.
    pub(crate) state: JobState,
    /// What the host showed, when it could be asked.
    pub(crate) observation: Option<Observation>,
    /// Why it could not.
    pub(crate) failure: Option<Failure>,
    /// The exit code that only a line in the log tells.
    pub(crate) hearsay_code: Option<u32>,
    /// Whether the command runs without the runner that would write down its end.
    pub(crate) is_unattended: bool,
}

impl Seen {
    fn new(row: JobRow) -> Self {
        Seen {
            state: row.attempt.state.clone(),
            row,
            observation: None,
            failure: None,
            hearsay_code: None,
            is_unattended: false,
        }
    }
}

/// Looks at one job; `Err` only when the store fails.
pub(crate) async fn look_at(
    store: &Store,
    sandbox: &dyn Sandbox,
    row: JobRow,
    part: LogPart,
) -> Result<Seen, Failure> {
    let mut seen = glance(store, sandbox, vec![row], part).await?;
    match seen.pop() {
        Some(seen) => Ok(seen),
        None => Err(wordless(
            sandbox.description().name.as_str(),
            "nothing was looked at",
        )),
    }
}

/// Looks at many jobs of one sandbox in one round trip.
pub(crate) async fn glance(
    store: &Store,
    sandbox: &dyn Sandbox,
    rows: Vec<JobRow>,
    part: LogPart,
) -> Result<Vec<Seen>, Failure> {
    let looks: Result<Vec<Look>, _> = rows
        .iter()
        .map(|row| {
            let (id, number) = (row.id.clone(), row.attempt.number);
            Look::job(id, number, &row.session, &row.log_file, part)
        })
        .collect();
    let name = sandbox.description().name.as_str();
    let looks = looks.map_err(|error| wordless(name, &error.to_string()))?;
    let asked = ask(sandbox, &looks).await;
    let mut found = Vec::with_capacity(rows.len());
    match asked {
        Ok(observations) => {
            for (row, observation) in rows.into_iter().zip(observations) {
                found.push(match observation {
                    Some(seen) => settle(store, sandbox, row, seen).await?,
                    None => {
                        let failure = wordless(name, "the answer broke off");
                        unseen(store, row, failure).await?
                    }
                });
            }
        }
        Err(failure) => {
            for row in rows {
                found.push(unseen(store, row, failure.clone()).await?);
            }
        }
    }
    Ok(found)
}

/// Whether a sandbox has the last attempt of a job; nothing is written down.
pub(crate) async fn is_there(sandbox: &dyn Sandbox, row: &JobRow) -> Result<bool, Failure> {
    let name = sandbox.description().name.as_str();
    let (id, number) = (row.id.clone(), row.attempt.number);
    let look = Look::job(id, number, &row.session, &row.log_file, LogPart::Nothing);
    let look = look.map_err(|error| wordless(name, &error.to_string()))?;
    let seen = ask(sandbox, &[look]).await?.pop().flatten();
    Ok(seen.is_some_and(|seen| seen.nonce.as_ref() == Some(&row.attempt.nonce)))
}

/// Looks at a task that is not in the store.
pub(crate) async fn look_at_foreign(
    sandbox: &dyn Sandbox,
    session: &str,
    log_file: &str,
    part: LogPart,
) -> Result<(JobState, Observation), Failure> {
    let name = sandbox.description().name.as_str();
    let look = Look::foreign(session, log_file, part).map_err(|error| {
        Failure::new(
            remote_sandbox_core::failure::Code::InvalidParams,
            error.to_string(),
        )
    })?;
    let mut observations = ask(sandbox, &[look]).await?;
    let Some(seen) = observations.pop().flatten() else {
        return Err(wordless(name, "the answer broke off"));
    };
    Ok((state_of_foreign(&seen), seen))
}

/// How a task stands that is not in the store.
pub(crate) fn state_of_foreign(seen: &Observation) -> JobState {
    let known = KnownAttempt {
        nonce: None,
        state: JobState::Running,
        process: None,
        is_stop_asked: false,
    };
    judge(&known, &Sighting::Seen(Box::new(seen.clone()))).state
}

async fn ask(sandbox: &dyn Sandbox, looks: &[Look]) -> Result<Vec<Option<Observation>>, Failure> {
    ask_within(sandbox, looks, LOOK_LIMIT).await
}

/// Looks at tasks in one round trip, each in its place; none where the answer broke off before.
pub(crate) async fn ask_within(
    sandbox: &dyn Sandbox,
    looks: &[Look],
    limit: Duration,
) -> Result<Vec<Option<Observation>>, Failure> {
    let mark = mark();
    let answer = sandbox.ask(check_script(looks, &mark), limit).await?;
    let report = parse_check(looks, &mark, &answer);
    let name = sandbox.description().name.as_str();
    let report = report.map_err(|error| wordless(name, &error.to_string()))?;
    Ok(report.observations)
}

fn known(row: &JobRow) -> KnownAttempt {
    KnownAttempt {
        nonce: Some(row.attempt.nonce.clone()),
        state: row.attempt.state.clone(),
        process: row.attempt.process.clone(),
        is_stop_asked: row.attempt.is_stop_asked,
    }
}

/// A job whose host could not be asked.
async fn unseen(store: &Store, row: JobRow, failure: Failure) -> Result<Seen, Failure> {
    let at = clock::wall().as_secs();
    let verdict = judge(&known(&row), &Sighting::Unreachable { at });
    let mut seen = Seen::new(row);
    // Of a start that was not heard of, the host may still say everything.
    if seen.row.attempt.state != JobState::Starting {
        note(store, &mut seen.row, &verdict.state, None).await?;
    }
    seen.state = verdict.state;
    seen.failure = Some(failure);
    Ok(seen)
}

/// Writes down what an observation means, and finds out about a start that nobody heard the end of.
pub(crate) async fn settle(
    store: &Store,
    sandbox: &dyn Sandbox,
    mut row: JobRow,
    observation: Observation,
) -> Result<Seen, Failure> {
    let sighting = Sighting::Seen(Box::new(observation));
    let mut verdict = judge(&known(&row), &sighting);
    if let Some(holder) = verdict.holder.take() {
        // Ours can never begin under this number: the one that is there is the job's.
        let number = row.attempt.number;
        if store.adopt_attempt(&row.id, number, number, holder).await?
            && let Some(adopted) = store.job(&row.id, &row.principal).await?
        {
            row = adopted;
            verdict = judge(&known(&row), &sighting);
        }
    }
    let Sighting::Seen(observation) = sighting else {
        return Ok(Seen::new(row));
    };
    // A resume is sent again by the watchdog that decided it, not made void by whoever looks.
    if verdict.state == JobState::Starting
        && is_abandoned(store, &row)
        && !store.is_resuming(&row.id).await?
    {
        match bar(sandbox, &row).await? {
            VoidVerdict::NeverBegan => verdict.state = JobState::NotStarted,
            VoidVerdict::Began => {
                adopt(store, sandbox, &mut row).await?;
                verdict.state = row.attempt.state.clone();
            }
            VoidVerdict::NotOurs | VoidVerdict::Unwritable => {}
        }
    } else if verdict.adopted.is_some() {
        adopt(store, sandbox, &mut row).await?;
    }
    note(store, &mut row, &verdict.state, verdict.adopted).await?;
    Ok(Seen {
        state: row.attempt.state.clone(),
        row,
        observation: Some(*observation),
        failure: None,
        hearsay_code: verdict.hearsay_code,
        is_unattended: verdict.is_unattended,
    })
}

/// Whether whoever wrote a start down cannot be about to carry it out.
pub(crate) fn is_abandoned(store: &Store, row: &JobRow) -> bool {
    let age = clock::wall().saturating_sub(row.attempt.created);
    match &row.attempt.starter {
        None => age > START_GRACE,
        Some(starter) if !is_alive(starter) => true,
        // It was not long ago when only the clock says so: that may have been set since.
        Some(_) => {
            let known = store.start_seen_for(&row.id, row.attempt.number);
            age.min(known) > START_GRACE
        }
    }
}

/// Makes sure that an attempt which has not begun never does.
pub(super) async fn bar(sandbox: &dyn Sandbox, row: &JobRow) -> Result<VoidVerdict, Failure> {
    let mark = mark();
    let script = void_script(&target(row), &mark);
    let answer = sandbox.ask(script, LOOK_LIMIT).await?;
    parse_void(&mark, &answer).ok_or_else(|| wordless(&row.sandbox, "the answer broke off"))
}

/// Asks the host what it did about a start whose answer was lost.
pub(super) async fn what_was_started(
    sandbox: &dyn Sandbox,
    row: &JobRow,
) -> Result<Option<JobStarted>, Failure> {
    let mark = mark();
    let script = adopt_script(&target(row), &mark);
    let answer = sandbox.ask(script, LOOK_LIMIT).await?;
    Ok(parse_adopt(&mark, &answer))
}

/// Asks for that, and writes it down.
async fn adopt(store: &Store, sandbox: &dyn Sandbox, row: &mut JobRow) -> Result<(), Failure> {
    if let Some(started) = what_was_started(sandbox, row).await? {
        let kept = started_job(&started);
        let (id, number) = (&row.id, row.attempt.number);
        if store.note_job_started(id, number, kept.clone()).await? {
            row.attempt.state = JobState::Running;
            row.attempt.process = Some(kept.process.clone());
            row.attempt.log_offset = Some(kept.log_offset);
        }
        place(row, kept);
    }
    Ok(())
}

/// Where a job is, as its host says.
fn place(row: &mut JobRow, started: StartedJob) {
    row.log_file = started.log_file;
    row.cwd = Some(started.cwd);
    row.gpus = started.gpus;
}

/// The row of a job that has started, as it is when it cannot be read again.
pub(crate) fn as_started(mut row: JobRow, started: &JobStarted) -> JobRow {
    let kept = started_job(started);
    row.attempt.state = JobState::Running;
    row.attempt.process = Some(kept.process.clone());
    row.attempt.log_offset = Some(kept.log_offset);
    place(&mut row, kept);
    row
}

async fn note(
    store: &Store,
    row: &mut JobRow,
    state: &JobState,
    process: Option<remote_sandbox_core::job::ProcessIdentity>,
) -> Result<(), Failure> {
    if row.attempt.ended.is_some() || (*state == row.attempt.state && process.is_none()) {
        return Ok(());
    }
    let (id, number) = (&row.id, row.attempt.number);
    let changed = store.note_job_state(id, number, state.clone(), process);
    if changed.await? {
        row.attempt.state = state.clone();
        if state.is_terminal() {
            row.attempt.ended = Some(clock::wall());
        }
        return Ok(());
    }
    // Somebody else has seen its end meanwhile, and that stays.
    if let Some(now) = store.job(&row.id, &row.principal).await? {
        *row = now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::store::{NewJob, testing};
    use crate::transfer::process::own_mark;

    #[tokio::test]
    async fn start_of_a_process_that_lives_is_not_given_up_because_the_clock_was_set() {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path()).await.unwrap();
        let new = NewJob {
            starter: own_mark(),
            ..testing::new_job(1)
        };
        let mut row = store.begin_job(new).await.unwrap();
        row.attempt.created = Duration::ZERO;
        tokio::time::pause();
        assert!(!is_abandoned(&store, &row));
        tokio::time::advance(START_GRACE * 2).await;
        assert!(is_abandoned(&store, &row), "in truth it is long ago");
        row.attempt.created = clock::wall();
        assert!(!is_abandoned(&store, &row), "the clock was set back");
        row.attempt.starter = Some(crate::store::ProcessMark {
            pid: 0,
            start: 0,
            boot: String::new(),
        });
        assert!(is_abandoned(&store, &row), "nobody is there");
    }
}
