//! Runs the command of a watch with what it should know of the event.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::output::clean_text;
use remote_sandbox_core::watch::{Channel, EventRecord};

use super::{DeliveryError, NotifySettings};
use crate::proc::Hook;

/// Longest value of a variable, in bytes: Linux takes 128 KiB with the name and a final NUL.
const LONGEST_VALUE: usize = 128 * 1024 - 64;

/// Longest last words of a command in an error, in bytes.
const LONGEST_WORDS: usize = 1000;

pub(super) async fn deliver(
    event: &EventRecord,
    order: &WatchOrder,
    settings: &NotifySettings,
    event_file: &Path,
) -> Result<(), DeliveryError> {
    let line = order.event_command.as_deref();
    let line = line.ok_or(DeliveryError::Nothing(Channel::Command))?;
    // What was allowed at the start may have been taken back since.
    settings
        .watchdog
        .policy
        .check_command("event_command", line)?;
    let variables = variables(event, event_file);
    let run = Run {
        what: "event_command",
        program: Path::new("/bin/sh"),
        arguments: vec!["-c".into(), line.into()],
        variables: settings.surroundings.of_command(variables),
        limit: settings.limits.command,
    };
    run.carry_out(settings).await
}

/// The eight variables of an event.
pub(super) fn variables(event: &EventRecord, event_file: &Path) -> Vec<(String, String)> {
    let pairs = [
        (
            "RSMCP_EVENT_FILE",
            event_file.to_string_lossy().into_owned(),
        ),
        ("RSMCP_EVENT_JSON", event.text_within(LONGEST_VALUE)),
        ("RSMCP_EVENT_TYPE", event.event_type.word().to_owned()),
        ("RSMCP_WATCH_ID", event.watch_id.to_string()),
        (
            "RSMCP_SANDBOX_NAME",
            event.watch_text("sandbox_name").to_owned(),
        ),
        (
            "RSMCP_TMUX_SESSION",
            event.watch_text("tmux_session").to_owned(),
        ),
        ("RSMCP_LOG_FILE", event.watch_text("log_file").to_owned()),
        (
            "RSMCP_SUGGESTED_PROMPT",
            event.suggested_prompt().to_owned(),
        ),
    ];
    let named = pairs.into_iter();
    named
        .map(|(name, value)| (name.to_owned(), carried(value)))
        .collect()
}

/// A text as the kernel takes it in one piece.
pub(super) fn carried(mut text: String) -> String {
    text.retain(|character| character != '\0');
    text.truncate(text.floor_char_boundary(LONGEST_VALUE));
    text
}

/// One command, and what it is called in errors.
pub(super) struct Run<'a> {
    pub(super) what: &'static str,
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<OsString>,
    pub(super) variables: Vec<(String, String)>,
    pub(super) limit: Duration,
}

impl Run<'_> {
    /// Runs it to its end; any status but 0 is an error.
    pub(super) async fn carry_out(self, settings: &NotifySettings) -> Result<(), DeliveryError> {
        let (what, limit) = (self.what, self.limit);
        let hook = Hook {
            program: self.program,
            arguments: &self.arguments,
            variables: &self.variables,
            folder: settings.surroundings.folder(),
            limit,
        };
        let end = hook.run().await;
        let end = end.map_err(|source| DeliveryError::Command { what, source })?;
        let words = || shown(&end.words.text(), settings);
        match end.status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(DeliveryError::CommandFailed {
                what,
                status,
                words: words(),
            }),
            None => Err(DeliveryError::CommandTooSlow {
                what,
                limit,
                words: words(),
            }),
        }
    }
}

/// The last words of a command as they may be written down.
fn shown(words: &str, settings: &NotifySettings) -> String {
    let masked = settings.mask.mask_text(words);
    let clean = clean_text(masked.trim().as_bytes());
    let from = clean.ceil_char_boundary(clean.len().saturating_sub(LONGEST_WORDS));
    match clean.get(from..).unwrap_or_default() {
        "" => String::new(),
        words => format!("; it wrote: {words}"),
    }
}
