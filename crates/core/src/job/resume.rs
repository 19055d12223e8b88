//! The watch policy: what is told and what is done about a task, decided step by step and without a clock of its own.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::alarm::Alarm;
use super::silence::{LogSight, Silence};
use super::state::{JobState, LostReason, UnknownReason};
use super::told::WatchEvent;

/// The longest pause before another resume, unless the caller asked for a longer one.
const LONGEST_PAUSE_S: u64 = 3600;

/// The shortest pause before a second resume: a resume that dies at once must not become a loop.
const SHORTEST_PAUSE_S: u64 = 10;

/// So many resumes in a row may have been given up by their host before they began without counting as resumes.
const MOST_ABANDONED: u32 = 5;

/// What a caller wants from a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchPolicy {
    /// Seconds between two looks.
    pub interval_s: u64,
    /// How many looks in a row must fail before that is told.
    pub alert_after_failures: u32,
    /// Seconds between the end of a task and its resume.
    pub resume_delay_s: u64,
    /// How often it is resumed at most.
    pub max_resume_attempts: u32,
    /// Whether it is resumed at all.
    pub auto_resume: bool,
    /// Whether there is a command for that.
    pub has_resume_command: bool,
    /// Seconds without new log after which it counts as stalled.
    pub stall_after_s: Option<u64>,
}

impl Default for WatchPolicy {
    fn default() -> Self {
        WatchPolicy {
            interval_s: 300,
            alert_after_failures: 2,
            resume_delay_s: 300,
            max_resume_attempts: 1,
            auto_resume: false,
            has_resume_command: false,
            stall_after_s: None,
        }
    }
}

impl WatchPolicy {
    fn may_resume(&self) -> bool {
        self.auto_resume && self.has_resume_command && self.max_resume_attempts > 0
    }

    /// The pause before the next resume, when there were so many: it doubles each time.
    fn pause_s(&self, resumes: u32) -> u64 {
        if resumes == 0 {
            return self.resume_delay_s;
        }
        let longest = self.resume_delay_s.max(LONGEST_PAUSE_S);
        let doubled = self
            .resume_delay_s
            .max(SHORTEST_PAUSE_S)
            .saturating_mul(1_u64.checked_shl(resumes).unwrap_or(u64::MAX));
        doubled.min(longest)
    }
}

/// Where a watch stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// The task runs, or was not yet seen.
    #[default]
    Watching,
    /// The task is gone without having ended.
    Interrupted {
        /// When it may be resumed; none when it will not be.
        due: Option<u64>,
    },
    /// A resume was decided and its outcome is not known.
    Resuming,
    /// The watch is over.
    Ended {
        /// Why.
        end: WatchEnd,
    },
}

/// Why a watch is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchEnd {
    /// The task ended.
    Completed,
    /// The task is gone and was resumed as often as allowed.
    Exhausted,
}

/// All that a watch remembers between two steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct WatchHistory {
    /// Where it stands.
    pub phase: Phase,
    /// How many looks in a row have failed.
    pub failures: u32,
    /// Whether that was told.
    pub is_unreachable_told: bool,
    /// Whether it was told that the sandbox is not configured.
    pub is_config_told: bool,
    /// How often it was resumed.
    pub resumes: u32,
    /// How often, since it last began, its host gave up a resume before anything ran.
    #[serde(default)]
    pub abandoned: u32,
    /// How long the log has not changed.
    #[serde(default)]
    pub silence: Option<Silence>,
    /// Whether it was told that the log does not grow.
    pub is_stall_told: bool,
    /// What was told of this attempt.
    pub alarms_told: BTreeSet<Alarm>,
}

/// One look at the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchSight {
    /// Its state, as judged.
    pub state: JobState,
    /// Its log.
    pub log: LogSight,
    /// The host's clock, in seconds since 1970.
    pub host_now: Option<u64>,
    /// What its new log and its records tell.
    pub alarms: Vec<Alarm>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchInput {
    /// The sandbox is not in the configuration.
    ConfigMissing,
    /// The host could not be asked.
    Unreachable,
    /// The watchdog itself could not look, which says nothing of the host.
    NotLooked,
    /// The task was looked at.
    Seen(WatchSight),
    /// The resume that was ordered has begun.
    ResumeStarted,
    /// The resume that was ordered did not begin, and never will.
    ResumeFailed,
    /// The resume that was ordered broke off before anything ran, as when the host was booted, and never will begin.
    ResumeAbandoned,
    /// Somebody else had resumed it already.
    ResumedByOther,
}

/// What follows from one input. Whoever carries it out writes down the history and the events first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The history from now on.
    pub history: WatchHistory,
    /// What is told now; nothing of it is told again.
    pub events: Vec<WatchEvent>,
    /// Whether the task is to be resumed now, for the how-many-th time.
    pub resume: Option<u32>,
    /// When to look again; none when the watch is over.
    pub next_check_at: Option<u64>,
}

/// Decides what follows. `now` is in seconds, on the clock that the history was made with; a clock that is set back
/// delays nothing by more than its own pause.
pub fn step(policy: &WatchPolicy, history: &WatchHistory, input: &WatchInput, now: u64) -> Step {
    let mut next = Next {
        policy,
        now,
        history: history.clone(),
        events: Vec::new(),
        resume: None,
    };
    if !matches!(history.phase, Phase::Ended { .. }) {
        next.take(input);
    }
    let next_check_at = next.next_check_at();
    Step {
        history: next.history,
        events: next.events,
        resume: next.resume,
        next_check_at,
    }
}

struct Next<'a> {
    policy: &'a WatchPolicy,
    now: u64,
    history: WatchHistory,
    events: Vec<WatchEvent>,
    resume: Option<u32>,
}

impl Next<'_> {
    fn take(&mut self, input: &WatchInput) {
        match input {
            WatchInput::ConfigMissing => {
                if !self.history.is_config_told {
                    self.history.is_config_told = true;
                    self.events.push(WatchEvent::ConfigMissing);
                }
            }
            WatchInput::Unreachable => self.unreachable(),
            WatchInput::NotLooked => self.missed(self.history.failures, Alarm::NotLookedAt),
            WatchInput::Seen(sight) => self.seen(sight),
            WatchInput::ResumeStarted if self.history.phase == Phase::Resuming => self.resumed(),
            WatchInput::ResumeFailed if self.history.phase == Phase::Resuming => {
                self.resume_failed()
            }
            WatchInput::ResumeAbandoned if self.history.phase == Phase::Resuming => {
                self.resume_abandoned()
            }
            WatchInput::ResumedByOther if self.history.phase == Phase::Resuming => {
                self.history.resumes = self.history.resumes.saturating_sub(1);
                self.begin_attempt();
            }
            // A word about a resume that nobody waits for any more.
            WatchInput::ResumeStarted
            | WatchInput::ResumeFailed
            | WatchInput::ResumeAbandoned
            | WatchInput::ResumedByOther => {}
        }
    }

    fn unreachable(&mut self) {
        let failures = self.history.failures.saturating_add(1);
        self.history.failures = failures;
        if failures >= self.policy.alert_after_failures.max(1) && !self.history.is_unreachable_told
        {
            self.history.is_unreachable_told = true;
            self.events.push(WatchEvent::SshUnreachable { failures });
        }
    }

    fn seen(&mut self, sight: &WatchSight) {
        let failures = std::mem::take(&mut self.history.failures);
        match &sight.state {
            JobState::Exited { .. } | JobState::Signalled { .. } | JobState::Stopped => {
                self.completed(sight)
            }
            JobState::Unknown {
                reason: UnknownReason::OnlyTheLogSays(_),
            } => self.completed(sight),
            // Whoever asked for it has had no answer, or a refusal, and will ask again: there is nothing to resume.
            JobState::NotStarted
                if self.history.phase == Phase::Watching && self.history.resumes == 0 =>
            {
                self.events.push(WatchEvent::Interrupted {
                    state: sight.state.clone(),
                });
                self.end(WatchEnd::Completed);
            }
            JobState::Lost { .. } | JobState::NotStarted => {
                self.alarms(&sight.alarms);
                self.gone(&sight.state);
            }
            JobState::Running => {
                self.running();
                self.alarms(&sight.alarms);
                self.stall(sight);
            }
            JobState::Starting | JobState::Unreachable { .. } => {}
            JobState::Unknown {
                reason: UnknownReason::OtherNode { .. },
            } => self.missed(failures, Alarm::OtherNode),
            JobState::Unknown { .. } => self.alarms(&[Alarm::RecordUnreadable]),
        }
    }

    /// A look that came to another host with the same home, or to none, says nothing. A host that shares its name with
    /// others is often missed, so only several in a row are told.
    fn missed(&mut self, failures: u32, alarm: Alarm) {
        self.history.failures = failures.saturating_add(1);
        if self.history.failures >= self.policy.alert_after_failures.max(1) {
            self.alarms(&[alarm]);
        }
    }

    fn running(&mut self) {
        let was_told = self.history.is_unreachable_told || self.history.is_config_told;
        self.history.is_unreachable_told = false;
        self.history.is_config_told = false;
        match self.history.phase {
            // Whoever was to say that it had begun did not come to it.
            Phase::Resuming => self.resumed(),
            Phase::Interrupted { .. } => {
                self.begin_attempt();
                self.events.push(WatchEvent::RunningRestored);
            }
            Phase::Watching if was_told => self.events.push(WatchEvent::RunningRestored),
            Phase::Watching | Phase::Ended { .. } => {}
        }
    }

    fn completed(&mut self, sight: &WatchSight) {
        if self.history.phase == Phase::Resuming {
            self.resumed();
        }
        // Most of what is wrong with a task is in its last words.
        self.alarms(&sight.alarms);
        self.events.push(WatchEvent::Completed {
            state: sight.state.clone(),
        });
        self.end(WatchEnd::Completed);
    }

    fn gone(&mut self, state: &JobState) {
        // The host was asked, so the next time that it cannot be is news again.
        self.history.is_unreachable_told = false;
        self.history.is_config_told = false;
        match self.history.phase {
            Phase::Watching => {
                if let JobState::Lost {
                    reason: LostReason::HostRebooted,
                } = state
                {
                    self.events.push(WatchEvent::HostRebooted);
                }
                self.events.push(WatchEvent::Interrupted {
                    state: state.clone(),
                });
                self.interrupted();
            }
            Phase::Resuming => self.resume_failed(),
            // Somebody has allowed it since.
            Phase::Interrupted { due: None } if self.policy.may_resume() => self.interrupted(),
            Phase::Interrupted { due } => {
                // A clock that was set back must not put the resume off by more than its pause.
                let latest = self.now.saturating_add(self.pause_s());
                let due = due.map(|due| due.min(latest));
                self.history.phase = Phase::Interrupted { due };
                self.resume_when_due();
            }
            Phase::Ended { .. } => {}
        }
    }

    fn interrupted(&mut self) {
        if !self.policy.may_resume() {
            self.history.phase = Phase::Interrupted { due: None };
        } else if self.history.resumes >= self.policy.max_resume_attempts {
            let resumes = self.history.resumes;
            self.events.push(WatchEvent::Exhausted { resumes });
            self.end(WatchEnd::Exhausted);
        } else {
            let due = Some(self.now.saturating_add(self.pause_s()));
            self.history.phase = Phase::Interrupted { due };
            self.resume_when_due();
        }
    }

    fn pause_s(&self) -> u64 {
        let tries = self.history.resumes.saturating_add(self.history.abandoned);
        self.policy.pause_s(tries)
    }

    fn resume_when_due(&mut self) {
        if let Phase::Interrupted { due: Some(due) } = self.history.phase
            && due <= self.now
        {
            self.history.resumes = self.history.resumes.saturating_add(1);
            self.history.phase = Phase::Resuming;
            self.resume = Some(self.history.resumes);
        }
    }

    fn resumed(&mut self) {
        self.events.push(WatchEvent::ResumeStarted {
            number: self.history.resumes,
        });
        self.begin_attempt();
    }

    fn resume_failed(&mut self) {
        self.events.push(WatchEvent::ResumeFailed {
            number: self.history.resumes,
        });
        self.interrupted();
    }

    /// Nothing ran, so it is no resume; but a host that always gives up must not be asked forever.
    fn resume_abandoned(&mut self) {
        if self.history.abandoned >= MOST_ABANDONED {
            return self.resume_failed();
        }
        self.history.abandoned = self.history.abandoned.saturating_add(1);
        self.history.resumes = self.history.resumes.saturating_sub(1);
        self.interrupted();
    }

    /// A new attempt may alarm and stall anew.
    fn begin_attempt(&mut self) {
        self.history.phase = Phase::Watching;
        self.history.abandoned = 0;
        self.history.alarms_told.clear();
        self.history.is_stall_told = false;
        self.history.silence = None;
        // It runs as far as is known: what was told before is settled by saying so.
        self.history.is_unreachable_told = false;
        self.history.is_config_told = false;
    }

    fn alarms(&mut self, alarms: &[Alarm]) {
        for alarm in alarms {
            if self.history.alarms_told.insert(*alarm) {
                self.events.push(WatchEvent::Alarm(*alarm));
            }
        }
    }

    fn stall(&mut self, sight: &WatchSight) {
        let before = self.history.silence.as_ref();
        let silence = Silence::after(before, sight.log, self.now, sight.host_now);
        let silent_s = silence.seconds();
        // What an older version told of a log that it remembered otherwise stays told.
        if before.is_some() && silent_s == 0 {
            self.history.is_stall_told = false;
        }
        self.history.silence = Some(silence);
        if let Some(limit) = self.policy.stall_after_s
            && silent_s >= limit.max(1)
            && !self.history.is_stall_told
        {
            self.history.is_stall_told = true;
            self.events.push(WatchEvent::Stalled { silent_s });
        }
    }

    fn end(&mut self, end: WatchEnd) {
        self.history.phase = Phase::Ended { end };
    }

    fn next_check_at(&self) -> Option<u64> {
        let usual = self.now.saturating_add(self.policy.interval_s.max(1));
        match self.history.phase {
            Phase::Ended { .. } => None,
            Phase::Interrupted { due: Some(due) } => Some(usual.min(due.max(self.now))),
            _ => Some(usual),
        }
    }
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "resume_history_tests.rs"]
mod history_tests;

#[cfg(test)]
#[path = "stall_tests.rs"]
mod stall_tests;

#[cfg(test)]
#[path = "ending_tests.rs"]
mod ending_tests;
