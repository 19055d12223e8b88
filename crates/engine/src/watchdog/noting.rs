//! Makes notes and events of what was found out, and writes them down before anything is done about them.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    JobState, Phase, Step, UnknownReason, WatchEnd, WatchEvent, WatchInput, WatchOrder, step,
};
use remote_sandbox_core::watch::{Channel, EventDraft, WatchFacts, channels};

use super::looking::Glimpse;
use super::{Held, Watchdog};
use crate::job::resume_order;
use crate::store::{
    JobRow, LookNote, NewEvent, Noted, ResumeOrder, WatchId, WatchStatus, WatchedTask,
};
use crate::{clock, failpoint};

/// What follows from a look at a task.
pub(super) struct Decided {
    note: LookNote,
    step: Step,
}

/// What a note is made of besides the task.
struct Found<'a> {
    input: &'a WatchInput,
    glimpse: Option<&'a Glimpse>,
    error: Option<String>,
    now: u64,
}

impl Watchdog {
    /// What follows from what was seen of a task.
    pub(super) fn decide(
        &self,
        task: &WatchedTask,
        seen: &Result<Glimpse, Failure>,
        now: u64,
    ) -> Decided {
        match seen {
            Ok(glimpse) => {
                let input = WatchInput::Seen(glimpse.sight.clone());
                self.decided(
                    task,
                    &Found {
                        input: &input,
                        glimpse: Some(glimpse),
                        error: None,
                        now,
                    },
                )
            }
            Err(failure) => self.decide_on_failure(task, &missed_look(failure), failure, now),
        }
    }

    /// What follows from something that happened to a task, and why it did.
    pub(super) fn decide_on_failure(
        &self,
        task: &WatchedTask,
        input: &WatchInput,
        failure: &Failure,
        now: u64,
    ) -> Decided {
        let error = self.engine.mask().mask_text(&failure.message).into_owned();
        let error = Some(error);
        self.decided(
            task,
            &Found {
                input,
                glimpse: None,
                error,
                now,
            },
        )
    }

    /// What follows from the word that a resume has begun, or that somebody else has done it.
    pub(super) fn decide_on(&self, task: &WatchedTask, input: &WatchInput, now: u64) -> Decided {
        self.decided(
            task,
            &Found {
                input,
                glimpse: None,
                error: None,
                now,
            },
        )
    }

    fn decided(&self, task: &WatchedTask, found: &Found<'_>) -> Decided {
        let policy = &task.watch.order.policy;
        let mut step = step(policy, &task.watch.history, found.input, found.now);
        let mut order = None;
        if step.resume.is_some() {
            match resume_order(&task.watch, self.engine.mask()) {
                Ok(Some(resume)) => order = Some(resume),
                _ => step = after(policy, step, &WatchInput::ResumeFailed, found.now),
            }
        }
        let note = self.note(task, &step, found, order);
        Decided { note, step }
    }

    fn note(
        &self,
        task: &WatchedTask,
        step: &Step,
        found: &Found<'_>,
        resume: Option<ResumeOrder>,
    ) -> LookNote {
        let status = match step.history.phase {
            Phase::Ended {
                end: WatchEnd::Completed,
            } => WatchStatus::Completed,
            Phase::Ended {
                end: WatchEnd::Exhausted,
            } => WatchStatus::Exhausted,
            _ => WatchStatus::Active,
        };
        let state = state_word(found.input, &task.watch.last_state);
        let events = step.events.iter();
        let events = events.map(|event| self.new_event(task, step, found, status, &state, event));
        LookNote {
            watch: task.watch.id,
            history: step.history.clone(),
            status,
            events: events.collect(),
            state,
            error: found.error.clone(),
            exit_code: found.glimpse.and_then(|glimpse| glimpse.exit_code),
            seen: found.glimpse.map(|glimpse| glimpse.parts.clone()),
            next_check: step.next_check_at.map(Duration::from_secs),
            resume,
        }
    }

    fn new_event(
        &self,
        task: &WatchedTask,
        step: &Step,
        found: &Found<'_>,
        status: WatchStatus,
        state: &str,
        event: &WatchEvent,
    ) -> NewEvent {
        let watch = &task.watch;
        let parts = found.glimpse.map(|glimpse| &glimpse.parts);
        let tail = parts.and_then(|parts| parts.log_tail.as_deref());
        let checkpoint = parts.and_then(|parts| parts.checkpoint.as_deref());
        let written = parts.and_then(|parts| parts.checkpoint_updated);
        let written = written.or(watch.checkpoint_updated);
        let age = written.map(|written| clock::wall().saturating_sub(written).as_secs());
        let error = found.error.as_deref();
        let order = self.shown_order(&watch.order);
        let facts = WatchFacts {
            watch_id: watch.id.number(),
            run_id: watch.run_id.as_deref(),
            name: watch.name.as_deref(),
            sandbox: &watch.sandbox,
            session: &watch.session,
            log_file: &watch.log_file,
            order: &order,
            resumes: step.history.resumes,
            status: status.word(),
            last_state: state,
            attempt: task.job.as_ref().map(|job| job.attempt.number.get()),
            log_tail: tail.or(watch.last_log_tail.as_deref()).unwrap_or_default(),
            checkpoint_text: checkpoint
                .or(watch.last_checkpoint.as_deref())
                .unwrap_or_default(),
            checkpoint_age_s: age,
            error,
            stdout: "",
            stderr: error.unwrap_or_default(),
        };
        let mut draft = EventDraft::new(event, &facts);
        // What was kept before may be of a version that did not know all secrets.
        let mask = self.engine.mask();
        mask.mask_json(&mut draft.payload);
        draft.summary = mask.mask_text(&draft.summary).into_owned();
        let ways = channels(&watch.order, &self.settings, draft.event_type);
        NewEvent {
            event_type: draft.event_type.word(),
            summary: draft.summary,
            payload: draft.payload,
            channels: ways.iter().map(Channel::word).collect(),
        }
    }

    /// What is wanted of a watch as events tell it: what a caller wrote into a command may be a secret.
    fn shown_order(&self, order: &WatchOrder) -> WatchOrder {
        let mut order = order.clone();
        let mask = self.engine.mask();
        let command = order.resume.command.take();
        order.resume.command = command.map(|text| mask.mask_text(&text).into_owned());
        if let Some(plan) = &mut order.resume.plan {
            mask.mask_json(plan);
        }
        order
    }

    /// Writes decisions down and the files of their events, and gives what is to be resumed now.
    pub(super) async fn write(
        &self,
        held: &Held,
        tasks: &[WatchedTask],
        decided: Vec<Decided>,
    ) -> Vec<(WatchId, JobRow)> {
        if decided.is_empty() {
            return Vec::new();
        }
        let resumes = decided.iter().any(|decided| decided.note.resume.is_some());
        if resumes {
            failpoint::reached("resume_decided");
        }
        let notes = decided.iter().map(|decided| decided.note.clone()).collect();
        let noted = match self.store().note_looks(&held.fence, notes).await {
            Ok(noted) => noted,
            Err(error) => {
                held.note(&error);
                return Vec::new();
            }
        };
        let (mut due, mut taken) = (Vec::new(), Vec::new());
        for ((task, decided), noted) in tasks.iter().zip(decided).zip(noted) {
            match noted {
                Noted::Kept { events, resume } => {
                    self.write_files(&events);
                    due.extend(resume.map(|job| (task.watch.id, *job)));
                }
                Noted::Over => {}
                Noted::AlreadyResuming(_) => taken.push(self.resumed_by_other(task, decided)),
            }
        }
        if !due.is_empty() {
            failpoint::reached("resume_recorded");
        }
        if !taken.is_empty() {
            match self.store().note_looks(&held.fence, taken).await {
                Ok(noted) => {
                    for noted in noted {
                        if let Noted::Kept { events, .. } = noted {
                            self.write_files(&events);
                        }
                    }
                }
                Err(error) => held.note(&error),
            }
        }
        due
    }

    /// The same decision when somebody else resumes the task.
    fn resumed_by_other(&self, task: &WatchedTask, decided: Decided) -> LookNote {
        let now = clock::wall().as_secs();
        let input = WatchInput::ResumedByOther;
        let next = after(&task.watch.order.policy, decided.step, &input, now);
        LookNote {
            history: next.history,
            next_check: next.next_check_at.map(Duration::from_secs),
            resume: None,
            ..decided.note
        }
    }
}

/// A step and the next one; nobody resumes between them.
fn after(
    policy: &remote_sandbox_core::job::WatchPolicy,
    first: Step,
    input: &WatchInput,
    now: u64,
) -> Step {
    let mut next = step(policy, &first.history, input, now);
    next.events = first.events.into_iter().chain(next.events).collect();
    next.resume = None;
    next
}

/// What a failed look means: an error of our own says nothing of the host.
pub(super) fn missed_look(failure: &Failure) -> WatchInput {
    match failure.code {
        Code::StoreUnavailable | Code::Internal => WatchInput::NotLooked,
        _ => WatchInput::Unreachable,
    }
}

/// How a task stands, in the words of the Python package.
fn state_word(input: &WatchInput, before: &str) -> String {
    let word = match input {
        WatchInput::ConfigMissing => "config_missing",
        WatchInput::Unreachable => "ssh_unreachable",
        WatchInput::NotLooked => "unknown",
        WatchInput::ResumeStarted | WatchInput::ResumedByOther => "running",
        WatchInput::ResumeFailed | WatchInput::ResumeAbandoned => "interrupted",
        WatchInput::Seen(sight) => match &sight.state {
            JobState::Running => "running",
            JobState::Starting => "starting",
            JobState::Lost { .. } | JobState::NotStarted => "interrupted",
            JobState::Exited { .. }
            | JobState::Signalled { .. }
            | JobState::Stopped
            | JobState::Unknown {
                reason: UnknownReason::OnlyTheLogSays(_),
            } => "completed",
            JobState::Unknown { .. } => "unknown",
            JobState::Unreachable { .. } => before,
        },
    };
    word.to_owned()
}
