//! What a caller wants to be done about a job while nobody waits for it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WatchPolicy;
use super::check::Checkpoint;
use super::spec::{JobSpecError, check_path};
use crate::watch::{WebAddress, WebAddressError};

/// Longest JSON text of a caller that is kept.
const LONGEST_JSON: usize = 64 * 1024;

/// Longest other text of a caller that is kept.
const LONGEST_TEXT: usize = 16 * 1024;

/// The longest time that a caller may name, ten years.
const LONGEST_S: i64 = 10 * 366 * 24 * 3600;

/// Why a job is not started as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Not JSON.
    #[error("`{field}` is not valid JSON")]
    NotJson {
        /// The argument at fault.
        field: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// JSON, but not an object.
    #[error("`{field}` must hold a JSON object")]
    NotAnObject {
        /// The argument at fault.
        field: &'static str,
    },
    /// A member of the plan of another type.
    #[error("`{member}` in `resume_plan_json` must be a string")]
    PlanMember {
        /// The member at fault.
        member: &'static str,
    },
    /// A text that is longer than any that makes sense.
    #[error("`{field}` is longer than {limit} bytes")]
    TooLong {
        /// The argument at fault.
        field: &'static str,
        /// How long it may be.
        limit: usize,
    },
    /// A text that no shell can carry.
    #[error("`{field}` holds a NUL character")]
    Nul {
        /// The argument at fault.
        field: &'static str,
    },
    /// A number below what makes sense.
    #[error("`{field}` must be {least} or more")]
    TooSmall {
        /// The argument at fault.
        field: &'static str,
        /// What makes sense.
        least: i64,
    },
    /// A resume that has nothing to run.
    #[error("`auto_resume` needs `resume_command`, or one in `resume_plan_json`")]
    NothingToResume,
    /// A format of checkpoints that is not known.
    #[error("`checkpoint_format` is `text` or `json`")]
    Format,
    /// Not an address that can be posted to.
    #[error("`webhook_url` cannot be posted to")]
    Webhook(#[source] WebAddressError),
    /// A path at fault.
    #[error(transparent)]
    Path(#[from] JobSpecError),
}

/// How a checkpoint is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointFormat {
    /// As it is.
    #[default]
    Text,
    /// As JSON.
    Json,
}

impl CheckpointFormat {
    fn parse(text: &str) -> Result<Self, OrderError> {
        match text.trim() {
            "" | "text" => Ok(CheckpointFormat::Text),
            "json" => Ok(CheckpointFormat::Json),
            _ => Err(OrderError::Format),
        }
    }
}

/// What a caller wrote about watching a job; nothing is checked yet.
#[derive(Debug, Clone)]
pub struct WatchWish {
    /// Whether the watchdog is to be started where it does not run.
    pub ensure_watchdog: bool,
    /// The command that takes up the work again.
    pub resume_command: String,
    /// The same and more as JSON.
    pub resume_plan_json: String,
    /// A file in which the task tells how far it is.
    pub checkpoint_path: String,
    /// How that is read.
    pub checkpoint_format: String,
    /// A command that tells it instead.
    pub checkpoint_command: String,
    /// Seconds between two looks.
    pub interval_s: i64,
    /// Lines of log in an event.
    pub max_log_lines: i64,
    /// Where events are posted.
    pub webhook_url: String,
    /// What is run on this machine at an event.
    pub event_command: String,
    /// Whether the task is resumed by itself.
    pub auto_resume: bool,
    /// How often at most.
    pub max_resume_attempts: i64,
    /// Whether the user of this machine is told.
    pub notify_local: bool,
    /// How many looks in a row must fail before that is told.
    pub alert_after_failures: i64,
    /// Seconds between the end of the task and its resume.
    pub resume_delay_s: i64,
    /// Whether a Codex of this machine is woken at an event.
    pub codex_wakeup: bool,
    /// The command for that, where it is not the usual one.
    pub codex_command: String,
    /// Whether a Claude Code of this machine is woken at an event.
    pub claude_wakeup: bool,
    /// The command for that, where it is not the usual one.
    pub claude_command: String,
    /// Seconds without new log after which the task counts as stalled; 0 for never.
    pub stall_after_s: i64,
}

impl Default for WatchWish {
    /// What holds where a caller says nothing.
    fn default() -> Self {
        let policy = WatchPolicy::default();
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        WatchWish {
            ensure_watchdog: true,
            resume_command: String::new(),
            resume_plan_json: String::new(),
            checkpoint_path: String::new(),
            checkpoint_format: "text".to_owned(),
            checkpoint_command: String::new(),
            interval_s: signed(policy.interval_s),
            max_log_lines: 80,
            webhook_url: String::new(),
            event_command: String::new(),
            auto_resume: false,
            max_resume_attempts: i64::from(policy.max_resume_attempts),
            notify_local: true,
            alert_after_failures: i64::from(policy.alert_after_failures),
            resume_delay_s: signed(policy.resume_delay_s),
            codex_wakeup: false,
            codex_command: String::new(),
            claude_wakeup: false,
            claude_command: String::new(),
            stall_after_s: 0,
        }
    }
}

/// What is wanted of a watch, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchOrder {
    /// Whether the watchdog is to be started where it does not run.
    pub ensure_watchdog: bool,
    /// When to look, tell and resume.
    pub policy: WatchPolicy,
    /// What to resume with.
    pub resume: ResumePlan,
    /// A file in which the task tells how far it is.
    pub checkpoint_path: Option<String>,
    /// A command that tells it instead.
    pub checkpoint_command: Option<String>,
    /// How that is read.
    pub checkpoint_format: CheckpointFormat,
    /// Lines of log in an event.
    pub max_log_lines: u32,
    /// Where events are posted.
    pub webhook_url: Option<String>,
    /// What is run on this machine at an event.
    pub event_command: Option<String>,
    /// Whether the user of this machine is told.
    pub notify_local: bool,
    /// Whether a Codex of this machine is woken at an event.
    pub codex_wakeup: bool,
    /// The command for that, where it is not the usual one.
    pub codex_command: Option<String>,
    /// Whether a Claude Code of this machine is woken at an event.
    #[serde(default)]
    pub claude_wakeup: bool,
    /// The command for that, where it is not the usual one.
    #[serde(default)]
    pub claude_command: Option<String>,
}

/// What a resume runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ResumePlan {
    /// The command; without it nothing is started again.
    pub command: Option<String>,
    /// All that the caller wrote down about it.
    pub plan: Option<Value>,
}

impl WatchWish {
    /// Checks all of it.
    pub fn check(self) -> Result<WatchOrder, OrderError> {
        let plan = self.plan()?;
        let has_command = plan.command.is_some();
        if self.auto_resume && !has_command {
            return Err(OrderError::NothingToResume);
        }
        let policy = WatchPolicy {
            interval_s: seconds("interval_s", self.interval_s, 1)?,
            alert_after_failures: count("alert_after_failures", self.alert_after_failures, 1)?,
            resume_delay_s: seconds("resume_delay_s", self.resume_delay_s, 0)?,
            max_resume_attempts: count("max_resume_attempts", self.max_resume_attempts, 0)?,
            auto_resume: self.auto_resume,
            has_resume_command: has_command,
            stall_after_s: Some(seconds("stall_after_s", self.stall_after_s, 0)?)
                .filter(|seconds| *seconds > 0),
        };
        let planned = |member| plan_text(plan.plan.as_ref(), member);
        let checkpoint_path = given(self.checkpoint_path).or(planned("checkpoint_path")?);
        if let Some(path) = &checkpoint_path {
            check_path("checkpoint_path", path)?;
        }
        let checkpoint_command = text("checkpoint_command", self.checkpoint_command)?;
        let checkpoint_command = checkpoint_command.or(planned("checkpoint_command")?);
        Ok(WatchOrder {
            ensure_watchdog: self.ensure_watchdog,
            policy,
            checkpoint_path,
            checkpoint_command,
            // What nobody changed says less than the plan.
            checkpoint_format: match CheckpointFormat::parse(&self.checkpoint_format)? {
                CheckpointFormat::Json => CheckpointFormat::Json,
                CheckpointFormat::Text => {
                    let format = planned("checkpoint_format")?.unwrap_or_default();
                    CheckpointFormat::parse(&format)?
                }
            },
            max_log_lines: count("max_log_lines", self.max_log_lines, 1)?,
            webhook_url: webhook(self.webhook_url)?,
            event_command: text("event_command", self.event_command)?,
            notify_local: self.notify_local,
            codex_wakeup: self.codex_wakeup,
            codex_command: text("codex_command", self.codex_command)?,
            claude_wakeup: self.claude_wakeup,
            claude_command: text("claude_command", self.claude_command)?,
            resume: plan,
        })
    }

    fn plan(&self) -> Result<ResumePlan, OrderError> {
        let plan = json_object("resume_plan_json", &self.resume_plan_json)?;
        let command = text("resume_command", self.resume_command.clone())?;
        Ok(ResumePlan {
            command: command.or(plan_text(plan.as_ref(), "resume_command")?),
            plan,
        })
    }
}

impl WatchOrder {
    /// Where the task tells how far it is; what a command says counts more than a file.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let command = match self.checkpoint_format {
            CheckpointFormat::Text => Checkpoint::Command,
            CheckpointFormat::Json => Checkpoint::JsonCommand,
        };
        let told = self.checkpoint_command.clone().map(command);
        told.or_else(|| self.checkpoint_path.clone().map(Checkpoint::Path))
    }

    /// Reads the metadata that a caller gave as a JSON object; none when there is no text.
    pub fn metadata(text: &str) -> Result<Option<Value>, OrderError> {
        json_object("metadata_json", text)
    }
}

fn json_object(field: &'static str, text: &str) -> Result<Option<Value>, OrderError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    if text.len() > LONGEST_JSON {
        return Err(OrderError::TooLong {
            field,
            limit: LONGEST_JSON,
        });
    }
    let value: Value =
        serde_json::from_str(text).map_err(|source| OrderError::NotJson { field, source })?;
    if !value.is_object() {
        return Err(OrderError::NotAnObject { field });
    }
    Ok(Some(value))
}

fn plan_text(plan: Option<&Value>, member: &'static str) -> Result<Option<String>, OrderError> {
    match plan.and_then(|plan| plan.get(member)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(command)) => text(member, command.clone()),
        Some(_) => Err(OrderError::PlanMember { member }),
    }
}

fn given(text: String) -> Option<String> {
    (!text.trim().is_empty()).then_some(text)
}

fn text(field: &'static str, value: String) -> Result<Option<String>, OrderError> {
    if value.len() > LONGEST_TEXT {
        return Err(OrderError::TooLong {
            field,
            limit: LONGEST_TEXT,
        });
    }
    if value.contains('\0') {
        return Err(OrderError::Nul { field });
    }
    Ok(given(value))
}

fn seconds(field: &'static str, value: i64, least: i64) -> Result<u64, OrderError> {
    match u64::try_from(value.min(LONGEST_S)) {
        Ok(seconds) if value >= least => Ok(seconds),
        _ => Err(OrderError::TooSmall { field, least }),
    }
}

fn count(field: &'static str, value: i64, least: i64) -> Result<u32, OrderError> {
    match u32::try_from(value.min(1_000_000)) {
        Ok(count) if value >= least => Ok(count),
        _ => Err(OrderError::TooSmall { field, least }),
    }
}

/// Only its form; whether it may be used is decided where it is.
fn webhook(url: String) -> Result<Option<String>, OrderError> {
    let Some(url) = text("webhook_url", url)? else {
        return Ok(None);
    };
    WebAddress::parse(&url).map_err(OrderError::Webhook)?;
    Ok(Some(url))
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
