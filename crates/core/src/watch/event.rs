//! What an event says: its type, its sentence and its payload.

use std::fmt;

use serde_json::{Map, Value, json};

use super::prompt::prompt;
use super::{first_bytes, last_bytes};
use crate::job::{JobState, UnknownReason, WatchEvent, WatchOrder};
use crate::output::clean_line;

/// Longest piece of a log, a checkpoint or an output that an event carries, in bytes.
pub const LONGEST_EVENT_TEXT: usize = 64 * 1024;

/// Longest name, path or reason in a sentence, in characters.
const LONGEST_WORDS: usize = 300;

/// The types of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// The host cannot be reached.
    SshUnreachable,
    /// The task runs, after something else was told.
    RunningRestored,
    /// The task is gone without having ended.
    Interrupted,
    /// The task was resumed.
    ResumeStarted,
    /// The task could not be resumed.
    ResumeFailed,
    /// The task ended.
    Completed,
    /// The sandbox of the task is not configured.
    ConfigMissing,
    /// The log of the task does not grow.
    Stalled,
    /// Something else is wrong with the task.
    Alarm,
    /// The task was resumed as often as allowed.
    Exhausted,
    /// The host was booted again.
    HostRebooted,
}

impl EventType {
    /// All of them.
    pub const ALL: [EventType; 11] = [
        EventType::SshUnreachable,
        EventType::RunningRestored,
        EventType::Interrupted,
        EventType::ResumeStarted,
        EventType::ResumeFailed,
        EventType::Completed,
        EventType::ConfigMissing,
        EventType::Stalled,
        EventType::Alarm,
        EventType::Exhausted,
        EventType::HostRebooted,
    ];

    /// Its word, as it is stored and sent.
    pub fn word(self) -> &'static str {
        match self {
            EventType::SshUnreachable => "ssh_unreachable",
            EventType::RunningRestored => "running_restored",
            EventType::Interrupted => "interrupted",
            EventType::ResumeStarted => "resume_started",
            EventType::ResumeFailed => "resume_failed",
            EventType::Completed => "completed",
            EventType::ConfigMissing => "config_missing",
            EventType::Stalled => "stalled",
            EventType::Alarm => "alarm",
            EventType::Exhausted => "exhausted",
            EventType::HostRebooted => "host_rebooted",
        }
    }

    /// Reads its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl From<&WatchEvent> for EventType {
    fn from(event: &WatchEvent) -> Self {
        match event {
            WatchEvent::SshUnreachable { .. } => EventType::SshUnreachable,
            WatchEvent::RunningRestored => EventType::RunningRestored,
            WatchEvent::Interrupted { .. } => EventType::Interrupted,
            WatchEvent::HostRebooted => EventType::HostRebooted,
            WatchEvent::ResumeStarted { .. } => EventType::ResumeStarted,
            WatchEvent::ResumeFailed { .. } => EventType::ResumeFailed,
            WatchEvent::Exhausted { .. } => EventType::Exhausted,
            WatchEvent::Completed { .. } => EventType::Completed,
            WatchEvent::ConfigMissing => EventType::ConfigMissing,
            WatchEvent::Stalled { .. } => EventType::Stalled,
            WatchEvent::Alarm(_) => EventType::Alarm,
        }
    }
}

/// What is known of a watch when something happens. Texts of the host come with secrets masked.
#[derive(Debug, Clone, Copy)]
pub struct WatchFacts<'a> {
    /// The number of the watch.
    pub watch_id: u64,
    /// The caller's own name for the task.
    pub run_id: Option<&'a str>,
    /// Its name for people.
    pub name: Option<&'a str>,
    /// Where it runs.
    pub sandbox: &'a str,
    /// Its session.
    pub session: &'a str,
    /// Its log, on the host.
    pub log_file: &'a str,
    /// What is wanted of the watch.
    pub order: &'a WatchOrder,
    /// How often it was resumed.
    pub resumes: u32,
    /// The status of the watch after this event: `active`, `completed`, `exhausted` or `cancelled`.
    pub status: &'a str,
    /// The state that the last look found, in a word.
    pub last_state: &'a str,
    /// Which attempt of the job it is about, where it is a job of ours.
    pub attempt: Option<u32>,
    /// The end of its log.
    pub log_tail: &'a str,
    /// Its checkpoint.
    pub checkpoint_text: &'a str,
    /// How long ago that was written.
    pub checkpoint_age_s: Option<u64>,
    /// Why the host could not be asked, or why a resume did not begin.
    pub error: Option<&'a str>,
    /// What a resume that failed printed.
    pub stdout: &'a str,
    /// What a resume that failed complained about.
    pub stderr: &'a str,
}

/// An event before it has a number.
#[derive(Debug, Clone, PartialEq)]
pub struct EventDraft {
    /// Its type.
    pub event_type: EventType,
    /// Its sentence.
    pub summary: String,
    /// All that is told with it.
    pub payload: Value,
}

impl EventDraft {
    /// Writes down what happened to a watch.
    pub fn new(event: &WatchEvent, facts: &WatchFacts<'_>) -> Self {
        let summary = summary(event, facts);
        let event_type = EventType::from(event);
        let mut payload = Map::new();
        let mut put = |key: &str, value: Value| payload.insert(key.to_owned(), value);
        put("watch", watch_object(facts));
        put("summary", json!(summary));
        put(
            "log_tail",
            json!(last_bytes(facts.log_tail, LONGEST_EVENT_TEXT)),
        );
        let checkpoint = first_bytes(facts.checkpoint_text, LONGEST_EVENT_TEXT);
        put("checkpoint_text", json!(checkpoint));
        // The words of an error may be the host's own: an agent gets them as data.
        let plain = WatchFacts {
            error: None,
            ..*facts
        };
        let words = prompt(event_type, &self::summary(event, &plain), facts);
        put("suggested_codex_prompt", json!(words));
        for (key, value) in particulars(event, facts) {
            put(key, value);
        }
        EventDraft {
            event_type,
            summary,
            payload: Value::Object(payload),
        }
    }
}

fn watch_object(facts: &WatchFacts<'_>) -> Value {
    let policy = &facts.order.policy;
    json!({
        "id": facts.watch_id,
        "run_id": facts.run_id.unwrap_or(facts.session),
        "name": facts.name.unwrap_or_default(),
        "sandbox_name": facts.sandbox,
        "tmux_session": facts.session,
        "log_file": facts.log_file,
        "checkpoint_path": facts.order.checkpoint_path.as_deref().unwrap_or_default(),
        "resume_attempts": facts.resumes,
        "max_resume_attempts": policy.max_resume_attempts,
        "auto_resume": policy.auto_resume,
        "status": facts.status,
        "last_state": facts.last_state,
    })
}

/// What only some events have to tell.
fn particulars(event: &WatchEvent, facts: &WatchFacts<'_>) -> Vec<(&'static str, Value)> {
    let mut told = Vec::new();
    if let WatchEvent::Interrupted { state } | WatchEvent::Completed { state } = event {
        told.extend(exit_code(state).map(|code| ("exit_code", json!(code))));
        told.push(("state", json!(state.word())));
        told.extend(state.reason().map(|reason| ("reason", json!(reason))));
        told.extend(state.signal_name().map(|name| ("signal", json!(name))));
    }
    match event {
        WatchEvent::ResumeStarted { number } | WatchEvent::ResumeFailed { number } => {
            told.push(("resume_attempt", json!(number)));
        }
        WatchEvent::Exhausted { resumes } => told.push(("resume_attempt", json!(resumes))),
        WatchEvent::SshUnreachable { failures } => told.push(("failures", json!(failures))),
        WatchEvent::Stalled { silent_s } => told.push(("silent_s", json!(silent_s))),
        WatchEvent::Alarm(alarm) => told.push(("alarm", json!(alarm))),
        _ => {}
    }
    if let WatchEvent::ResumeFailed { .. } = event {
        told.push((
            "stderr",
            json!(last_bytes(facts.stderr, LONGEST_EVENT_TEXT)),
        ));
        told.push((
            "stdout",
            json!(last_bytes(facts.stdout, LONGEST_EVENT_TEXT)),
        ));
    }
    let error = facts.error.map(|error| clean_line(error, LONGEST_WORDS));
    told.extend(error.map(|error| ("error", json!(error))));
    told.extend(
        facts
            .checkpoint_age_s
            .map(|age| ("checkpoint_age_s", json!(age))),
    );
    told.extend(facts.attempt.map(|attempt| ("attempt", json!(attempt))));
    told
}

/// The exit code that is told, also one that only the log of a foreign task has.
fn exit_code(state: &JobState) -> Option<u32> {
    match state {
        JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(code),
        } => Some(*code),
        state => state.exit_code(),
    }
}

/// What happened, in one sentence.
pub fn summary(event: &WatchEvent, facts: &WatchFacts<'_>) -> String {
    let words = |text: &str| clean_line(text, LONGEST_WORDS);
    let task = words(facts.name.or(facts.run_id).unwrap_or(facts.session));
    let sandbox = words(facts.sandbox);
    let because = facts
        .error
        .map(|error| format!(": {}", words(error)))
        .unwrap_or_default();
    let most = facts.order.policy.max_resume_attempts;
    let what = match event {
        WatchEvent::SshUnreachable { failures: 1 } => {
            format!("its host cannot be reached{because}")
        }
        WatchEvent::SshUnreachable { failures } => {
            format!("its host could not be reached {failures} times in a row{because}")
        }
        WatchEvent::RunningRestored => "it runs, and its host can be asked".to_owned(),
        WatchEvent::Interrupted { state } => match state.reason() {
            Some(reason) => format!("it was interrupted: {reason}"),
            None => "it was interrupted".to_owned(),
        },
        WatchEvent::HostRebooted => "its host was booted again".to_owned(),
        WatchEvent::ResumeStarted { number } => format!("resume {number} of {most} has begun"),
        WatchEvent::ResumeFailed { number } => format!("resume {number} of {most} failed{because}"),
        WatchEvent::Exhausted { resumes } => {
            format!("it is gone after {resumes} of {most} resumes and is not resumed again")
        }
        WatchEvent::Completed { state } => ended(state),
        WatchEvent::ConfigMissing => {
            "its sandbox is not in the configuration any more, so it cannot be looked at".to_owned()
        }
        WatchEvent::Stalled { silent_s } => format!("its log has not grown for {silent_s} s"),
        WatchEvent::Alarm(alarm) => format!("{}{because}", alarm.sentence()),
    };
    format!("{task} on {sandbox}: {what}")
}

fn ended(state: &JobState) -> String {
    match state {
        JobState::Exited { code } => format!("it ended with exit code {code}"),
        JobState::Signalled { .. } => {
            let name = state.signal_name().unwrap_or_default();
            format!("it was ended by signal {name}")
        }
        JobState::Stopped => "it was stopped on purpose".to_owned(),
        JobState::Unknown {
            reason: UnknownReason::OnlyTheLogSays(code),
        } => format!("it ended; its log says with exit code {code}"),
        state => format!("it ended ({})", state.word()),
    }
}

/// An event that is written down.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Its number.
    pub id: u64,
    /// The watch it is about.
    pub watch_id: u64,
    /// Its type.
    pub event_type: EventType,
    /// Its sentence.
    pub summary: String,
    /// When it happened, in seconds since 1970.
    pub created: u64,
    /// All that is told with it.
    pub payload: Value,
}

impl EventRecord {
    /// The event as it is shown, sent and written to a file.
    pub fn json(&self) -> Value {
        self.with_payload(&self.payload)
    }

    /// The same as text of at most so many bytes: where it is longer, the log is cut first, and `shortened` says so.
    pub fn text_within(&self, most: usize) -> String {
        let whole = self.json().to_string();
        if whole.len() <= most {
            return whole;
        }
        let mut payload = self.payload.clone();
        if let Some(members) = payload.as_object_mut() {
            members.insert("shortened".to_owned(), Value::Bool(true));
        }
        for key in SHORTENED_FIRST {
            let mut text = match payload.get(key) {
                Some(Value::String(text)) => text.clone(),
                _ => continue,
            };
            while !text.is_empty() {
                text = match key {
                    "log_tail" | "stdout" | "stderr" => last_bytes(&text, text.len() / 2),
                    _ => first_bytes(&text, text.len() / 2),
                }
                .to_owned();
                if let Some(place) = payload.get_mut(key) {
                    *place = Value::String(text.clone());
                }
                let shorter = self.with_payload(&payload).to_string();
                if shorter.len() <= most {
                    return shorter;
                }
            }
        }
        self.with_payload(&json!({"shortened": true})).to_string()
    }

    fn with_payload(&self, payload: &Value) -> Value {
        json!({
            "id": self.id,
            "watch_id": self.watch_id,
            "event_type": self.event_type.word(),
            "summary": self.summary,
            "created_ts": self.created,
            "payload": payload,
        })
    }

    /// A text of the object `watch` in the payload.
    pub fn watch_text(&self, key: &str) -> &str {
        let watch = self.payload.get("watch");
        let text = watch.and_then(|watch| watch.get(key));
        text.and_then(Value::as_str).unwrap_or_default()
    }

    /// The prompt for an agent that is woken.
    pub fn suggested_prompt(&self) -> &str {
        let text = self.payload.get("suggested_codex_prompt");
        text.and_then(Value::as_str).unwrap_or_default()
    }
}

/// What is cut when an event is too long, in this order.
const SHORTENED_FIRST: [&str; 5] = [
    "log_tail",
    "stdout",
    "stderr",
    "checkpoint_text",
    "suggested_codex_prompt",
];

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
