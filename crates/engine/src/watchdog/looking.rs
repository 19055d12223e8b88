//! Looks at many tasks of one host and makes of each answer what is to be known of the task.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    Alarm, FileSight, JobSpecError, JobState, LogPart, LogSight, Look, MOST_SEARCHED_BYTES,
    Observation, UnknownReason, WatchSight, alarms_in,
};
use remote_sandbox_core::output::clean_text;
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::watch::{
    LONGEST_TAIL, broken_line, checkpoint_glimpse, digest, joined_tail, next_scan,
};

use crate::clock;
use crate::job::{ask_within, settle, state_of_foreign};
use crate::sandbox::Sandbox;
use crate::store::{SeenParts, Store, WatchRow, WatchedTask};

/// How long one look at many tasks may take, checkpoint commands included.
const LOOK_LIMIT: Duration = Duration::from_secs(45);

/// New log that the first look brings of each task.
const FIRST_PART: u64 = 8 * 1024;

/// Log that is brought of a task that wrote more than that, and how many such tasks share a script.
const MORE: u64 = 128 * 1024;
const MORE_AT_ONCE: usize = 24;

/// How far a search reaches into what is brought before and after it.
const SEAM: u64 = 256;

/// Most bytes of a checkpoint that are kept.
const CHECKPOINT_BYTES: u64 = 8 * 1024;

/// What a look found out about a task.
#[derive(Debug)]
pub(super) struct Glimpse {
    /// What the policy decides on.
    pub(super) sight: WatchSight,
    /// The exit code, also one that only a log tells.
    pub(super) exit_code: Option<u32>,
    /// What is kept of it.
    pub(super) parts: SeenParts,
}

/// A task whose answer is being read.
struct Reading {
    from: u64,
    /// What was kept of the log up to there.
    kept: String,
    /// How much before there was given back to the disk before it could be read.
    missed: u64,
    text: Vec<u8>,
    observation: Observation,
    state: JobState,
    alarms: Vec<Alarm>,
}

/// Looks at tasks of one host, each in its place. An error of all of them says that the host could not be asked.
pub(super) async fn look_at_all(
    store: &Store,
    sandbox: &dyn Sandbox,
    mask: &Mask,
    tasks: &[WatchedTask],
) -> Result<Vec<Result<Glimpse, Failure>>, Failure> {
    let asked: Vec<Result<Look, JobSpecError>> = tasks.iter().map(first_look).collect();
    let looks: Vec<Look> = asked.iter().flatten().cloned().collect();
    if looks.is_empty() {
        return Ok(asked
            .into_iter()
            .map(|look| Err(unasked(look.err())))
            .collect());
    }
    let mut observations = ask_within(sandbox, &looks, LOOK_LIMIT).await?.into_iter();
    let mut readings = Vec::with_capacity(tasks.len());
    for (task, asked) in tasks.iter().zip(asked) {
        readings.push(match asked {
            Err(error) => Err(unasked(Some(error))),
            Ok(_) => match observations.next().flatten() {
                Some(observation) => read(store, sandbox, task, observation).await,
                None => Err(broken_off(&task.watch)),
            },
        });
    }
    // What is not there by then is read at the next look; all that was seen must be written down.
    let reading = read_more(sandbox, tasks, &mut readings);
    let _ = tokio::time::timeout(MORE_LIMIT, reading).await;
    Ok(readings
        .into_iter()
        .zip(tasks)
        .map(|(reading, task)| reading.map(|reading| reading.glimpse(&task.watch, mask)))
        .collect())
}

fn broken_off(watch: &WatchRow) -> Failure {
    let text = format!("sandbox `{}`: the answer broke off", watch.sandbox);
    Failure::new(Code::RemoteRefused, text)
}

fn unasked(error: Option<JobSpecError>) -> Failure {
    let words = error.map_or_else(String::new, |error| error.to_string());
    Failure::new(Code::Internal, words)
}

/// Where the log of a task is read on; none when its end is read: of a task that is not ours, only that tells how it ended.
fn read_from(task: &WatchedTask) -> Option<u64> {
    let job = task.job.as_ref()?;
    task.watch.scanned_to.or(job.attempt.log_offset)
}

fn first_look(task: &WatchedTask) -> Result<Look, JobSpecError> {
    let part = match read_from(task) {
        Some(byte) => LogPart::Since {
            byte,
            most: FIRST_PART,
        },
        None => LogPart::Last(FIRST_PART),
    };
    let look = look(task, part)?;
    match task.watch.order.checkpoint() {
        None => Ok(look),
        Some(checkpoint) => {
            let cwd = task.watch.cwd.as_deref().unwrap_or_default();
            look.with_checkpoint(checkpoint, cwd, CHECKPOINT_BYTES)
        }
    }
}

fn look(task: &WatchedTask, part: LogPart) -> Result<Look, JobSpecError> {
    match &task.job {
        Some(job) => {
            let (id, number) = (job.id.clone(), job.attempt.number);
            Look::job(id, number, &job.session, &job.log_file, part)
        }
        None => Look::foreign(&task.watch.session, &task.watch.log_file, part),
    }
}

async fn read(
    store: &Store,
    sandbox: &dyn Sandbox,
    task: &WatchedTask,
    mut observation: Observation,
) -> Result<Reading, Failure> {
    let state = match &task.job {
        None => state_of_foreign(&observation),
        Some(job) => {
            let seen = settle(store, sandbox, job.clone(), observation).await?;
            observation = seen.observation.ok_or_else(|| broken_off(&task.watch))?;
            seen.state
        }
    };
    let size = observation.log.size_bytes.unwrap_or(0);
    let asked = read_from(task).unwrap_or_else(|| size.saturating_sub(FIRST_PART));
    let from = observation.log.begins_at.unwrap_or(asked);
    let kept = match task.watch.scanned_to {
        Some(_) if task.job.is_some() => task.watch.last_log_tail.clone().unwrap_or_default(),
        _ => String::new(),
    };
    let text = std::mem::take(&mut observation.log.text);
    let mut reading = Reading {
        alarms: alarms_in(&text),
        missed: swallowed(&observation.log, asked, from),
        from,
        kept,
        text,
        observation,
        state,
    };
    if read_from(task).is_none() {
        reading.drop_broken_line();
    }
    Ok(reading)
}

/// How many bytes between these two are not kept any more.
fn swallowed(log: &FileSight, begin: u64, end: u64) -> u64 {
    log.hole.map_or(0, |hole| hole.swallowed(begin, end))
}

/// How long reading more of logs may take.
const MORE_LIMIT: Duration = Duration::from_secs(60);

/// Brings the end of logs that grew by more than the first look brings, and of those that were begun anew.
async fn read_more(
    sandbox: &dyn Sandbox,
    tasks: &[WatchedTask],
    readings: &mut [Result<Reading, Failure>],
) {
    let mut wanted = Vec::new();
    for (place, (task, reading)) in tasks.iter().zip(readings.iter()).enumerate() {
        let Ok(reading) = reading else { continue };
        let Some((begin, byte, most)) = reading.missing(task) else {
            continue;
        };
        if let Ok(look) = look(task, LogPart::Since { byte, most }) {
            wanted.push((place, byte, over_gap(look, begin, byte)));
        }
    }
    for some in wanted.chunks(MORE_AT_ONCE) {
        let looks: Vec<Look> = some.iter().map(|(_, _, look)| look.clone()).collect();
        // What cannot be had now is read at the next look.
        let Ok(observations) = ask_within(sandbox, &looks, LOOK_LIMIT).await else {
            return;
        };
        for ((place, byte, _), observation) in some.iter().zip(observations) {
            if let (Some(Ok(reading)), Some(more)) = (readings.get_mut(*place), observation) {
                // Of a task that is not ours this is older than what was searched at the first look.
                if tasks.get(*place).is_some_and(|task| task.job.is_some()) {
                    reading.alarms.extend(alarms_in(&more.gap_text));
                    reading.alarms.extend(alarms_in(&more.log.text));
                }
                reading.take_more(*byte, more.log);
            }
        }
    }
}

/// Has the host search what lies between two parts that are brought, and a little of both, for a word may lie across.
fn over_gap(look: Look, begin: u64, end: u64) -> Look {
    if begin >= end {
        return look;
    }
    let (begin, end) = (begin.saturating_sub(SEAM), end + SEAM);
    // Of more than can be searched at once, the end.
    let begin = begin.max(end.saturating_sub(MOST_SEARCHED_BYTES));
    look.searching(begin, end - begin)
}

impl Reading {
    /// What is still to be brought of the log: where that which was not read begins, and the part that is wanted.
    fn missing(&self, task: &WatchedTask) -> Option<(u64, u64, u64)> {
        let size = self.observation.log.size_bytes.unwrap_or(0);
        if task.job.is_none() {
            let lines = self.text.iter().filter(|byte| **byte == b'\n').count();
            let is_enough = self.from == 0 || lines > task.watch.order.max_log_lines as usize;
            let byte = size.saturating_sub(LONGEST_TAIL as u64);
            return (!is_enough && size > self.from).then_some((byte, byte, LONGEST_TAIL as u64));
        }
        let read = self.from + self.text.len() as u64;
        let byte = size.saturating_sub(MORE);
        match size {
            size if size < self.from => Some((0, byte, MORE)),
            size if size > read => Some((read, byte.max(read), MORE)),
            _ => None,
        }
    }

    fn take_more(&mut self, byte: u64, more: FileSight) {
        let read = self.from + self.text.len() as u64;
        let byte = more.begins_at.unwrap_or(byte);
        self.missed += swallowed(&more, read, byte);
        if byte == read {
            self.text.extend(more.text);
        } else {
            // Between the two lies what was only searched, or the old log is gone.
            self.kept.clear();
            self.from = byte;
            self.text = more.text;
            self.drop_broken_line();
        }
    }

    /// What begins somewhere in a log mostly begins within a line. Behind a part that is not kept any more all there is
    /// is shown.
    fn drop_broken_line(&mut self) {
        if self.from > 0 && self.missed == 0 {
            let broken = broken_line(&self.text);
            self.text.drain(..broken);
            self.from += broken as u64;
        }
    }

    /// The end of the log. Where a part is missing before what is new, nothing is joined to it, and that is said.
    fn tail(&self, new: &str, lines: u32) -> String {
        match self.missed {
            0 => joined_tail(&self.kept, new, lines),
            missed => {
                let words = format!("[{missed} bytes of this log are not kept any more]\n");
                joined_tail("", &(words + new), lines)
            }
        }
    }

    fn glimpse(mut self, watch: &WatchRow, mask: &Mask) -> Glimpse {
        let order = &watch.order;
        let clean = |bytes: &[u8]| clean_text(&mask.mask_bytes(bytes));
        let tail = self.tail(&clean(&self.text), order.max_log_lines);
        // Also what an earlier version kept, and what only the joined parts show.
        let tail = mask.mask_text(&tail).into_owned();
        let sight = self.observation.checkpoint.as_ref();
        let checkpoint = checkpoint_glimpse(sight, order.checkpoint_format, CHECKPOINT_BYTES);
        if checkpoint.is_unreadable {
            self.alarms.push(Alarm::CheckpointUnreadable);
        }
        if self.observation.log_is_unbounded {
            self.alarms.push(Alarm::LogUnbounded);
        }
        let text = checkpoint.bytes.as_deref().map(clean);
        let text_digest = text.as_deref().map(digest);
        let now = clock::wall();
        let is_new = text_digest.is_some() && text_digest != watch.last_checkpoint_digest;
        let written = match checkpoint.age_s {
            Some(age) => Some(now.saturating_sub(Duration::from_secs(age))),
            None => is_new.then_some(now),
        };
        let log = &self.observation.log;
        Glimpse {
            exit_code: exit_code(&self.state, watch.job.is_some()),
            sight: WatchSight {
                state: self.state,
                log: LogSight {
                    size: log.size_bytes,
                    written: log.written,
                },
                host_now: self.observation.host_now,
                alarms: self.alarms,
            },
            parts: SeenParts {
                log_digest: Some(digest(&tail)),
                log_tail: Some(tail),
                checkpoint: text,
                checkpoint_digest: text_digest,
                checkpoint_updated: written,
                scanned_to: Some(next_scan(self.from, &self.text)),
            },
        }
    }
}

/// The line in a log counts only for tasks of which nothing else tells.
fn exit_code(state: &JobState, is_ours: bool) -> Option<u32> {
    match state {
        JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(code),
        } if !is_ours => Some(*code),
        state => state.exit_code(),
    }
}
