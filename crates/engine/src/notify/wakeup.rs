//! Wakes an agent of this machine with a prompt about the event.

use std::ffi::OsString;
use std::path::Path;

use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::watch::EventRecord;

use super::command::{Run, carried, variables};
use super::{DeliveryError, NotifySettings};

/// An agent that can be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    Codex,
    Claude,
}

impl Agent {
    /// Its program, and the word before the prompt.
    fn usual(self) -> (&'static str, &'static str) {
        match self {
            Agent::Codex => ("codex", "exec"),
            Agent::Claude => ("claude", "-p"),
        }
    }

    fn field(self) -> &'static str {
        match self {
            Agent::Codex => "codex_command",
            Agent::Claude => "claude_command",
        }
    }

    fn command(self, order: &WatchOrder) -> Option<&str> {
        match self {
            Agent::Codex => order.codex_command.as_deref(),
            Agent::Claude => order.claude_command.as_deref(),
        }
    }
}

/// Whether a command is the name of a program alone, which is what the Python package takes: it gets the prompt as the
/// usual one does.
fn names_program(line: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._+-".contains(letter);
    !line.is_empty() && line.chars().all(is_plain)
}

pub(super) async fn deliver(
    agent: Agent,
    event: &EventRecord,
    order: &WatchOrder,
    settings: &NotifySettings,
    event_file: &Path,
) -> Result<(), DeliveryError> {
    let (name, word) = agent.usual();
    let (program, arguments): (_, Vec<OsString>) = match agent.command(order) {
        Some(line) => {
            // What was allowed at the start may have been taken back since.
            settings
                .watchdog
                .policy
                .check_command(agent.field(), line)?;
            let line = match names_program(line) {
                true => format!("{line} {word} \"$RSMCP_SUGGESTED_PROMPT\""),
                false => line.to_owned(),
            };
            (
                Path::new("/bin/sh").to_owned(),
                vec!["-c".into(), line.into()],
            )
        }
        None => {
            let program = settings.surroundings.find(name);
            let program = program.ok_or(DeliveryError::NoProgram(name))?;
            // An argument of its own and no shell: nothing in the prompt can become a command line.
            let prompt = carried(event.suggested_prompt().to_owned());
            (program, vec![word.into(), prompt.into()])
        }
    };
    let run = Run {
        what: match agent.command(order) {
            Some(_) => agent.field(),
            None => name,
        },
        program: &program,
        arguments,
        variables: settings.surroundings.of_agent(variables(event, event_file)),
        limit: settings.limits.agent,
    };
    run.carry_out(settings).await
}
